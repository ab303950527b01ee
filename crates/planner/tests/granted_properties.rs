//! A RayService whose user changes the goal and the pace at any moment, with a cluster that is ready or not as it likes:
//! no moment breaks a promise, and once the edits stop the wanted version has everything.

use std::time::Duration;

use planner::granted::{Action, Goal, Moment, Observed, Side, StepSchedule, plan, rehearse};
use proptest::prelude::*;

const START: Duration = Duration::from_secs(30);
const NOTHING: Side = Side { capacity: 0, ready: true, weight: 0 };

/// The proposal's examples: (surge, step).
const SEEDS: [(u32, u32); 4] = [(20, 5), (100, 100), (100, 10), (50, 30)];

#[derive(Clone, Copy, Debug)]
enum Event {
    Act,
    /// The old or the new version gets ready, or no longer is.
    Ready(bool, bool),
    Pass(u64),
    Want(u8),
    StepSchedule(u32, u32),
}

/// What an adapter keeps in the API, and what is.
#[derive(Clone, Debug)]
struct World {
    pace: StepSchedule,
    surge: u32,
    step: u32,
    observed: Observed,
    /// The version that users have, the one on its way, and the one that is wanted.
    old: u8,
    new: Option<u8>,
    wanted: u8,
    now: Duration,
    /// How many times a version was started beside the old one.
    started: u32,
    /// The versions that users came to have.
    promoted: Vec<u8>,
}

const INTERVAL: Duration = Duration::from_secs(10);

impl World {
    fn new((surge, step): (u32, u32)) -> Self {
        let pace = StepSchedule::new(surge, step, INTERVAL).expect("should be a pace");
        let (observed, now) = (Observed::start(), Duration::ZERO);
        let promoted = Vec::new();
        Self { pace, surge, step, observed, old: 0, new: None, wanted: 0, now, started: 0, promoted }
    }

    fn after(pace: (u32, u32), events: &[Event]) -> Self {
        let mut world = Self::new(pace);
        for event in events {
            world.happen(*event);
        }
        world
    }

    /// One decision, carried out and judged. False where there is nothing to do.
    fn act(&mut self) -> bool {
        let Some(new) = self.new else {
            if self.wanted != self.old {
                (self.new, self.observed.new) = (Some(self.wanted), NOTHING);
                self.started += 1;
            }
            return self.new.is_some();
        };
        let goal = Goal::of(&self.old, &new, &self.wanted);
        let before = self.observed;
        let (action, reason) = plan(self.pace, &before, goal, self.now);
        assert!(!reason.what.is_empty());
        match action {
            Action::RaiseNew(capacity) => self.raise(true, capacity),
            Action::RaiseOld(capacity) => self.raise(false, capacity),
            Action::LowerOld(capacity) => {
                assert!(capacity < before.old.capacity && before.new.ready, "{self:?}");
                self.observed.old.capacity = capacity;
            }
            Action::LowerNew(capacity) => {
                assert!(capacity < before.new.capacity, "{self:?}");
                self.observed.new.capacity = capacity;
            }
            Action::Move(weight) => self.shift(weight, goal),
            Action::Wait => return false,
            Action::Promote => {
                assert_eq!((before.old.capacity, before.new.weight), (0, 100), "{self:?}");
                (self.old, self.new) = (new, None);
                self.promoted.push(new);
                (self.observed.old, self.observed.new) = (before.new, NOTHING);
            }
            Action::Discard => {
                assert_eq!((before.old.weight, before.new.capacity), (100, 0), "{self:?}");
                self.new = None;
            }
        }
        self.judge();
        true
    }

    fn raise(&mut self, new: bool, capacity: u32) {
        let side = if new { &mut self.observed.new } else { &mut self.observed.old };
        assert!(capacity > side.capacity, "raised to {capacity}: {self:?}");
        (side.capacity, side.ready) = (capacity, false);
        let both = self.observed.old.capacity + self.observed.new.capacity;
        assert!(both <= 100 + self.surge, "beyond the surge: {self:?}");
    }

    fn shift(&mut self, weight: u32, goal: Goal) {
        let Observed { old, new, moved_at } = self.observed;
        if weight > new.weight {
            let early = moved_at.is_some_and(|at| self.now < at + INTERVAL);
            assert!(new.ready && !early && weight <= new.weight + self.step, "to {weight}: {self:?}");
            assert_eq!(goal, Goal::New, "{self:?}");
        } else {
            assert!(weight < new.weight && old.ready && goal != Goal::New, "to {weight}: {self:?}");
        }
        (self.observed.new.weight, self.observed.old.weight) = (weight, 100 - weight);
        self.observed.moved_at = Some(self.now);
    }

    fn judge(&self) {
        let Observed { old, new, .. } = self.observed;
        assert_eq!(old.weight + new.weight, 100, "{self:?}");
        assert!(old.weight <= old.capacity && new.weight <= new.capacity, "{self:?}");
        assert!(old.capacity.max(new.capacity) <= 100, "{self:?}");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act => drop(self.act()),
            Event::Ready(true, ready) => self.observed.new.ready = ready,
            Event::Ready(false, ready) => self.observed.old.ready = ready,
            Event::Pass(seconds) => self.now += Duration::from_secs(seconds),
            Event::Want(wanted) => self.wanted = wanted,
            Event::StepSchedule(surge, step) => {
                let pace = StepSchedule::new(surge, step, INTERVAL).expect("should be a pace");
                (self.pace, self.surge, self.step) = (pace, surge, step);
            }
        }
    }

    /// Everything gets ready; time passes only where that is allowed. Whether it came to rest.
    fn rest(&mut self, wait: Duration) -> bool {
        for _ in 0..2_000 {
            (self.observed.old.ready, self.observed.new.ready) = (true, true);
            if !self.act() {
                self.now += wait;
                if self.new.is_none() && self.wanted == self.old {
                    return true;
                }
            }
        }
        false
    }
}

fn percent() -> impl Strategy<Value = u32> {
    1..=100_u32
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => Just(Event::Act),
        4 => (any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(new, ready)| Event::Ready(new, ready)),
        3 => (0..20_u64).prop_map(Event::Pass),
        1 => (0..4_u8).prop_map(Event::Want),
        1 => (percent(), percent()).prop_map(|(surge, step)| Event::StepSchedule(surge, step)),
    ];
    prop::collection::vec(event, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_at_any_moment_break_nothing_and_the_wanted_version_has_everything_in_the_end(
        pace in (percent(), percent()),
        events in events(),
    ) {
        let mut world = World::after(pace, &events);
        prop_assert!(world.rest(INTERVAL), "{:?}", world);
        let Side { capacity, weight, .. } = world.observed.old;
        prop_assert_eq!((capacity, weight, world.old), (100, 100, world.wanted));
    }

    #[test]
    fn going_back_needs_no_time_and_starts_nothing(pace in (percent(), percent()), events in events()) {
        let mut world = World::after(pace, &events);
        let (now, started) = (world.now, world.started);
        world.wanted = world.old;
        prop_assert!(world.rest(Duration::ZERO), "{:?}", world);
        prop_assert_eq!((world.now, world.started), (now, started));
    }
}

fn side() -> impl Strategy<Value = Side> {
    let number = || prop_oneof![0..=200_u32, any::<u32>()];
    (number(), any::<bool>(), number()).prop_map(|(capacity, ready, weight)| Side { capacity, ready, weight })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_others_wrote_gets_a_decision_within_a_hundred(
        (old, new) in (side(), side()),
        (surge, step) in (percent(), percent()),
        moved_at in prop::option::of(Just(Duration::MAX)),
        goal in prop::sample::select(vec![Goal::New, Goal::Old, Goal::Another]),
    ) {
        let pace = StepSchedule::new(surge, step, INTERVAL).expect("should be a pace");
        let (action, reason) = plan(pace, &Observed { old, new, moved_at }, goal, INTERVAL);
        prop_assert!(!reason.what.is_empty());
        if let Action::Move(percent) | Action::RaiseNew(percent) | Action::RaiseOld(percent) = action {
            prop_assert!(percent <= 100, "{:?}", action);
        }
    }
}

/// As Ray Serve turns a percentage into replicas: to the nearest, and never to none.
fn replicas(of: u32, percent: u32) -> u32 {
    if percent == 0 { 0 } else { ((of * percent + 50) / 100).max(1) }
}

fn judge_replicas(of: u32, surge: u32, Moment { old, new, .. }: &Moment, context: &str) {
    let (a, b) = (replicas(of, old.capacity), replicas(of, new.capacity));
    for (side, there) in [(old, a), (new, b)] {
        assert!(side.weight == 0 || there > 0, "{context}: traffic and no replica: {side:?}");
    }
    // Nearest on both sides is at most one replica above the percents; a side that is kept at one, at most one more.
    assert!((a + b) * 100 < of * (100 + surge) + 200, "{context}: {a} and {b}");
    assert!(old.capacity + new.capacity <= 100 + surge && old.weight + new.weight == 100, "{context}");
}

#[test]
fn going_back_from_the_middle_of_each_example_ends_where_it_began_for_any_number_of_replicas() {
    for ((surge, step), of) in SEEDS.into_iter().flat_map(|seed| [1, 2, 3, 4, 7, 100].map(|of| (seed, of))) {
        let pace = StepSchedule::new(surge, step, INTERVAL).expect("should be a pace");
        let whole = rehearse(pace, START, None);
        for middle in &whole {
            let context = format!("{surge}/{step}, {of} replicas, back at {:?}", middle.at);
            let moments = rehearse(pace, START, Some(middle.at));
            for moment in &moments {
                judge_replicas(of, surge, moment, &context);
            }
            let last = &moments[moments.len() - 1];
            let (old, new) = (replicas(of, last.old.capacity), replicas(of, last.new.capacity));
            assert_eq!((old, last.old.weight, new), (of, 100, 0), "{context}");
            // Unpaced: at most one start of the old version for each surge that it had given up.
            let rounds = (100 - middle.old.capacity.min(100)).div_ceil(surge);
            assert!(last.at <= middle.at + START * (rounds + 1), "{context}: {:?}", last.at);
        }
    }
}

#[test]
fn a_third_version_from_the_middle_of_each_example_is_reached_by_way_of_the_first() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        world.wanted = 1;
        while world.observed.new.weight < 50 {
            world.observed.new.ready = true;
            if !world.act() {
                world.now += INTERVAL;
            }
        }
        world.wanted = 2;
        let carried = world.observed.new.weight;
        assert!(world.rest(INTERVAL), "{seed:?}");
        // One step of everything gives the second version all traffic: then it is what the third starts from.
        let promoted = if carried == 100 { vec![1, 2] } else { vec![2] };
        assert_eq!((world.promoted, world.started), (promoted, 2), "{seed:?} at {carried}");
    }
}
