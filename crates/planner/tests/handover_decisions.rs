//! Single decisions that no walk through a whole handover shows.

use std::time::Duration;

use planner::{
    Budget, Code, Reason,
    handover::{
        Action, Observed, OnFailure, Phase, Policy, Rollout, Step, Verdict, Version, VersionId, Wanted,
        Weights, plan, rehearse,
    },
};

const OLD: VersionId = VersionId(1);
const NEW: VersionId = VersionId(2);

/// From the old version to the new one, rolling.
fn wanted(replicas: u32, surge: u32, unavailable: u32) -> Wanted {
    Wanted {
        target: NEW,
        replicas,
        budget: Budget { surge, unavailable },
        policy: Policy::Rolling,
        progress_deadline: None,
        on_failure: OnFailure::RollBack,
    }
}

fn version(id: VersionId, asked: u32, ready: u32) -> Version {
    Version { id, asked, live: asked, ready, proven: true }
}

fn observed(versions: Vec<Version>, current: Option<VersionId>, route: Weights) -> Observed {
    Observed {
        versions,
        current,
        applied: Some(route.clone()),
        route,
        rollout: Rollout {
            phase: Phase::Forward,
            step: 0,
            step_since: Duration::ZERO,
            moved_at: None,
            progressed_at: Duration::ZERO,
            verdict: Verdict::Open,
        },
        retained: None,
        in_place: None,
    }
}

fn decide(wanted: &Wanted, observed: &Observed) -> (Action, Reason) {
    plan(wanted, observed, Duration::from_secs(1))
}

#[test]
fn the_first_version_is_promoted_only_when_it_serves() {
    let (action, reason) =
        decide(&wanted(2, 1, 0), &observed(vec![version(NEW, 2, 0)], None, Weights::default()));
    assert_eq!((action, reason.code), (Action::Wait, Code::WaitingForReady));
    let serves = observed(vec![version(NEW, 2, 2)], None, Weights::all(NEW));
    assert_eq!(decide(&wanted(2, 1, 0), &serves).0, Action::Promote(NEW));
}

#[test]
fn what_does_not_fit_is_said() {
    let before = observed(vec![version(OLD, 4, 4)], Some(OLD), Weights::all(OLD));
    let (action, reason) = decide(&wanted(4, 1, 0), &before);
    assert_eq!(action, Action::Scale(NEW, 1));
    assert_eq!(reason.what, "scaling the new version to 1 of 4 replicas: no more fit into the surge");
    let (action, reason) = decide(&wanted(4, 4, 0), &before);
    assert_eq!(
        (action, reason.what.as_str()),
        (Action::Scale(NEW, 4), "scaling the new version to 4 replicas")
    );
}

#[test]
fn lost_traffic_is_rescued_and_nothing_else_is() {
    let versions = vec![version(OLD, 2, 0), version(NEW, 1, 1)];
    let lost = observed(versions.clone(), Some(OLD), Weights::all(OLD));
    let (action, reason) = decide(&wanted(2, 1, 0), &lost);
    assert_eq!((action, reason.code), (Action::SetWeights(Weights::all(NEW), false), Code::Rescuing));
    let without_a_route = observed(versions, Some(OLD), Weights::default());
    assert_ne!(decide(&wanted(2, 1, 0), &without_a_route).1.code, Code::Rescuing);
    assert_ne!(decide(&wanted(0, 1, 0), &lost).1.code, Code::Rescuing, "nothing is to serve");
}

/// The time of a move is noted for a pace alone: a move that is refused again and again would be news each time.
#[test]
fn only_a_pace_needs_the_time_of_a_move() {
    let ready = observed(vec![version(OLD, 3, 3), version(NEW, 1, 1)], Some(OLD), Weights::all(OLD));
    let half = Step::Weight(50, None);
    let paced = Policy::Incremental { step: 25, interval: Duration::from_secs(10) };
    for (policy, notes) in [(Policy::Rolling, false), (Policy::Canary(vec![half]), false), (paced, true)] {
        let wanted = Wanted { policy, ..wanted(4, 1, 1) };
        let (action, _) = decide(&wanted, &ready);
        assert!(matches!(action, Action::SetWeights(_, noted) if noted == notes), "{wanted:?}: {action:?}");
    }
}

/// What users have is the wanted version only where it is: after a rollback nothing says so.
#[test]
fn a_rollback_that_is_over_does_not_say_that_everything_is_as_wanted() {
    let mut back = observed(vec![version(OLD, 4, 4)], Some(OLD), Weights::all(OLD));
    back.rollout.phase = Phase::RollingBack;
    let (action, reason) = decide(&wanted(4, 1, 0), &back);
    assert_eq!((action, reason.code), (Action::Done, Code::RolledBack));
    assert!(!reason.what.contains("wanted"), "{reason}");
    let home = Wanted { target: OLD, ..wanted(4, 1, 0) };
    assert_eq!(decide(&home, &back).1.code, Code::Idle);
}

/// A deadline that has passed is told with what was reached by then.
#[test]
fn a_deadline_says_how_far_the_rollout_came() {
    let waits = observed(vec![version(OLD, 4, 4), version(NEW, 1, 0)], Some(OLD), Weights::all(OLD));
    let wanted = Wanted { progress_deadline: Some(Duration::from_secs(1)), ..wanted(4, 1, 0) };
    let (action, reason) = decide(&wanted, &waits);
    assert_eq!((action, reason.code), (Action::SetPhase(Phase::RollingBack), Code::ProgressDeadlineExceeded));
    assert_eq!(reason.what, "0 of 4 replicas ready, and no progress for 1 s");
}

#[test]
fn a_rehearsal_is_the_same_whatever_the_version_is_called() {
    let wanted = wanted(3, 1, 0);
    let renamed = Wanted { target: VersionId(9), ..wanted.clone() };
    let (start, stop) = (Duration::from_secs(30), Duration::from_secs(10));
    assert_eq!(rehearse(&renamed, start, stop, None), rehearse(&wanted, start, stop, None));
    let current = Wanted { target: OLD, ..wanted.clone() };
    assert_eq!(rehearse(&current, start, stop, None), rehearse(&wanted, start, stop, None));
}
