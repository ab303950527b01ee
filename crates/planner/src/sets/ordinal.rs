//! Members with a place of their own: ordinals below replicas, replaced in place; surge lives above.

use crate::{
    sets::{
        SetSpec, State, Unit,
        ledger::{Ledger, Why},
    },
    units::Revision,
};

/// Plans, and says whether all is as wanted.
pub(super) fn plan(ledger: &mut Ledger) -> bool {
    let spec = ledger.spec;
    let settled = settled(ledger);
    if settled && ledger.units.len() == spec.replicas as usize {
        return true;
    }
    ledger.replace_broken(|unit| is_outdated(spec, unit));
    create_members(ledger);
    add_surge(ledger);
    retire_surplus(ledger, settled);
    update_ready(ledger);
    false
}

/// The revision that belongs at a place. Above the members there is only surge, at the target.
fn wanted(spec: &SetSpec, ordinal: u32) -> Revision {
    if ordinal < spec.partition && ordinal < spec.replicas { spec.old } else { spec.target }
}

/// Below the partition only what never served is put right. A serving unit there may be of the target, where the
/// partition was raised to stop a rollout: it is left alone, as `StatefulSets` do.
fn is_outdated(spec: &SetSpec, unit: &Unit) -> bool {
    let held = unit.ordinal < spec.partition.min(spec.replicas);
    unit.state.is_live()
        && unit.revision != wanted(spec, unit.ordinal)
        && (!held || unit.state == State::Starting)
}

/// Every member serves at its revision.
fn settled(ledger: &Ledger) -> bool {
    let members = ledger.units.iter().filter(|unit| unit.ordinal < ledger.spec.replicas);
    let good = members.filter(|unit| unit.state == State::Ready && !is_outdated(ledger.spec, unit));
    good.count() == ledger.spec.replicas as usize
}

fn create_members(ledger: &mut Ledger) {
    for ordinal in 0..ledger.spec.replicas {
        let revision = wanted(ledger.spec, ordinal);
        if !ledger.in_use(ordinal) && !ledger.create(ordinal, revision, Why::Missing) {
            return;
        }
    }
}

/// Surge stands in for members that serve and must go; it is no use for those that do not.
fn add_surge(ledger: &mut Ledger) {
    let spec = ledger.spec;
    let to_update = ledger.units.iter().filter(|unit| to_update(spec, unit)).count();
    let surge = spec.budget.surge.min(u32::try_from(to_update).unwrap_or(u32::MAX));
    for ordinal in spec.replicas..spec.replicas.saturating_add(surge) {
        if !ledger.in_use(ordinal) && !ledger.create(ordinal, spec.target, Why::Surge) {
            return;
        }
    }
}

fn to_update(spec: &SetSpec, unit: &Unit) -> bool {
    unit.ordinal < spec.replicas && unit.state == State::Ready && is_outdated(spec, unit)
}

/// What is above the members goes from the top. Surge of the target stays until every member serves: reclaiming it by
/// number alone takes what carries the traffic (LWS bug 6.2).
fn retire_surplus(ledger: &mut Ledger, settled: bool) {
    let spec = ledger.spec;
    let surge_end = spec.budget.ceiling(spec.replicas);
    for unit in ledger.units.iter().rev().take_while(|unit| unit.ordinal >= spec.replicas) {
        let outdated = unit.revision != spec.target;
        let surplus = settled || outdated || unit.ordinal >= surge_end;
        // What is outdated and does not serve has been seen to already.
        if surplus && unit.state.is_live() && !(outdated && unit.state != State::Ready) {
            ledger.retire(unit, Why::Surplus);
        }
    }
}

fn update_ready(ledger: &mut Ledger) {
    let spec = ledger.spec;
    for unit in ledger.units.iter().rev().filter(|unit| to_update(spec, unit)) {
        if !ledger.retire(unit, Why::Outdated) {
            return;
        }
    }
}
