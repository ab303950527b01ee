//! HTTP: one request, from a client to the endpoint that was chosen for it, and the answer back.
//!
//! Bodies stream both ways, nothing is kept. A request that could not be sent goes to another endpoint; one of which
//! something was sent never does: it may have been done.
mod body;
mod copy;
mod headers;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use self::{
    body::{RequestBody, ResponseBody, Upload},
    copy::CopiedBody,
};
use crate::{
    counters::{Cause, Flow},
    pool::{Body, Connection, SendError, Timeouts},
    router::{Chosen, InFlight, NotRouted, Router},
    routes::{Backend, Head, Rule},
    settings::Settings,
};

pub use self::headers::forwarded_for;

/// In every answer that is the gateway's own: what went wrong, in one word.
pub const REASON: &str = "x-segue-reason";

/// How long a copy of a request may take where its route has no limit.
const LONGEST_COPY: Duration = Duration::from_mins(5);

/// What a request was sent to.
#[derive(Debug, Clone, Copy)]
pub enum Frontend {
    /// A listener of a Gateway: the rules of its routes decide.
    Gateway(SocketAddr),
    /// The cluster address of a Service: requests reach its endpoints as the client sent them.
    Service(SocketAddr),
}

/// Answers the requests that come in at one address and port.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub router: Arc<Router>,
    pub settings: Arc<Settings>,
    pub frontend: Frontend,
    /// The host that the client named to TLS, or nothing; none without TLS.
    pub server_name: Option<Arc<str>>,
    /// The address of the client, as servers are told it.
    pub client: HeaderValue,
}

impl Proxy {
    /// Never fails: what goes wrong is an answer.
    pub async fn answer(self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let Chosen { by, in_flight, mirrored } = match self.choose(&request) {
            Ok(chosen) => chosen,
            Err(NotRouted::NoRule) => return Ok(gateway_response(StatusCode::NOT_FOUND, "no-route")),
            Err(NotRouted::Misdirected) => {
                return Ok(gateway_response(StatusCode::MISDIRECTED_REQUEST, "misdirected"));
            }
            Err(NotRouted::Redirect(rule)) => return Ok(self.redirect(&rule, &request)),
            Err(NotRouted::Failed(cause)) => return Ok(failure(cause)),
        };
        let rule = by.as_ref().map(|(rule, _)| rule.as_ref());
        let backend = by.as_ref().and_then(|(rule, place)| rule.backends.get(*place));
        let limits = rule.map(Limits::of).unwrap_or_default();
        let upgrades = !in_flight.http2 && headers::wants_upgrade(request.headers());
        let upgrade = upgrades.then(|| hyper::upgrade::on(&mut request));
        headers::to_server(&mut request, upgrade.is_some());
        if let Some(rule) = rule {
            headers::forwarded(request.headers_mut(), &self.client, self.scheme());
            headers::change(request.headers_mut(), &rule.request_headers);
            if let Some(rewrite) = &rule.rewrite {
                headers::rewrite(&mut request, rewrite);
            }
        }
        let mut request = request.map(RequestBody::new);
        for copy in mirrored {
            if upgrade.is_some() {
                // There is one client to talk to.
                copy.withdraw();
            } else {
                self.mirror(&mut request, copy, limits);
            }
        }
        if let Some(backend) = backend {
            headers::change(request.headers_mut(), &backend.request_headers);
        }
        headers::set_version(&mut request, in_flight.http2);
        let upload = request.body().upload();
        match self.send(request.map(BodyExt::boxed_unsync), in_flight, upload, limits).await {
            Ok(answer) => Ok(answer.pass_on(rule, backend, upgrade)),
            Err(cause) => Ok(failure(cause)),
        }
    }

    fn choose(&self, request: &Request<Incoming>) -> Result<Chosen, NotRouted> {
        match self.frontend {
            Frontend::Gateway(listener) => {
                self.router.choose(listener, &Head::of(request), self.server_name.as_deref())
            }
            Frontend::Service(service) => {
                let in_flight = self.router.choose_in_service(service, Flow::Request);
                let mut in_flight = in_flight.ok_or(NotRouted::Failed(Cause::NoEndpoint))?;
                // The server gets what the client speaks.
                in_flight.http2 = request.version() == Version::HTTP_2;
                Ok(Chosen { by: None, in_flight, mirrored: Vec::new() })
            }
        }
    }

    fn scheme(&self) -> &'static str {
        if self.server_name.is_some() { "https" } else { "http" }
    }

    fn redirect(&self, rule: &Rule, request: &Request<Incoming>) -> Response<Body> {
        let mut response = Response::new(empty());
        if let (Some(redirect), Frontend::Gateway(listener)) = (&rule.redirect, self.frontend) {
            let host = Head::of(request).host();
            let location = redirect.location(self.scheme(), &host, listener.port(), request.uri());
            *response.status_mut() = StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::FOUND);
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(header::LOCATION, location);
            }
        }
        headers::change(response.headers_mut(), &rule.response_headers);
        response
    }

    /// Sends a copy of a request, and reads the answer for its counts alone.
    fn mirror(&self, request: &mut Request<RequestBody>, in_flight: InFlight, limits: Limits) {
        let mut copy: Request<CopiedBody> = Request::new(request.body_mut().copy());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        headers::set_version(&mut copy, in_flight.http2);
        let upload = copy.body().upload();
        // Nobody waits for it and would give it up, and its endpoint drains only when it has ended.
        let limits =
            Limits { deadline: limits.deadline.or_else(|| Some(Instant::now() + LONGEST_COPY)), ..limits };
        let proxy = self.clone();
        tokio::spawn(async move {
            let sent = proxy.send(copy.map(BodyExt::boxed_unsync), in_flight, upload, limits).await;
            let Ok(answer) = sent else { return };
            let mut body = answer.pass_on(None, None, None).into_body();
            while let Some(Ok(_)) = body.frame().await {}
        });
    }

    /// Sends the request to its endpoint, or to others as long as nothing of it was sent.
    async fn send(
        &self,
        mut request: Request<Body>,
        mut in_flight: InFlight,
        upload: Arc<Upload>,
        limits: Limits,
    ) -> Result<Answer, Cause> {
        let timeouts = Timeouts { connect: self.settings.connect, idle: self.settings.idle };
        let mut retries = self.settings.retries;
        // Also counts when this future is dropped, by a client that went away.
        let mut guard = Unanswered(None);
        loop {
            let (endpoint, http2) = (Arc::clone(&in_flight.endpoint), in_flight.http2);
            let waiting = guard.0.insert(in_flight);
            let sending = async {
                let (pool, address) = (&endpoint.pool, endpoint.address);
                if http2 {
                    return Ok((pool.send_stream(address, request, timeouts).await?, None));
                }
                let (response, connection) = pool.send(address, request, timeouts).await?;
                Ok((response, Some(connection)))
            };
            let deadline = limits.next();
            let sent = match deadline {
                Some(deadline) => timeout_at(deadline, sending).await,
                None => Ok(sending.await),
            };
            let Ok(sent) = sent else {
                waiting.ended();
                waiting.record(|counters| counters.failed(Cause::TimedOut));
                guard.0 = None;
                return Err(Cause::TimedOut);
            };
            match sent {
                Ok((response, connection)) => {
                    endpoint.refused(false);
                    let in_flight = guard.0.take().ok_or(Cause::Reset)?;
                    in_flight.record(|counters| counters.answered(response.status()));
                    return Ok(Answer { response, in_flight, connection, upload, deadline });
                }
                // Dropped as it is, the request counts as cancelled.
                Err(SendError::Lost) if upload.is_broken() => return Err(Cause::Reset),
                Err(SendError::Lost) => {
                    waiting.record(|counters| counters.failed(Cause::Reset));
                    guard.0 = None;
                    return Err(Cause::Reset);
                }
                Err(SendError::NotSent(not_sent)) => {
                    endpoint.refused(true);
                    let refused = guard.0.take().ok_or(Cause::Refused)?;
                    let next = if retries > 0 { self.router.choose_another(refused) } else { Err(refused) };
                    match next {
                        Ok(next) => {
                            retries -= 1;
                            in_flight = next;
                            request = *not_sent;
                        }
                        Err(refused) => {
                            refused.record(|counters| counters.failed(Cause::Refused));
                            return Err(Cause::Refused);
                        }
                    }
                }
            }
        }
    }
}

/// How long a request may take.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    deadline: Option<Instant>,
    /// The limit of one endpoint.
    attempt: Option<Duration>,
}

impl Limits {
    fn of(rule: &Rule) -> Self {
        Self { deadline: rule.timeout.map(|limit| Instant::now() + limit), attempt: rule.backend_timeout }
    }

    /// When the answer to an attempt that begins now has to be complete.
    fn next(self) -> Option<Instant> {
        let attempt = self.attempt.map(|limit| Instant::now() + limit);
        self.deadline.into_iter().chain(attempt).min()
    }
}

/// A request without an answer. Dropped with a request inside, the client gave up.
struct Unanswered(Option<InFlight>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(in_flight) = &mut self.0 {
            in_flight.ended();
            in_flight.record(crate::counters::Counters::cancelled);
        }
    }
}

struct Answer {
    response: Response<Incoming>,
    in_flight: InFlight,
    connection: Option<Connection>,
    upload: Arc<Upload>,
    deadline: Option<Instant>,
}

impl Answer {
    fn pass_on(
        mut self,
        rule: Option<&Rule>,
        backend: Option<&Backend>,
        upgrade: Option<OnUpgrade>,
    ) -> Response<Body> {
        let switching = self.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        *self.response.version_mut() = Version::HTTP_11;
        headers::to_client(self.response.headers_mut(), switching);
        // What the request passed last, the answer passes first.
        if let Some(backend) = backend {
            headers::change(self.response.headers_mut(), &backend.response_headers);
        }
        if let Some(rule) = rule {
            headers::change(self.response.headers_mut(), &rule.response_headers);
        }
        if let (true, Some(client)) = (switching, upgrade) {
            // How long a session lasts is its own affair.
            self.in_flight.first_byte();
            let server = hyper::upgrade::on(&mut self.response);
            let (head, _) = self.response.into_parts();
            tokio::spawn(tunnel(client, server, self.in_flight));
            return Response::from_parts(head, empty());
        }
        let (head, body) = self.response.into_parts();
        let body = ResponseBody::new(body, self.in_flight, self.connection, self.upload, self.deadline);
        Response::from_parts(head, body.boxed_unsync())
    }
}

/// After a switch of protocols: bytes, until both sides have ended.
async fn tunnel(client: OnUpgrade, server: OnUpgrade, in_flight: InFlight) {
    if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        if let Ok((up, down)) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
            in_flight.record(|counters| {
                counters.received(up);
                counters.sent(down);
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
    gateway_response(status, cause.word())
}

fn gateway_response(status: StatusCode, reason: &'static str) -> Response<Body> {
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
