//! A small Ray cluster, explored to its end: one head, a group of two workers, and a replica of two hosts.

mod explore;
mod ray_world;

use explore::explore;
use planner::ray::{Spec, Upgrade};
use ray_world::{Fault, Step, World, group, spec};
use stateright::{Model, Property};

#[derive(Clone)]
struct Cluster {
    start: World,
    faults: Vec<Fault>,
}

impl Model for Cluster {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.start.clone()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let plan = world.plan();
        // The operator stops after any of its writes, the record being the first.
        let first = if world.crashes == 0 { plan.ops.len() } else { usize::from(plan.record.is_none()) };
        if plan.record.is_some() || !plan.ops.is_empty() {
            steps.extend((first..=plan.ops.len()).map(Step::Reconcile));
        }
        steps.extend(world.natural());
        steps.extend(world.possible(&self.faults));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        Some(world.after(&step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing forbidden happened", |_, world: &World| world.broken.is_none())]
    }
}

fn small() -> Spec {
    spec(vec![group("g", 2, 1), group("m", 1, 2)])
}

fn run(name: &str, spec: Spec, faults: u8, kinds: &[Fault]) {
    let mut start = World::new(spec, faults).settled();
    start.crashes = 1;
    start.remembers = kinds.contains(&Fault::ListStale);
    explore(name, Cluster { start, faults: kinds.to_vec() }, World::matched);
}

#[test]
fn from_nothing_with_two_crashes_anywhere() {
    let mut start = World::new(small(), 0);
    start.crashes = 2;
    explore("from nothing", Cluster { start, faults: Vec::new() }, World::matched);
}

#[test]
fn any_fault_with_a_crash_anywhere() {
    use Fault::{DeletedByOthers, Die, List, Marked, NewTemplate, NodeLost, Scale, Sick, Suspend, Vanish};
    let kinds = [DeletedByOthers, Die, List, Marked, NewTemplate, NodeLost, Scale, Sick, Suspend, Vanish];
    for (name, fault_tolerant, autoscaling) in [
        ("any fault", true, false),
        ("any fault, autoscaled", true, true),
        ("any fault, no storage", false, false),
    ] {
        run(name, Spec { fault_tolerant, autoscaling, upgrade: Upgrade::Recreate, ..small() }, 1, &kinds);
    }
}

#[test]
fn two_faults_of_health_and_a_stale_view() {
    run(
        "two faults of health",
        spec(vec![group("g", 2, 1)]),
        2,
        &[Fault::Sick, Fault::Marked, Fault::StaleView],
    );
    run("two hosts", spec(vec![group("m", 1, 2)]), 2, &[Fault::Sick, Fault::Die, Fault::StaleView]);
}

#[test]
fn two_losses_and_a_stale_view() {
    let kinds = [Fault::Die, Fault::Vanish, Fault::NodeLost, Fault::StaleView];
    run("two losses", spec(vec![group("g", 1, 1)]), 2, &kinds);
}

#[test]
fn two_leaders_and_a_loss() {
    let kinds = [Fault::SecondLeader, Fault::Die, Fault::Vanish, Fault::NodeLost];
    run("two leaders and a loss", spec(vec![group("g", 1, 1)]), 2, &kinds);
}

#[test]
fn two_leaders_while_health_flips_and_people_scale() {
    let kinds = [Fault::SecondLeader, Fault::Sick, Fault::Marked];
    run("two leaders and health", spec(vec![group("g", 2, 1)]), 2, &kinds);
    run(
        "two leaders and a scale",
        spec(vec![group("g", 1, 1)]),
        2,
        &[Fault::SecondLeader, Fault::Scale, Fault::List],
    );
    run(
        "two leaders and two hosts",
        spec(vec![group("m", 1, 2)]),
        2,
        &[Fault::SecondLeader, Fault::Die, Fault::Sick],
    );
}

#[test]
fn people_scale_and_lists_are_stale() {
    let kinds = [Fault::Scale, Fault::List, Fault::ListStale, Fault::Vanish];
    run("lists are stale", spec(vec![group("g", 2, 1)]), 2, &kinds);
}

/// The same with two faults of any kinds in the whole world: minutes, so by command. Without fault tolerance two faults
/// are too large a world to explore whole; one fault and a crash are explored above.
/// `cargo test --release -p planner --test ray_explore -- --ignored --nocapture`
mod larger {
    use super::{Fault, Spec, Upgrade, run, small};

    #[test]
    #[ignore = "takes minutes"]
    fn pods_and_nodes_fail() {
        let kinds = [Fault::Die, Fault::Vanish, Fault::DeletedByOthers, Fault::NodeLost];
        run("pods and nodes fail", small(), 2, &kinds);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn health_flips() {
        run("health flips", small(), 3, &[Fault::Sick, Fault::Marked, Fault::Die, Fault::StaleView]);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn views_are_stale() {
        let kinds = [Fault::StaleView, Fault::Die, Fault::Vanish, Fault::NodeLost, Fault::Scale];
        run("views are stale", small(), 2, &kinds);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn people_scale_and_lists_are_stale() {
        let kinds = [Fault::Scale, Fault::List, Fault::ListStale, Fault::Vanish, Fault::Marked];
        run("people scale and lists are stale", small(), 2, &kinds);
        let autoscaled = Spec { autoscaling: true, ..small() };
        run("the autoscaler scales and lists are stale", autoscaled, 2, &kinds);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn two_leaders_in_the_whole_world() {
        let kinds = [Fault::SecondLeader, Fault::Die, Fault::NodeLost];
        run("two leaders in the whole world", small(), 2, &kinds);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn suspended_and_recreated() {
        let spec = Spec { upgrade: Upgrade::Recreate, ..small() };
        run("suspended and recreated", spec, 2, &[Fault::Suspend, Fault::NewTemplate, Fault::Die]);
    }
}
