//! What people are told of an object, once and not over and over.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use planner::Time;
use tokio::time::timeout;

use super::{Context, write::LONGEST};

/// The same is not told again for so long. What is told again later counts up the event that is there.
const AGAIN: Duration = Duration::from_mins(5);

/// Who tells.
pub(super) struct Voice {
    recorder: Recorder,
    /// What was told of whom, and when.
    told: Mutex<BTreeMap<String, Time>>,
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voice").finish_non_exhaustive()
    }
}

impl Voice {
    pub(super) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: "segue".to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter), told: Mutex::default() }
    }

    /// Whether this is news; from now on it is none.
    fn is_news(&self, what: String, now: Time) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| *at + AGAIN > now);
        told.insert(what, now).is_none()
    }

    fn forget(&self, what: &str) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }
}

impl Context {
    /// Tells people what happens to an object. An event that cannot be written is no reason to stop.
    pub async fn tell(
        &self,
        object: &impl Resource<DynamicType = ()>,
        warning: bool,
        reason: &str,
        note: String,
    ) {
        self.tell_of(object, warning, ("Reconcile", reason), note).await;
    }

    /// The same, with what was done: events of one reason and one action are counted together.
    pub async fn tell_of(
        &self,
        object: &impl Resource<DynamicType = ()>,
        warning: bool,
        what: (&str, &str),
        note: String,
    ) {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        let told = format!("{uid} {} {note}", what.1);
        if self.voice.is_news(told.clone(), self.now()) && !self.announce(object, warning, what, note).await {
            self.voice.forget(&told);
        }
    }

    /// Tells of something that has just happened, also if the same happened a moment ago. Says whether it was heard.
    pub async fn announce(
        &self,
        object: &impl Resource<DynamicType = ()>,
        warning: bool,
        (action, reason): (&str, &str),
        note: String,
    ) -> bool {
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let published = timeout(LONGEST, self.voice.recorder.publish(&event, &object.object_ref(&()))).await;
        matches!(published, Ok(Ok(())))
    }
}
