//! What is wanted of a group.

use std::{fmt, time::Duration};

use crate::Amount;

/// The identity of a role's template at one revision. Replicas, budgets and partitions are no part of it; the number of
/// workers is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleHash(pub String);

impl fmt::Display for RoleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A role as the spec has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSpec {
    /// Its name.
    pub name: String,
    /// How many replicas of it each group has.
    pub replicas: u32,
    /// The hash that its replicas shall have.
    pub target: RoleHash,
    /// How many replicas may be missing because of the upgrade. There is no surge inside a group, so 0 could never move
    /// and counts as 1.
    pub max_unavailable: u32,
    /// The gang minimum: an upgrade takes no Ready replica that would leave fewer, where the role has more than this.
    pub min_replicas: Option<u32>,
}

/// A step: this many replicas of a role, cumulative, are updated and Ready before the next step begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The role.
    pub role: String,
    /// How many, or which share of the role's replicas.
    pub update_to: Amount,
}

impl Step {
    /// How many of `replicas` must be updated and Ready. A share rounds up, so that any share above nothing is at least
    /// one replica and 100 % is all; more than there are is all.
    pub fn required(&self, replicas: u32) -> u32 {
        self.update_to.ceil_of(replicas).min(replicas)
    }
}

/// What follows a genuine failure of a replica. Deletions of ours are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The role replica is made anew.
    #[default]
    Role,
    /// The whole group is made anew, at one revision.
    Group,
    /// Nothing is deleted.
    None,
}

/// What is wanted of every group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its roles, in the order of the spec.
    pub roles: Vec<RoleSpec>,
    /// The steps. After the last one all that is still outdated follows, role by role in the order of the spec; without
    /// steps that is all there is. A step of an unknown role is met.
    pub steps: Vec<Step>,
    /// What follows a failure.
    pub recovery: Recovery,
    /// How long a step may wait before its reason says that it is overdue. Nothing is decided by it.
    pub deadline: Option<Duration>,
}

/// A role at the revision that a group had before the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recorded {
    /// The role.
    pub role: String,
    /// Its hash then.
    pub hash: RoleHash,
    /// Its replicas then. Only a role that the spec no longer has needs them.
    pub replicas: u32,
}
