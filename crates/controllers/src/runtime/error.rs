//! What can go wrong with a request.

use std::fmt;

use super::{Key, api::LONGEST};

/// A request for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVerb {
    /// Making it.
    Create,
    /// Reading it.
    Get,
    /// Reading it, and others of its kind.
    List,
    /// Being told of its changes.
    Watch,
    /// Making it what it should be.
    Apply,
    /// Changing fields of it.
    Change,
    /// Setting its labels back.
    Label,
    /// Writing its status.
    WriteStatus,
    /// Setting one of its conditions.
    SetCondition,
    /// Deleting it.
    Delete,
}

impl fmt::Display for ApiVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Apply => "apply",
            Self::Change => "change",
            Self::Label => "label",
            Self::WriteStatus => "write the status of",
            Self::SetCondition => "set a condition of",
            Self::Delete => "delete",
        })
    }
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object changed since it was observed: it is observed again.
    #[error("failed to {verb} {kind} {key}: it changed meanwhile")]
    Stale {
        /// The request that failed.
        verb: ApiVerb,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
    },
    /// An object of this name has another owner: it is left alone.
    #[error("failed to create {kind} {key}: it exists and has another owner; rename one of the two")]
    NotOwned {
        /// The kind.
        kind: &'static str,
        /// Which one.
        key: Key,
    },
    /// The API said no, or nothing.
    #[error("failed to {verb} {kind} {key}: {}", said(.source))]
    Refused {
        /// The request that failed.
        verb: ApiVerb,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API did not say anything in time; it may have done it.
    #[error("failed to {verb} {kind} {key}: no answer within {} s", LONGEST.as_secs())]
    Unanswered {
        /// The request that failed.
        verb: ApiVerb,
        /// On what kind.
        kind: &'static str,
        /// On which object.
        key: Key,
    },
    /// Objects cannot be seen; nothing is done before they can.
    #[error("failed to {verb} {kind}s{}: {}", within(.namespace), said(.source))]
    ListOrWatchFailed {
        /// The request that failed.
        verb: ApiVerb,
        /// On what kind.
        kind: &'static str,
        /// Where; empty for everywhere.
        namespace: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object that cannot be read as what it should be.
    #[error("failed to read {what}: {why}")]
    Malformed {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Whether the API may accept the same write later without a change to the object.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.code == 429 || status.code >= 500,
                _ => true,
            },
            _ => true,
        }
    }

    /// A word for metrics, and for what to do: what is stale is tried again at once.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::NotOwned { .. } => "foreign",
            Self::Refused { .. } => "refused",
            Self::Unanswered { .. } => "unanswered",
            Self::Malformed { .. } => "malformed",
            Self::ListOrWatchFailed { .. } => "unseen",
        }
    }
}

/// What the API said, in its own words and nothing else.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn within(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" of namespace {namespace}") }
}
