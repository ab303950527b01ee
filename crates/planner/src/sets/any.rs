//! Units without a place of their own: so many of the target, so many of the old revision, whichever they are.

use std::cmp::Reverse;

use crate::{
    Uid,
    sets::{
        State, Unit,
        ledger::{Ledger, Why},
    },
};

/// Plans, and says whether all is as wanted.
pub(super) fn plan(ledger: &mut Ledger) -> bool {
    let spec = ledger.spec;
    let keep = keep(ledger);
    let held = held(ledger, keep);
    let is_outdated =
        |unit: &Unit| unit.state.is_live() && unit.revision != spec.target && !held.contains(&&unit.uid);
    let is_current = |unit: &Unit| unit.state.is_live() && unit.revision == spec.target;
    let current = ledger.units.iter().filter(|unit| is_current(unit)).count();
    let wanted = (spec.replicas - keep) as usize;
    let serve = ledger.units.iter().all(|unit| unit.state == State::Ready && !is_outdated(unit));
    if serve && ledger.units.len() == spec.replicas as usize && current == wanted {
        return true;
    }
    ledger.replace_broken(is_outdated);
    create(ledger, keep as usize - held.len(), wanted.saturating_sub(current));
    let outdated = |unit: &Unit| unit.state == State::Ready && is_outdated(unit);
    retire(ledger, outdated, usize::MAX, Why::Outdated);
    retire(ledger, is_current, current.saturating_sub(wanted), Why::Surplus);
    false
}

/// Retires so many, if the floor allows.
fn retire(ledger: &mut Ledger, victim: impl Fn(&Unit) -> bool, most: usize, why: Why) {
    let mut victims: Vec<&Unit> = ledger.units.iter().copied().filter(|unit| victim(unit)).collect();
    victims.sort_by_key(|unit| rank(unit));
    for unit in victims.into_iter().take(most) {
        ledger.retire(unit, why);
    }
}

/// How many stay at the old revision.
fn keep(ledger: &Ledger) -> u32 {
    let spec = ledger.spec;
    if spec.old == spec.target { 0 } else { spec.partition.min(spec.replicas) }
}

/// The units that the partition keeps: of the old revision, serving ones before others.
fn held<'a>(ledger: &Ledger<'a>, keep: u32) -> Vec<&'a Uid> {
    let old = ledger.spec.old;
    let old = |unit: &&Unit| unit.state.is_live() && unit.revision == old;
    let mut units: Vec<&Unit> = ledger.units.iter().copied().filter(old).collect();
    units.sort_by_key(|unit| Reverse(rank(unit)));
    units.iter().take(keep as usize).map(|unit| &unit.uid).collect()
}

/// Who goes first: what does not serve, then what is cheap, then the highest name.
fn rank(unit: &Unit) -> (State, i32, Reverse<u32>) {
    (unit.state, unit.deletion_cost, Reverse(unit.ordinal))
}

/// Takes the lowest names that are free. The old revision first: it is known to work.
fn create(ledger: &mut Ledger, old: usize, new: usize) {
    let spec = ledger.spec;
    let revisions = std::iter::repeat_n(spec.old, old).chain(std::iter::repeat_n(spec.target, new));
    let mut ordinal = 0;
    for revision in revisions {
        while ledger.in_use(ordinal) {
            ordinal += 1;
        }
        if !ledger.create(ordinal, revision, Why::Missing) {
            return;
        }
        ordinal += 1;
    }
}
