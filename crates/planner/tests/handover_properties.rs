//! Larger worlds than can be explored whole: random walks through them, and what must hold on every one.

mod handover;

use std::time::Duration;

use handover::{Edit, State, World};
use planner::{
    Amount, Budget,
    handover::{
        Action, Observed, OnFailure, Phase, Policy, Rollout, Step, Verdict, Version, VersionId, Wanted,
        Weights, plan,
    },
};
use proptest::prelude::*;
use stateright::Model;

const SECOND: Duration = Duration::from_secs(1);

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![(0..40_u32).prop_map(Amount::Count), (0..=100_u32).prop_map(Amount::Percent)]
}

fn policy() -> impl Strategy<Value = Policy> {
    let step = prop_oneof![
        (1..=100_u32, prop::option::of(amount())).prop_map(|(percent, units)| Step::Weight(percent, units)),
        Just(Step::Pause(Some(SECOND))),
        Just(Step::Analysis(SECOND)),
    ];
    prop_oneof![
        Just(Policy::Rolling),
        Just(Policy::Recreate),
        (1..=100_u32).prop_map(|step| Policy::Incremental { step, interval: SECOND }),
        prop::collection::vec(step, 0..6).prop_map(Policy::Canary),
        amount().prop_map(|preview| Policy::BlueGreen {
            auto_promote: true,
            delay: SECOND,
            preview,
            retain: SECOND
        }),
    ]
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (1..=3_u32).prop_map(Edit::Target),
        (0..60_u32).prop_map(Edit::Scale),
        Just(Edit::Abort),
        Just(Edit::Retry),
        Just(Edit::Fail),
    ];
    prop::collection::vec(edit, 0..5)
}

prop_compose! {
    fn world()(
        replicas in 0..50_u32,
        surge in 0..20_u32,
        unavailable in 0..20_u32,
        policy in policy(),
        losses in 0..6_u8,
        edits in edits(),
        stale in any::<bool>(),
    ) -> World {
        let budget = Budget { surge, unavailable };
        World { replicas, budget, policy, losses, edits, stale }
    }
}

/// One thing after the other, as the bytes choose.
fn walk(world: &World, choices: &[u8]) -> State {
    let mut state = world.init_states().remove(0);
    for choice in choices {
        let mut actions = Vec::new();
        world.actions(&state, &mut actions);
        let action = actions.swap_remove(usize::from(*choice) % actions.len());
        if let Some(next) = world.next_state(&state, action) {
            state = next;
        }
        assert_eq!(state.broken, None, "{state:?}");
    }
    state
}

/// Nothing goes wrong any more: units start and stop, the route is confirmed, time passes, the planner plans.
fn settle(world: &World, state: &mut State) -> Option<u32> {
    state.losses = 0;
    state.edits.clear();
    state.old_view = None;
    for round in 0..3_000 {
        if World::is_matched(state) && world.decide(state) == Action::Done {
            return Some(round);
        }
        for units in &mut state.versions {
            units.ready += std::mem::take(&mut units.starting);
            units.leaving = 0;
        }
        state.applied = Some(state.route.clone());
        state.moved = state.moved.map(|_| true);
        state.step_over = true;
        let action = world.decide(state);
        world.act(state, &action);
        assert_eq!(state.broken, None, "{state:?}");
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Promises hold on every way, and from wherever it led the world comes to rest as it should be.
    #[test]
    fn every_walk_keeps_its_promises_and_comes_to_rest(
        world in world(),
        choices in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut state = walk(&world, &choices);
        prop_assert!(settle(&world, &mut state).is_some(), "{:?}", state);
    }

    /// A decision is a function of what is, not of the order in which it is listed.
    #[test]
    fn another_order_of_the_versions_decides_the_same(
        world in world(),
        choices in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let state = walk(&world, &choices);
        prop_assert_eq!(world.decide(&state), world.decide_in_another_order(&state));
    }

    /// The units that a share needs are the fewest that carry it, over the whole range of numbers.
    #[test]
    fn a_share_needs_the_fewest_units_that_carry_it(
        one in any::<u32>(),
        other in any::<u32>(),
        floor in any::<u32>(),
    ) {
        let (one, other) = (one / 2, other / 2);
        let weights = Weights::split((VersionId(1), one), (VersionId(2), other));
        let (weight, total) = (u128::from(weights.of(VersionId(1))), u128::from(weights.total()));
        let units = u128::from(weights.units_needed(VersionId(1), floor));
        prop_assert!(units * total >= weight * u128::from(floor));
        prop_assert!(units == 0 || (units - 1) * total < weight * u128::from(floor));
    }

    /// Any numbers at all: a decision, no panic, and weights that a route may have.
    #[test]
    fn every_observation_gets_a_decision(
        replicas in any::<u32>(),
        surge in any::<u32>(),
        unavailable in any::<u32>(),
        units in prop::collection::vec((1..5_u32, 0..1_000_000_u32, 0..1_000_000_u32, 0..1_000_000_u32, any::<bool>()), 0..4),
        shares in (1..1_000_000_u32, 1..1_000_000_u32),
        settled in any::<bool>(),
        policy in policy(),
        phase in prop::sample::select(vec![Phase::Forward, Phase::Paused, Phase::RollingBack]),
        current in prop::option::of(1..4_u32),
        step in any::<u32>(),
    ) {
        let mut versions: Vec<Version> = units
            .into_iter()
            .map(|(id, asked, live, ready, proven)| Version { id: VersionId(id), asked, live, ready: ready.min(live), proven })
            .collect();
        versions.sort_by_key(|version| version.id);
        versions.dedup_by_key(|version| version.id);
        let route = Weights::split((VersionId(1), shares.0), (VersionId(2), shares.1));
        let observed = Observed {
            versions,
            current: current.map(VersionId),
            applied: settled.then(|| route.clone()),
            route,
            rollout: Rollout {
                phase,
                step,
                step_since: Duration::ZERO,
                moved_at: None,
                progressed_at: Duration::ZERO,
                verdict: Verdict::Open,
            },
            retained: None,
            in_place: None,
        };
        let wanted = Wanted {
            target: VersionId(2),
            replicas,
            budget: Budget { surge, unavailable },
            policy,
            progress_deadline: Some(SECOND),
            on_failure: OnFailure::Pause,
        };
        let (action, reason) = plan(&wanted, &observed, Duration::from_hours(1));
        prop_assert!(!reason.what.is_empty());
        if let Action::SetWeights(weights, _) = action {
            prop_assert!(weights.total() > 0);
            prop_assert!(weights.versions().all(|id| weights.of(id) <= 1_000_000));
        }
    }
}
