//! Bigger Ray clusters, with faults and people at random: nothing forbidden ever happens, and all ends well.

mod ray_world;

use planner::ray::{Group, Spec, Upgrade};
use proptest::prelude::*;
use ray_world::{Fault, Step, World, group, spec};

const FAULTS: [Fault; 13] = [
    Fault::Die,
    Fault::Vanish,
    Fault::DeletedByOthers,
    Fault::Sick,
    Fault::Marked,
    Fault::NodeLost,
    Fault::Scale,
    Fault::List,
    Fault::ListStale,
    Fault::Suspend,
    Fault::NewTemplate,
    Fault::StaleView,
    Fault::SecondLeader,
];

fn specs() -> impl Strategy<Value = Spec> {
    let groups = prop::collection::vec((0_u32..=12, 1_u32..=4), 1..=3);
    (groups, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(groups, tolerant, autoscaling, recreate)| {
            let groups = groups.into_iter().enumerate();
            let groups = groups.map(|(index, (replicas, hosts))| {
                let max = if autoscaling { 12 } else { 30 };
                let replicas = if hosts == 1 { replicas * 2 } else { replicas };
                Group { max, ..group(&format!("g{index}"), replicas, hosts) }
            });
            let upgrade = if recreate { Upgrade::Recreate } else { Upgrade::None };
            Spec { fault_tolerant: tolerant, autoscaling, upgrade, ..spec(groups.collect()) }
        },
    )
}

/// A choice among what can happen: mostly the operator and nature, sometimes a fault.
fn step(world: &World, choice: (u8, u16)) -> Option<Step> {
    let (kind, which) = (choice.0, usize::from(choice.1));
    let steps = match kind {
        0..=3 => return Some(Step::Reconcile(if kind == 0 { which % 8 } else { usize::MAX })),
        4..=7 => world.natural(),
        _ => world.possible(&FAULTS),
    };
    (!steps.is_empty()).then(|| steps[which % steps.len()].clone())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_forbidden_happens_and_all_ends_well(
        spec in specs(),
        settled in any::<bool>(),
        choices in prop::collection::vec((0_u8..10, any::<u16>()), 0..120),
    ) {
        let mut world = World::new(spec, 60);
        if settled {
            world = world.settled();
        }
        let mut past = Vec::new();
        for choice in choices {
            let Some(step) = step(&world, choice) else { continue };
            world = world.after(&step);
            past.push(step);
            prop_assert_eq!(&world.broken, &None, "after {:?}", past);
        }
        let world = world.settled();
        prop_assert_eq!(&world.broken, &None, "after {:?} and peace", past);
    }

    #[test]
    fn the_same_view_is_decided_alike_and_a_repetition_changes_nothing(spec in specs()) {
        let world = World::new(spec, 0);
        prop_assert_eq!(world.plan(), world.plan());
        let once = world.after(&Step::Reconcile(usize::MAX));
        let mut blind = once.clone();
        blind.pods = Vec::new();
        // The same plan from a view that shows nothing of the first: the names are taken.
        prop_assert_eq!(blind.plan().ops, world.plan().ops);
    }
}
