//! The answer of `segue why`, as JSON has it.

use jiff::Timestamp;
use planner::Code;
use serde::Serialize;

/// What `segue why` says of an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Why {
    pub(super) object: String,
    pub(super) namespace: String,
    pub(super) now: Timestamp,
    pub(super) state: State,
    /// The message of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    pub(super) waits: Vec<Wait>,
    /// The conditions that say what is wrong, or what has no effect.
    pub(super) conditions: Vec<Condition>,
    /// The pods that are not ready.
    pub(super) pods: Vec<BlockedPod>,
    /// The events, the latest first.
    pub(super) events: Vec<Event>,
    /// The commands that help.
    pub(super) next: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum State {
    /// Nothing is left to do.
    Idle,
    /// Something is under way.
    Working,
    /// Progress has stopped until a cause outside is gone.
    Stalled,
    /// Its last update failed, and nothing is done until a person answers that.
    Failed,
    /// A person aborted its last update, and nothing is done until a person retries it or asks for another version.
    Aborted,
    /// A person has paused it.
    Paused,
    /// No controller has observed the spec.
    NotSeen,
    /// Another operator made its pods, and they are not adopted.
    NotAdopted,
    /// It is being deleted.
    Deleting,
}

/// A wait.
#[derive(Debug, Default, Serialize)]
pub(super) struct Wait {
    /// What is under way.
    pub(super) what: String,
    /// What is waited for.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub(super) what_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// The deadline, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) then: Option<String>,
    /// Why it waits, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl Wait {
    /// Whether it is the pause of a strategy, or a preview: a person may end it.
    pub(super) fn ends_by_promotion(&self) -> bool {
        let reason = self.reason.as_deref();
        [Code::Paused, Code::Previewing].iter().any(|code| reason == Some(code.as_str()))
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) ty: String,
    /// The object that has the condition, if that is a child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
    /// The generation that the condition is about.
    #[serde(skip)]
    pub(super) generation: Option<i64>,
    /// Whether the condition stops all progress.
    #[serde(skip)]
    pub(super) stalls: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct BlockedPod {
    pub(super) name: String,
    pub(super) why: String,
    pub(super) since: Option<Timestamp>,
    pub(super) restarts: i32,
}

#[derive(Debug, Serialize)]
pub(super) struct Event {
    pub(super) at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) about: String,
}
