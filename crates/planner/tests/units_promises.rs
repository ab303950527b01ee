//! What a unit promises, one by one.

use std::time::Duration;

use planner::{
    Code, Reason, Time, Uid, sets,
    units::{
        BACK_OFF, Drain, History, Op, Phase, Pod, RestartPolicy, Revision, STEADY_AFTER, StartupPolicy, Unit,
        UnitSpec, is_ready, plan, state,
    },
};

const NOW: Time = Duration::from_secs(1000);
const SETTLE: Duration = Duration::from_secs(5);
const DRAIN: Duration = Duration::from_mins(1);
const DEADLINE: Duration = Duration::from_mins(5);

fn mk_spec(startup: StartupPolicy, restart: RestartPolicy) -> UnitSpec {
    let drain = Drain { settle: SETTLE, drain: DRAIN, deadline: DEADLINE };
    UnitSpec { size: 3, startup, restart, drain }
}

fn created(restart: RestartPolicy) -> UnitSpec {
    mk_spec(StartupPolicy::LeaderCreated, restart)
}

fn mk_uid(number: u32) -> Uid {
    Uid(number.to_string())
}

fn mk_pod(index: u32) -> Pod {
    Pod {
        index,
        uid: mk_uid(index + 100),
        revision: Revision(1),
        incarnation: 0,
        phase: Phase::Running,
        ready: true,
        has_address: true,
        restarts: 0,
        restarts_baseline: 0,
        terminating: false,
        node_lost: false,
    }
}

/// Three pods, ready, started, in service.
fn serving() -> Unit {
    let history = History { started: true, served: true, ready_since: Some(NOW), ..History::default() };
    Unit { in_service: true, history, ..with((0..3).map(mk_pod).collect()) }
}

fn with(pods: Vec<Pod>) -> Unit {
    Unit {
        revision: Revision(1),
        pods,
        in_service: false,
        leaving: false,
        draining_since: None,
        in_flight: None,
        history: History::default(),
    }
}

fn uids(indexes: &[u32]) -> Vec<Uid> {
    indexes.iter().map(|index| mk_pod(*index).uid).collect()
}

fn create(indexes: &[u32]) -> Vec<Op> {
    indexes.iter().map(|index| Op::CreatePod { index: *index }).collect()
}

fn code((_, reason): &(Vec<Op>, Reason)) -> Code {
    reason.code
}

const POLICIES: [RestartPolicy; 3] =
    [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart, RestartPolicy::None];

#[test]
fn the_leader_comes_first_and_workers_when_it_exists() {
    let spec = created(RestartPolicy::None);
    assert_eq!(plan(&spec, &with(vec![]), NOW).0, create(&[0]));
    let leader = Pod { ready: false, has_address: false, phase: Phase::Pending, ..mk_pod(0) };
    assert_eq!(plan(&spec, &with(vec![leader]), NOW).0, create(&[1, 2]));
}

#[test]
fn workers_wait_for_a_ready_leader_and_the_deadlock_is_named() {
    let spec = mk_spec(StartupPolicy::LeaderReady, RestartPolicy::None);
    let leader = Pod { ready: false, ..mk_pod(0) };
    let (ops, reason) = plan(&spec, &with(vec![leader]), NOW);
    assert_eq!((ops, reason.code), (vec![], Code::WaitingForLeaderReady));
    assert!(reason.what.contains("use startupPolicy LeaderHasAddress"), "{reason}");
    assert_eq!(reason.then.as_deref(), Some("2 workers are created"));
    assert_eq!(plan(&spec, &with(vec![mk_pod(0)]), NOW).0, create(&[1, 2]));
}

#[test]
fn workers_start_once_the_leader_has_an_address() {
    let spec = mk_spec(StartupPolicy::LeaderHasAddress, RestartPolicy::None);
    let leader = Pod { ready: false, has_address: false, ..mk_pod(0) };
    assert_eq!(code(&plan(&spec, &with(vec![leader]), NOW)), Code::WaitingForLeaderAddress);
    let leader = Pod { ready: false, has_address: true, ..mk_pod(0) };
    assert_eq!(plan(&spec, &with(vec![leader]), NOW).0, create(&[1, 2]));
}

#[test]
fn a_leader_that_is_unready_later_costs_no_worker_and_stops_none() {
    let spec = mk_spec(StartupPolicy::LeaderReady, RestartPolicy::RecreateOnPodRestart);
    let leader = Pod { ready: false, ..mk_pod(0) };
    assert_eq!(plan(&spec, &with(vec![leader, mk_pod(1)]), NOW).0, create(&[2]));
    let mut unit = serving();
    unit.pods[0].ready = false;
    let (ops, reason) = plan(&spec, &unit, NOW);
    assert_eq!((ops, reason.code), (vec![Op::TakeOutOfService], Code::WaitingForReady));
}

#[test]
fn a_started_unit_records_baselines_then_serves() {
    let spec = created(RestartPolicy::RecreateAfterStart);
    let mut unit = with((0..3).map(mk_pod).collect());
    unit.pods[1].restarts = 2;
    let baselines = vec![(mk_uid(100), 0), (mk_uid(101), 2), (mk_uid(102), 0)];
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::RecordStart { baselines }]);
    unit.history.started = true;
    unit.pods[1].restarts_baseline = 2;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::PutInService]);
    unit.in_service = true;
    assert_eq!(
        plan(&spec, &unit, NOW),
        (vec![], Reason::new(Code::Serving, "all pods are ready and in service"))
    );
}

#[test]
fn a_restart_recreates_the_whole_unit_record_first_and_in_parallel() {
    for restart in [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart] {
        let mut unit = serving();
        unit.pods[2].restarts = 1;
        let (ops, reason) = plan(&created(restart), &unit, NOW);
        let delete = Op::DeletePods { uids: uids(&[0, 1, 2]) };
        assert_eq!(ops, vec![Op::TakeOutOfService, Op::RecordRecreation { incarnation: 1 }, delete]);
        assert_eq!(
            (reason.code, reason.what.as_str()),
            (Code::RecreatingUnit, "a container of pod 2 restarted")
        );
    }
}

#[test]
fn without_a_restart_policy_a_pod_fails_for_itself() {
    let spec = created(RestartPolicy::None);
    let mut unit = serving();
    unit.pods[2].restarts = 1;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![]);
    unit.pods[2].phase = Phase::Ended;
    unit.in_service = false;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::DeletePods { uids: uids(&[2]) }]);
    unit.pods.remove(2);
    assert_eq!(plan(&spec, &unit, NOW).0, create(&[2]));
}

#[test]
fn a_restart_that_was_answered_is_not_answered_again() {
    let mut unit = serving();
    (unit.pods[1].restarts, unit.pods[1].restarts_baseline) = (4, 4);
    for restart in POLICIES {
        assert_eq!(plan(&created(restart), &unit, NOW).0, vec![]);
    }
}

#[test]
fn a_restart_before_everything_has_started_is_part_of_starting() {
    let mut unit = with((0..3).map(mk_pod).collect());
    (unit.pods[1].restarts, unit.pods[2].phase, unit.pods[2].ready) = (1, Phase::Pending, false);
    let after = plan(&created(RestartPolicy::RecreateAfterStart), &unit, NOW);
    assert_eq!((after.0.len(), code(&after)), (0, Code::WaitingForReady));
    let at_once = plan(&created(RestartPolicy::RecreateOnPodRestart), &unit, NOW);
    assert_eq!(code(&at_once), Code::RecreatingUnit);
}

#[test]
fn pods_of_the_deleted_incarnation_never_recreate_the_unit_again() {
    for restart in POLICIES {
        let mut unit = serving();
        unit.in_service = false;
        unit.history = History { incarnation: 1, recreations: 1, last_recreation: Some(NOW), ..unit.history };
        unit.history.started = false;
        for pod in &mut unit.pods {
            (pod.restarts, pod.phase) = (3, Phase::Ended);
        }
        // A crash after the record and before the deletes: only the deletes follow.
        let (ops, reason) = plan(&created(restart), &unit, NOW);
        assert_eq!(ops, vec![Op::DeletePods { uids: uids(&[0, 1, 2]) }], "{restart:?}");
        assert_eq!(reason.code, Code::WaitingForTermination);
        // Old workers are still going while somebody has made the new leader: nothing but waiting.
        unit.pods.iter_mut().for_each(|pod| pod.terminating = true);
        unit.pods[0] = Pod { incarnation: 1, uid: mk_uid(200), ..mk_pod(0) };
        let (ops, reason) = plan(&created(restart), &unit, NOW);
        assert_eq!((ops, reason.code), (vec![], Code::WaitingForTermination), "{restart:?}");
        unit.pods.truncate(1);
        assert_eq!(plan(&created(restart), &unit, NOW).0, create(&[1, 2]));
    }
}

#[test]
fn a_deleted_pod_does_not_trigger_before_it_is_gone_and_then_once() {
    for restart in [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart] {
        let spec = created(restart);
        let mut unit = serving();
        (unit.pods[1].terminating, unit.pods[1].restarts, unit.in_service) = (true, 1, false);
        assert_eq!(code(&plan(&spec, &unit, NOW)), Code::WaitingForTermination);
        unit.pods.remove(1);
        let delete = Op::DeletePods { uids: uids(&[0, 2]) };
        assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::RecordRecreation { incarnation: 1 }, delete]);
    }
}

#[test]
fn workers_whose_leader_is_gone_are_recreated_with_it() {
    let mut unit = with(vec![mk_pod(1)]);
    assert_eq!(code(&plan(&created(RestartPolicy::RecreateOnPodRestart), &unit, NOW)), Code::RecreatingUnit);
    assert_eq!(plan(&created(RestartPolicy::RecreateAfterStart), &unit, NOW).0, create(&[0, 2]));
    unit.pods.push(mk_pod(0));
    assert_eq!(plan(&created(RestartPolicy::RecreateOnPodRestart), &unit, NOW).0, create(&[2]));
}

#[test]
fn recreations_back_off_from_ten_seconds_to_five_minutes() {
    let waits: Vec<u64> = (0..9).map(|count| BACK_OFF.after(count).as_secs()).collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(BACK_OFF.after(u32::MAX), BACK_OFF.longest);
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let mut unit = serving();
    unit.pods[0].restarts = 1;
    unit.in_service = false;
    unit.history = History { recreations: 2, last_recreation: Some(NOW), ..unit.history };
    let (ops, reason) = plan(&spec, &unit, NOW + Duration::from_secs(19));
    assert_eq!((ops, reason.code), (vec![], Code::BackingOff));
    assert_eq!((reason.since, reason.until), (Some(NOW), Some(NOW + Duration::from_secs(20))));
    assert_eq!(reason.then.as_deref(), Some("all its pods are recreated"));
    assert_eq!(code(&plan(&spec, &unit, NOW + Duration::from_secs(20))), Code::RecreatingUnit);
}

#[test]
fn a_unit_that_was_ready_for_ten_minutes_starts_over_with_its_back_off() {
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let mut unit = serving();
    unit.history.recreations = 3;
    let (ops, reason) = plan(&spec, &unit, NOW);
    assert_eq!((ops, reason.until), (vec![], Some(NOW + STEADY_AFTER)));
    assert_eq!(plan(&spec, &unit, NOW + STEADY_AFTER).0, vec![Op::RecordSteady]);
}

#[test]
fn a_lost_node_releases_the_others_at_once_without_back_off() {
    for restart in [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart] {
        let mut unit = serving();
        (unit.pods[1].node_lost, unit.pods[1].terminating, unit.in_service) = (true, true, false);
        unit.history = History { recreations: 5, last_recreation: Some(NOW), ..unit.history };
        let (ops, reason) = plan(&created(restart), &unit, NOW);
        let expected = vec![
            Op::RecordRecreation { incarnation: 1 },
            Op::DeletePods { uids: uids(&[0, 2]) },
            Op::ForceRelease { uids: uids(&[1]) },
        ];
        assert_eq!((ops, reason.what.as_str()), (expected, "the node of pod 1 is lost"));
    }
    let mut unit = serving();
    (unit.pods[1].node_lost, unit.in_service) = (true, false);
    let released = plan(&created(RestartPolicy::None), &unit, NOW).0;
    assert_eq!(released, vec![Op::ForceRelease { uids: uids(&[1]) }]);
}

#[test]
fn a_left_over_on_a_lost_node_is_released_until_it_is_gone() {
    let mut unit = with(vec![Pod { node_lost: true, terminating: true, ..mk_pod(2) }]);
    unit.history.incarnation = 1;
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::ForceRelease { uids: uids(&[2]) }]);
    unit.pods.clear();
    assert_eq!(plan(&spec, &unit, NOW).0, create(&[0]));
}

#[test]
fn mixed_revisions_or_incarnations_are_never_ready() {
    let spec = created(RestartPolicy::None);
    assert!(is_ready(&spec, &serving()));
    let mut unit = serving();
    unit.pods[2].revision = Revision(2);
    assert!(!is_ready(&spec, &unit));
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::TakeOutOfService, Op::DeletePods { uids: uids(&[2]) }]);
    let mut unit = serving();
    unit.pods.push(Pod { incarnation: 7, uid: mk_uid(300), ..mk_pod(1) });
    assert!(!is_ready(&spec, &unit));
    let mut unit = serving();
    unit.pods[2].terminating = true;
    assert!(!is_ready(&spec, &unit));
}

#[test]
fn retiring_is_two_writes_with_the_drain_between() {
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let mut unit = serving();
    unit.leaving = true;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::TakeOutOfService]);
    (unit.in_service, unit.draining_since, unit.in_flight) = (false, Some(NOW), Some(3));
    let (ops, reason) = plan(&spec, &unit, NOW);
    assert_eq!((ops, reason.code), (vec![], Code::WaitingForDrain));
    assert_eq!((reason.since, reason.until), (Some(NOW), Some(NOW + DEADLINE)));
    unit.in_flight = Some(0);
    let delete = vec![Op::DeletePods { uids: uids(&[0, 1, 2]) }];
    assert_eq!(plan(&spec, &unit, NOW).0, delete);
    unit.in_flight = Some(1);
    assert_eq!(plan(&spec, &unit, NOW + DEADLINE).0, delete);
}

#[test]
fn without_request_counts_the_drain_takes_settle_and_drain_seconds() {
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let unit = Unit { leaving: true, in_service: false, draining_since: Some(NOW), ..serving() };
    assert_eq!(plan(&spec, &unit, NOW + DRAIN).0, vec![]);
    assert_eq!(plan(&spec, &unit, NOW + SETTLE + DRAIN).0, vec![Op::DeletePods { uids: uids(&[0, 1, 2]) }]);
}

#[test]
fn an_unready_unit_that_leaves_is_deleted_at_once_and_never_recreated() {
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let mut unit = Unit { leaving: true, in_service: false, draining_since: Some(NOW), ..serving() };
    unit.pods[1].restarts = 1;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::DeletePods { uids: uids(&[0, 1, 2]) }]);
    unit.pods.iter_mut().for_each(|pod| pod.terminating = true);
    assert_eq!(plan(&spec, &unit, NOW).0, vec![]);
    unit.pods[0].node_lost = true;
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::ForceRelease { uids: uids(&[0]) }]);
    // Half of the deletes were made before a crash: the others follow.
    (unit.pods[0].node_lost, unit.pods[2].terminating) = (false, false);
    assert_eq!(plan(&spec, &unit, NOW).0, vec![Op::DeletePods { uids: uids(&[2]) }]);
    unit.pods.clear();
    assert_eq!(code(&plan(&spec, &unit, NOW)), Code::Retired);
}

#[test]
fn the_set_sees_what_the_unit_does() {
    let spec = created(RestartPolicy::RecreateOnPodRestart);
    let see = |unit: &Unit| state(&spec, unit, NOW);
    assert_eq!(see(&with(vec![])), sets::State::Starting);
    assert_eq!(see(&serving()), sets::State::Ready);
    assert_eq!(see(&Unit { in_service: false, ..serving() }), sets::State::Lapsed);
    let leaving = Unit { leaving: true, in_service: false, draining_since: Some(NOW), ..serving() };
    assert_eq!(see(&leaving), sets::State::Leaving { done: false });
    assert_eq!(see(&Unit { in_flight: Some(0), ..leaving.clone() }), sets::State::Leaving { done: true });
    let mut going = leaving;
    going.pods.iter_mut().for_each(|pod| pod.terminating = true);
    assert_eq!(see(&going), sets::State::Terminating);
    // A recreation is not a departure: the unit comes back at its own revision.
    let mut again = Unit { leaving: false, ..going };
    again.history.incarnation = 1;
    assert_eq!(see(&again), sets::State::Lapsed);
}

#[test]
fn the_order_of_the_pods_changes_nothing() {
    for restart in POLICIES {
        let mut unit = serving();
        (unit.pods[1].restarts, unit.pods[2].node_lost) = (1, true);
        let before = plan(&created(restart), &unit, NOW);
        unit.pods.reverse();
        assert_eq!(plan(&created(restart), &unit, NOW), before);
    }
}
