//! What is: the replicas of a group.

use crate::{
    Time, Uid,
    roles::spec::{Recorded, RoleHash},
};

/// What a role replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Not every pod is Ready: it starts, or it is broken.
    Starting,
    /// Every pod is Ready, and it serves.
    Ready,
    /// Taken out of service, and draining.
    Leaving {
        /// Nothing is in flight any more, or the time to drain is over.
        done: bool,
    },
    /// Deleted, and still there: it occupies its ordinal and its GPUs.
    Terminating,
}

impl State {
    /// The state of a replica in service of which `ready` pods are Ready, where its own revision has `workers` workers.
    pub fn of_pods(ready: u32, workers: u32) -> Self {
        if ready > workers { Self::Ready } else { Self::Starting }
    }
}

/// The pod that keeps a replica from being Ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocking {
    /// Its name.
    pub pod: String,
    /// What is wrong, for people.
    pub why: String,
}

/// A role replica: an entry and its workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    /// Its role.
    pub role: String,
    /// Its ordinal in the role.
    pub ordinal: u32,
    /// This incarnation: the uid of its entry pod.
    pub uid: Uid,
    /// The hash that it was made with.
    pub hash: RoleHash,
    /// What it is doing.
    pub state: State,
    /// Since when.
    pub since: Time,
    /// A genuine failure after which the replica shall be made anew now (restart policy and back-off have spoken).
    pub failed: bool,
    /// The sum of its pods' deletion costs.
    pub deletion_cost: i64,
    /// What keeps it from being Ready.
    pub blocking: Option<Blocking>,
}

impl Replica {
    pub(super) fn stays(&self) -> bool {
        matches!(self.state, State::Starting | State::Ready)
    }

    pub(super) fn ready(&self) -> bool {
        self.state == State::Ready
    }
}

/// A serving group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its ordinal in the set.
    pub ordinal: u32,
    /// The roles of the revision that it had before the upgrade, from the revision history. Empty for a fresh group.
    pub recorded: Vec<Recorded>,
    /// Its replicas, in any order.
    pub replicas: Vec<Replica>,
}
