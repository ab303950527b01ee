//! Role-ordered upgrades: the roles of a serving group are replaced in the order that the user wrote down, and each
//! step waits until enough replicas are both updated and Ready.
//!
//! A group has roles (decode, prefill), a role has replicas, and a role replica, its entry and its workers together, is
//! what is replaced. [`plan_group`] decides for one group, [`plan_set`] which groups may be in the upgrade at all.
//! Everything is derived from the spec and the replicas that live, so a restart at any point decides the same.
//!
//! # Guarantees
//! - A step starts replacements only while fewer replicas than it requires are updated *or on their way* there. The
//!   proposal read literally ("fewer updated and Ready than required: delete one") empties a role while its first
//!   canary is still loading.
//! - A Ready replica is taken out only while its role keeps `replicas - max_unavailable` Ready, and its gang minimum.
//!   Replicas that are not Ready go first and need no budget.
//! - A later step starts nothing while an earlier one is unmet; a step that falls back stops the later ones and takes
//!   out nothing more.
//! - A replica whose turn has not come and that crashes returns at its own revision; a reverted spec restarts nothing
//!   that was never upgraded.
//!
//! # Assumptions
//! - Writes carry the uid that they were decided on, and a [`Op::Delete`] is refused when the replica has become Ready
//!   since it was seen ([`Op::Delete::seen`]). So a stale observation costs nothing.
//! - A replica is Ready when all pods of *its own revision's* size are ([`State::of_pods`]); a change of the number of
//!   workers is a change of the role's hash and never adds workers to a living replica.
//!
//! # Pairing during the upgrade
//! Kthena's router pairs prefill and decode by `pdGroup.groupKey`, which is the group's name, and does not look at the
//! revision. Between the first and the last step it therefore pairs new prefill with old decode of the same group, and
//! the other way round: steps order the versions, they do not separate them. Versions that cannot talk to each other at
//! all need whole groups to be replaced (a second group set and a handover between them), not steps. Setting the key to
//! the revision label would pair like with like only if every pod of a group carried the new label, and a role that did
//! not change keeps its pods and their old label (no surprise restart is worth more), so we leave the key alone.

mod explain;
mod group;
mod observed;
mod position;
mod rehearsal;
mod set;
mod spec;
mod tally;

pub use self::{
    group::{Op, Plan, StepState, Turn, plan_group},
    observed::{Blocking, Group, Replica, State},
    rehearsal::{Moment, rehearse},
    set::{GroupPlan, SetPlan, SetSpec, plan_set},
    spec::{GroupSpec, Recorded, Recovery, RoleHash, RoleSpec, Step},
};
