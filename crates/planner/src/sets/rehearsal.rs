//! A whole update of a set, before it happens.

use std::time::Duration;

use super::{Op, SetSpec, State, Unit, plan};
use crate::{
    Uid,
    reason::{Reason, Time, patience},
    units::Revision,
};

/// How things are from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, from the start.
    pub at: Duration,
    /// Units of the old revision: all, and those that serve.
    pub old: (u32, u32),
    /// Units of the new revision: all, and those that serve.
    pub new: (u32, u32),
    /// The decision, with its reason.
    pub reason: Reason,
}

/// The update of a set that serves now, if a unit is ready `start` after it is made and has finished `stop` after it
/// was taken out of service. The flag says whether it ends.
pub fn rehearse(spec: &SetSpec, start: Duration, stop: Duration) -> (Vec<Moment>, bool) {
    let mut simulation = Simulation::new(spec);
    let mut moments = Vec::new();
    for _ in 0..patience(spec.replicas) {
        let decided = plan(spec, &simulation.units(), simulation.now);
        let acted = !decided.ops.is_empty();
        for op in &decided.ops {
            simulation.act(op, start, stop);
        }
        if acted || decided.done {
            moments.push(simulation.moment(spec, decided.reason));
        }
        if decided.done {
            return (moments, true);
        }
        if !acted && !simulation.pass_time() {
            return (moments, false);
        }
    }
    (moments, false)
}

struct Simulation {
    now: Time,
    /// Each unit, and when it does what it does next by itself.
    units: Vec<(Unit, Option<Time>)>,
    made: u64,
}

impl Simulation {
    fn new(spec: &SetSpec) -> Self {
        let mut simulation = Self { now: Duration::ZERO, units: Vec::new(), made: 0 };
        for ordinal in 0..spec.replicas {
            simulation.make(ordinal, spec.old, State::Ready, None);
        }
        simulation
    }

    fn make(&mut self, ordinal: u32, revision: Revision, state: State, until: Option<Time>) {
        self.made += 1;
        let unit = Unit { ordinal, uid: Uid(self.made.to_string()), revision, state, deletion_cost: 0 };
        self.units.push((unit, until));
    }

    fn units(&self) -> Vec<Unit> {
        self.units.iter().map(|(unit, _)| unit.clone()).collect()
    }

    fn act(&mut self, op: &Op, start: Duration, stop: Duration) {
        match op {
            Op::Create { ordinal, revision } => {
                self.make(*ordinal, *revision, State::Starting, Some(self.now + start));
            }
            Op::TakeOut { uid, .. } => {
                let until = Some(self.now + stop);
                for (unit, next) in self.units.iter_mut().filter(|(unit, _)| unit.uid == *uid) {
                    (unit.state, *next) = (State::Leaving { done: false }, until);
                }
            }
            Op::Delete { uid, .. } => self.units.retain(|(unit, _)| unit.uid != *uid),
        }
    }

    /// On to the next thing that happens by itself; false when nothing does.
    fn pass_time(&mut self) -> bool {
        let Some(time) = self.units.iter().filter_map(|(_, next)| *next).min() else { return false };
        self.now = time;
        for (unit, next) in self.units.iter_mut().filter(|(_, next)| *next == Some(time)) {
            *next = None;
            unit.state = match unit.state {
                State::Starting => State::Ready,
                State::Leaving { .. } => State::Leaving { done: true },
                other => other,
            };
        }
        true
    }

    fn moment(&self, spec: &SetSpec, reason: Reason) -> Moment {
        let count = |is_new: bool| {
            let of_side = self.units.iter().filter(|(unit, _)| (unit.revision == spec.target) == is_new);
            let serving = of_side.clone().filter(|(unit, _)| unit.state == State::Ready).count();
            let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            (number(of_side.count()), number(serving))
        };
        Moment { at: self.now, old: count(false), new: count(true), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{budget::Budget, sets::Identity};

    fn spec(replicas: u32, surge: u32, unavailable: u32) -> SetSpec {
        SetSpec {
            replicas,
            budget: Budget { surge, unavailable },
            partition: 0,
            target: Revision(2),
            old: Revision(1),
            identity: Identity::Ordinal,
            noun: "group",
        }
    }

    #[test]
    fn an_update_ends_and_keeps_its_room_and_its_floor() {
        for (replicas, surge, unavailable) in [(4, 0, 1), (4, 1, 0), (4, 2, 2), (1, 1, 0), (1, 0, 1)] {
            let (moments, ends) = rehearse(
                &spec(replicas, surge, unavailable),
                Duration::from_secs(30),
                Duration::from_secs(10),
            );
            assert!(ends);
            for moment in &moments {
                assert!(moment.old.0 + moment.new.0 <= replicas + surge, "{moment:?}");
                assert!(moment.old.1 + moment.new.1 >= replicas - unavailable, "{moment:?}");
            }
            let last = moments.last().unwrap();
            assert_eq!((last.old, last.new), ((0, 0), (replicas, replicas)));
        }
    }

    #[test]
    fn a_partition_keeps_the_old_revision() {
        let spec = SetSpec { partition: 3, ..spec(4, 0, 1) };
        let (moments, ends) = rehearse(&spec, Duration::from_secs(30), Duration::from_secs(10));
        assert!(ends);
        assert_eq!(moments.last().map(|m| (m.old, m.new)), Some(((3, 3), (1, 1))));
    }
}
