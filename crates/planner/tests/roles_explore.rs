//! Every state of small groups under faults: what is promised of each write holds, what comes to rest is at its goal,
//! and from everywhere the goal is in reach.

mod explore;
mod roles_kit;
mod roles_world;

use explore::explore;
use planner::roles::GroupSpec;
use roles_kit::{hash, pd, role};
use roles_world::{Faults, Upgrade};

fn explored(name: &str, spec: GroupSpec, faults: Faults) -> usize {
    let upgrade = Upgrade { spec, faults };
    let goal = upgrade.clone();
    explore(name, upgrade, move |world| goal.reached(world)).states
}

/// Two decode and two prefill, by the proposal's steps.
fn two_by_two() -> GroupSpec {
    pd(2, 2)
}

const NONE: Faults = Faults { deaths: 0, flaps: 0, crashes: 0, stale: 0, edits: 0, scales: 0 };

#[test]
fn an_upgrade_without_faults() {
    assert!(explored("2x2", two_by_two(), NONE) > 10);
}

#[test]
fn a_death_and_a_crash() {
    explored("2x2, death, crash", two_by_two(), Faults { deaths: 1, crashes: 1, ..NONE });
}

#[test]
fn two_deaths() {
    explored("2x2, two deaths", two_by_two(), Faults { deaths: 2, ..NONE });
}

#[test]
fn a_replica_flaps_and_another_dies() {
    explored("2x2, flap, death", two_by_two(), Faults { deaths: 1, flaps: 1, ..NONE });
}

#[test]
fn a_stale_read_and_a_death() {
    explored("2x2, stale read, death", two_by_two(), Faults { deaths: 1, stale: 1, ..NONE });
}

#[test]
fn a_revert_or_a_third_revision_with_a_death() {
    explored("2x2, edit, death", two_by_two(), Faults { deaths: 1, edits: 1, ..NONE });
}

#[test]
fn two_edits() {
    explored("2x2, two edits", two_by_two(), Faults { edits: 2, ..NONE });
}

#[test]
fn people_scale_a_role_in_the_middle() {
    explored("2x2, scaled", two_by_two(), Faults { scales: 1, ..NONE });
    explored("2x2, scaled, death", two_by_two(), Faults { scales: 1, deaths: 1, ..NONE });
    explored(
        "2x2, scaled, crash, stale read",
        two_by_two(),
        Faults { scales: 1, crashes: 1, stale: 1, ..NONE },
    );
}

#[test]
fn one_role_of_three() {
    let spec = GroupSpec { roles: vec![role("decode", 3, "b")], ..pd(3, 0) };
    let spec =
        GroupSpec { steps: spec.steps.into_iter().filter(|step| step.role == "decode").collect(), ..spec };
    let faults = Faults { deaths: 1, crashes: 1, edits: 1, ..NONE };
    explored("3x1, edit, death, crash", spec.clone(), faults);
    explored("3x1, scaled, edit", spec.clone(), Faults { scales: 1, edits: 1, ..NONE });
    explored("3x1, scaled twice", spec.clone(), Faults { scales: 2, ..NONE });
    explored("3x1, two stale reads, death", spec.clone(), Faults { deaths: 1, stale: 2, ..NONE });
    let mut two_at_once = spec;
    two_at_once.roles[0].max_unavailable = 2;
    explored("3x1, two at once, death, crash", two_at_once, Faults { deaths: 1, crashes: 1, ..NONE });
}

#[test]
fn a_role_that_does_not_change_beside_one_that_does() {
    let mut spec = two_by_two();
    spec.roles[0].target = hash("a");
    explored("2x2, decode unchanged, edit, death", spec, Faults { deaths: 1, edits: 1, ..NONE });
}

#[test]
fn a_death_a_crash_a_stale_read_and_an_edit() {
    let faults = Faults { deaths: 1, crashes: 1, stale: 1, edits: 1, ..NONE };
    explored("2x2, death, crash, stale read, edit", two_by_two(), faults);
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn everything_at_once() {
    let faults = Faults { deaths: 2, crashes: 1, stale: 1, edits: 1, ..NONE };
    explored("2x2, two deaths, crash, stale read, edit", two_by_two(), faults);
    let faults = Faults { deaths: 1, flaps: 1, crashes: 2, stale: 1, edits: 1, ..NONE };
    explored("2x2, death, flap, two crashes, stale read, edit", two_by_two(), faults);
    let faults = Faults { deaths: 1, stale: 1, edits: 1, scales: 1, ..NONE };
    explored("2x2, death, stale read, edit, scaled", two_by_two(), faults);
}
