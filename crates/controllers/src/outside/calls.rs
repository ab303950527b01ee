//! Calls over HTTP to what is outside the API.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, broadcast, watch},
    task::AbortHandle,
    time::timeout,
};

use super::{
    Answer, Call, DataPlane, Expects, ObjectId, Outside,
    reach::{AllowedTargets, Resolver},
};
use crate::{Clock, runtime::Key};

#[cfg(test)]
mod tests;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);

/// How long a call that only reads may take, with its connection and its answer.
const READ: Duration = Duration::from_secs(10);

/// The same of a call that changes something. The first config that a Ray dashboard gets starts Serve before it is answered;
/// a call that is given up is carried out there all the same, maybe after the next one.
const CHANGE: Duration = Duration::from_mins(1);

/// How many calls are made at once, for all objects.
const AT_ONCE: usize = 256;

/// The largest answer that is read, in bytes.
const LARGEST: usize = 8 << 20;

/// The largest part of a refusal that is repeated to people, in characters.
const QUOTED: usize = 300;

/// Makes the calls that controllers ask for, each in a task of its own.
///
/// # Guarantees
/// - No function waits.
/// - A target has at most one call in flight, so its calls arrive in the order of the decisions behind them. A call that was
///   replaced while it waited for its turn is never made.
/// - A target that does not answer delays no other target: its calls end after [`READ`] or [`CHANGE`].
#[derive(Clone, Debug)]
pub struct Calls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client<HttpConnector<Resolver>, Full<Bytes>>,
    reach: AllowedTargets,
    clock: Clock,
    targets: Mutex<BTreeMap<ObjectId, BTreeMap<String, Target>>>,
    permits: Semaphore,
    answered: broadcast::Sender<ObjectId>,
    /// Never changes: there is no data plane.
    changes: watch::Sender<u64>,
}

impl Default for Calls {
    fn default() -> Self {
        Self::new(Clock::default(), AllowedTargets::Machine)
    }
}

/// What is known of a target.
#[derive(Debug, Default)]
struct Target {
    /// The call that is to be made next.
    next: Option<Call>,
    /// The call that is being made.
    in_flight: Option<(String, AbortHandle)>,
    /// The last answer.
    answer: Option<Answer>,
}

impl Target {
    /// Whether a call is known already: answered last, in flight with no other behind it, or next.
    fn has(&self, id: &str) -> bool {
        match (&self.next, &self.in_flight, &self.answer) {
            (Some(next), _, _) => next.id == id,
            (None, Some((in_flight, _)), _) => in_flight == id,
            (None, None, Some(answer)) => answer.id == id,
            (None, None, None) => false,
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.in_flight {
            task.abort();
        }
    }
}

impl Calls {
    /// Calls of an operator in a cluster: nothing of its own machine is called.
    pub fn in_cluster() -> Self {
        Self::new(Clock::default(), AllowedTargets::Cluster)
    }

    /// Calls whose answers carry the time of this clock.
    fn new(clock: Clock, reach: AllowedTargets) -> Self {
        let mut connector = HttpConnector::new_with_resolver(Resolver::new(reach));
        connector.set_connect_timeout(Some(CONNECT));
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let answered = broadcast::channel(1024).0;
        let permits = Semaphore::new(AT_ONCE);
        let changes = watch::channel(0).0;
        Self(Arc::new(Inner { client, reach, clock, targets: Mutex::default(), permits, answered, changes }))
    }

    /// Starts the next call of a target that has none in flight.
    fn start(&self, object: &ObjectId, target: &mut Target) {
        if target.in_flight.is_some() {
            return;
        }
        let Some(call) = target.next.take() else { return };
        let id = call.id.clone();
        let (calls, object) = (self.clone(), object.clone());
        let task = tokio::spawn(async move {
            let result = calls.0.make(&call).await;
            calls.end(&object, call, result);
        });
        target.in_flight = Some((id, task.abort_handle()));
    }

    /// Stores an answer, and starts the call that has waited for it.
    fn end(&self, object: &ObjectId, call: Call, result: Result<Value, String>) {
        let mut all = self.0.targets();
        let Some(target) = all.get_mut(object).and_then(|targets| targets.get_mut(&call.target)) else {
            return;
        };
        target.in_flight = None;
        let at = (self.0.clock.wall)();
        target.answer = Some(Answer { target: call.target, id: call.id, at, result });
        self.start(object, target);
        drop(all);
        // Without a receiver there is no controller that waits.
        let _ = self.0.answered.send(object.clone());
    }
}

/// By itself this is the window of a cluster whose data plane tells nothing.
impl Outside for Calls {
    fn data_plane(&self) -> Option<DataPlane> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn tell(&self, object: &ObjectId, calls: &[Call]) {
        let mut all = self.0.targets();
        if calls.is_empty() {
            all.remove(object);
            return;
        }
        let targets = all.entry(object.clone()).or_default();
        targets.retain(|name, _| calls.iter().any(|call| call.target == *name));
        for call in calls {
            let target = targets.entry(call.target.clone()).or_default();
            if !target.has(&call.id) {
                // A call that is in flight again is not made twice; its answer is the one that is waited for.
                let in_flight = target.in_flight.as_ref().is_some_and(|(id, _)| *id == call.id);
                target.next = (!in_flight).then(|| call.clone());
            }
            self.start(object, target);
        }
    }

    fn forget(&self, controller: &'static str, key: &Key) {
        let first = ObjectId { controller, key: key.clone(), uid: String::new() };
        let mut all = self.0.targets();
        let of_it = |object: &ObjectId| object.controller == controller && object.key == *key;
        let found: Vec<_> =
            all.range(first..).map(|(object, _)| object.clone()).take_while(|object| of_it(object)).collect();
        for object in found {
            all.remove(&object);
        }
    }

    fn heard(&self, object: &ObjectId) -> Vec<Answer> {
        let all = self.0.targets();
        let targets = all.get(object).into_iter().flat_map(BTreeMap::values);
        targets.filter_map(|target| target.answer.clone()).collect()
    }

    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        Some(self.0.answered.subscribe())
    }
}

impl Inner {
    fn targets(&self) -> MutexGuard<'_, BTreeMap<ObjectId, BTreeMap<String, Target>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call: its answer, or what went wrong.
    async fn make(&self, call: &Call) -> Result<Value, String> {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let request = request(call)?;
        self.reach.check(request.uri().host().unwrap_or_default())?;
        let exchange = async { read(self.client.request(request).await, call.expects).await };
        let limit = if call.method == "GET" { READ } else { CHANGE };
        match timeout(limit, exchange).await {
            Ok(result) => result,
            Err(_) => Err(format!("{} did not answer within {} s", call.url, limit.as_secs())),
        }
    }
}

fn request(call: &Call) -> Result<Request<Full<Bytes>>, String> {
    let uri: Uri = call.url.parse().map_err(|error| format!("{:?} is no URL: {error}", call.url))?;
    let body = match &call.body {
        Some(Value::String(text)) => text.clone(),
        body => body.as_ref().map(Value::to_string).unwrap_or_default(),
    };
    let mut request =
        Request::builder().method(call.method).uri(uri).header(header::ACCEPT, "application/json");
    if call.body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(Full::from(body)).map_err(|error| error.to_string())
}

/// The beginning of what is said of an answer that is not a good one.
const ANSWERED: &str = "it answered ";

/// The same of one whose content cannot be read.
const NOT_JSON: &str = "its answer is not JSON";

/// Whether an error is an answer, and not the lack of one.
pub(crate) fn is_answer(why: &str) -> bool {
    why.starts_with(ANSWERED) || why.starts_with(NOT_JSON)
}

/// The content of a response, if it says that the call succeeded. Of a response whose status alone counts, it may be anything.
async fn read(
    response: Result<Response<Incoming>, hyper_util::client::legacy::Error>,
    expects: Expects,
) -> Result<Value, String> {
    let (head, body) = response.map_err(|error| causes(&error))?.into_parts();
    let bytes =
        Limited::new(body, LARGEST).collect().await.map_err(|error| causes(error.as_ref()))?.to_bytes();
    let is_good = match expects {
        Expects::Json | Expects::Success => head.status.is_success(),
        Expects::Status(expected) => head.status == expected,
    };
    if !is_good {
        let text: String = String::from_utf8_lossy(&bytes).trim().chars().take(QUOTED).collect();
        return Err(format!("{ANSWERED}{}: {text}", head.status));
    }
    if expects != Expects::Json || bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("{NOT_JSON}: {error}"))
}

/// An error with its causes: that of the client alone says only that it could not connect.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
