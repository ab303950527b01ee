//! Larger sets, random budgets, random delays, crashes between any two writes, people who edit.

mod sets_rules;

use std::{collections::BTreeMap, time::Duration};

use planner::{
    Budget, Uid,
    sets::{Identity, Op, SetSpec, State, Unit, plan},
    units::Revision,
};
use proptest::prelude::*;
use sets_rules::{A, B, C, checked, matched, serving};

/// One thing that happens; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The planner looks, and this many of its writes are made before it crashes.
    Act(usize),
    /// A unit goes on: gets ready, drains, or is gone.
    Go(usize),
    Die(usize),
    Lapse(usize),
    Scale(u32),
    Target(Revision),
}

#[derive(Clone, Debug)]
struct World {
    spec: SetSpec,
    units: Vec<Unit>,
    next_uid: u32,
    /// How often a unit was made at each revision.
    made: BTreeMap<Revision, u32>,
    /// What the planner, not the world, took from service or deleted.
    taken: Vec<Unit>,
}

impl World {
    fn new(spec: SetSpec, units: impl Iterator<Item = (Revision, State)>) -> Self {
        let unit = |(ordinal, (revision, state)): (usize, (Revision, State))| Unit {
            ordinal: u32::try_from(ordinal).expect("should be few"),
            uid: Uid(ordinal.to_string()),
            revision,
            state,
            deletion_cost: 0,
        };
        let units = units.enumerate().map(unit).collect();
        Self { spec, units, next_uid: 1000, made: BTreeMap::new(), taken: Vec::new() }
    }

    fn act(&mut self, writes: usize) -> bool {
        let (planned, broken) = checked(&self.spec, &self.units);
        assert_eq!(broken, None, "{self:?}\n{planned:?}");
        for op in planned.ops.iter().take(writes) {
            let before = serving(&self.units);
            self.write(op);
            let floor = self.spec.budget.floor(self.spec.replicas);
            assert!(serving(&self.units) >= floor.min(before), "below the floor by {op:?}: {self:?}");
        }
        planned.done
    }

    fn write(&mut self, op: &Op) {
        match op {
            Op::Create { ordinal, revision } => {
                let unit = Unit {
                    ordinal: *ordinal,
                    uid: Uid(self.next_uid.to_string()),
                    revision: *revision,
                    state: State::Starting,
                    deletion_cost: 0,
                };
                self.next_uid += 1;
                *self.made.entry(*revision).or_default() += 1;
                self.units.push(unit);
            }
            Op::TakeOut { uid, .. } | Op::Delete { uid, .. } => {
                let Some(unit) = self.units.iter_mut().find(|unit| unit.uid == *uid) else { return };
                if unit.state.is_live() {
                    self.taken.push(unit.clone());
                }
                let out = matches!(op, Op::TakeOut { .. });
                unit.state = if out { State::Leaving { done: false } } else { State::Terminating };
            }
        }
    }

    fn go(&mut self, index: usize) {
        let moving: Vec<usize> =
            (0..self.units.len()).filter(|index| self.units[*index].state != State::Ready).collect();
        let Some(index) = moving.get(index % moving.len().max(1)).copied() else { return };
        match self.units[index].state {
            State::Starting | State::Lapsed => self.units[index].state = State::Ready,
            State::Leaving { .. } => self.units[index].state = State::Leaving { done: true },
            State::Terminating => drop(self.units.remove(index)),
            State::Ready => {}
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(writes) => drop(self.act(writes)),
            Event::Go(index) => self.go(index),
            Event::Die(index) if !self.units.is_empty() => drop(self.units.remove(index % self.units.len())),
            Event::Lapse(index) if !self.units.is_empty() => {
                let index = index % self.units.len();
                if self.units[index].state == State::Ready {
                    self.units[index].state = State::Lapsed;
                }
            }
            Event::Die(_) | Event::Lapse(_) => {}
            Event::Scale(replicas) => self.spec.replicas = replicas,
            Event::Target(target) => self.spec.target = target,
        }
    }

    fn live(&mut self, events: &[Event]) {
        for event in events {
            self.happen(*event);
        }
    }

    /// Faults stop, and it ends in bounded time.
    fn settle(&mut self) {
        for round in 0..20 * (self.units.len() + self.spec.replicas as usize + 2) {
            if self.act(usize::MAX) {
                assert!(matched(&self.spec, &self.units), "{self:?}");
                return;
            }
            self.go(round);
        }
        assert!(matched(&self.spec, &self.units), "does not settle: {self:?}");
    }
}

fn spec() -> impl Strategy<Value = SetSpec> {
    let identity = prop_oneof![Just(Identity::Ordinal), Just(Identity::Any)];
    (1..13_u32, 0..6_u32, 0..6_u32, identity).prop_map(|(replicas, surge, unavailable, identity)| {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        SetSpec {
            replicas,
            budget: Budget { surge, unavailable },
            partition: 0,
            target: B,
            old: A,
            identity,
            noun: "group",
        }
    })
}

fn calm() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (0..4_usize).prop_map(Event::Act),
        2 => Just(Event::Act(usize::MAX)),
        4 => (0..20_usize).prop_map(Event::Go),
    ];
    prop::collection::vec(event, 0..120)
}

fn rough() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0..4_usize).prop_map(Event::Act),
        6 => (0..20_usize).prop_map(Event::Go),
        1 => (0..20_usize).prop_map(Event::Die),
        1 => (0..20_usize).prop_map(Event::Lapse),
        1 => (0..13_u32).prop_map(Event::Scale),
        1 => prop_oneof![Just(A), Just(B), Just(C)].prop_map(Event::Target),
    ];
    prop::collection::vec(event, 0..120)
}

fn all_ready(spec: SetSpec) -> World {
    World::new(spec, (0..spec.replicas).map(|_| (A, State::Ready)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_original_is_replaced_once_whatever_the_delays_and_crashes(
        spec in spec(),
        partition in 0..15_u32,
        events in calm(),
    ) {
        let spec = SetSpec { partition, ..spec };
        let mut world = all_ready(spec);
        world.live(&events);
        world.settle();
        let kept = partition.min(spec.replicas);
        let originals = world.taken.iter().filter(|unit| unit.revision == A).count();
        prop_assert_eq!(originals, (spec.replicas - kept) as usize, "{:?}", world);
        prop_assert_eq!(world.made.get(&A), None);
        // New units are made once too: one in place of each, and surge only where units have places.
        let surge = if spec.identity == Identity::Ordinal { spec.budget.surge } else { 0 };
        let made = world.made.get(&B).copied().unwrap_or_default();
        prop_assert!(made <= spec.replicas - kept + surge, "{made} made: {world:?}");
    }

    #[test]
    fn budgets_hold_and_the_end_comes_after_losses_edits_and_crashes(
        spec in spec(),
        partition in 0..6_u32,
        starting in prop::collection::vec(any::<bool>(), 12),
        events in rough(),
    ) {
        let state = |broken: bool| if broken { State::Starting } else { State::Ready };
        let units = starting.into_iter().take(spec.replicas as usize).map(|broken| (A, state(broken)));
        let mut world = World::new(SetSpec { partition, ..spec }, units);
        world.live(&events);
        world.settle();
    }

    #[test]
    fn going_back_restarts_nothing_that_was_never_upgraded(spec in spec(), events in calm()) {
        let mut world = all_ready(spec);
        world.live(&events);
        let kept: Vec<Uid> = world
            .units
            .iter()
            .filter(|unit| unit.state == State::Ready && unit.revision == A)
            .map(|unit| unit.uid.clone())
            .collect();
        world.happen(Event::Target(A));
        world.settle();
        let still: Vec<Uid> = world.units.iter().map(|unit| unit.uid.clone()).collect();
        prop_assert!(kept.iter().all(|uid| still.contains(uid)), "{kept:?} of {world:?}");
        if kept.len() == spec.replicas as usize {
            prop_assert_eq!(world.made.get(&A), None);
        }
    }

    #[test]
    fn the_next_decision_is_the_same_after_a_restart(
        spec in spec(),
        events in rough(),
        seed in any::<u64>(),
    ) {
        let mut world = all_ready(spec);
        world.live(&events);
        let mut shuffled = world.units.clone();
        shuffled.sort_by_key(|unit| (u64::from(unit.ordinal) + 1).wrapping_mul(seed | 1).rotate_left(17));
        let now = plan(&world.spec, &world.units, Duration::ZERO);
        prop_assert_eq!(now, plan(&world.spec, &shuffled, Duration::from_secs(seed % 100_000)));
    }
}
