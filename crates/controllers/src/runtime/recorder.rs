//! Events: what people are told of an object. Each tells what happened last: the same words about the same object are
//! one event that counts, and other words are another event.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{api::events::v1::Event as ApiEvent, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use planner::Time;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Context, FIELD_MANAGER, api::LONGEST, timestamp};
use crate::digest::digest;

/// What goes on is not told again for so long.
const AGAIN: Duration = Duration::from_mins(5);

/// An event that was told longer ago is a new one. The API forgets events after an hour.
const SERIES: Duration = Duration::from_mins(30);

/// The limit of remembered events. Beyond it the counts of the oldest are dropped.
const MOST: usize = 4_096;

/// An event with a longer note is refused.
const LONGEST_NOTE: usize = 1_024;

/// The part of an object's name that is in the name of its events.
const LONGEST_NAME: usize = 200;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the event is a warning: a person should act.
    pub warning: bool,
    /// The action: `Create`, `Update`, `Delete`, `Reconcile`.
    pub action: &'static str,
    /// Why, in one word that clients match.
    pub reason: String,
    /// What happened, in a sentence.
    pub note: String,
}

impl Event {
    /// Something that went as it should.
    pub fn normal(action: &'static str, reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { warning: false, action, reason: reason.into(), note: note.into() }
    }

    /// An event that a person should act on.
    pub fn warning(action: &'static str, reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(action, reason, note) }
    }
}

/// An event that was written.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: u32,
    /// On the clock that never steps.
    last: Time,
}

/// Writes events, and remembers which.
pub(super) struct Recorder {
    client: Client,
    written: Mutex<BTreeMap<String, Written>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    pub(super) fn new(client: Client) -> Self {
        Self { client, written: Mutex::default() }
    }

    /// The event that this one is counted in, if there is one.
    fn known(&self, id: &str, now: Time) -> Option<Written> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, it| it.last + SERIES > now);
        written.get(id).cloned()
    }

    fn remember(&self, id: String, event: Written) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MOST
            && let Some(oldest) = written.iter().min_by_key(|(_, it)| it.last).map(|(id, _)| id.clone())
        {
            written.remove(&oldest);
        }
        written.insert(id, event);
    }

    async fn write(
        &self,
        object: &impl Resource<DynamicType = ()>,
        event: &Event,
        (now, elapsed): (Time, Time),
    ) {
        let id = id(object, event);
        let api: Api<ApiEvent> =
            Api::namespaced(self.client.clone(), object.meta().namespace.as_deref().unwrap_or("default"));
        let known = self.known(&id, elapsed);
        if let Some(Written { name, count, .. }) = known {
            let count = count + 1;
            let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(timestamp(now))}});
            let parameters = PatchParams::default();
            let counted = timeout(LONGEST, api.patch(&name, &parameters, &Patch::Merge(series))).await;
            if matches!(counted, Ok(Ok(_))) {
                return self.remember(id, Written { name, count, last: elapsed });
            }
            // It may be gone: the API keeps events for a while only.
        }
        let name = name(object, &id, now);
        let body = serde_json::from_value(body(object, event, &name, now));
        let Ok(body) = body else { return };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        if let Ok(Ok(_)) = timeout(LONGEST, api.create(&parameters, &body)).await {
            self.remember(id, Written { name, count: 1, last: elapsed });
        }
    }
}

/// What makes two events the same.
fn id(object: &impl Resource<DynamicType = ()>, event: &Event) -> String {
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    format!("{uid} {} {} {}", event.action, event.reason, event.note)
}

/// A name that no other event has.
fn name(object: &impl Resource<DynamicType = ()>, id: &str, now: Time) -> String {
    let mut name = object.name_any();
    name.truncate(name.floor_char_boundary(LONGEST_NAME));
    format!("{name}.{}{:x}", digest(&json!(id)), now.as_nanos())
}

fn body(object: &impl Resource<DynamicType = ()>, event: &Event, name: &str, now: Time) -> Value {
    let mut note = event.note.clone();
    note.truncate(note.floor_char_boundary(LONGEST_NOTE));
    json!({
        "metadata": {"name": name, "namespace": object.meta().namespace.as_deref().unwrap_or("default")},
        "action": event.action,
        "eventTime": MicroTime(timestamp(now)),
        "note": note,
        "reason": event.reason,
        "regarding": object.object_ref(&()),
        "reportingController": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
        "type": if event.warning { "Warning" } else { "Normal" },
    })
}

impl Context {
    /// Tells that something has happened, also if the same happened a moment ago. An event that cannot be written is no
    /// reason to stop.
    pub async fn record(&self, object: &impl Resource<DynamicType = ()>, event: Event) {
        self.recorder.write(object, &event, (self.now(), self.elapsed())).await;
    }

    /// Tells that something goes on, once in a while.
    pub async fn record_at_intervals(&self, object: &impl Resource<DynamicType = ()>, event: Event) {
        let known = self.recorder.known(&id(object, &event), self.elapsed());
        if known.is_none_or(|known| known.last + AGAIN <= self.elapsed()) {
            self.record(object, event).await;
        }
    }
}
