//! A handover in granted percent: another system owns the replicas and grants a share of them (Ray Serve's
//! `target_capacity`), and traffic follows in percent that sum to 100.
//!
//! The arithmetic is that of the RayService proposal. New capacity goes to 100 + surge - old. Traffic
//! moves by a step every interval, up to the new capacity. Old capacity falls by the surge once traffic has caught up.
//! The last round ends at 100 and 0.
//!
//! There are never more than two versions. Who wants a third one while the second is on its way goes back first, and
//! forward from there: [`Goal`].

use std::time::Duration;

use crate::{Code, reason::Reason};

/// How fast, and with how much room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSchedule {
    surge: u32,
    step: u32,
    interval: Duration,
}

impl StepSchedule {
    /// A pace that can finish: surge and step from 1 to 100. A step above the surge is one surge at a time, because
    /// traffic never exceeds capacity.
    pub fn new(surge: u32, step: u32, interval: Duration) -> Option<Self> {
        let moves = |percent: u32| (1..=100).contains(&percent);
        (moves(surge) && moves(step)).then_some(Self { surge, step, interval })
    }

    /// The same steps, without a wait between them. What must be ready before a step stays so.
    #[must_use]
    pub fn without_interval(self) -> Self {
        Self { interval: Duration::ZERO, ..self }
    }
}

/// One of the two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The share of the whole service that it is asked to be able to carry, in percent.
    pub capacity: u32,
    /// Whether that capacity is there: granted, running and reachable.
    pub ready: bool,
    /// The share of the traffic that the data plane gives it, in percent.
    pub weight: u32,
}

/// What is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The version that users have.
    pub old: Side,
    /// The version that they will have.
    pub new: Side,
    /// When traffic last moved.
    pub moved_at: Option<Duration>,
}

impl Observed {
    /// Before the first change.
    pub fn start() -> Self {
        Self {
            old: Side { capacity: 100, ready: true, weight: 100 },
            new: Side { capacity: 0, ready: true, weight: 0 },
            moved_at: None,
        }
    }
}

/// What to do next. At most one thing changes, and everything follows from what is observed, so a restart at any point
/// changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the new version for this capacity.
    RaiseNew(u32),
    /// Give the new version this share of the traffic and the old one the rest.
    Move(u32),
    /// Ask the old version for no more than this capacity.
    LowerOld(u32),
    /// Ask the old version for this capacity again.
    RaiseOld(u32),
    /// Ask the new version for no more than this capacity.
    LowerNew(u32),
    /// Nothing before the reason's time, or before something changes.
    Wait,
    /// The new version carries everything and the old one has nothing left: the new one is what users have from here
    /// on, and the place beside it is free.
    Promote,
    /// The old version carries everything and the new one has nothing left: it goes, and its place is free.
    Discard,
}

/// Which version users are to have in the end, seen from the two that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The version that is on its way to them: forward.
    New,
    /// The version that they have: back.
    Old,
    /// Neither. Its place is taken, so the new version goes back first, unpaced, and the wanted one starts from the
    /// old. Where the new one has all traffic and is ready, the old one goes instead: that moves no user twice.
    Another,
}

impl Goal {
    /// The goal, by whatever tells versions apart: what users have, what is on its way, and what is wanted now.
    pub fn of<V: PartialEq>(old: &V, new: &V, wanted: &V) -> Self {
        if wanted == new {
            Self::New
        } else if wanted == old {
            Self::Old
        } else {
            Self::Another
        }
    }
}

/// The next step toward a goal, and why. The goal may change between any two steps.
pub fn plan(pace: StepSchedule, observed: &Observed, goal: Goal, now: Duration) -> (Action, Reason) {
    let (action, reason) = match goal {
        Goal::New => return forward(pace, observed, now),
        Goal::Old => return back(pace, observed),
        // A version that is not ready must not become the only one, even where it has all traffic.
        Goal::Another if observed.new.weight == 100 && observed.new.ready => forward(pace, observed, now),
        Goal::Another => back(pace, observed),
    };
    (action, reason.then("the version of the spec starts"))
}

/// The next step forward, and why.
fn forward(pace: StepSchedule, observed: &Observed, now: Duration) -> (Action, Reason) {
    let Observed { old, new, .. } = *observed;
    if new.weight == 100 && new.capacity == 100 && old.capacity == 0 {
        return (Action::Promote, Reason::new(Code::Promoted, "the new version carries all traffic"));
    }
    if new.weight < new.capacity {
        return shift(pace, observed, now);
    }
    // Traffic has caught up with capacity: what the old version no longer carries can go, a surge at a time.
    let keep = if planted!("the-old-version-falls-below-its-traffic") {
        0
    } else {
        100_u32.saturating_sub(new.weight)
    };
    let lowered = old.capacity.saturating_sub(pace.surge).max(keep);
    if lowered < old.capacity && new.weight > 0 {
        if !new.ready {
            // The way back is through what the old version still has.
            let what = format!("waiting for {}% of the new version to be ready again", new.capacity);
            return (
                Action::Wait,
                Reason::new(Code::WaitingForReady, what).then("the old version is scaled down"),
            );
        }
        return (
            Action::LowerOld(lowered),
            Reason::new(
                Code::LoweringOld,
                format!("scaling the old version to {lowered}%: it has {}% of the traffic", old.weight),
            ),
        );
    }
    let surge =
        if planted!("the-surge-is-added-each-round") { new.capacity + pace.surge } else { pace.surge };
    let room = (100 + surge).saturating_sub(old.capacity).min(100);
    (
        Action::RaiseNew(room),
        Reason::new(
            Code::RaisingNew,
            format!(
                "scaling the new version to {room}%, which fits beside {}% of the old version",
                old.capacity
            ),
        ),
    )
}

fn shift(pace: StepSchedule, observed: &Observed, now: Duration) -> (Action, Reason) {
    let new = observed.new;
    let weight = new.weight.saturating_add(pace.step).min(new.capacity).min(100);
    let next = format!("{weight}% of the traffic is moved");
    if !new.ready {
        let what = format!("waiting for {}% of the new version to be ready", new.capacity);
        return (Action::Wait, Reason::new(Code::WaitingForReady, what).then(next));
    }
    if let Some(time) =
        observed.moved_at.map(|at| at.saturating_add(pace.interval)).filter(|time| now < *time)
    {
        let what = format!("waiting {}s with {}% of the traffic moved", pace.interval.as_secs(), new.weight);
        return (Action::Wait, Reason::new(Code::WaitingForInterval, what).until(time).then(next));
    }
    (
        Action::Move(weight),
        Reason::new(
            Code::MovingTraffic,
            format!(
                "giving the new version {weight}% of the traffic: {}% of its capacity is ready",
                new.capacity
            ),
        ),
    )
}

/// The next step back, and why. Steps and intervals do not bind it: traffic moves at once to what the old version can
/// carry now, and the old version grows as the new one shrinks, within the surge.
fn back(pace: StepSchedule, observed: &Observed) -> (Action, Reason) {
    let Observed { old, new, .. } = *observed;
    if old.weight < old.capacity && (old.ready || planted!("a-rollback-trusts-capacity-that-is-not-ready")) {
        let what =
            format!("giving the traffic back to the old version: {}% of its capacity is ready", old.capacity);
        return (
            Action::Move(100_u32.saturating_sub(old.capacity)),
            Reason::new(Code::MovingTrafficBack, what),
        );
    }
    if old.weight == 100 && new.capacity == 0 {
        return (Action::Discard, Reason::new(Code::RolledBack, "the old version carries all traffic"));
    }
    let room = (100 + pace.surge).saturating_sub(new.capacity).min(100);
    if room > old.capacity {
        let what = format!(
            "scaling the old version to {room}%, which fits beside {}% of the new version",
            new.capacity
        );
        return (Action::RaiseOld(room), Reason::new(Code::RaisingOld, what));
    }
    if new.weight < new.capacity {
        let what = format!("scaling the new version to {0}%: it has {0}% of the traffic", new.weight);
        return (Action::LowerNew(new.weight), Reason::new(Code::LoweringNew, what));
    }
    let what = format!("waiting for {}% of the old version to be ready", old.capacity);
    (Action::Wait, Reason::new(Code::WaitingForReady, what).then("traffic is moved back"))
}

/// One line of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, from the start.
    pub at: Duration,
    /// The old version then.
    pub old: Side,
    /// The new version then.
    pub new: Side,
    /// Why it changed.
    pub reason: Reason,
}

/// The whole handover, if capacity is ready `start` after it is asked for; called off at a time, if there is one.
pub fn rehearse(pace: StepSchedule, start: Duration, called_off: Option<Duration>) -> Vec<Moment> {
    let mut observed = Observed::start();
    let (mut now, mut new_ready, mut old_ready) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut moments = Vec::new();
    loop {
        observed.new.ready = now >= new_ready;
        observed.old.ready = now >= old_ready;
        let is_off = called_off.is_some_and(|time| now >= time);
        let (action, reason) = plan(pace, &observed, if is_off { Goal::Old } else { Goal::New }, now);
        match action {
            Action::Wait => {
                let comes = [new_ready, old_ready].into_iter().chain(reason.until);
                let comes = comes.chain(called_off).filter(|time| *time > now).min();
                // Everything that is waited for here has a time; without one there would be nothing to show.
                now = comes.unwrap_or_else(|| now + start.max(Duration::from_secs(1)));
                continue;
            }
            Action::RaiseNew(capacity) => {
                observed.new.capacity = capacity;
                new_ready = now + start;
            }
            Action::RaiseOld(capacity) => {
                observed.old.capacity = capacity;
                old_ready = now + start;
            }
            Action::Move(weight) => {
                observed.new.weight = weight;
                observed.old.weight = 100 - weight;
                observed.moved_at = Some(now);
            }
            Action::LowerOld(capacity) => observed.old.capacity = capacity,
            Action::LowerNew(capacity) => observed.new.capacity = capacity,
            Action::Promote | Action::Discard => {}
        }
        moments.push(Moment { at: now, old: observed.old, new: observed.new, reason });
        if matches!(action, Action::Promote | Action::Discard) {
            return moments;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(30);

    fn pace(surge: u32, step: u32, interval: u64) -> StepSchedule {
        StepSchedule::new(surge, step, Duration::from_secs(interval)).unwrap()
    }

    #[test]
    fn the_seeds_example_goes_by_twenty_and_five() {
        let moments = rehearse(pace(20, 5, 10), START, None);
        let capacities: Vec<(u32, u32)> = moments.iter().map(|m| (m.old.capacity, m.new.capacity)).collect();
        let rounds = [
            (100, 20),
            (80, 20),
            (80, 40),
            (60, 40),
            (60, 60),
            (40, 60),
            (40, 80),
            (20, 80),
            (20, 100),
            (0, 100),
        ];
        let mut seen = capacities.clone();
        seen.dedup();
        assert_eq!(seen, rounds);
        let weights: Vec<u32> = moments.iter().map(|m| m.new.weight).collect();
        let mut steps = weights.clone();
        steps.dedup();
        assert_eq!(steps, (0..=20).map(|k| k * 5).collect::<Vec<_>>());
        // Five rounds of 30 s to get ready and three waits of 10 s between four steps.
        assert_eq!(moments.last().unwrap().at.as_secs(), 5 * (30 + 3 * 10));
    }

    #[test]
    fn a_surge_of_everything_and_one_step_is_blue_green() {
        let moments = rehearse(pace(100, 100, 0), START, None);
        let states: Vec<(u32, u32, u32)> =
            moments.iter().map(|m| (m.old.capacity, m.new.capacity, m.new.weight)).collect();
        assert_eq!(states, [(100, 100, 0), (100, 100, 100), (0, 100, 100), (0, 100, 100)]);
    }

    #[test]
    fn every_pace_ends_within_its_bounds() {
        for surge in 1..=100 {
            for step in 1..=100 {
                let moments = rehearse(pace(surge, step, 10), START, None);
                let mut before = Observed::start();
                for moment in &moments {
                    let (old, new) = (moment.old, moment.new);
                    assert!(old.capacity + new.capacity <= 100 + surge, "{surge}/{step}: {moment:?}");
                    assert_eq!(old.weight + new.weight, 100, "{surge}/{step}: {moment:?}");
                    assert!(new.weight <= new.capacity, "{surge}/{step}: {moment:?}");
                    assert!(old.weight <= old.capacity, "{surge}/{step}: {moment:?}");
                    assert!(new.weight <= before.new.weight + step, "{surge}/{step}: {moment:?}");
                    if new.weight > before.new.weight {
                        let earliest = before.moved_at.map(|at| at + Duration::from_secs(10));
                        assert!(earliest.is_none_or(|time| moment.at >= time), "{surge}/{step}: {moment:?}");
                        before.moved_at = Some(moment.at);
                    }
                    before = Observed { old, new, ..before };
                }
                let last = moments.last().unwrap();
                assert_eq!((last.old.capacity, last.new.capacity, last.new.weight), (0, 100, 100));
            }
        }
    }

    #[test]
    fn going_back_ends_from_every_moment_within_the_same_bounds() {
        for (surge, step) in [(20, 5), (100, 100), (100, 10), (50, 30), (1, 1), (7, 100)] {
            let whole = rehearse(pace(surge, step, 10), START, None);
            for moment in &whole {
                let moments = rehearse(pace(surge, step, 10), START, Some(moment.at));
                for Moment { old, new, .. } in &moments {
                    assert!(old.capacity + new.capacity <= 100 + surge, "{surge}/{step} at {moment:?}");
                    assert!(old.weight <= old.capacity && new.weight <= new.capacity, "{surge}/{step}");
                    assert_eq!(old.weight + new.weight, 100);
                }
                let last = moments.last().unwrap();
                assert_eq!((last.old.capacity, last.old.weight, last.new.capacity), (100, 100, 0));
            }
        }
    }

    #[test]
    fn going_back_moves_at_once_what_the_old_version_can_carry() {
        let moments = rehearse(pace(20, 5, 10), START, Some(Duration::from_secs(100)));
        let turn = moments.iter().find(|m| m.reason.code == Code::MovingTrafficBack).unwrap();
        assert_eq!((turn.at.as_secs(), turn.old.weight, turn.old.capacity), (100, 80, 80));
        let last = moments.last().unwrap();
        assert_eq!(last.at.as_secs(), 130, "one start of the old version and no pace");
    }

    #[test]
    fn a_restart_decides_the_same() {
        let observed = Observed {
            old: Side { capacity: 80, ready: true, weight: 75 },
            new: Side { capacity: 40, ready: true, weight: 25 },
            moved_at: Some(Duration::from_secs(100)),
        };
        let pace = pace(20, 5, 10);
        let (action, reason) = plan(pace, &observed, Goal::New, Duration::from_secs(105));
        assert_eq!(action, Action::Wait);
        assert_eq!(reason.until, Some(Duration::from_secs(110)));
        assert_eq!(plan(pace, &observed, Goal::New, Duration::from_secs(110)).0, Action::Move(30));
    }

    #[test]
    fn nothing_moves_to_a_version_that_is_not_ready() {
        let mut observed = Observed::start();
        observed.new = Side { capacity: 20, ready: false, weight: 0 };
        let (action, reason) = plan(pace(20, 5, 10), &observed, Goal::New, Duration::from_hours(1));
        assert_eq!((action, reason.until), (Action::Wait, None));
    }

    fn observed((capacity, weight): (u32, u32), new_capacity: u32) -> Observed {
        Observed {
            old: Side { capacity, ready: true, weight },
            new: Side { capacity: new_capacity, ready: true, weight: 100 - weight },
            moved_at: Some(Duration::ZERO),
        }
    }

    fn next(observed: &Observed, goal: Goal) -> Action {
        plan(pace(20, 5, 10), observed, goal, Duration::from_secs(1)).0
    }

    #[test]
    fn goals_follow_from_what_users_have_and_what_is_on_its_way() {
        let goals = ["a", "b", "c"].map(|wanted| Goal::of(&"a", &"b", &wanted));
        assert_eq!(goals, [Goal::Old, Goal::New, Goal::Another]);
    }

    #[test]
    fn a_third_version_waits_until_the_second_has_nothing_left() {
        let mut half_way = observed((60, 50), 60);
        assert_eq!(next(&half_way, Goal::Another), Action::Move(40), "at once what the old one carries");
        half_way = observed((60, 60), 60);
        assert_eq!(next(&half_way, Goal::Another), Action::LowerNew(40));
        half_way = observed((60, 60), 40);
        assert_eq!(next(&half_way, Goal::Another), Action::RaiseOld(80), "within the surge");
        let (action, reason) =
            plan(pace(20, 5, 10), &observed((100, 100), 0), Goal::Another, Duration::from_secs(1));
        assert_eq!((action, reason.code), (Action::Discard, Code::RolledBack));
        assert_eq!(reason.then.as_deref(), Some("the version of the spec starts"));
    }

    #[test]
    fn a_second_version_with_all_traffic_becomes_the_one_that_the_third_follows() {
        let mut carried = observed((20, 0), 100);
        assert_eq!(next(&carried, Goal::Another), Action::LowerOld(0));
        assert_eq!(next(&observed((0, 0), 100), Goal::Another), Action::Promote);
        carried.new.ready = false;
        assert_eq!(next(&carried, Goal::Another), Action::Move(80), "back to what works");
        assert_eq!(next(&carried, Goal::Old), Action::Move(80));
    }

    #[test]
    fn the_old_version_keeps_what_it_has_while_the_new_one_is_not_ready() {
        let mut lost = observed((100, 80), 20);
        assert_eq!(next(&lost, Goal::New), Action::LowerOld(80));
        lost.new.ready = false;
        let (action, reason) = plan(pace(20, 5, 10), &lost, Goal::New, Duration::from_hours(1));
        assert_eq!((action, reason.code), (Action::Wait, Code::WaitingForReady));
    }

    #[test]
    fn a_pace_that_could_never_end_is_none() {
        for (surge, step) in [(0, 5), (20, 0), (101, 5), (20, 101)] {
            assert_eq!(StepSchedule::new(surge, step, Duration::ZERO), None);
        }
    }
}
