//! What every plan of a set must respect, written without looking at how it is made.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::time::Duration;

use planner::{
    Budget, Uid,
    sets::{Identity, Op, Plan, SetSpec, State, Unit, plan},
    units::Revision,
};

pub const A: Revision = Revision(0);
pub const B: Revision = Revision(1);
pub const C: Revision = Revision(2);

pub fn mk_spec(identity: Identity, replicas: u32, surge: u32, unavailable: u32) -> SetSpec {
    SetSpec {
        replicas,
        budget: Budget { surge, unavailable },
        partition: 0,
        target: B,
        old: A,
        identity,
        noun: "group",
    }
}

pub fn mk_unit(ordinal: u32, revision: Revision, state: State) -> Unit {
    Unit { ordinal, uid: Uid(ordinal.to_string()), revision, state, deletion_cost: 0 }
}

/// Plans and checks the plan; a broken rule is its own text.
pub fn checked(spec: &SetSpec, units: &[Unit]) -> (Plan, Option<&'static str>) {
    let made = plan(spec, units, Duration::ZERO);
    let broken = broken_rule(spec, units, &made);
    (made, broken)
}

fn broken_rule(spec: &SetSpec, units: &[Unit], made: &Plan) -> Option<&'static str> {
    let mut reversed = units.to_vec();
    reversed.reverse();
    let again = plan(spec, &reversed, Duration::from_secs(1000));
    let rules = [
        (again == *made, "the order of the list or the time changes the plan"),
        (ceiling_holds(spec, units, made), "C2: more than the ceiling is created"),
        (floor_holds(spec, units, made), "C1: the floor is broken by a plan"),
        (unready_first(spec, units, made), "C3: a unit that serves goes before one that does not"),
        (partition_holds(spec, units, made), "C5: the partition is not respected"),
        (names_are_free(units, made), "a name is used twice"),
        (surge_stays(spec, units, made), "6.2: surge is reclaimed while a member is missing"),
        (!made.done || matched(spec, units) && made.ops.is_empty(), "done, and not as wanted"),
        (made.done || !matched(spec, units), "as wanted, and not done"),
        (moves(units, made), "nothing is done and nothing is waited for"),
    ];
    rules.iter().find(|(holds, _)| !holds).map(|(_, text)| *text)
}

pub fn count(units: &[Unit], wanted: impl Fn(&Unit) -> bool) -> u32 {
    u32::try_from(units.iter().filter(|unit| wanted(unit)).count()).expect("should be few")
}

pub fn serving(units: &[Unit]) -> u32 {
    count(units, |unit| unit.state == State::Ready)
}

fn creates(made: &Plan) -> u32 {
    u32::try_from(made.ops.iter().filter(|op| matches!(op, Op::Create { .. })).count())
        .expect("should be few")
}

/// Whether a plan takes this unit out or deletes it.
pub fn takes(made: &Plan, unit: &Unit) -> bool {
    made.ops.iter().any(|op| match op {
        Op::TakeOut { uid, .. } | Op::Delete { uid, .. } => *uid == unit.uid,
        Op::Create { .. } => false,
    })
}

fn ceiling_holds(spec: &SetSpec, units: &[Unit], made: &Plan) -> bool {
    let all = count(units, |_| true);
    creates(made) == 0 || all + creates(made) <= spec.replicas + spec.budget.surge
}

fn floor_holds(spec: &SetSpec, units: &[Unit], made: &Plan) -> bool {
    let taken = count(units, |unit| unit.state == State::Ready && takes(made, unit));
    let in_one_write = |op: &Op| {
        let ready = |uid: &Uid| units.iter().any(|unit| unit.uid == *uid && unit.state == State::Ready);
        matches!(op, Op::Delete { uid, .. } if ready(uid))
    };
    let floor = spec.replicas.saturating_sub(spec.budget.unavailable);
    (taken == 0 || serving(units) - taken >= floor) && !made.ops.iter().any(in_one_write)
}

/// The revisions that a place may hold in the end.
fn wanted_at(spec: &SetSpec, ordinal: u32) -> Revision {
    if ordinal < spec.partition && ordinal < spec.replicas { spec.old } else { spec.target }
}

/// Outdated without doubt: for units without places, only where no partition keeps any.
fn surely_outdated(spec: &SetSpec, unit: &Unit) -> bool {
    match spec.identity {
        Identity::Ordinal => {
            unit.revision != wanted_at(spec, unit.ordinal)
                && (unit.ordinal >= spec.partition || unit.state == State::Starting)
        }
        Identity::Any => unit.revision != spec.target && (spec.partition == 0 || unit.revision != spec.old),
    }
}

fn unready_first(spec: &SetSpec, units: &[Unit], made: &Plan) -> bool {
    let outdated = || units.iter().filter(|unit| surely_outdated(spec, unit));
    let member = |unit: &Unit| spec.identity == Identity::Any || unit.ordinal < spec.replicas;
    let starting_go = outdated().all(|unit| unit.state != State::Starting || takes(made, unit));
    let serving_goes = outdated().any(|unit| unit.state == State::Ready && member(unit) && takes(made, unit));
    let unready_stays = outdated().any(|unit| unit.state == State::Lapsed && !takes(made, unit));
    starting_go && !(serving_goes && unready_stays)
}

fn partition_holds(spec: &SetSpec, units: &[Unit], made: &Plan) -> bool {
    let below = |ordinal: u32| ordinal < spec.partition.min(spec.replicas);
    let keep = spec.partition.min(spec.replicas);
    match spec.identity {
        Identity::Ordinal => {
            let created = made.ops.iter().all(|op| match op {
                Op::Create { ordinal, revision } => *revision == wanted_at(spec, *ordinal),
                _ => true,
            });
            let kept = units.iter().filter(|unit| below(unit.ordinal) && unit.state == State::Ready);
            created && kept.into_iter().all(|unit| !takes(made, unit))
        }
        Identity::Any if spec.old == spec.target => true,
        Identity::Any => {
            let old = |unit: &Unit| unit.state.is_live() && unit.revision == spec.old;
            let kept = count(units, |unit| old(unit) && !takes(made, unit));
            kept >= keep.min(count(units, old))
        }
    }
}

fn names_are_free(units: &[Unit], made: &Plan) -> bool {
    let mut names: Vec<u32> =
        made.ops.iter().filter(|op| matches!(op, Op::Create { .. })).map(Op::ordinal).collect();
    names.extend(units.iter().map(|unit| unit.ordinal));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() == all
}

fn surge_stays(spec: &SetSpec, units: &[Unit], made: &Plan) -> bool {
    let member = |ordinal: u32| units.iter().any(|unit| unit.ordinal == ordinal && unit.state.is_live());
    let missing = (0..spec.replicas).any(|ordinal| !member(ordinal));
    let surge = |unit: &Unit| {
        unit.state == State::Ready
            && unit.revision == spec.target
            && (spec.replicas..spec.replicas + spec.budget.surge).contains(&unit.ordinal)
    };
    spec.identity == Identity::Any || !missing || !units.iter().any(|unit| surge(unit) && takes(made, unit))
}

/// Either something is written, or something in the world is under way.
fn moves(units: &[Unit], made: &Plan) -> bool {
    made.done || !made.ops.is_empty() || units.iter().any(|unit| unit.state != State::Ready)
}

/// Everything serves at its revision, and nothing else exists.
pub fn matched(spec: &SetSpec, units: &[Unit]) -> bool {
    let whole = units.len() == spec.replicas as usize && units.iter().all(|unit| unit.state == State::Ready);
    let kept = if spec.old == spec.target { 0 } else { spec.partition.min(spec.replicas) };
    whole
        && match spec.identity {
            Identity::Ordinal => units.iter().all(|unit| {
                unit.ordinal < spec.replicas
                    && (unit.ordinal < spec.partition || unit.revision == spec.target)
            }),
            Identity::Any => {
                count(units, |unit| unit.revision == spec.target) == spec.replicas - kept
                    && count(units, |unit| unit.revision == spec.old) >= kept
            }
        }
}
