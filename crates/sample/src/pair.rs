//! A prefill and its decodes: one takes a request, another answers it, and both must speak the same protocol.
use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Empty, StreamBody};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{sleep, timeout},
};

use crate::{Settings, answer::Body};

/// The protocol that a prefill asks in and a decode answers in.
pub const PROTOCOL: HeaderName = HeaderName::from_static("x-sample-protocol");
/// The version of the prefill that asks.
pub const PREFILL: HeaderName = HeaderName::from_static("x-sample-prefill");

/// How often all decodes are tried. The list of them may be a moment old.
const ROUNDS: u32 = 3;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(2);

/// A number in a header, if it is one.
fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Why a decode does not answer this request, if it does not: it was asked in another protocol than its own. Clients that
/// speak none are answered.
pub fn refusal(asked: &HeaderMap, protocol: u32) -> Option<String> {
    let theirs = number(asked, &PROTOCOL).filter(|theirs| *theirs != protocol)?;
    Some(format!(
        "this decode speaks protocol {protocol} and the prefill that asks speaks protocol {theirs}; ask a decode of \
         the prefill's own version"
    ))
}

/// Why a decode gave no answer. Nothing of one was passed on, so another decode may be asked.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error("it does not answer: {0}")]
    Away(#[from] io::Error),
    #[error("it broke off before its first byte: {0}")]
    Broken(#[from] hyper::Error),
    #[error("it is not ready")]
    NotReady,
    #[error("it speaks {}, this prefill speaks protocol {ours}", protocol(*.theirs))]
    Refused { ours: u32, theirs: Option<u32> },
}

fn protocol(spoken: Option<u32>) -> String {
    spoken.map_or_else(|| "no protocol".to_owned(), |number| format!("protocol {number}"))
}

/// No decode took a request: why not, each.
#[derive(Debug, thiserror::Error)]
#[error("no decode took the request; {}", .0.join("; "))]
pub struct NoDecode(Vec<String>);

/// What a prefill knows of its decodes.
#[derive(Debug, Default)]
pub struct Decodes {
    turn: AtomicUsize,
    /// How often one was met that speaks another protocol.
    pub refused: AtomicU64,
}

impl Decodes {
    /// Has a request answered, by the first decode from the one whose turn it is that can. Completions change nothing, so
    /// one that ended without its first byte is asked for again elsewhere.
    pub async fn answer(&self, settings: &Settings, path: &str) -> Result<Response<Body>, NoDecode> {
        let mut tried = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 {
                sleep(BETWEEN_ROUNDS).await;
            }
            tried.clear();
            for decode in self.in_turn(&settings.decodes).await {
                match ask(settings, decode, path).await {
                    Ok(response) => return Ok(response),
                    Err(why) => {
                        let refused = matches!(why, Unanswered::Refused { .. });
                        self.refused.fetch_add(refused.into(), Relaxed);
                        tried.push(format!("{decode}: {why}"));
                    }
                }
            }
        }
        if tried.is_empty() {
            tried.push(format!("there is nobody at {}", settings.decodes.join(", ")));
        }
        Err(NoDecode(tried))
    }

    /// All who have one of the names now, from the one whose turn it is.
    async fn in_turn(&self, names: &[String]) -> Vec<SocketAddr> {
        let mut found = Vec::new();
        for name in names {
            // A name that nobody has yet, or any more, is none.
            found.extend(lookup_host(name).await.into_iter().flatten());
        }
        found.sort_unstable();
        found.dedup();
        let first = self.turn.fetch_add(1, Relaxed).checked_rem(found.len()).unwrap_or_default();
        found.rotate_left(first);
        found
    }
}

/// Asks one decode, and returns once it has begun to answer.
async fn ask(settings: &Settings, decode: SocketAddr, path: &str) -> Result<Response<Body>, Unanswered> {
    let stream = timeout(CONNECT, TcpStream::connect(decode)).await.map_err(io::Error::from)??;
    // Tokens are small and must not wait for each other.
    drop(stream.set_nodelay(true));
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends by itself: when the answer is over or nobody waits for it any more.
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(header::HOST, decode.to_string())
        .header(PROTOCOL, settings.protocol)
        .header(PREFILL, &settings.version)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let (head, mut body) = sender.send_request(request).await?.into_parts();
    if head.status == StatusCode::SERVICE_UNAVAILABLE {
        return Err(Unanswered::NotReady);
    }
    let theirs = number(&head.headers, &PROTOCOL);
    if theirs != Some(settings.protocol) {
        return Err(Unanswered::Refused { ours: settings.protocol, theirs });
    }
    let first = body.frame().await.transpose()?;
    let frames = stream::iter(first.map(Ok)).chain(BodyStream::new(body));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_decode_refuses_another_protocol_and_nobody_else() {
        let asked = |value: &'static str| HeaderMap::from_iter([(PROTOCOL, HeaderValue::from_static(value))]);
        assert_eq!(refusal(&HeaderMap::new(), 2), None);
        assert_eq!(refusal(&asked("2"), 2), None);
        let said = refusal(&asked("1"), 2).unwrap();
        assert!(said.contains("speaks protocol 2") && said.contains("speaks protocol 1"), "{said}");
    }

    #[tokio::test]
    async fn decodes_take_turns_and_each_is_one_whatever_its_names() {
        let decodes = Decodes::default();
        let names =
            ["no.such.name.invalid:1", "127.0.0.1:9", "127.0.0.1:9", "127.0.0.2:9"].map(str::to_owned);
        let [one, other] = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], 9)));
        assert_eq!(decodes.in_turn(&names).await, [one, other]);
        assert_eq!(decodes.in_turn(&names).await, [other, one]);
        assert!(decodes.in_turn(&names[..1]).await.is_empty());
    }
}
