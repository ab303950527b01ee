//! A layer between the controllers and the API that lets requests fail, on plan.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use apiserver::InProcess;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::Service;

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The process dies before it is sent.
    CrashBefore,
    /// The process dies when it is done, before it hears of it.
    CrashAfter,
    /// It is refused with this code.
    Refused(u16),
    /// It is done, and the caller is told that it failed.
    DoneButFailed(u16),
    /// Nothing is heard of it ever again.
    Unanswered,
    /// It is done twice, as by a proxy that tries again.
    Twice,
}

impl What {
    /// All of them, with every code that a server gives.
    pub const ALL: [Self; 13] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Refused(409),
        Self::Refused(422),
        Self::Refused(429),
        Self::Refused(500),
        Self::Refused(503),
        Self::Refused(504),
        Self::DoneButFailed(500),
        Self::DoneButFailed(503),
        Self::DoneButFailed(504),
        Self::Unanswered,
        Self::Twice,
    ];
}

/// One fault, at the write of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which write; the first is 1.
    pub at: u64,
    /// What happens to it.
    pub what: What,
}

/// How well the controllers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seeing {
    /// Watches are late by up to so many milliseconds.
    pub late_millis: u64,
    /// One event of so many is an end: the version is too old. Never, if nothing.
    pub expires: Option<u64>,
    /// One event of so many is cut off in its middle.
    pub cut: Option<u64>,
    /// A list after a restart is older than the newest by so many versions. While nothing is written, each list of a
    /// kind is half as old as the one before it: what lags behind catches up.
    pub old_lists: u64,
}

/// Everything that goes wrong in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What happens to writes.
    pub faults: Vec<Fault>,
    /// What is seen.
    pub seeing: Seeing,
    /// There are two of them all the time.
    pub two_leaders: bool,
    /// Versions get traffic before they are ready, on purpose: the checker must see that.
    pub without_gate: bool,
}

impl Plan {
    /// One fault and nothing else.
    pub fn one(fault: Fault) -> Self {
        Self { faults: vec![fault], ..Self::default() }
    }

    /// A few of everything, for a run of about so many writes.
    pub fn random(seed: u64, writes: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let faults = (0..random.u64(0..=3)).map(|_| Fault {
            at: random.u64(1..=writes.max(1) + 5),
            what: What::ALL[random.usize(..What::ALL.len())],
        });
        let mut faults: Vec<Fault> = faults.collect();
        faults.sort_by_key(|fault| fault.at);
        faults.dedup_by_key(|fault| fault.at);
        let seeing = Seeing {
            late_millis: if random.bool() { random.u64(1..=800) } else { 0 },
            expires: (random.u8(..4) == 0).then(|| random.u64(3..=12)),
            cut: (random.u8(..4) == 0).then(|| random.u64(3..=12)),
            old_lists: if random.u8(..3) == 0 { random.u64(1..=30) } else { 0 },
        };
        Self { faults, seeing, two_leaders: random.u8(..4) == 0, without_gate: false }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> =
            self.faults.iter().map(|fault| format!("{:?} at write {}", fault.what, fault.at)).collect();
        write!(f, "[{}]", faults.join(", "))?;
        if self.seeing != Seeing::default() {
            write!(f, " {:?}", self.seeing)?;
        }
        if self.two_leaders { f.write_str(" two leaders") } else { Ok(()) }
    }
}

/// What all incarnations of the controllers have in common.
pub(super) struct Shared {
    state: Mutex<State>,
    /// A process has died.
    pub(super) died: Notify,
}

struct State {
    plan: Plan,
    writes: u64,
    dead: Vec<u32>,
    random: fastrand::Rng,
    newest: u64,
    /// How often each incarnation listed each kind since the newest version.
    listed: BTreeMap<(u32, String), u32>,
    reached: BTreeMap<String, u64>,
    violations: Vec<String>,
    /// The digest of everything that was written and seen, in its order.
    digest: DefaultHasher,
}

impl Shared {
    pub(super) fn new(plan: Plan, seed: u64) -> Arc<Self> {
        let state = State {
            plan,
            writes: 0,
            dead: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            newest: 0,
            listed: BTreeMap::new(),
            reached: BTreeMap::new(),
            violations: Vec::new(),
            digest: DefaultHasher::new(),
        };
        Arc::new(Self { state: Mutex::new(state), died: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// From now on everything works and is seen at once.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        state.plan = Plan::default();
    }

    pub(super) fn is_dead(&self, incarnation: u32) -> bool {
        self.state().dead.contains(&incarnation)
    }

    pub(super) fn reached(&self) -> BTreeMap<String, u64> {
        self.state().reached.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    pub(super) fn digest(&self) -> u64 {
        self.state().digest.finish()
    }
}

/// The way of one incarnation of the controllers to the API.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) api: InProcess,
    pub(super) shared: Arc<Shared>,
    pub(super) incarnation: u32,
}

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

impl Service<Request<kube::client::Body>> for Way {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let way = self.clone();
        Box::pin(async move { way.go(request).await })
    }
}

impl Way {
    async fn go(mut self, request: Request<kube::client::Body>) -> Result<Response<Body>, tower::BoxError> {
        if self.shared.is_dead(self.incarnation) {
            return pending().await;
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let is_watch = head.uri.query().is_some_and(|query| query.contains("watch="));
        let is_read = head.method == Method::GET;
        let request = || {
            let mut request = Request::builder().method(head.method.clone()).uri(head.uri.clone());
            for (name, value) in &head.headers {
                request = request.header(name, value);
            }
            request.body(Full::new(bytes.clone()))
        };
        if is_read {
            let answer = self.api.call(self.older(request()?)).await?;
            return Ok(if is_watch { self.watch(answer) } else { answer });
        }
        self.check_preconditions(&head.method, head.uri.path(), &bytes);
        let what = self.next_write();
        (self.incarnation, head.method.as_str(), head.uri.path(), &bytes)
            .hash(&mut self.shared.state().digest);
        match what {
            Some(What::CrashBefore) => return self.die().await,
            Some(What::Refused(code)) => return Ok(refusal(code)),
            Some(What::Unanswered) => return pending().await,
            _ => {}
        }
        let answer = self.api.call(request()?).await?;
        let answer = self.remember(answer).await?;
        match what {
            Some(What::CrashAfter) => self.die().await,
            Some(What::DoneButFailed(code)) => Ok(refusal(code)),
            Some(What::Twice) => Ok(self.api.call(request()?).await?),
            _ => Ok(answer),
        }
    }

    /// Counts a write, and says what is to happen to it.
    fn next_write(&self) -> Option<What> {
        let mut state = self.shared.state();
        state.writes += 1;
        let at = state.writes;
        let what = state.plan.faults.iter().find(|fault| fault.at == at).map(|fault| fault.what);
        if let Some(what) = what {
            *state.reached.entry(format!("{what:?}")).or_default() += 1;
        }
        what
    }

    async fn die(&self) -> Result<Response<Body>, tower::BoxError> {
        self.shared.state().dead.push(self.incarnation);
        self.shared.died.notify_one();
        pending().await
    }

    /// Whatever takes away or changes says which object it means.
    fn check_preconditions(&self, method: &Method, path: &str, bytes: &Bytes) {
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let is_event = path.contains("/events");
        let says = match *method {
            Method::DELETE => body["preconditions"]["uid"].is_string(),
            Method::PATCH => body["metadata"]["uid"].is_string(),
            Method::PUT => {
                body["metadata"]["uid"].is_string() && body["metadata"]["resourceVersion"].is_string()
            }
            _ => true,
        };
        if !says && !is_event {
            let mut state = self.shared.state();
            state.violations.push(format!("C11: {method} {path} does not say which object it means"));
        }
    }

    /// The newest version that an answer speaks of.
    async fn remember(&self, answer: Response<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes)?;
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let mut state = self.shared.state();
        if version.is_some_and(|version| version > state.newest) {
            state.newest = version.unwrap_or_default();
            state.listed.clear();
        }
        drop(state);
        Ok(Response::from_parts(head, Full::new(bytes).boxed_unsync()))
    }

    /// A list as it was a while ago, for an incarnation that begins.
    fn older(&self, request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let mut state = self.shared.state();
        let query = request.uri().query().unwrap_or_default();
        let is_list = !query.contains("watch=") && query.contains("limit=");
        if !is_list || self.incarnation == 1 || query.contains("continue=") {
            return request;
        }
        let listed = (self.incarnation, request.uri().path().to_owned());
        let before = state.listed.entry(listed).or_default();
        let halved = *before;
        *before += 1;
        let by = state.plan.seeing.old_lists.checked_shr(halved).unwrap_or_default();
        let at = state.newest.saturating_sub(by);
        if by == 0 || at == 0 {
            return request;
        }
        *state.reached.entry("old list".to_owned()).or_default() += 1;
        drop(state);
        let (mut head, body) = request.into_parts();
        let rest: Vec<&str> =
            query_of(&head.uri).split('&').filter(|part| !part.starts_with("resourceVersion")).collect();
        let uri =
            format!("{}?{}&resourceVersion={at}&resourceVersionMatch=Exact", head.uri.path(), rest.join("&"));
        if let Ok(uri) = uri.parse() {
            head.uri = uri;
        }
        Request::from_parts(head, body)
    }

    /// A watch that is late, ends early or breaks off. Never out of order: no cluster does that.
    fn watch(&self, answer: Response<Body>) -> Response<Body> {
        let (head, body) = answer.into_parts();
        let shared = Arc::clone(&self.shared);
        let frames = body.into_data_stream().filter_map(|frame| async move { frame.ok() });
        let frames = disturbed(frames, shared, self.incarnation);
        let body = StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes))));
        Response::from_parts(head, BodyExt::boxed_unsync(body))
    }
}

fn query_of(uri: &http::Uri) -> &str {
    uri.query().unwrap_or_default()
}

fn disturbed(
    frames: impl Stream<Item = Bytes> + Send + 'static,
    shared: Arc<Shared>,
    incarnation: u32,
) -> impl Stream<Item = Bytes> + Send {
    let frames = Box::pin(frames);
    stream::unfold((frames, shared, false), move |(mut frames, shared, over)| async move {
        if over {
            return None;
        }
        let frame = frames.next().await?;
        let (wait, end) = {
            let mut state = shared.state();
            (incarnation, &frame).hash(&mut state.digest);
            let seeing = state.plan.seeing;
            let wait = if seeing.late_millis > 0 { state.random.u64(..seeing.late_millis) } else { 0 };
            let mut one_of = |times: Option<u64>| times.is_some_and(|times| state.random.u64(..times) == 0);
            let end = if one_of(seeing.expires) {
                Some("410")
            } else if one_of(seeing.cut) {
                Some("cut")
            } else {
                None
            };
            if wait > 0 {
                *state.reached.entry("late event".to_owned()).or_default() += 1;
            }
            if let Some(end) = end {
                *state.reached.entry(format!("watch {end}")).or_default() += 1;
            }
            (Duration::from_millis(wait), end)
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let frame = match end {
            Some("410") => expired(),
            Some(_) => frame.slice(..frame.len() / 2),
            None => frame,
        };
        Some((frame, (frames, shared, end.is_some())))
    })
}

fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault on plan", "reason": reason, "code": code,
    });
    let mut response = Response::new(Full::new(Bytes::from(status.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
