//! A group in a world of faults, to be explored to its end: replicas die and flap, are slow without bound, the operator
//! crashes between two writes and reads what is no longer so, and the user changes the target and the number of replicas
//! on the way.
//!
//! The rules are written here a second time, in other words and on the world's own state, and judged at each write.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::time::Duration;

use planner::{
    Uid,
    roles::{Group, GroupSpec, Op, Recorded, Replica, RoleHash, State, Turn, plan_group},
};
use stateright::{Model, Property};

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub deaths: u8,
    pub flaps: u8,
    pub crashes: u8,
    pub stale: u8,
    pub edits: u8,
    pub scales: u8,
}

/// What the user wants at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wish {
    target: u8,
    /// Of each role.
    replicas: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    hash: u8,
    state: State,
    life: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pod: Option<Pod>,
    /// Lost by no decision of ours, and not Ready again since.
    lost: bool,
    /// Incarnations so far, modulo 4: enough to tell old reads.
    lives: u8,
    /// Retired so often for the current target.
    retired: u8,
}

type Slots = Vec<Vec<Slot>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    wish: Wish,
    slots: Slots,
    left: Faults,
    /// An old read that is still on its way to the operator, and its age.
    read: Option<(Slots, u8)>,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Decide,
    /// Only so many writes, then a crash.
    Crash(usize),
    Read,
    DecideOnRead,
    Ready(usize, usize),
    Drained(usize, usize),
    Gone(usize, usize),
    Dies(usize, usize),
    Flaps(usize, usize),
    Target(u8),
    Scale(usize, u32),
}

const NAMES: [&str; 3] = ["a", "b", "c"];
/// How many transitions an old read survives.
const OLDEST: u8 = 3;

/// A spec to upgrade to, from `a`, with its faults. Without replicas at first the group is fresh.
#[derive(Clone)]
pub struct Upgrade {
    pub spec: GroupSpec,
    pub faults: Faults,
}

impl Upgrade {
    fn hash(target: u8) -> RoleHash {
        RoleHash(NAMES[usize::from(target)].to_owned())
    }

    fn spec(&self, wish: &Wish) -> GroupSpec {
        let mut spec = self.spec.clone();
        for (role, replicas) in spec.roles.iter_mut().zip(&wish.replicas) {
            // A role whose target is `a` is one that the upgrade leaves alone.
            if role.target != Self::hash(0) {
                role.target = Self::hash(wish.target);
            }
            role.replicas = *replicas;
        }
        spec
    }

    fn observe(&self, slots: &Slots) -> Group {
        let mut group = Group::default();
        for (role, slots) in self.spec.roles.iter().zip(slots) {
            group.recorded.push(Recorded {
                role: role.name.clone(),
                hash: Self::hash(0),
                replicas: role.replicas,
            });
            for (ordinal, slot) in slots.iter().enumerate() {
                let Some(pod) = slot.pod else { continue };
                group.replicas.push(Replica {
                    role: role.name.clone(),
                    ordinal: u32::try_from(ordinal).expect("should be few"),
                    uid: Uid(pod.life.to_string()),
                    hash: Self::hash(pod.hash),
                    state: pod.state,
                    since: Duration::ZERO,
                    failed: false,
                    deletion_cost: 0,
                    blocking: None,
                });
            }
        }
        group
    }

    fn decide(&self, wish: &Wish, slots: &Slots) -> Vec<Op> {
        plan_group(&self.spec(wish), &self.observe(slots), Turn::Admitted, Duration::ZERO).ops
    }

    /// Carries out the first so many of the writes that were decided on a read.
    fn write_all(&self, world: &mut World, ops: &[Op], read: &Slots, old: bool) {
        let mut seen = read.clone();
        for op in ops {
            self.write(world, op, &mut seen, old);
        }
    }

    fn role(&self, name: &str) -> usize {
        self.spec.roles.iter().position(|role| role.name == name).expect("should be a role")
    }

    /// Carries a write out, and judges it by what was read; what begins to go leaves what was read.
    fn write(&self, world: &mut World, op: &Op, read: &mut Slots, old: bool) {
        match op {
            Op::Create { role, ordinal, hash } => self.create(world, self.role(role), *ordinal, hash, read),
            Op::TakeOut { role, ordinal, uid } => {
                let retired = self.retire(world, (self.role(role), *ordinal), uid, State::Ready, read);
                let (role, floor) = (self.role(role), self.floor(&world.wish, self.role(role)));
                let lost = world.slots[role].iter().filter(|slot| slot.lost && !slot.is_ready()).count();
                let spared = if old { lost } else { 0 };
                if retired && ready(&world.slots[role]) + spared < floor {
                    world.broken = Some("fewer Ready than the budget leaves");
                }
            }
            Op::Delete { role, ordinal, uid, seen } => {
                self.retire(world, (self.role(role), *ordinal), uid, *seen, read);
            }
        }
    }

    fn create(&self, world: &mut World, role: usize, ordinal: u32, hash: &RoleHash, read: &Slots) {
        let target = self.goal_hash(role, world.wish.target);
        let there = world.slots[role].iter().filter(|slot| slot.pod.is_some()).count();
        let slot = &mut world.slots[role][ordinal as usize];
        if slot.pod.is_some() {
            return;
        }
        if there >= world.wish.replicas[role] as usize {
            world.broken = Some("more replicas are made than are wanted");
        }
        let hash = NAMES.iter().position(|name| *name == hash.0).expect("should be a known hash");
        let hash = u8::try_from(hash).expect("should be small");
        slot.lives = (slot.lives + 1) % 4;
        slot.pod = Some(Pod { hash, state: State::Starting, life: slot.lives });
        let none_yet = self.updated(read, role, world.wish.target) == 0;
        if hash == target && target != 0 && none_yet && !self.open_before(read, role, &world.wish) {
            world.broken = Some("a replica was updated before its role's turn");
        }
        if hash != target && hash != 0 {
            world.broken = Some("a replica was made at a revision that is neither the old nor the target");
        }
    }

    /// The write that begins or goes on with a retirement; whether it took a Ready replica out of service.
    fn retire(
        &self,
        world: &mut World,
        (role, ordinal): (usize, u32),
        uid: &Uid,
        seen: State,
        read: &mut Slots,
    ) -> bool {
        let target = world.wish.target;
        let surplus = stay(&read[role]).count() > world.wish.replicas[role] as usize;
        let before = read.clone();
        if matches!(seen, State::Ready | State::Starting) {
            read[role][ordinal as usize].becomes(State::Terminating);
        }
        let slot = &mut world.slots[role][ordinal as usize];
        let Some(pod) = slot.pod.as_mut().filter(|pod| pod.life.to_string() == uid.0 && pod.state == seen)
        else {
            return false;
        };
        let begins = matches!(pod.state, State::Ready | State::Starting);
        pod.state = if seen == State::Ready { State::Leaving { done: false } } else { State::Terminating };
        if begins && surplus {
            self.judge_surplus(
                world,
                role,
                &before,
                *before[role][ordinal as usize].pod.as_ref().expect("should be read"),
            );
        } else if begins {
            let updated = pod.hash == self.goal_hash(role, target);
            slot.retired += 1;
            // A slot that is empty when a step before its own falls back returns old, and is replaced again.
            let faults = (self.faults.deaths - world.left.deaths) + (self.faults.flaps - world.left.flaps);
            let often = slot.retired > 1 + faults;
            self.judge_begin(world, role, &before, updated, often);
        }
        begins && seen == State::Ready
    }

    /// Who goes where fewer are wanted: what serves stays before what does not, then the updated before the outdated.
    fn judge_surplus(&self, world: &mut World, role: usize, read: &Slots, victim: Pod) {
        let worth =
            |pod: &Pod| (pod.state == State::Ready, pod.hash == self.goal_hash(role, world.wish.target));
        if stay(&read[role]).any(|pod| worth(&pod) < worth(&victim)) {
            world.broken = Some("a replica goes while one of less worth stays");
        }
    }

    fn judge_begin(&self, world: &mut World, role: usize, read: &Slots, updated: bool, often: bool) {
        // What is on its way out returns updated, except what goes because fewer are wanted.
        let wanted = world.wish.replicas[role] as usize;
        let (there, stay) =
            (read[role].iter().filter(|slot| slot.pod.is_some()).count(), stay(&read[role]).count());
        let return_updated = (there - stay).min(wanted.saturating_sub(stay));
        let on_their_way = return_updated + self.updated(read, role, world.wish.target);
        if updated {
            world.broken = Some("a replica was retired that has its revision");
        } else if often {
            world.broken = Some("a replica was replaced again without a fault");
        } else if on_their_way >= self.open_goal(read, role, &world.wish) {
            world.broken = Some("more are on their way than the open step asks for");
        }
    }

    fn goal_hash(&self, role: usize, target: u8) -> u8 {
        if self.spec.roles[role].target == Self::hash(0) { 0 } else { target }
    }

    fn floor(&self, wish: &Wish, role: usize) -> usize {
        wish.replicas[role].saturating_sub(self.spec.roles[role].max_unavailable) as usize
    }

    fn updated(&self, slots: &Slots, role: usize, target: u8) -> usize {
        stay(&slots[role]).filter(|pod| pod.hash == self.goal_hash(role, target)).count()
    }

    /// The steps and the rest, as (role, how many).
    fn steps(&self, wish: &Wish) -> Vec<(usize, usize)> {
        let steps = self.spec.steps.iter().map(|step| {
            let role = self.role(&step.role);
            (role, step.required(wish.replicas[role]) as usize)
        });
        let rest = wish.replicas.iter().enumerate().map(|(at, replicas)| (at, *replicas as usize));
        steps.chain(rest).collect()
    }

    fn met(&self, slots: &Slots, (role, goal): (usize, usize), target: u8) -> bool {
        let pods = slots[role].iter().filter_map(|slot| slot.pod);
        let hash = self.goal_hash(role, target);
        pods.filter(|pod| pod.state == State::Ready && pod.hash == hash).count() >= goal
    }

    /// How many of a role the steps ask for that are open: the first unmet one, if it is of this role.
    fn open_goal(&self, slots: &Slots, role: usize, wish: &Wish) -> usize {
        let first = self.steps(wish).into_iter().find(|step| !self.met(slots, *step, wish.target));
        first.filter(|step| step.0 == role).map_or(0, |step| step.1)
    }

    /// Whether every step before the role's first one is met.
    fn open_before(&self, slots: &Slots, role: usize, wish: &Wish) -> bool {
        let steps = self.steps(wish);
        let first = steps.iter().position(|step| step.0 == role && step.1 > 0).unwrap_or(steps.len());
        steps[..first].iter().all(|step| self.met(slots, *step, wish.target))
    }

    pub fn reached(&self, world: &World) -> bool {
        let plan =
            plan_group(&self.spec(&world.wish), &self.observe(&world.slots), Turn::Admitted, Duration::ZERO);
        let matched = world.slots.iter().enumerate().all(|(role, slots)| {
            let hash = self.goal_hash(role, world.wish.target);
            let mut pods = slots.iter().filter_map(|slot| slot.pod);
            pods.clone().count() == world.wish.replicas[role] as usize
                && pods.all(|pod| pod.state == State::Ready && pod.hash == hash)
        });
        matched && plan.done && plan.ops.is_empty()
    }

    fn faults(&self, world: &World, actions: &mut Vec<Action>) {
        if world.left.edits > 0 {
            actions.extend((0..3).filter(|target| *target != world.wish.target).map(Action::Target));
        }
        if world.left.scales > 0 {
            for (role, slots) in world.slots.iter().enumerate() {
                let sizes = 0..=u32::try_from(slots.len()).expect("should be few");
                let other = sizes.filter(|size| *size != world.wish.replicas[role]);
                actions.extend(other.map(|size| Action::Scale(role, size)));
            }
        }
        if world.left.stale > 0 && world.read.is_none() {
            actions.push(Action::Read);
        }
        if world.left.crashes > 0 {
            let writes = self.decide(&world.wish, &world.slots).len();
            actions.extend((1..writes).map(Action::Crash));
        }
    }

    fn touch(world: &mut World, role: usize, at: usize, change: impl FnOnce(&mut Slot)) {
        change(&mut world.slots[role][at]);
    }
}

impl World {
    /// What is read late is the replicas; a change of the goal is not judged by its past.
    fn forget(&mut self) {
        self.read = None;
        self.slots.iter_mut().flatten().for_each(|slot| slot.retired = 0);
    }
}

impl Slot {
    fn is_ready(self) -> bool {
        self.pod.is_some_and(|pod| pod.state == State::Ready)
    }

    fn becomes(&mut self, state: State) {
        self.pod = self.pod.map(|pod| Pod { state, ..pod });
        self.lost &= state != State::Ready;
    }
}

/// Those that are not on their way out.
fn stay(slots: &[Slot]) -> impl Iterator<Item = Pod> {
    let pods = slots.iter().filter_map(|slot| slot.pod);
    pods.filter(|pod| matches!(pod.state, State::Ready | State::Starting))
}

fn ready(slots: &[Slot]) -> usize {
    slots.iter().filter(|slot| slot.is_ready()).count()
}

impl Model for Upgrade {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let pod = Some(Pod { hash: 0, state: State::Ready, life: 0 });
        // Room for one more than there are, where people may ask for it.
        let spare = usize::from(self.faults.scales > 0);
        let slots = |replicas: u32| {
            let mut slots = vec![Slot { pod, ..Slot::default() }; replicas as usize];
            slots.extend(vec![Slot::default(); spare]);
            slots
        };
        let replicas: Vec<_> = self.spec.roles.iter().map(|role| role.replicas).collect();
        let slots = replicas.iter().map(|replicas| slots(*replicas)).collect();
        let wish = Wish { target: 1, replicas };
        vec![World { wish, slots, left: self.faults, read: None, broken: None }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // What is broken is not explored further: it is a dead end, and found as one.
        if world.broken.is_some() {
            return;
        }
        actions.push(Action::Decide);
        if world.read.is_some() {
            actions.push(Action::DecideOnRead);
        }
        for (role, slots) in world.slots.iter().enumerate() {
            for (at, slot) in slots.iter().enumerate() {
                let Some(pod) = slot.pod else { continue };
                actions.push(match pod.state {
                    State::Starting => Action::Ready(role, at),
                    State::Leaving { done: false } => Action::Drained(role, at),
                    State::Terminating => Action::Gone(role, at),
                    State::Ready if world.left.flaps > 0 => Action::Flaps(role, at),
                    _ => Action::Decide,
                });
                if world.left.deaths > 0 {
                    actions.push(Action::Dies(role, at));
                }
            }
        }
        self.faults(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut after = world.clone();
        match action {
            Action::Decide | Action::Crash(_) => {
                let ops = self.decide(&world.wish, &world.slots);
                let many = if let Action::Crash(many) = action { many } else { ops.len() };
                after.left.crashes -= u8::from(many < ops.len());
                self.write_all(&mut after, &ops[..many], &world.slots, false);
            }
            Action::Read => {
                after.left.stale -= 1;
                after.read = Some((world.slots.clone(), 0));
                return Some(after);
            }
            Action::DecideOnRead => {
                let (read, _) = after.read.take()?;
                let ops = self.decide(&world.wish, &read);
                self.write_all(&mut after, &ops, &read, true);
            }
            Action::Ready(role, at) => Self::touch(&mut after, role, at, |slot| slot.becomes(State::Ready)),
            Action::Drained(role, at) => {
                Self::touch(&mut after, role, at, |slot| slot.becomes(State::Leaving { done: true }));
            }
            Action::Gone(role, at) => Self::touch(&mut after, role, at, |slot| slot.pod = None),
            Action::Dies(role, at) => {
                after.left.deaths -= 1;
                Self::touch(&mut after, role, at, |slot| {
                    slot.lost |= slot.is_ready();
                    slot.pod = None;
                });
            }
            Action::Flaps(role, at) => {
                after.left.flaps -= 1;
                Self::touch(&mut after, role, at, |slot| {
                    slot.becomes(State::Starting);
                    slot.lost = true;
                });
            }
            Action::Target(target) => {
                after.left.edits -= 1;
                after.wish.target = target;
                after.forget();
            }
            Action::Scale(role, replicas) => {
                after.left.scales -= 1;
                after.wish.replicas[role] = replicas;
                after.forget();
            }
        }
        if after == *world {
            return None;
        }
        after.read = after.read.map(|(read, age)| (read, age + 1)).filter(|(_, age)| *age < OLDEST);
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every write is as promised", |_, world: &World| world.broken.is_none())]
    }
}
