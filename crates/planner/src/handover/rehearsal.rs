//! Simulates a whole handover before it happens: the same decisions while everything goes well.

use std::time::Duration;

use super::{
    Action, Observed, Phase, Rollout, Verdict, Version, VersionId, Wanted, Weights, plan,
    policy::{Policy, waits_for_a_person},
};
use crate::{
    Code,
    reason::{Reason, Time, patience},
};

/// One line of a rehearsal: how things are from this moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, from the start.
    pub at: Duration,
    /// The old version.
    pub old: Share,
    /// The new version.
    pub new: Share,
    /// The decision, with its reason.
    pub reason: Reason,
}

/// A version at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Units that exist or are still going.
    pub units: u32,
    /// Units that serve.
    pub ready: u32,
    /// Its traffic in percent.
    pub percent: u32,
}

const OLD: VersionId = VersionId(1);
const NEW: VersionId = VersionId(2);

/// The handover from a serving version to a new one, if a unit is ready `start` after it is asked for and gone
/// `stop` after it is let go; called off at a time, if there is one. The flag says whether it ends; where it does not,
/// the last moment says what it would wait for. A person who is waited for promotes at once.
pub fn rehearse(
    wanted: &Wanted,
    start: Duration,
    stop: Duration,
    called_off: Option<Duration>,
) -> (Vec<Moment>, bool) {
    let wanted = &Wanted { target: NEW, ..wanted.clone() };
    let mut simulation = Simulation::new(wanted, start, stop);
    let mut moments = Vec::new();
    for _ in 0..patience(wanted.replicas) {
        if called_off.is_some_and(|time| simulation.now >= time) {
            simulation.observed.rollout.phase = Phase::RollingBack;
        }
        let (action, reason) = plan(wanted, &simulation.observed, simulation.now);
        let done = action == Action::Done;
        let waits = action == Action::Wait;
        if !waits {
            simulation.act(action);
            moments.push(simulation.moment(reason));
        } else if !simulation.pass_time(reason.until, called_off) {
            if !waits_for_a_person(wanted, &simulation.observed) {
                moments.push(simulation.moment(reason));
                return (moments, false);
            }
            simulation.act(Action::StartStep(simulation.observed.rollout.step + 1));
            moments.push(
                simulation.moment(Reason::new(Code::PromotedByHand, "a person promotes the new version")),
            );
        }
        if done {
            return (moments, true);
        }
    }
    (moments, false)
}

struct Simulation {
    now: Time,
    start: Duration,
    stop: Duration,
    retain: Option<Duration>,
    observed: Observed,
    /// What happens by itself, and when: a unit of a version is ready, or gone.
    coming: Vec<(Time, VersionId, Event)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready,
    Gone,
}

impl Simulation {
    fn new(wanted: &Wanted, start: Duration, stop: Duration) -> Self {
        // What the old version is asked for under this spec is what it has.
        let units = wanted.replicas;
        let old = Version { id: OLD, asked: units, live: units, ready: units, proven: true };
        let rollout = Rollout {
            phase: Phase::Forward,
            step: 0,
            step_since: Duration::ZERO,
            moved_at: None,
            progressed_at: Duration::ZERO,
            verdict: if matches!(wanted.policy, Policy::Canary(_)) { Verdict::Passed } else { Verdict::Open },
        };
        let observed = Observed {
            versions: vec![old],
            current: Some(OLD),
            route: Weights::all(OLD),
            applied: Some(Weights::all(OLD)),
            rollout,
            retained: None,
            in_place: None,
        };
        let retain = match wanted.policy {
            Policy::BlueGreen { retain, .. } => Some(retain),
            _ => None,
        };
        Self { now: Duration::ZERO, start, stop, retain, observed, coming: Vec::new() }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Scale(id, units) => self.ask(id, units),
            Action::SetWeights(weights, forward) => {
                if forward {
                    self.observed.rollout.moved_at = Some(self.now);
                }
                self.observed.route = weights.clone();
                self.observed.applied = Some(weights);
            }
            Action::StartStep(step) => {
                self.observed.rollout.step = step;
                self.observed.rollout.step_since = self.now;
            }
            Action::SetPhase(phase) => self.observed.rollout.phase = phase,
            Action::Promote(id) => {
                self.observed.current = Some(id);
                self.observed.retained = self.retain.map(|time| (OLD, self.now + time));
            }
            Action::Retire(id) => self.observed.versions.retain(|version| version.id != id),
            Action::Install(_) | Action::Wait | Action::Done => {}
        }
        self.observed.rollout.progressed_at = self.now;
    }

    fn ask(&mut self, id: VersionId, units: u32) {
        if !self.observed.versions.iter().any(|version| version.id == id) {
            self.observed.versions.push(Version { id, asked: 0, live: 0, ready: 0, proven: true });
        }
        let (now, start, stop) = (self.now, self.start, self.stop);
        let Some(version) = self.observed.versions.iter_mut().find(|version| version.id == id) else {
            return;
        };
        let (before, asked) = (version.asked, units);
        version.asked = asked;
        if asked > before {
            version.live += asked - before;
            self.coming.extend((before..asked).map(|_| (now + start, id, Event::Ready)));
        } else {
            version.ready = version.ready.min(asked);
            self.coming.extend((asked..before).map(|_| (now + stop, id, Event::Gone)));
        }
        self.coming.sort_unstable();
    }

    /// On to the next thing that happens or to the time that is waited for; false when there is neither.
    fn pass_time(&mut self, until: Option<Time>, called_off: Option<Time>) -> bool {
        let next = self.coming.first().map(|(time, _, _)| *time);
        let called_off = called_off.filter(|time| *time > self.now);
        let Some(time) = [next, until, called_off].into_iter().flatten().min() else { return false };
        self.now = self.now.max(time);
        let (now, observed) = (self.now, &mut self.observed);
        self.coming.retain(|(time, id, event)| {
            if *time > now {
                return true;
            }
            if let Some(version) = observed.versions.iter_mut().find(|version| version.id == *id) {
                match event {
                    Event::Ready => version.ready = (version.ready + 1).min(version.asked),
                    Event::Gone => version.live = version.live.saturating_sub(1),
                }
            }
            false
        });
        true
    }

    fn moment(&self, reason: Reason) -> Moment {
        let share = |id: VersionId| {
            let version = self.observed.version(id);
            Share {
                units: version.live,
                ready: version.ready,
                percent: self.observed.route.shown_percent(id),
            }
        };
        Moment { at: self.now, old: share(OLD), new: share(NEW), reason }
    }
}
