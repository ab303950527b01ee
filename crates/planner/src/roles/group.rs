//! The next writes for one group.

use crate::{
    Reason, Time, Uid,
    roles::{
        explain,
        observed::{Group, Replica, State},
        position::Position,
        spec::{GroupSpec, Recovery, RoleHash},
        tally::Tally,
    },
};

/// Whether the upgrade may work in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It may.
    Admitted,
    /// Others come first.
    Waiting,
    /// Its ordinal is below the partition: it stays at the revision that it recorded.
    Protected,
}

/// A write. Each is idempotent: a repetition finds the name taken, the replica out already, or another uid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Make a replica.
    Create {
        /// Its role.
        role: String,
        /// Its ordinal, which nothing occupies.
        ordinal: u32,
        /// The hash to make it with.
        hash: RoleHash,
    },
    /// Take a replica out of service. It drains, and is deleted after.
    TakeOut {
        /// Its role.
        role: String,
        /// Its ordinal.
        ordinal: u32,
        /// The incarnation that was decided on.
        uid: Uid,
    },
    /// Delete a replica that does not serve.
    Delete {
        /// Its role.
        role: String,
        /// Its ordinal.
        ordinal: u32,
        /// The incarnation that was decided on.
        uid: Uid,
        /// The state that it was decided on. A replica that was seen starting and is Ready by now must not be deleted.
        seen: State,
    },
}

impl Op {
    /// The first write of a retirement: a serving replica drains before it is deleted, any other is deleted at once.
    fn retire(replica: &Replica) -> Self {
        let Replica { role, ordinal, uid, state, .. } = replica.clone();
        match state {
            State::Ready => Self::TakeOut { role, ordinal, uid },
            seen => Self::Delete { role, ordinal, uid, seen },
        }
    }
}

/// Where a group is in its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepState {
    /// The step, from 0; from the number of steps on, the implicit tail.
    pub index: usize,
    /// Its role.
    pub role: String,
    /// How many replicas must be updated and Ready.
    pub required: u32,
    /// How many are.
    pub satisfied: u32,
    /// A later step has already begun, so this one was met and no longer is.
    pub regressed: bool,
}

/// What to do in a group now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The writes. Any prefix of them is safe.
    pub ops: Vec<Op>,
    /// Why these, or what is waited for.
    pub reason: Reason,
    /// The first step that is not met.
    pub step: Option<StepState>,
    /// Every replica is there, at its target and Ready, and nothing else is.
    pub done: bool,
}

/// Why an outdated replica is not replaced although its step asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Budget,
    Gang,
}

/// The next writes for a group whose turn it is or is not.
pub fn plan_group(spec: &GroupSpec, group: &Group, turn: Turn, now: Time) -> Plan {
    let tallies = Tally::all(spec, group);
    let position = Position::of(spec, group, &tallies, turn);
    let mut ops: Vec<Op> = tallies.iter().flat_map(Tally::drained).map(Op::retire).collect();
    if let Some(rebuild) = rebuild(spec, group) {
        ops.extend(rebuild);
        return Plan { ops, reason: explain::rebuilding(group), step: position.state(&tallies), done: false };
    }
    let gone = tallies.iter().flat_map(|tally| tally.surplus.iter().chain(&tally.failed));
    ops.extend(gone.map(|replica| Op::retire(replica)));
    let ends = position.complete() && turn == Turn::Admitted;
    // A role that was dropped is kept up until the last step is met, and not a moment longer: what is made then would be
    // taken away again.
    let is_kept = |(_, tally): &(usize, &Tally<'_>)| tally.target.is_some() || !ends;
    for (role, tally) in tallies.iter().enumerate().filter(is_kept) {
        fill(tally, position.allowed(role, tally), &mut ops);
    }
    let (replaced, hold) = replacements(&tallies, &position, turn);
    ops.extend(replaced.iter().map(|replica| Op::retire(replica)));
    if ends {
        let dropped = tallies.iter().filter(|tally| tally.target.is_none()).flat_map(|tally| &tally.stay);
        ops.extend(dropped.map(|replica| Op::retire(replica)));
    }
    let done = position.complete() && tallies.iter().all(Tally::settled);
    let scene = explain::Explainer { spec, group, tallies: &tallies, position: &position, turn, now };
    let reason = scene.reason(&ops, &replaced, hold, done);
    Plan { ops, reason, step: position.state(&tallies), done }
}

/// The writes that take a whole group away.
pub(super) fn retire_group(group: &Group) -> Vec<Op> {
    let mut replicas: Vec<_> = group.replicas.iter().collect();
    replicas.sort_by_key(|replica| (&replica.role, replica.ordinal));
    let due = |replica: &&Replica| replica.stays() || replica.state == State::Leaving { done: true };
    replicas.into_iter().filter(due).map(Op::retire).collect()
}

/// After a failure the whole group goes, where the policy is so. The failed replica goes last: as long as it is there,
/// a process that starts in the middle sees that the others have to go as well. Who remembers the failure elsewhere
/// marks all of them, also those that serve.
fn rebuild(spec: &GroupSpec, group: &Group) -> Option<Vec<Op>> {
    let failed = |replica: &Replica| replica.failed && replica.stays();
    if spec.recovery != Recovery::Group || !group.replicas.iter().any(failed) {
        return None;
    }
    let mut stay: Vec<_> = group.replicas.iter().filter(|replica| replica.stays()).collect();
    stay.sort_by_key(|replica| (&replica.role, replica.ordinal));
    let (last, first): (Vec<_>, Vec<_>) = stay.into_iter().partition(|replica| failed(replica));
    let going = if first.is_empty() { last } else { first };
    Some(going.into_iter().map(Op::retire).collect())
}

/// Creates what is missing. Slots that are still occupied take the updated replicas first (they were emptied for the
/// upgrade), then missing ones from the highest ordinal, as replacements go: so one lost replica is never a second
/// canary.
fn fill(tally: &Tally<'_>, allowed: u32, ops: &mut Vec<Op>) {
    let mut missing = tally.missing();
    let occupied = tally.vacant().saturating_sub(u32::try_from(missing.len()).unwrap_or(u32::MAX));
    let updated = tally.assigned(allowed).saturating_sub(occupied) as usize;
    if tally.old.is_some() {
        missing.reverse();
    }
    for (place, ordinal) in missing.into_iter().enumerate() {
        let hash = if place < updated { tally.target } else { tally.old };
        // A role that the group never had waits for its step.
        if let Some(hash) = hash {
            ops.push(Op::Create { role: tally.name.to_owned(), ordinal, hash: hash.clone() });
        }
    }
}

/// The replicas that the current step replaces now, and what keeps it from the next one.
fn replacements<'a>(
    tallies: &[Tally<'a>],
    position: &Position,
    turn: Turn,
) -> (Vec<&'a Replica>, Option<Hold>) {
    let mut replaced = Vec::new();
    let Some((role, goal)) = position.current().filter(|_| turn == Turn::Admitted) else {
        return (replaced, None);
    };
    let tally = &tallies[role];
    // Those on their way count, or every look at a canary that still loads would cost one more.
    let lacking = goal.saturating_sub(tally.updated() + tally.assigned(goal)) as usize;
    let mut ready = tally.ready();
    for replica in tally.outdated_in_order().into_iter().take(lacking) {
        if replica.ready() {
            if ready <= tally.floor() {
                return (replaced, Some(if tally.held_by_gang() { Hold::Gang } else { Hold::Budget }));
            }
            ready -= 1;
        }
        replaced.push(replica);
    }
    (replaced, None)
}
