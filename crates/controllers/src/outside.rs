//! The window to what is not in the API: what is observed there, and which calls are made.
//!
//! Nothing here waits. Calls are made in tasks of their own, and their answers come later: a reconcile never blocks on
//! a dashboard that does not answer.
//!
//! Calls and answers count when they are in the API: the pipeline passes answers to the status and to nothing else, and
//! makes the calls of a decision after the status of that decision is written. A restart in between makes the same
//! calls again, and decides on nothing that was forgotten.

mod calls;
mod reach;

use std::{collections::BTreeMap, fmt::Debug, net::IpAddr};

pub use calls::Calls;
pub(crate) use calls::is_answer;

use planner::Time;
pub use planner::handover::{checks::Answers, latencies::Latencies};
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use crate::runtime::Key;

/// What is outside the API. No function waits: an implementation works in its own tasks.
pub trait Outside: Debug + Send + Sync {
    /// Returns what the data plane does, where it is known.
    fn data_plane(&self) -> Option<DataPlane>;

    /// Changes whenever [`Self::data_plane`] has something new that matters: a table is served, or an endpoint that
    /// left has finished.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Makes these calls for an object, instead of all calls of before. A call that was answered is made again only
    /// under another id.
    fn tell(&self, _object: &ObjectId, _calls: &[Call]) {}

    /// Makes no more calls for an object that is gone or not served.
    fn forget(&self, _controller: &'static str, _key: &Key) {}

    /// Returns the answers to the calls of an object, the last of each target.
    fn heard(&self, _object: &ObjectId) -> Vec<Answer> {
        Vec::new()
    }

    /// Returns the objects whose calls were answered, as they are; nothing where no calls are made.
    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        None
    }
}

/// An object that calls are made for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// The controller whose object it is.
    pub controller: &'static str,
    /// Its namespace and name.
    pub key: Key,
    /// Its uid.
    pub uid: String,
}

/// A call to something outside the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The called party, by a name of the object's own: a cluster, a probe. The next call to the same target replaces
    /// this one.
    pub target: String,
    /// The identity of the call: the answer names it. A call is made once per id.
    pub id: String,
    /// The URL.
    pub url: String,
    /// The HTTP method: `GET`, `PUT`.
    pub method: &'static str,
    /// The body: JSON, or a text as it is.
    pub body: Option<Value>,
    /// What a good answer is.
    pub expects: Expects,
}

/// What a good answer to a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expects {
    /// Any status of success, with JSON.
    #[default]
    Json,
    /// Any status of success. The body is not read.
    Success,
    /// This status. The body is not read.
    Status(u16),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The target of the call.
    pub target: String,
    /// The id of the call.
    pub id: String,
    /// When it was answered, or given up.
    pub at: Time,
    /// The answer, or why there is none.
    pub result: Result<Value, String>,
}

/// What a data plane does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlane {
    /// The `controllerName` under which it answers for routes.
    pub controller: String,
    /// How many endpoints of a Service get new requests.
    pub ready: BTreeMap<Key, u32>,
    /// Requests and connections so far, by Service.
    pub requests: BTreeMap<Key, u64>,
    /// Requests and connections of the last seconds, by Service.
    pub recent_requests: BTreeMap<Key, u64>,
    /// Answers so far, by Service: all of them, and those that were errors of the server or did not come.
    pub answers: BTreeMap<Key, Answers>,
    /// How long the answers so far took, by Service: until their end.
    pub latencies: BTreeMap<Key, Latencies>,
    /// How long their first byte took, by Service.
    pub first_bytes: BTreeMap<Key, Latencies>,
    /// The endpoints, by address.
    pub endpoints: BTreeMap<IpAddr, Endpoint>,
}

/// An endpoint of a data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it gets new requests.
    pub in_service: bool,
    /// Requests and connections that it works on.
    pub in_flight: u64,
}
