//! N units with a budget: which to create, which to take out of service, which to delete, and what is waited for.
//!
//! # Guarantees
//! - **Ceiling**: units of every state, the terminating ones included, never exceed replicas + surge by what a plan
//!   creates. Ordinals that are created are always below that number, and a name exists once, so not even two leaders
//!   with different views exceed it.
//! - **Floor**: a serving unit is taken out only if replicas - unavailable still serve when the whole plan is done.
//!   Serving is measured.
//! - **Fix forward**: an outdated unit that does not serve is replaced at once, before any that serves; a new revision
//!   pre-empts a stuck one.
//! - **Partition**: below it nothing that serves is replaced, and what is missing comes back at the old revision.
//! - The same observation gives the same plan, in whatever order the units are listed.
//!
//! # Assumptions
//! What executes the ops sends, with each `TakeOut` and `Delete`, the uid *and* the version of the unit that was
//! observed, and does not send them once the set's own spec has changed. The uid alone is not enough: a unit that was
//! seen starting may serve by now. Both are shown in `tests/sets_explored.rs`, where either one missing breaks the floor.
//!
//! # Which revision a lost unit comes back at
//! A unit that failed and is still known (by a pod or by its record in status) is [`State::Lapsed`] at its own revision,
//! and [`crate::units`] rebuilds it there. The set replaces it by the target only where that cannot erode the service:
//! no unit of the target is itself unready, or the floor holds without it. A member of which nothing is known any more
//! is created at the revision that is wanted at its place: a unit that was chosen and deleted and a unit that vanished
//! look the same, and going forward is the only rule that never replaces one twice.

mod any;
mod ledger;
mod ordinal;
mod rehearsal;

pub use self::rehearsal::{Moment, rehearse};
use crate::{Budget, Reason, Time, Uid, sets::ledger::Ledger, units::Revision};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetSpec {
    /// How many units.
    pub replicas: u32,
    /// The room while they are replaced.
    pub budget: Budget,
    /// So many units stay at the old revision: the ordinals below it or, without fixed ordinals, this number.
    pub partition: u32,
    /// The revision to go to.
    pub target: Revision,
    /// The revision of the units that the partition keeps.
    pub old: Revision,
    /// Whether a unit has a place of its own.
    pub identity: Identity,
    /// What a unit is called in reasons: `group`, or `replica`.
    pub noun: &'static str,
}

/// What distinguishes one unit from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Members are the ordinals below replicas; one is replaced at its own place, and surge lives above
    /// (`LeaderWorkerSet`).
    Ordinal,
    /// Any unit is as good as another; ordinals are only names (the children of a handover).
    Any,
}

/// A unit, as observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Its place, and its name.
    pub ordinal: u32,
    /// Its incarnation: a later unit of the same name has another.
    pub uid: Uid,
    /// The one revision of all its pods.
    pub revision: Revision,
    /// What it does.
    pub state: State,
    /// What it costs to delete it, compared to others: the cheap ones go first. Only without fixed ordinals.
    pub deletion_cost: i32,
}

/// What a unit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Made, and never in service so far.
    Starting,
    /// It was in service and is not ready now. It may come back by itself.
    Lapsed,
    /// Ready and in service.
    Ready,
    /// Out of service for good, finishing what it has.
    Leaving {
        /// Nothing is left to finish, or the time for it is over.
        done: bool,
    },
    /// Deleted, and not gone yet: its devices are not free.
    Terminating,
}

impl State {
    /// Whether it is there to stay.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Lapsed | Self::Ready)
    }
}

/// One write. Names and uids make a repeated or a late one do nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Make the unit of this name, unless there is one.
    Create {
        /// Its name.
        ordinal: u32,
        /// The revision of all its pods.
        revision: Revision,
    },
    /// Out of service, for good: the first of the two writes that retire a unit.
    TakeOut {
        /// Its name.
        ordinal: u32,
        /// The incarnation that is meant.
        uid: Uid,
    },
    /// Delete: the second write, or the only one for a unit that does not serve.
    Delete {
        /// Its name.
        ordinal: u32,
        /// The incarnation that is meant.
        uid: Uid,
    },
}

/// What to do now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Writes, in this order; any prefix of them is safe.
    pub ops: Vec<Op>,
    /// What is done or waited for.
    pub reason: Reason,
    /// Everything is as wanted, and nothing else exists.
    pub done: bool,
}

/// The next writes for this set. Nothing in it depends on the time yet; every planner takes it.
pub fn plan(spec: &SetSpec, units: &[Unit], _now: Time) -> Plan {
    let mut units: Vec<&Unit> = units.iter().collect();
    let place = |unit: &&'_ Unit| (unit.ordinal, unit.state == State::Terminating);
    units.sort_unstable_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.uid.cmp(&b.uid)));
    let mut ledger = Ledger::open(spec, &units);
    ledger.delete_drained();
    let done = match spec.identity {
        Identity::Ordinal => ordinal::plan(&mut ledger),
        Identity::Any => any::plan(&mut ledger),
    };
    ledger.close(done)
}
