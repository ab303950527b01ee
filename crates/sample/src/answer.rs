//! What is asked, and what is answered.
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    Settings,
    counts::{Counted, InFlight, Tally},
    join::membership,
    pair::{Decodes, PREFILL, PROTOCOL, refusal},
};

/// How every whole stream ends; one that ends otherwise was cut.
pub const LAST_EVENT: &str = "data: [DONE]\n\n";

/// What it answers with; what it passes on may break.
pub type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Everything that an answer depends on.
#[derive(Debug)]
pub struct Model {
    pub settings: Settings,
    pub ready_at: Instant,
    pub tally: Arc<Tally>,
    /// It has no leader, or has joined it.
    pub joined: AtomicBool,
    /// One for itself and one for each member.
    pub members: Arc<()>,
    pub decodes: Decodes,
    pub stopped: watch::Receiver<bool>,
}

/// What a request for completions asks for in its query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    tokens: Option<u32>,
    status: Option<StatusCode>,
}

impl Wish {
    /// What cannot be read is not wished for.
    fn of(query: &str) -> Self {
        let mut wish = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "stream" => wish.tokens = value.parse().ok(),
                "status" => wish.status = value.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()),
                _ => {}
            }
        }
        wish
    }

    /// An answer that says so, in the form that is wished for.
    fn granted(&self, mut said: Value, token_gap: Duration) -> Response<Body> {
        match (self.status, self.tokens) {
            (Some(status), _) => {
                said["error"] = "as asked for".into();
                plain(status, &said)
            }
            (None, Some(tokens)) => events(said, tokens, token_gap),
            (None, None) => {
                said["text"] = "an answer".into();
                plain(StatusCode::OK, &said)
            }
        }
    }
}

impl Model {
    fn is_ready(&self) -> bool {
        Instant::now() >= self.ready_at && self.joined.load(Relaxed)
    }

    pub async fn answer<B>(self: Arc<Self>, request: Request<B>) -> Result<Response<Body>, Infallible> {
        Ok(match request.uri().path() {
            "/ready" if self.is_ready() => plain(StatusCode::OK, &json!("ready")),
            "/stats" => {
                let counts = self.tally.counts();
                plain(
                    StatusCode::OK,
                    &json!({
                        "version": counts.version,
                        "requests": counts.requests,
                        "inFlight": counts.in_flight,
                        "members": Arc::strong_count(&self.members) - 1,
                        "refused": self.decodes.refused.load(Relaxed),
                    }),
                )
            }
            "/join" if self.is_ready() => membership(Arc::clone(&self.members), self.stopped.clone()),
            "/ready" | "/join" => plain(StatusCode::SERVICE_UNAVAILABLE, &json!("loading")),
            "/v1/completions" => {
                let in_flight = InFlight::begin(&self.tally);
                let (head, body) = self.complete(&request.into_parts().0).await.into_parts();
                Response::from_parts(head, Counted::new(body, in_flight).boxed_unsync())
            }
            _ => plain(StatusCode::NOT_FOUND, &json!("there is no such path")),
        })
    }

    async fn complete(&self, asked: &Parts) -> Response<Body> {
        if !self.is_ready() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": "the model is being loaded"}));
        }
        if self.settings.decodes.is_empty() { self.decode(asked).await } else { self.prefill(asked).await }
    }

    /// Has a decode answer.
    async fn prefill(&self, asked: &Parts) -> Response<Body> {
        sleep(self.settings.latency).await;
        let path = asked.uri.path_and_query().map_or("/", |path| path.as_str());
        let answered = self.decodes.answer(&self.settings, path).await;
        answered.unwrap_or_else(|none| {
            let error = json!({"error": none.to_string(), "version": self.settings.version});
            plain(StatusCode::SERVICE_UNAVAILABLE, &error)
        })
    }

    /// Answers itself: a decode to its prefills, and a server that is neither.
    async fn decode(&self, asked: &Parts) -> Response<Body> {
        let Settings { version, protocol, latency, token_gap, .. } = &self.settings;
        let refused = refusal(&asked.headers, *protocol);
        let mut response = if let Some(why) = refused {
            plain(StatusCode::CONFLICT, &json!({"error": why, "version": version}))
        } else {
            sleep(*latency).await;
            let mut said = json!({"version": version});
            if let Some(prefill) = prefill_of(&asked.headers) {
                said["prefill"] = prefill.into();
            }
            Wish::of(asked.uri.query().unwrap_or_default()).granted(said, *token_gap)
        };
        response.headers_mut().insert(PROTOCOL, HeaderValue::from(*protocol));
        response
    }
}

/// The version of the prefill that asks, if one does.
fn prefill_of(asked: &HeaderMap) -> Option<&str> {
    asked.get(&PREFILL)?.to_str().ok()
}

fn plain(status: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{value}\n"))).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A stream of tokens, each when its time has come.
fn events(said: Value, tokens: u32, gap: Duration) -> Response<Body> {
    let events = stream::unfold(0, move |sent| {
        let mut token = said.clone();
        token["token"] = sent.into();
        async move {
            if sent > tokens {
                return None;
            }
            if sent > 0 {
                sleep(gap).await;
            }
            let event = if sent == tokens { LAST_EVENT.to_owned() } else { format!("data: {token}\n\n") };
            Some((Ok(Frame::data(Bytes::from(event))), sent + 1))
        }
    });
    let mut response = Response::new(StreamBody::new(Box::pin(events)).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_from_the_query() {
        assert_eq!(Wish::of(""), Wish::default());
        assert_eq!(Wish::of("stream=3"), Wish { tokens: Some(3), status: None });
        assert_eq!(
            Wish::of("status=500"),
            Wish { tokens: None, status: Some(StatusCode::INTERNAL_SERVER_ERROR) }
        );
        assert_eq!(Wish::of("stream=x&status=9&other"), Wish::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_takes_its_time_and_says_that_it_is_whole() {
        let began = Instant::now();
        let body = events(json!({"version": "v1"}), 3, Duration::from_secs(2))
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(text.matches("\"version\":\"v1\"").count(), 3, "{text}");
        assert!(text.ends_with(LAST_EVENT), "{text}");
        assert_eq!(began.elapsed().as_secs(), 6);
    }
}
