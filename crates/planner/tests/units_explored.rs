//! Every history of a small unit: crashes between any two writes, pods that restart, end, are deleted by somebody or lose
//! their node, a set that retires it at any moment, and a second leader with an older view.

mod explore;
mod units_world;

use explore::explore;
use planner::units::{RestartPolicy, StartupPolicy};
use units_world::{Contract, Faults, RESTARTS, STARTUPS, World, spec};

/// A unit of two under every policy.
fn each(name: &str, faults: Faults, contract: Contract) {
    let mut states = 0;
    for startup in STARTUPS {
        for restart in RESTARTS {
            let world = World { spec: spec(2, startup, restart), faults, contract };
            let goal = world.clone();
            let name = format!("{name}, {startup:?}, {restart:?}");
            states += explore(&name, world, move |now| goal.settled(now)).states;
        }
    }
    println!("{name}: {states} states in all");
}

#[test]
fn a_unit_of_two_comes_back_from_every_failure_and_leaves_from_every_state() {
    each("unit", Faults { crashes: 1, failures: 2, looks: 0 }, Contract::Compared);
}

#[test]
fn two_leaders_do_no_more_than_one() {
    each("two leaders", Faults { crashes: 0, failures: 1, looks: 2 }, Contract::Compared);
}

#[test]
fn a_pod_that_a_second_leader_creates_late_never_serves_and_goes() {
    each("late creates", Faults { crashes: 0, failures: 1, looks: 1 }, Contract::LateCreates);
}

#[test]
#[should_panic(expected = "the rules of a unit")]
fn without_a_compare_and_set_two_leaders_would_break_the_rules() {
    let spec = spec(2, StartupPolicy::LeaderCreated, RestartPolicy::RecreateOnPodRestart);
    let faults = Faults { crashes: 0, failures: 1, looks: 1 };
    explore("blind", World { spec, faults, contract: Contract::Blind }, |_| true);
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn two_leaders_under_every_fault_at_once() {
    each("two leaders, every fault", Faults { crashes: 1, failures: 2, looks: 2 }, Contract::Compared);
    each("late creates, every fault", Faults { crashes: 1, failures: 2, looks: 2 }, Contract::LateCreates);
}
