//! Larger units, failures and a second leader at random: no rule is broken, and in the end the unit serves or is gone.

mod units_world;

use planner::units::UnitSpec;
use proptest::prelude::*;
use stateright::Model;
use units_world::{Contract, Event, Faults, Now, RESTARTS, STARTUPS, World, spec};

fn specs() -> impl Strategy<Value = UnitSpec> {
    let policies = (prop::sample::select(&STARTUPS[..]), prop::sample::select(&RESTARTS[..]));
    (1..=6_u32, policies).prop_map(|(size, (startup, restart))| spec(size, startup, restart))
}

fn after(world: &World, now: &Now, choice: u16) -> Option<Now> {
    let mut events = Vec::new();
    world.actions(now, &mut events);
    // It is retired sometimes, not at the first chance.
    if !choice.is_multiple_of(16) {
        events.retain(|event| *event != Event::Retire);
    }
    let event = events[usize::from(choice) % events.len()];
    world.next_state(now, event)
}

/// No more failures, and one leader.
fn rest(world: &World, mut now: Now) -> Now {
    for _ in 0..1_000 {
        let mut events = Vec::new();
        world.actions(&now, &mut events);
        let natural = |event: &&Event| {
            matches!(
                event,
                Event::StepDown | Event::Decide | Event::Start(_) | Event::Ready(_) | Event::Gone(_)
            )
        };
        let next = events.iter().find(natural).and_then(|event| world.next_state(&now, *event));
        match next.or_else(|| world.next_state(&now, Event::Act)) {
            Some(next) => now = next,
            None => return now,
        }
    }
    now
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_rule_is_broken_and_the_unit_serves_or_is_gone_in_the_end(
        spec in specs(),
        late in any::<bool>(),
        choices in prop::collection::vec(any::<u16>(), 0..150),
    ) {
        let contract = if late { Contract::LateCreates } else { Contract::Compared };
        let faults = Faults { crashes: 5, failures: 6, looks: 5 };
        let world = World { spec, faults, contract };
        let mut now = world.start();
        for choice in choices {
            now = after(&world, &now, choice).unwrap_or(now);
            prop_assert_eq!(now.broken, None, "{:?}", now);
        }
        let now = rest(&world, now);
        prop_assert!(now.broken.is_none() && world.settled(&now), "{:?}", now);
    }
}
