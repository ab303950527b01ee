//! What a writer asks for, and what it is told.

use std::sync::Arc;

use thiserror::Error;

use super::{Draft, Entry, Key};

/// One write with its precondition.
#[derive(Clone, Debug)]
pub struct Change {
    pub key: Key,
    pub write: Write,
}

#[derive(Clone, Debug)]
pub enum Write {
    /// Only where nothing is.
    Create(Draft),
    /// Only over that revision.
    Update { over: u64, draft: Draft },
    /// Only of that revision. Watchers get the last object with the revision of the delete.
    Delete { over: u64, last: Draft },
}

impl Change {
    pub fn create(key: Key, draft: Draft) -> Self {
        Self { key, write: Write::Create(draft) }
    }

    pub fn update(key: Key, over: u64, draft: Draft) -> Self {
        Self { key, write: Write::Update { over, draft } }
    }

    pub fn delete(key: Key, over: u64, last: Draft) -> Self {
        Self { key, write: Write::Delete { over, last } }
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

/// Why a commit did not happen.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// The precondition does not hold; nothing of the commit was written.
    #[error("{}/{} is not what was expected", key.resource, key.place.name)]
    Changed { key: Key, current: Option<Arc<Entry>> },
    /// The log cannot be trusted any more. Whether this commit is in it is known after the next start.
    #[error("the store is read-only: {why}")]
    ReadOnly { why: Arc<str> },
}

/// Why a revision cannot be read or watched from.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OutOfReach {
    /// The history no longer reaches back that far.
    #[error("the revision is too old: the history starts at {oldest}")]
    Expired { oldest: u64 },
    #[error("the revision is in the future: the newest is {newest}")]
    Future { newest: u64 },
}
