//! The changes of a commit, and the errors of commits and reads.

use std::{fmt, sync::Arc};

use thiserror::Error;

use super::{Draft, Entry, Key};

/// One write with its precondition.
#[derive(Clone, Debug)]
pub struct Change {
    pub key: Key,
    pub write: Write,
    pub(super) clash: Option<Clash>,
}

/// Whether another object rules a write out.
#[derive(Clone)]
pub(super) struct Clash(pub(super) Arc<dyn Fn(&Entry) -> bool + Send + Sync>);

impl fmt::Debug for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clash")
    }
}

#[derive(Clone, Debug)]
pub enum Write {
    /// The key must be free.
    Create(Draft),
    /// The object must have the revision `over`.
    Update { over: u64, draft: Draft },
    /// The object must have the revision `over`. Watchers get the last object with the revision of the delete.
    Delete { over: u64, last: Draft },
}

impl Change {
    pub fn create(key: Key, draft: Draft) -> Self {
        Self { key, write: Write::Create(draft), clash: None }
    }

    pub fn update(key: Key, over: u64, draft: Draft) -> Self {
        Self { key, write: Write::Update { over, draft }, clash: None }
    }

    pub fn delete(key: Key, over: u64, last: Draft) -> Self {
        Self { key, write: Write::Delete { over, last }, clash: None }
    }

    /// The change, which is refused if `clash` holds for any other object of the resource when it is committed.
    #[must_use]
    pub fn unless_any(mut self, clash: Arc<dyn Fn(&Entry) -> bool + Send + Sync>) -> Self {
        self.clash = Some(Clash(clash));
        self
    }

    pub(super) fn len(&self) -> usize {
        match &self.write {
            Write::Create(draft) | Write::Update { draft, .. } | Write::Delete { last: draft, .. } => {
                draft.len()
            }
        }
    }
}

impl Write {
    /// The revision that must be there now; none: nothing may be there.
    pub(super) fn expected(&self) -> Option<u64> {
        match self {
            Self::Create(_) => None,
            Self::Update { over, .. } | Self::Delete { over, .. } => Some(*over),
        }
    }
}

/// Why a commit was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CommitError {
    /// The precondition does not hold; nothing of the commit was written.
    #[error("{}/{} is not what was expected", key.resource, key.place.name)]
    Conflict { key: Key, current: Option<Arc<Entry>> },
    /// Another object of the resource has what only one may have; nothing of the commit was written.
    #[error("{}/{} has what only one may have", with.resource, with.place.name)]
    Clash { with: Key },
    /// There was no room for it; nothing of the commit was written.
    #[error("nothing was stored: {why}")]
    Full { why: Arc<str> },
    /// Writing the log failed. Whether this commit is in it is known after the next start.
    #[error("the store is read-only: {why}")]
    ReadOnly { why: Arc<str> },
}

/// Why a revision cannot be read or watched from.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RevisionError {
    /// The history no longer holds the revision.
    #[error("the revision is too old: the history starts at {oldest}")]
    Expired { oldest: u64 },
    #[error("the revision is in the future: the newest is {newest}")]
    Future { newest: u64 },
}
