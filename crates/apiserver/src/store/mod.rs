//! Objects with their revisions and their recent history, in memory or also on disk.
//!
//! All of it is in memory; a durable store also keeps a log, and shows nothing that is not in it. One revision counts
//! all writes to all resources. Writes are checked, logged and made visible in `batch`es; `state` is what readers see;
//! `watcher` follows it; `writer` makes batches durable through the write-ahead log (`wal`), and `recovery` reads it.

mod batch;
mod change;
mod disk;
mod draft;
mod entry;
mod frame;
mod record;
mod recovery;
mod state;
mod wal;
mod watcher;
mod writer;

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use self::{
    batch::{Batch, Work},
    recovery::{Recovered, recover},
    state::{Page, Scope, State},
    writer::Writer,
};
pub use self::{
    change::{Change, CommitError, RevisionError, Write},
    disk::{Directory, Disk, DiskFile},
    draft::{Draft, NotADraft},
    entry::{Entry, Event, Key, Place, Resource},
    recovery::{OpenError, TornWrite},
    watcher::Watcher,
    writer::Health,
};

/// The limits of the event history of all resources together. The newest event is always kept.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub events: usize,
    pub bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 << 20 }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub history: History,
    /// A log shorter than this is not compacted.
    pub least_log: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { history: History::default(), least_log: 4 << 20 }
    }
}

/// What a list is to hold. The default is everything of the resource, now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    pub namespace: Option<&'a str>,
    /// As of this revision.
    pub at: Option<u64>,
    /// Only what sorts behind this place: where the page before ended.
    pub after: Option<&'a Place>,
    pub limit: Option<usize>,
}

/// The objects of a resource as of one revision, in the order of their places.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    pub revision: u64,
    pub items: Vec<(Place, Arc<Entry>)>,
    /// How many more there are behind the limit.
    pub remaining: usize,
}

/// A handle; clones are the same store. Dropping the last waits until what is queued is durable.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

struct Inner {
    state: Arc<RwLock<State>>,
    /// None: the store is only in memory.
    writer: Option<Writer>,
}

/// A durable store and how it was found.
pub struct Opened {
    pub store: Store,
    pub cut: Option<TornWrite>,
}

impl Store {
    /// A store that ends with the process. Commits happen in the caller, so a run on one thread repeats exactly.
    pub fn memory(history: History) -> Self {
        let state = State::new(0, BTreeMap::new(), history);
        Self(Arc::new(Inner { state: Arc::new(RwLock::new(state)), writer: None }))
    }

    /// The store of a directory, which is made if need be. Revisions go on where they ended; events from before are
    /// forgotten.
    pub fn open(path: &Path, settings: Settings) -> Result<Opened, OpenError> {
        Self::open_on(Box::new(Directory::open(path)?), settings)
    }

    pub fn open_on(disk: Box<dyn Disk>, settings: Settings) -> Result<Opened, OpenError> {
        let Recovered { revision, objects, cut, log } = recover(disk)?;
        let state = Arc::new(RwLock::new(State::new(revision, objects, settings.history)));
        let thread = |source| OpenError::Io { file: "the writer's thread".into(), source };
        let writer = Writer::start(Arc::clone(&state), log, settings.least_log).map_err(thread)?;
        Ok(Opened { store: Self(Arc::new(Inner { state, writer: Some(writer) })), cut })
    }

    /// Returns when the change is durable, with the object as it is now, or of a delete: as it was last. Once it is
    /// polled, dropping the future does not take the change back.
    pub async fn commit(&self, change: Change) -> Result<Arc<Entry>, CommitError> {
        self.commit_all(vec![change]).await.map(only)
    }

    /// All of the changes or none, each with a revision of its own. No reader and no crash sees some without the
    /// others, except a list of a revision in between.
    pub async fn commit_all(&self, changes: Vec<Change>) -> Result<Vec<Arc<Entry>>, CommitError> {
        self.work(Work::Changes(changes)).await
    }

    /// Drops all objects of a resource and its history. Its watchers get the error `Expired`.
    pub async fn drop_resource(&self, resource: &str) -> Result<(), CommitError> {
        self.work(Work::Drop(resource.into())).await.map(drop)
    }

    async fn work(&self, work: Work) -> Result<Vec<Arc<Entry>>, CommitError> {
        match &self.0.writer {
            Some(writer) => writer.commit(work).await,
            None => self.work_in_memory(work),
        }
    }

    fn work_in_memory(&self, work: Work) -> Result<Vec<Arc<Entry>>, CommitError> {
        let mut state = write(&self.0.state);
        let mut batch = Batch::over(&state);
        let staged = batch.stage(work);
        let steps = batch.into_steps();
        let wakeups = state.apply(steps);
        drop(state);
        wakeups.send();
        staged
    }

    pub fn revision(&self) -> u64 {
        read(&self.0.state).revision()
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        read(&self.0.state).get(key)
    }

    pub fn list(&self, resource: &str, query: &Query) -> Result<Listing, RevisionError> {
        let state = read(&self.0.state);
        let revision = query.at.unwrap_or_else(|| state.revision());
        if revision != state.revision() {
            state.reachable(resource, revision)?;
        }
        let limit = query.limit.unwrap_or(usize::MAX);
        let scope = Scope { namespace: query.namespace, after: query.after, limit };
        let Page { items, remaining } = state.page(resource, revision, &scope);
        Ok(Listing { revision, items, remaining })
    }

    /// Follows a resource from a revision on: the first event is the first after it.
    pub fn watch(&self, resource: &str, from: u64) -> Result<Watcher, RevisionError> {
        let resource: Resource = resource.into();
        let wakeups = write(&self.0.state).subscribe(&resource, from)?;
        Ok(Watcher::new(Arc::clone(&self.0.state), resource, from, wakeups))
    }

    /// How the store is, and how it changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.0.writer.as_ref().map_or_else(|| watch::channel(Health::default()).1, Writer::health)
    }
}

fn only(mut entries: Vec<Arc<Entry>>) -> Arc<Entry> {
    entries.pop().expect("should be one: one change was committed")
}

fn read(state: &RwLock<State>) -> RwLockReadGuard<'_, State> {
    state.read().expect("should not be poisoned: nothing panics under it")
}

fn write(state: &RwLock<State>) -> RwLockWriteGuard<'_, State> {
    state.write().expect("should not be poisoned: nothing panics under it")
}
