//! Following one resource.

use std::{
    future::pending,
    sync::{Arc, RwLock},
};

use tokio::sync::watch;

use super::{Event, OutOfReach, Resource, read, state::State};

/// A place in the history of one resource. It holds no events of its own: a slow watcher costs nothing, and is told
/// when what it has not seen yet is forgotten.
pub struct Watcher {
    state: Arc<RwLock<State>>,
    resource: Resource,
    seen: u64,
    news: watch::Receiver<()>,
}

impl Watcher {
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        resource: Resource,
        seen: u64,
        news: watch::Receiver<()>,
    ) -> Self {
        Self { state, resource, seen, news }
    }

    /// The next event, when there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, OutOfReach> {
        loop {
            // Before looking: what is written after the look then wakes.
            self.news.mark_unchanged();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if self.news.changed().await.is_err() {
                // The state that this holds also holds the sender.
                pending::<()>().await;
            }
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, OutOfReach> {
        let event = read(&self.state).event_after(&self.resource, self.seen)?;
        if let Some(event) = &event {
            self.seen = event.revision();
        }
        Ok(event)
    }

    /// The newest revision that a bookmark may name: whoever watches from there misses nothing that this watcher has
    /// not been given yet.
    pub fn progress(&self) -> Result<u64, OutOfReach> {
        read(&self.state).progress(&self.resource, self.seen)
    }
}
