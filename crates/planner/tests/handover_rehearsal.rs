//! What `segue plan` shows, step by step.

use std::time::Duration;

use planner::{
    Amount, Budget, Code, Reason,
    handover::{
        Action, InPlace, Observed, OnFailure, Phase, Policy, Rollout, Step, Verdict, Version, VersionId,
        Wanted, Weights, plan, rehearse,
    },
};

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

fn wanted(replicas: u32, surge: u32, unavailable: u32, policy: Policy) -> Wanted {
    Wanted {
        target: VersionId(2),
        replicas,
        budget: Budget { surge, unavailable },
        policy,
        progress_deadline: None,
        on_failure: OnFailure::RollBack,
    }
}

/// The (old, new) units of a rehearsal, each pair once.
fn dance(wanted: &Wanted) -> Vec<(u32, u32)> {
    let (moments, ends) = rehearse(wanted, START, STOP, None);
    assert!(ends, "{:?}", moments.last());
    let mut pairs: Vec<(u32, u32)> = moments.iter().map(|m| (m.old.units, m.new.units)).collect();
    pairs.dedup();
    pairs
}

#[test]
fn rolling_with_a_surge_of_one_goes_by_one() {
    let pairs = [(4, 1), (3, 1), (3, 2), (2, 2), (2, 3), (1, 3), (1, 4), (0, 4)];
    // What has been let go still counts until it is gone: it is seen at the next decision.
    let seen = dance(&wanted(4, 1, 0, Policy::Rolling));
    assert_eq!(seen.iter().filter(|pair| pairs.contains(pair)).count(), seen.len(), "{seen:?}");
    assert_eq!((seen[0], *seen.last().unwrap()), ((4, 1), (0, 4)));
}

#[test]
fn three_replicas_with_a_quarter_of_surge_do_not_stand_still() {
    let surge = Amount::Percent(25).ceil_of(3);
    for policy in [Policy::Rolling, Policy::Incremental { step: 5, interval: Duration::from_secs(10) }] {
        let (moments, ends) = rehearse(&wanted(3, surge, 0, policy), START, STOP, None);
        assert!(ends);
        let shares: Vec<u32> = moments.iter().map(|m| m.new.percent).collect();
        assert!(shares.contains(&33) && shares.contains(&67), "{shares:?}");
        assert!(moments.iter().all(|m| m.old.units + m.new.units <= 4));
    }
}

#[test]
fn one_replica_needs_a_full_second_copy() {
    assert_eq!(dance(&wanted(1, 1, 0, Policy::Rolling)), [(1, 1), (0, 1)]);
}

#[test]
fn incremental_steps_keep_their_interval() {
    let policy = Policy::Incremental { step: 10, interval: Duration::from_mins(1) };
    let (moments, ends) = rehearse(&wanted(10, 2, 0, policy), START, STOP, None);
    assert!(ends);
    let mut last: Option<(Duration, u32)> = None;
    for moment in moments.iter().filter(|m| m.reason.code == Code::MovingTraffic) {
        if let Some((at, percent)) = last {
            assert!(moment.at >= at + Duration::from_mins(1), "{moment:?}");
            assert!(moment.new.percent <= percent + 10, "{moment:?}");
        }
        last = Some((moment.at, moment.new.percent));
    }
    assert_eq!(last.map(|(_, percent)| percent), Some(100));
}

#[test]
fn a_canary_walks_through_what_its_surge_can_hold() {
    let steps =
        vec![Step::Weight(5, None), Step::Pause(Some(Duration::from_mins(5))), Step::Weight(100, None)];
    let (moments, ends) = rehearse(&wanted(4, 1, 0, Policy::Canary(steps)), START, STOP, None);
    assert!(ends);
    let mut shares: Vec<u32> = moments.iter().map(|m| m.new.percent).collect();
    shares.dedup();
    assert_eq!(shares, [0, 5, 25, 50, 75, 100]);
    assert!(moments.iter().all(|m| m.old.units + m.new.units <= 5));
}

#[test]
fn a_pause_without_end_needs_a_person() {
    let steps = vec![Step::Weight(5, None), Step::Pause(None), Step::Weight(100, None)];
    let (moments, ends) = rehearse(&wanted(4, 1, 0, Policy::Canary(steps)), START, STOP, None);
    assert!(ends);
    assert_eq!(moments.iter().filter(|m| m.reason.code == Code::PromotedByHand).count(), 1);
}

#[test]
fn blue_green_flips_once_and_takes_twice_the_room() {
    let policy = Policy::BlueGreen {
        auto_promote: true,
        delay: Duration::ZERO,
        preview: Amount::Percent(50),
        retain: Duration::ZERO,
    };
    let (moments, ends) = rehearse(&wanted(4, 4, 0, policy), START, STOP, None);
    assert!(ends);
    let mut shares: Vec<u32> = moments.iter().map(|m| m.new.percent).collect();
    shares.dedup();
    assert_eq!(shares, [0, 100]);
    assert_eq!(moments.iter().map(|m| m.old.units + m.new.units).max(), Some(8));
}

#[test]
fn blue_stays_whole_as_long_as_it_is_to_be_kept() {
    let retain = Duration::from_mins(5);
    let policy =
        Policy::BlueGreen { auto_promote: true, delay: Duration::ZERO, preview: Amount::Count(4), retain };
    let (moments, ends) = rehearse(&wanted(4, 4, 0, policy), START, STOP, None);
    assert!(ends);
    let flip = moments.iter().find(|m| m.new.percent == 100).unwrap().at;
    let first_loss = moments.iter().find(|m| m.old.ready < 4).unwrap().at;
    assert_eq!(first_loss, flip + retain);
}

#[test]
fn recreate_never_has_both() {
    let (moments, ends) = rehearse(&wanted(4, 0, 4, Policy::Recreate), START, STOP, None);
    assert!(ends);
    assert!(moments.iter().all(|m| m.old.units == 0 || m.new.units == 0), "{moments:?}");
}

#[test]
fn going_back_is_not_paced_and_ends_where_it_began() {
    let seeds = [(20, 5), (100, 100), (100, 10), (50, 30)];
    for ((surge, step), replicas) in
        seeds.into_iter().flat_map(|seed| [1, 2, 3, 4, 7, 100].map(|n| (seed, n)))
    {
        let context = format!("{surge}/{step}, {replicas} replicas");
        let surge = Amount::Percent(surge).ceil_of(replicas);
        let wanted =
            wanted(replicas, surge, 0, Policy::Incremental { step, interval: Duration::from_mins(1) });
        let (whole, _) = rehearse(&wanted, START, STOP, None);
        let middle = whole[whole.len() / 2].at;
        let (moments, ends) = rehearse(&wanted, START, STOP, Some(middle));
        assert!(ends, "{context}");
        let last = moments.last().unwrap();
        assert_eq!((last.old.ready, last.old.percent, last.new.units), (replicas, 100, 0), "{context}");
        assert!(moments.iter().all(|m| m.old.units + m.new.units <= replicas + surge), "{context}");
        // As fast as units start and stop, a surge at a time, and no slower.
        let rounds = u64::from(replicas.div_ceil(surge)) + 1;
        let most = middle + Duration::from_secs(rounds * (START + STOP).as_secs());
        assert!(last.at <= most, "{context}: {:?} after {most:?}", last.at);
    }
}

/// A decision in the middle of a canary's analysis, long after its time.
fn analysed(verdict: Verdict) -> (Action, Reason) {
    let wanted = wanted(2, 1, 0, Policy::Canary(vec![Step::Analysis(START), Step::Weight(100, None)]));
    let unit = |id, n| Version { id: VersionId(id), asked: n, live: n, ready: n, proven: true };
    let route = Weights::all(VersionId(1));
    let rollout = Rollout {
        phase: Phase::Forward,
        step: 0,
        step_since: Duration::ZERO,
        moved_at: None,
        progressed_at: Duration::ZERO,
        verdict,
    };
    let observed = Observed {
        versions: vec![unit(1, 2), unit(2, 1)],
        current: Some(VersionId(1)),
        applied: Some(route.clone()),
        route,
        rollout,
        retained: None,
        in_place: None,
    };
    plan(&wanted, &observed, Duration::from_hours(1))
}

#[test]
fn only_a_good_verdict_goes_on_and_a_bad_one_goes_back() {
    assert_eq!(analysed(Verdict::Passed).0, Action::StartStep(1));
    let (action, reason) = analysed(Verdict::Open);
    assert_eq!((action, reason.code), (Action::Wait, Code::Analysing));
    let (action, reason) = analysed(Verdict::Failed);
    assert_eq!((action, reason.code), (Action::SetPhase(Phase::RollingBack), Code::CheckFailed));
}

#[test]
fn a_rollout_that_stands_still_has_failed_at_its_deadline() {
    let mut wanted = wanted(2, 1, 0, Policy::Rolling);
    wanted.progress_deadline = Some(Duration::from_secs(100));
    let unit = |id, n, ready| Version { id: VersionId(id), asked: n, live: n, ready, proven: true };
    let route = Weights::all(VersionId(1));
    let rollout = Rollout {
        phase: Phase::Forward,
        step: 0,
        step_since: Duration::ZERO,
        moved_at: None,
        progressed_at: Duration::from_secs(50),
        verdict: Verdict::Open,
    };
    let observed = Observed {
        versions: vec![unit(1, 2, 2), unit(2, 1, 0)],
        current: Some(VersionId(1)),
        applied: Some(route.clone()),
        route,
        rollout,
        retained: None,
        in_place: None,
    };
    let (action, reason) = plan(&wanted, &observed, Duration::from_secs(149));
    assert_eq!(
        (action, reason.code, reason.until),
        (Action::Wait, Code::WaitingForReady, Some(Duration::from_secs(150)))
    );
    let (action, reason) = plan(&wanted, &observed, Duration::from_secs(150));
    assert_eq!((action, reason.code), (Action::SetPhase(Phase::RollingBack), Code::ProgressDeadlineExceeded));
    wanted.on_failure = OnFailure::Pause;
    assert_eq!(plan(&wanted, &observed, Duration::from_secs(150)).0, Action::SetPhase(Phase::Paused));
}

#[test]
fn many_units_one_at_a_time_take_long_and_end() {
    let (moments, ends) = rehearse(&wanted(20_000, 1, 0, Policy::Rolling), START, STOP, None);
    assert!(ends, "{:?}", moments.last());
}

#[test]
fn every_moment_says_why() {
    for policy in [Policy::Rolling, Policy::Recreate, Policy::Incremental { step: 7, interval: START }] {
        let (moments, _) = rehearse(&wanted(5, 2, 1, policy), START, STOP, None);
        assert!(moments.iter().all(|m| !m.reason.what.is_empty()));
    }
}

/// A decision about a set of three that is updated in place.
fn in_place(phase: Phase, installed: u32, updated: u32, progressed_at: Duration) -> Action {
    let mut wanted = wanted(3, 0, 1, Policy::InPlace);
    wanted.progress_deadline = Some(Duration::from_secs(100));
    let route = Weights::all(VersionId(1));
    let observed = Observed {
        versions: vec![Version { id: VersionId(1), asked: 3, live: 3, ready: 3, proven: true }],
        current: Some(VersionId(1)),
        applied: Some(route.clone()),
        route,
        rollout: Rollout {
            phase,
            step: 0,
            step_since: Duration::ZERO,
            moved_at: None,
            progressed_at,
            verdict: Verdict::Open,
        },
        retained: None,
        in_place: Some(InPlace { installed: VersionId(installed), updated }),
    };
    plan(&wanted, &observed, Duration::from_hours(1)).0
}

#[test]
fn an_update_in_place_is_installed_awaited_promoted_and_reverted() {
    let recently = Duration::from_hours(1);
    let long_ago = Duration::ZERO;
    assert_eq!(in_place(Phase::Forward, 1, 3, recently), Action::Install(VersionId(2)));
    assert_eq!(in_place(Phase::Forward, 2, 1, recently), Action::Wait);
    assert_eq!(in_place(Phase::Forward, 2, 3, recently), Action::Promote(VersionId(2)));
    assert_eq!(in_place(Phase::Forward, 2, 1, long_ago), Action::SetPhase(Phase::RollingBack));
    assert_eq!(in_place(Phase::RollingBack, 2, 1, long_ago), Action::Install(VersionId(1)));
    assert_eq!(in_place(Phase::RollingBack, 1, 2, long_ago), Action::Wait);
    assert_eq!(in_place(Phase::RollingBack, 1, 3, long_ago), Action::Done);
    assert_eq!(in_place(Phase::Paused, 2, 1, recently), Action::Wait);
}
