//! Single decisions that no walk through a whole handover shows.

use std::time::Duration;

use planner::{
    Amount, Budget, Code, Reason,
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
        let wanted = Wanted { policy, ..wanted(4, 0, 1) };
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

/// The replicas that are let go have a drain and a grace of their own: waiting for them is no standstill of the new version.
#[test]
fn replicas_that_end_are_waited_for_beyond_the_deadline() {
    let leaving = Version { live: 4, ..version(OLD, 3, 3) };
    let route = Weights::split((OLD, 3), (NEW, 1));
    let ends = observed(vec![leaving, version(NEW, 1, 1)], Some(OLD), route.clone());
    let late = Wanted { progress_deadline: Some(Duration::from_secs(1)), ..wanted(4, 1, 0) };
    let (action, reason) = decide(&late, &ends);
    assert_eq!((action, reason.code, reason.until), (Action::Wait, Code::WaitingForRoom, None));
    let unready = observed(vec![leaving, version(NEW, 1, 0)], Some(OLD), Weights::all(OLD));
    assert_eq!(
        decide(&late, &unready).0,
        Action::SetPhase(Phase::RollingBack),
        "one that is not ready is waited for"
    );
    let gone = observed(vec![Version { live: 4, ..version(OLD, 0, 0) }], Some(OLD), Weights::all(OLD));
    let recreate = Wanted { policy: Policy::Recreate, ..late };
    assert_eq!(decide(&recreate, &gone).1.code, Code::WaitingForGone);
}

/// A deadline is told where it ends something, with what it ends.
#[test]
fn a_wait_says_what_its_end_brings() {
    let with = |policy: Policy, on_failure| Wanted {
        progress_deadline: Some(Duration::from_mins(10)),
        policy,
        on_failure,
        ..wanted(4, 1, 0)
    };
    let then = |wanted: &Wanted, observed: &Observed| {
        let (action, reason) = decide(wanted, observed);
        assert_eq!(action, Action::Wait, "{reason}");
        (reason.until.map(|time| time.as_secs()), reason.then)
    };
    let told = |until: u64, what: &str| (Some(until), Some(what.to_owned()));
    let rolling = with(Policy::Rolling, OnFailure::RollBack);
    let starts = observed(vec![version(OLD, 4, 4), version(NEW, 1, 0)], Some(OLD), Weights::all(OLD));
    assert_eq!(then(&rolling, &starts), told(600, "the rollout fails and goes back"));
    let pauses = with(Policy::Rolling, OnFailure::Pause);
    assert_eq!(then(&pauses, &starts), told(600, "the rollout fails and is paused"));
    let first = observed(vec![version(NEW, 4, 0)], None, Weights::default());
    assert_eq!(
        then(&rolling, &first),
        told(600, "the version counts as failed; it stays, because no other version can serve")
    );
    let promoted = observed(vec![version(NEW, 4, 3)], Some(NEW), Weights::all(NEW));
    assert_eq!(then(&rolling, &promoted), (None, None), "nothing fails after the promotion");
    let mut back = starts.clone();
    back.rollout.phase = Phase::RollingBack;
    back.versions = vec![version(OLD, 4, 3), version(NEW, 1, 1)];
    back.route = Weights::split((OLD, 3), (NEW, 1));
    back.applied = Some(back.route.clone());
    assert_eq!(then(&rolling, &back), (None, None), "nor on the way back");
    let stray = Version { id: VersionId(3), ..version(OLD, 0, 0) };
    let beside = observed(
        vec![version(OLD, 4, 3), Version { asked: 1, live: 1, ready: 1, ..stray }],
        Some(OLD),
        Weights::split((OLD, 3), (VersionId(3), 1)),
    );
    assert_eq!(then(&rolling, &beside).0, None, "nor while another version goes first");
    let paced = Policy::Incremental { step: 25, interval: Duration::from_mins(1) };
    let mut moved =
        observed(vec![version(OLD, 3, 3), version(NEW, 2, 1)], Some(OLD), Weights::split((OLD, 3), (NEW, 1)));
    moved.rollout.moved_at = Some(Duration::ZERO);
    let paced = with(paced, OnFailure::RollBack);
    assert_eq!(then(&paced, &moved), told(60, "up to 50% of the traffic may move"));
    let late = Wanted { progress_deadline: Some(Duration::from_secs(1)), ..paced };
    let mut whole = moved.clone();
    whole.versions = vec![version(OLD, 3, 3), version(NEW, 2, 2)];
    assert_eq!(decide(&late, &moved).0, Action::SetPhase(Phase::RollingBack), "a replica is not ready");
    assert_eq!(then(&late, &whole), told(60, "50% of the traffic is moved"), "an interval is no standstill");
}

/// A preview is there for people, however small it is: only a loss of it has a deadline.
#[test]
fn a_preview_has_no_deadline() {
    let policy = Policy::BlueGreen {
        auto_promote: false,
        delay: Duration::ZERO,
        preview: Amount::Percent(25),
        retain: Duration::ZERO,
    };
    let wanted = Wanted { progress_deadline: Some(Duration::from_secs(1)), policy, ..wanted(4, 4, 0) };
    let mut previews = observed(vec![version(OLD, 4, 4), version(NEW, 1, 1)], Some(OLD), Weights::all(OLD));
    previews.rollout.step = 1;
    assert_eq!(decide(&wanted, &previews).1.code, Code::Previewing);
    previews.versions = vec![version(OLD, 4, 4), version(NEW, 1, 0)];
    assert_eq!(decide(&wanted, &previews).0, Action::StartStep(0));
    previews.rollout.step = 0;
    assert_eq!(decide(&wanted, &previews).0, Action::SetPhase(Phase::RollingBack));
}

/// The version that was kept for a rollback has been previewed and promoted once.
#[test]
fn the_version_that_is_kept_needs_no_promotion() {
    let policy = Policy::BlueGreen {
        auto_promote: false,
        delay: Duration::from_mins(1),
        preview: Amount::Percent(100),
        retain: Duration::from_mins(5),
    };
    let wanted = Wanted { policy, ..wanted(4, 4, 0) };
    let mut kept = observed(vec![version(OLD, 4, 4), version(NEW, 4, 4)], Some(OLD), Weights::all(OLD));
    kept.retained = Some((NEW, Duration::from_mins(5)));
    assert_eq!(decide(&wanted, &kept).0, Action::StartStep(2));
    kept.rollout.step = 2;
    assert_eq!(decide(&wanted, &kept).0, Action::SetWeights(Weights::all(NEW), false));
    kept.rollout.step = 0;
    kept.retained = Some((NEW, Duration::from_secs(1)));
    assert_eq!(decide(&wanted, &kept).0, Action::StartStep(1), "its time is over");
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
