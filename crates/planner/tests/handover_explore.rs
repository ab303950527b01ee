//! Every state that a handover can be in.
//!
//! In each of them the promises of the planner hold, and from each of them the wanted end is still reachable.

mod explore;
mod handover;

use std::time::Duration;

use explore::explore;
use handover::{Edit, World};
use planner::{
    Amount,
    handover::{Policy, Step},
};

const SECOND: Duration = Duration::from_secs(1);

fn policies() -> Vec<(&'static str, Policy)> {
    let canary = vec![
        Step::Weight(5, None),
        Step::Pause(Some(SECOND)),
        Step::Weight(50, Some(Amount::Percent(50))),
        Step::Analysis(SECOND),
        Step::Weight(100, None),
    ];
    vec![
        ("rolling", Policy::Rolling),
        ("incremental by 5", Policy::Incremental { step: 5, interval: SECOND }),
        ("incremental by 40", Policy::Incremental { step: 40, interval: SECOND }),
        ("canary", Policy::Canary(canary)),
        (
            "blue-green",
            Policy::BlueGreen {
                auto_promote: true,
                delay: SECOND,
                preview: Amount::Percent(50),
                retain: Duration::ZERO,
            },
        ),
        ("recreate", Policy::Recreate),
    ]
}

fn budgets(replicas: u32) -> Vec<(u32, u32)> {
    let all = [(1, 0), (0, 1), (1, 1), (2, 0), (replicas, 0), (replicas, replicas)];
    all.into_iter().filter(|(surge, unavailable)| surge + unavailable > 0).collect()
}

/// For every number of replicas from 1 to 20: the end stays reachable, whatever the room, the step and the strategy.
#[test]
fn the_end_stays_reachable_for_every_number_of_replicas() {
    let (mut states, mut worlds) = (0, 0);
    for replicas in 1..=20 {
        for (surge, unavailable) in budgets(replicas) {
            for (name, policy) in policies() {
                let world = World::new(replicas, surge, unavailable, policy);
                let title = format!("{name}, {replicas} replicas, surge {surge}, unavailable {unavailable}");
                let explored = explore::quietly(&title, world, World::is_matched);
                states += explored.states;
                worlds += 1;
            }
        }
    }
    println!("{worlds} worlds, {states} states");
}

/// Reverted, called off, failed, tried again, changed to a third version, at every moment.
#[test]
fn people_may_change_their_minds_at_every_moment() {
    let minds: [&[Edit]; 6] = [
        &[Edit::Target(1)],
        &[Edit::Target(3)],
        &[Edit::Target(3), Edit::Target(2)],
        &[Edit::Abort, Edit::Retry],
        &[Edit::Fail],
        &[Edit::Scale(1), Edit::Scale(3)],
    ];
    let mut states = 0;
    for replicas in 1..=3 {
        for (surge, unavailable) in [(1, 0), (0, 1), (1, 1)] {
            for (name, policy) in policies() {
                for edits in minds {
                    let mut world = World::new(replicas, surge, unavailable, policy.clone());
                    world.edits = edits.to_vec();
                    let title = format!("{name}, {replicas} replicas, +{surge} -{unavailable}, {edits:?}");
                    states += explore::quietly(&title, world, World::is_matched).states;
                }
            }
        }
    }
    println!("{states} states");
}

/// Units die, and a second controller acts on an old view.
#[test]
fn deaths_and_old_views_break_no_promise() {
    let mut states = 0;
    for replicas in 1..=3 {
        for (surge, unavailable) in [(1, 0), (0, 1)] {
            for (name, policy) in policies() {
                let mut dying = World::new(replicas, surge, unavailable, policy.clone());
                dying.losses = 2;
                dying.edits = vec![Edit::Abort];
                let title = format!("{name}, {replicas} replicas, +{surge} -{unavailable}, two deaths");
                states += explore::quietly(&title, dying, World::is_matched).states;
                let mut stale = World::new(replicas, surge, unavailable, policy);
                stale.stale = true;
                stale.edits = vec![Edit::Target(1)];
                let title = format!("{name}, {replicas} replicas, +{surge} -{unavailable}, an old view");
                states += explore::quietly(&title, stale, World::is_matched).states;
            }
        }
    }
    println!("{states} states");
    let mut world = World::new(3, 1, 0, Policy::Rolling);
    world.losses = 1;
    world.stale = true;
    world.edits = vec![Edit::Target(3)];
    explore("rolling, 3 replicas, a death, an old view and a third version", world, World::is_matched);
}
