//! Every state of three small groups: none below the partition is touched, no Running group is taken beyond the budget,
//! one is finished before the next begins, and the end stays in reach.

mod explore;
mod roles_kit;

use explore::explore;
use planner::{
    Uid,
    roles::{Group, Op, Replica, SetSpec, State, plan_set},
};
use roles_kit::{NOW, apply, group, hash, set};
use stateright::{Model, Property};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    groups: Vec<Group>,
    target: &'static str,
    deaths: u8,
    crashes: u8,
    edits: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Decide,
    Crash(usize),
    Moves(usize, usize),
    Dies(usize, usize),
    Target(&'static str),
}

#[derive(Clone)]
struct Upgrade {
    spec: SetSpec,
    deaths: u8,
    crashes: u8,
    edits: u8,
}

impl Upgrade {
    fn spec(&self, target: &str) -> SetSpec {
        let mut spec = self.spec.clone();
        for role in &mut spec.group.roles {
            role.target = hash(target);
        }
        spec
    }

    fn decide(&self, world: &World) -> Vec<(u32, Op)> {
        let plans = plan_set(&self.spec(world.target), &world.groups, NOW).groups;
        plans
            .into_iter()
            .flat_map(|group| group.plan.ops.into_iter().map(move |op| (group.ordinal, op)))
            .collect()
    }

    fn write(&self, world: &mut World, ordinal: u32, op: &Op) {
        if !world.groups.iter().any(|group| group.ordinal == ordinal) {
            world.groups.push(Group { ordinal, recorded: self.spec.current.clone(), replicas: Vec::new() });
            world.groups.sort_by_key(|group| group.ordinal);
        }
        world.broken = world.broken.or_else(|| self.judge(world, ordinal, op));
        let at = world.groups.iter().position(|group| group.ordinal == ordinal).expect("should be there");
        apply(&mut world.groups[at], op, Uid("x".to_owned()));
        world.groups[at].replicas.sort_by_key(|replica| (replica.role.clone(), replica.ordinal));
    }

    fn judge(&self, world: &World, ordinal: u32, op: &Op) -> Option<&'static str> {
        let this = world.groups.iter().find(|group| group.ordinal == ordinal)?;
        let protected = ordinal < self.spec.partition;
        let (role, taken) = match op {
            Op::Create { hash, .. } => {
                return (protected && hash.0 != "a")
                    .then_some("a protected group was given another revision");
            }
            Op::TakeOut { role, .. } => (role, true),
            Op::Delete { role, .. } => (role, false),
        };
        let replica = this.replicas.iter().find(|replica| replica.role == *role)?;
        if !matches!(replica.state, State::Ready | State::Starting) {
            return None;
        }
        let down = world.groups.iter().filter(|group| !runs(group)).count() + 3 - world.groups.len();
        let begun = |group: &&Group| {
            group.ordinal != ordinal && mixed(group, world.target) && group.ordinal >= self.spec.partition
        };
        if protected {
            Some("a protected group was touched")
        } else if replica.hash.0 == world.target {
            Some("a replica was retired that has its revision")
        } else if taken && runs(this) && down + 1 > self.spec.max_unavailable as usize {
            Some("a Running group was taken beyond the budget")
        } else if runs(this)
            && !mixed(this, world.target)
            && world.groups.iter().filter(begun).count() >= self.room()
        {
            Some("a group was begun before another was finished")
        } else {
            None
        }
    }

    fn room(&self) -> usize {
        self.spec.max_unavailable as usize
    }

    fn reached(&self, world: &World) -> bool {
        let at_goal = |group: &Group| {
            let wanted = if group.ordinal < self.spec.partition { "a" } else { world.target };
            runs(group) && group.replicas.iter().all(|replica| replica.hash.0 == wanted)
        };
        let done = plan_set(&self.spec(world.target), &world.groups, NOW).done;
        done && world.groups.len() == 3 && world.groups.iter().all(at_goal)
    }
}

fn runs(group: &Group) -> bool {
    group.replicas.iter().filter(|replica| replica.state == State::Ready).count() == 2
}

/// Partly at the target.
fn mixed(group: &Group, target: &str) -> bool {
    let updated = group.replicas.iter().filter(|replica| replica.hash.0 == target).count();
    updated > 0 && updated < group.replicas.len()
}

fn moved(replica: &Replica) -> Option<State> {
    match replica.state {
        State::Starting | State::Ready => Some(State::Ready),
        State::Leaving { .. } => Some(State::Leaving { done: true }),
        State::Terminating => None,
    }
}

impl Model for Upgrade {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let old = |ordinal| Group { ordinal, ..group(&[("decode", "a"), ("prefill", "a")]) };
        let Self { deaths, crashes, edits, .. } = *self;
        vec![World { groups: (0..3).map(old).collect(), target: "b", deaths, crashes, edits, broken: None }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // What is broken is not explored further: it is a dead end, and found as one.
        if world.broken.is_some() {
            return;
        }
        actions.push(Action::Decide);
        for (at, group) in world.groups.iter().enumerate() {
            actions.extend((0..group.replicas.len()).map(|replica| Action::Moves(at, replica)));
            if world.deaths > 0 {
                actions.extend((0..group.replicas.len()).map(|replica| Action::Dies(at, replica)));
            }
        }
        if world.crashes > 0 {
            actions.extend((1..self.decide(world).len()).map(Action::Crash));
        }
        if world.edits > 0 {
            actions.extend(["a", "b", "c"].into_iter().filter(|to| *to != world.target).map(Action::Target));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut after = world.clone();
        match action {
            Action::Decide => {
                self.decide(world).iter().for_each(|(group, op)| self.write(&mut after, *group, op));
            }
            Action::Crash(many) => {
                after.crashes -= 1;
                self.decide(world)
                    .iter()
                    .take(many)
                    .for_each(|(group, op)| self.write(&mut after, *group, op));
            }
            Action::Moves(group, replica) => match moved(&world.groups[group].replicas[replica]) {
                Some(state) => after.groups[group].replicas[replica].state = state,
                None => drop(after.groups[group].replicas.remove(replica)),
            },
            Action::Dies(group, replica) => {
                after.deaths -= 1;
                after.groups[group].replicas.remove(replica);
            }
            Action::Target(target) => {
                after.edits -= 1;
                after.target = target;
            }
        }
        after.groups.retain(|group| !group.replicas.is_empty());
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every write is as promised", |_, world: &World| world.broken.is_none())]
    }
}

fn explored(name: &str, upgrade: Upgrade) {
    let goal = upgrade.clone();
    explore(name, upgrade, move |world| goal.reached(world));
}

#[test]
fn three_groups_and_a_death() {
    for partition in 0..=1 {
        let spec = set(3, partition, 1);
        explored("3 groups, death, crash", Upgrade { spec, deaths: 1, crashes: 1, edits: 0 });
    }
}

#[test]
fn three_groups_and_an_edit() {
    explored("3 groups, edit", Upgrade { spec: set(3, 0, 1), deaths: 0, crashes: 0, edits: 1 });
}

#[test]
fn three_groups_two_at_a_time() {
    explored("3 groups, two at a time", Upgrade { spec: set(3, 0, 2), deaths: 0, crashes: 1, edits: 0 });
}

#[test]
#[ignore = "minutes; run by hand: cargo test -p planner --release -- --ignored"]
fn three_groups_two_deaths_and_an_edit() {
    let spec = set(3, 1, 1);
    explored("3 groups, two deaths, crash, edit", Upgrade { spec, deaths: 2, crashes: 1, edits: 1 });
}
