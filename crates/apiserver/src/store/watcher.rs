//! A watch of one resource.

use std::sync::{Arc, RwLock};

use tokio::sync::Notify;

use super::{Event, Resource, RevisionError, read, state::State};

/// A position in the history of one resource. It buffers no events: a slow watcher costs nothing, and gets the error
/// `Expired` when the history no longer holds its position.
pub struct Watcher {
    state: Arc<RwLock<State>>,
    resource: Resource,
    seen: u64,
    wakeups: Arc<Notify>,
}

impl Watcher {
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        resource: Resource,
        seen: u64,
        wakeups: Arc<Notify>,
    ) -> Self {
        Self { state, resource, seen, wakeups }
    }

    /// The next event, when there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, RevisionError> {
        loop {
            let wakeups = Arc::clone(&self.wakeups);
            // Made before the read: a write after the read wakes the watcher.
            let written = wakeups.notified();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            written.await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, RevisionError> {
        let event = read(&self.state).event_after(&self.resource, self.seen)?;
        if let Some(event) = &event {
            self.seen = event.revision();
        }
        Ok(event)
    }

    /// The newest revision that a bookmark may name: a watch from there gets every event that this watcher has not
    /// returned yet.
    pub fn progress(&self) -> Result<u64, RevisionError> {
        read(&self.state).progress(&self.resource, self.seen)
    }
}
