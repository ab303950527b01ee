//! HTTP: one request, from a client to the endpoint that was chosen for it, and the answer back.
//!
//! Bodies stream both ways, nothing is kept. A request that could not be sent goes to another endpoint; one of which
//! something was sent never does: it may have been done.
mod body;
mod headers;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use self::body::{Measured, Received, Upload};
use crate::{
    counters::Cause,
    live::{Live, Miss, Visit},
    pool::{Body, Limits, Unanswered},
    routes::{Head, Rule},
    settings::Settings,
};

/// In every answer that is the gateway's own: what went wrong, in one word.
pub const REASON: &str = "x-segue-reason";

/// Answers the requests that come in at one site.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub live: Arc<Live>,
    pub settings: Arc<Settings>,
    pub site: SocketAddr,
}

impl Proxy {
    /// Never fails: what goes wrong is an answer.
    pub async fn answer(
        self,
        client: SocketAddr,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let (rule, visit) = match self.live.choose(self.site, &Head::of(&request)) {
            Ok(chosen) => chosen,
            Err(Miss::NoRule) => return Ok(own(StatusCode::NOT_FOUND, "no-route")),
            Err(Miss::Failed(cause)) => return Ok(failure(cause)),
        };
        let upgrade = headers::wants_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
        headers::to_server(&mut request, client, upgrade.is_some());
        headers::change(request.headers_mut(), &rule.request_headers);
        let (head, body) = request.into_parts();
        let received = Received::new(body);
        let upload = received.upload();
        let request = Request::from_parts(head, received.boxed_unsync());

        match self.send(request, visit, &upload, rule.timeout).await {
            Ok((response, visit, connection)) => {
                visit.tell(|tally| tally.answered(response.status()));
                let answer = Answer { response, visit, connection, upload };
                Ok(answer.pass_on(&rule, upgrade))
            }
            Err(cause) => Ok(failure(cause)),
        }
    }

    /// Sends the request to its endpoint, or to others as long as nothing of it was sent.
    async fn send(
        &self,
        mut request: Request<Body>,
        mut visit: Visit,
        upload: &Upload,
        limit: Option<Duration>,
    ) -> Result<(Response<Incoming>, Visit, crate::pool::Connection), Cause> {
        let limits = Limits { connect: self.settings.connect, idle: self.settings.idle };
        let mut retries = self.settings.retries;
        let deadline = limit.map(|limit| Instant::now() + limit);
        // Counts for the visit when this future is dropped too: by a client that went away.
        let mut guard = Unfinished(None);
        loop {
            let endpoint = Arc::clone(&visit.endpoint);
            let visiting = guard.0.insert(visit);
            let sending = endpoint.pool.send(endpoint.address, request, limits);
            let sent = match deadline {
                Some(deadline) => timeout_at(deadline, sending).await,
                None => Ok(sending.await),
            };
            let Ok(sent) = sent else {
                visiting.tell(|tally| tally.failed(Cause::TimedOut));
                guard.0 = None;
                return Err(Cause::TimedOut);
            };
            match sent {
                Ok((response, connection)) => {
                    endpoint.refused(false);
                    let visit = guard.0.take().ok_or(Cause::Reset)?;
                    return Ok((response, visit, connection));
                }
                // Dropped as it is, the visit counts as given up.
                Err(Unanswered::Lost) if upload.is_broken() => return Err(Cause::Reset),
                Err(Unanswered::Lost) => {
                    visiting.tell(|tally| tally.failed(Cause::Reset));
                    guard.0 = None;
                    return Err(Cause::Reset);
                }
                Err(Unanswered::Unsent(unsent)) => {
                    endpoint.refused(true);
                    let refused = guard.0.take().ok_or(Cause::Refused)?;
                    let next = if retries > 0 { self.live.elsewhere(refused) } else { Err(refused) };
                    match next {
                        Ok(next) => {
                            retries -= 1;
                            visit = next;
                            request = *unsent;
                        }
                        Err(refused) => {
                            refused.tell(|tally| tally.failed(Cause::Refused));
                            return Err(Cause::Refused);
                        }
                    }
                }
            }
        }
    }
}

/// A visit without an answer. Dropped with one inside, somebody gave up.
struct Unfinished(Option<Visit>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(visit) = &self.0 {
            visit.tell(crate::counters::Tally::cancelled);
        }
    }
}

struct Answer {
    response: Response<Incoming>,
    visit: Visit,
    connection: crate::pool::Connection,
    upload: Arc<Upload>,
}

impl Answer {
    fn pass_on(mut self, rule: &Rule, upgrade: Option<OnUpgrade>) -> Response<Body> {
        let switching = self.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        headers::to_client(self.response.headers_mut(), switching);
        headers::change(self.response.headers_mut(), &rule.response_headers);
        if let (true, Some(client)) = (switching, upgrade) {
            let server = hyper::upgrade::on(&mut self.response);
            let (head, _) = self.response.into_parts();
            tokio::spawn(tunnel(client, server, self.visit));
            return Response::from_parts(head, empty());
        }
        let (head, body) = self.response.into_parts();
        let body = Measured::new(body, self.visit, self.connection, self.upload);
        Response::from_parts(head, body.boxed_unsync())
    }
}

/// After a switch of protocols: bytes, until both sides have ended.
async fn tunnel(client: OnUpgrade, server: OnUpgrade, visit: Visit) {
    if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        if let Ok((up, down)) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
            visit.tell(|tally| {
                tally.received(up);
                tally.sent(down);
            });
        }
    }
}

fn failure(cause: Cause) -> Response<Body> {
    let status = match cause {
        Cause::NoEndpoint => StatusCode::SERVICE_UNAVAILABLE,
        Cause::Invalid => StatusCode::INTERNAL_SERVER_ERROR,
        Cause::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Cause::Refused | Cause::Reset | Cause::Truncated => StatusCode::BAD_GATEWAY,
    };
    own(status, cause.word())
}

fn own(status: StatusCode, reason: &'static str) -> Response<Body> {
    let text = Full::new(Bytes::from_static(reason.as_bytes())).map_err(|never| match never {});
    let mut response = Response::new(text.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(REASON, HeaderValue::from_static(reason));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}
