//! What a set promises, one by one, with the incident behind each.

mod sets_rules;

use std::time::Duration;

use planner::{
    Budget, Code, Uid,
    sets::{Identity, Op, Plan, SetSpec, State, Unit, plan},
    units::Revision,
};
use sets_rules::{A, B, C, checked, mk_spec, mk_unit};

const GONE: State = State::Terminating;
const LEAVING: State = State::Leaving { done: false };

fn ordinal(replicas: u32, surge: u32, unavailable: u32) -> SetSpec {
    mk_spec(Identity::Ordinal, replicas, surge, unavailable)
}

fn any(replicas: u32, surge: u32, unavailable: u32) -> SetSpec {
    mk_spec(Identity::Any, replicas, surge, unavailable)
}

/// Units at 0, 1, 2 and so on.
fn units(all: &[(Revision, State)]) -> Vec<Unit> {
    (0..).zip(all).map(|(ordinal, (revision, state))| mk_unit(ordinal, *revision, *state)).collect()
}

fn planned(spec: &SetSpec, units: &[Unit]) -> Plan {
    let (made, broken) = checked(spec, units);
    assert_eq!(broken, None, "{made:?}");
    made
}

fn create(ordinal: u32, revision: Revision) -> Op {
    Op::Create { ordinal, revision }
}

fn take_out(ordinal: u32) -> Op {
    Op::TakeOut { ordinal, uid: Uid(ordinal.to_string()) }
}

fn delete(ordinal: u32) -> Op {
    Op::Delete { ordinal, uid: Uid(ordinal.to_string()) }
}

#[test]
fn a_new_set_is_created_at_once() {
    for spec in [ordinal(3, 0, 1), any(3, 2, 0)] {
        assert_eq!(planned(&spec, &[]).ops, [create(0, B), create(1, B), create(2, B)]);
    }
}

#[test]
fn nothing_is_done_when_all_is_as_wanted() {
    for spec in [ordinal(2, 1, 0), any(2, 1, 0)] {
        let made = planned(&spec, &units(&[(B, State::Ready), (B, State::Ready)]));
        assert_eq!((made.ops.len(), made.done, made.reason.code), (0, true, Code::UpToDate));
    }
}

#[test]
fn the_highest_ordinal_is_replaced_first_within_unavailable() {
    let all = units(&[(A, State::Ready), (A, State::Ready), (A, State::Ready), (A, State::Ready)]);
    assert_eq!(planned(&ordinal(4, 0, 2), &all).ops, [take_out(3), take_out(2)]);
    let made = planned(&ordinal(4, 0, 1), &all);
    assert_eq!((made.ops.as_slice(), made.reason.code), ([take_out(3)].as_slice(), Code::UpdatingReady));
}

#[test]
fn surge_comes_first_where_nothing_may_be_missing_and_goes_last() {
    let spec = ordinal(2, 1, 0);
    let mut all = units(&[(A, State::Ready), (A, State::Ready)]);
    assert_eq!(planned(&spec, &all).ops, [create(2, B)]);
    all.push(mk_unit(2, B, State::Starting));
    let wait = planned(&spec, &all);
    assert_eq!(wait.reason.what, "waiting for group 2 of the new revision to be ready");
    all[2].state = State::Ready;
    assert_eq!(planned(&spec, &all).ops, [take_out(1)]);
    all[1].state = LEAVING;
    assert_eq!(planned(&spec, &all).reason.code, Code::WaitingForDrain);
    all[1].state = State::Leaving { done: true };
    assert_eq!(planned(&spec, &all).ops, [delete(1)]);
    all[1].state = GONE;
    assert_eq!(planned(&spec, &all).reason.code, Code::WaitingForTermination);
    all.remove(1);
    assert_eq!(planned(&spec, &all).ops, [create(1, B)]);
    let settled = units(&[(B, State::Ready), (B, State::Ready), (B, State::Ready)]);
    assert_eq!(planned(&spec, &settled).ops, [take_out(2)]);
}

#[test]
fn terminating_units_hold_their_room() {
    let spec = any(3, 1, 0);
    let all = units(&[(A, State::Ready), (A, State::Ready), (A, State::Ready), (A, GONE)]);
    assert_eq!(planned(&spec, &all).ops, []);
}

/// LWS#488: one of two is not ready, one may be missing, and the ready one was updated.
#[test]
fn the_unready_one_is_updated_and_the_ready_one_kept() {
    for state in [State::Starting, State::Lapsed] {
        let all = units(&[(A, state), (A, State::Ready)]);
        let made = planned(&ordinal(2, 0, 1), &all);
        assert_eq!((made.ops.as_slice(), made.reason.code), ([delete(0)].as_slice(), Code::ReplacingUnready));
    }
}

/// LWS#567: all old units unready, and the update waited for one of them.
#[test]
fn when_all_are_broken_all_are_replaced_at_once() {
    for spec in [ordinal(3, 0, 1), any(3, 0, 1)] {
        for state in [State::Starting, State::Lapsed] {
            let all = units(&[(A, state), (A, state), (A, state)]);
            assert_eq!(planned(&spec, &all).ops, [delete(2), delete(1), delete(0)]);
        }
    }
}

#[test]
fn a_new_revision_pre_empts_a_stuck_one() {
    for spec in [ordinal(3, 1, 0), any(3, 1, 0)] {
        let spec = SetSpec { target: C, ..spec };
        let all = units(&[(A, State::Ready), (A, State::Ready), (A, State::Ready), (B, State::Starting)]);
        assert_eq!(planned(&spec, &all).ops, [delete(3)]);
    }
}

/// A readiness probe that fails for a moment must not turn a bad revision into an outage.
#[test]
fn a_unit_that_lapsed_is_kept_while_the_new_revision_is_not_ready() {
    let spec = ordinal(4, 0, 1);
    let lapsed = units(&[(A, State::Ready), (A, State::Lapsed), (A, State::Ready), (B, State::Starting)]);
    assert_eq!(planned(&spec, &lapsed).ops, []);
    let proven = units(&[(A, State::Ready), (A, State::Lapsed), (A, State::Ready), (B, State::Ready)]);
    assert_eq!(planned(&spec, &proven).ops, [delete(1)]);
    // With room for two, the floor holds without it.
    assert_eq!(planned(&ordinal(4, 0, 2), &lapsed).ops, [delete(1)]);
}

/// LWS#963: a lost member below the partition comes back at the old revision, above it at the target.
#[test]
fn lost_members_come_back_at_the_revision_of_their_place() {
    let spec = SetSpec { partition: 2, ..ordinal(4, 0, 1) };
    assert_eq!(planned(&spec, &[]).ops, [create(0, A), create(1, A), create(2, B), create(3, B)]);
    let keep = SetSpec { partition: 2, ..any(3, 0, 1) };
    assert_eq!(planned(&keep, &units(&[(A, State::Ready)])).ops, [create(1, A), create(2, B)]);
}

#[test]
fn a_partition_beyond_the_replicas_holds_everything() {
    for spec in [ordinal(2, 1, 0), any(2, 1, 0)] {
        let spec = SetSpec { partition: 9, ..spec };
        assert!(planned(&spec, &units(&[(A, State::Ready), (A, State::Ready)])).done);
    }
}

#[test]
fn a_partition_that_is_raised_stops_the_rollout_and_puts_right_what_is_stuck() {
    let spec = SetSpec { partition: 3, ..ordinal(3, 0, 1) };
    assert!(planned(&spec, &units(&[(A, State::Ready), (A, State::Ready), (B, State::Ready)])).done);
    let stuck = units(&[(A, State::Ready), (A, State::Ready), (B, State::Starting)]);
    assert_eq!(planned(&spec, &stuck).ops, [delete(2)]);
}

/// Bug 6.2 of LWS, its own example: 4 units, 2 may be missing, surge 3, only the surge and unit 0 serve.
#[test]
fn surge_that_carries_the_traffic_is_kept() {
    let spec = ordinal(4, 3, 2);
    let mut all =
        units(&[(B, State::Ready), (B, State::Starting), (B, State::Starting), (B, State::Starting)]);
    all.extend([mk_unit(5, B, State::Ready), mk_unit(6, B, State::Ready)]);
    assert_eq!(planned(&spec, &all).ops, []);
}

#[test]
fn surge_beyond_what_is_to_be_updated_is_not_made() {
    let spec = SetSpec { partition: 3, ..ordinal(4, 9, 0) };
    let all = units(&[(A, State::Ready), (A, State::Ready), (A, State::Ready), (A, State::Ready)]);
    assert_eq!(planned(&spec, &all).ops, [create(4, B)]);
}

#[test]
fn scaling_down_takes_the_highest_and_keeps_the_floor_of_the_new_number() {
    let all = units(&[(B, State::Starting), (B, State::Ready), (B, State::Ready), (B, State::Ready)]);
    let made = planned(&ordinal(2, 0, 0), &all);
    assert_eq!((made.ops.as_slice(), made.reason.code), ([take_out(3)].as_slice(), Code::RemovingSurplus));
    let zero = planned(&ordinal(0, 0, 1), &all);
    assert_eq!(zero.ops, [take_out(3), take_out(2), take_out(1), delete(0)]);
}

#[test]
fn scaling_down_in_the_middle_of_an_update_needs_no_more_than_its_budget() {
    let all = units(&[(A, State::Ready), (A, State::Ready), (A, State::Ready), (B, State::Ready)]);
    assert_eq!(planned(&ordinal(3, 1, 0), &all).ops, [take_out(2)], "unit 3 is the surge now");
    assert_eq!(planned(&ordinal(3, 0, 1), &all).ops, [take_out(3), take_out(2)]);
}

#[test]
fn scaling_up_in_the_middle_of_an_update_makes_new_units_of_the_target() {
    let all = units(&[(A, State::Ready), (B, State::Starting)]);
    assert_eq!(planned(&ordinal(4, 0, 1), &all).ops, [create(2, B), create(3, B)]);
    assert_eq!(planned(&any(4, 0, 1), &all).ops, [create(2, B), create(3, B)]);
}

#[test]
fn victims_are_unready_then_outdated_then_cheap_then_the_highest() {
    let spec = any(2, 0, 2);
    let mut all = units(&[(B, State::Ready), (B, State::Ready), (B, State::Ready), (B, State::Starting)]);
    all[0].deletion_cost = -5;
    all.push(mk_unit(4, A, State::Ready));
    assert_eq!(planned(&spec, &all).ops, [take_out(4), delete(3), take_out(0)]);
    all[0].deletion_cost = 0;
    assert_eq!(planned(&spec, &all).ops, [take_out(4), delete(3), take_out(2)]);
}

#[test]
fn a_name_that_is_still_terminating_is_in_use() {
    let all = [mk_unit(0, B, GONE), mk_unit(2, B, State::Ready)];
    assert_eq!(planned(&any(2, 1, 0), &all).ops, [create(1, B)]);
    assert_eq!(planned(&ordinal(2, 1, 0), &[mk_unit(0, B, GONE)]).ops, [create(1, B)]);
}

#[test]
fn going_back_touches_only_what_was_upgraded() {
    for spec in [ordinal(3, 0, 1), any(3, 0, 1)] {
        let spec = SetSpec { target: A, ..spec };
        let all = units(&[(A, State::Ready), (A, State::Ready), (B, State::Starting)]);
        assert_eq!(planned(&spec, &all).ops, [delete(2)]);
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let budget = Budget { surge: u32::MAX, unavailable: u32::MAX };
    let spec = SetSpec { replicas: 2, budget, partition: u32::MAX, ..any(0, 0, 0) };
    let all = [mk_unit(u32::MAX, B, State::Ready), mk_unit(u32::MAX - 1, A, State::Starting)];
    for identity in [Identity::Ordinal, Identity::Any] {
        assert!(!plan(&SetSpec { identity, ..spec }, &all, Duration::MAX).ops.is_empty());
    }
}
