//! A unit and what happens to it: pods start, restart, end, are deleted by somebody or lose their node, the set retires
//! it, a controller stops between any two writes, and a second one, which looked a while ago, believes that it leads.
//!
//! What is remembered of a unit is one object, and every write to it is a compare-and-set: refused, with the rest of its
//! batch, where the object is no longer the one that was read. Pods are deleted by uid. A pod cannot be created on the
//! condition that another object is as it was; [`Contract`] says how careful the writer is.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::time::Duration;

use planner::{
    Uid,
    units::{
        Drain, History, Op, Phase, Pod, RestartPolicy, Revision, StartupPolicy, Unit, UnitSpec, is_ready,
        plan,
    },
};
use stateright::{Model, Property};

/// Long after everything: no back-off and no drain is left, so that order is all that matters.
const NOW: Duration = Duration::from_hours(1000);

pub const STARTUPS: [StartupPolicy; 3] =
    [StartupPolicy::LeaderCreated, StartupPolicy::LeaderReady, StartupPolicy::LeaderHasAddress];
pub const RESTARTS: [RestartPolicy; 3] =
    [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart, RestartPolicy::None];

pub fn spec(size: u32, startup: StartupPolicy, restart: RestartPolicy) -> UnitSpec {
    let drain = Drain { settle: Duration::ZERO, drain: Duration::ZERO, deadline: Duration::ZERO };
    UnitSpec { size, startup, restart, drain }
}

/// What a write is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// The record is still the one that was read, for every write.
    Compared,
    /// The same, except that a pod may be created a moment after the check.
    LateCreates,
    /// Nothing.
    Blind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub crashes: u8,
    pub failures: u8,
    /// How often a second leader looks.
    pub looks: u8,
}

#[derive(Clone)]
pub struct World {
    pub spec: UnitSpec,
    pub faults: Faults,
    pub contract: Contract,
}

/// A unit without its pods: what is remembered, in one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Record {
    in_service: bool,
    leaving: bool,
    draining_since: Option<Duration>,
    history: History,
}

impl Record {
    fn of(unit: &Unit) -> Self {
        let Unit { in_service, leaving, draining_since, history, .. } = *unit;
        Self { in_service, leaving, draining_since, history }
    }

    fn with(&self, pods: Vec<Pod>) -> Unit {
        let Self { in_service, leaving, draining_since, history } = *self;
        Unit { revision: Revision(1), pods, in_service, leaving, draining_since, in_flight: None, history }
    }
}

/// What one leader still means to do, and the record that it was decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batch {
    ops: Vec<Op>,
    read: Record,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    pub unit: Unit,
    /// Looks again when it has done what it meant to.
    first: Option<Batch>,
    /// Looked once.
    second: Option<Batch>,
    /// The second leader has seen the record, and not yet the pods.
    glance: Option<Record>,
    left: Faults,
    recreated: u8,
    pub broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Act,
    Crash,
    /// A second leader reads the record.
    Look,
    /// It reads the pods, which may be later, and decides.
    Decide,
    /// It makes its next write.
    ActSecond,
    StepDown,
    Start(usize),
    Ready(usize),
    Gone(usize),
    Restart(usize),
    End(usize),
    Delete(usize),
    LoseNode(usize),
    Retire,
}

fn mk_pod(index: u32, incarnation: u32) -> Pod {
    Pod {
        index,
        uid: Uid(index.to_string()),
        revision: Revision(1),
        incarnation,
        phase: Phase::Pending,
        ready: false,
        has_address: false,
        restarts: 0,
        restarts_baseline: 0,
        terminating: false,
        node_lost: false,
    }
}

impl World {
    pub fn start(&self) -> Now {
        let record =
            Record { in_service: false, leaving: false, draining_since: None, history: History::default() };
        let unit = record.with(Vec::new());
        Now { unit, first: None, second: None, glance: None, left: self.faults, recreated: 0, broken: None }
    }

    /// It serves or, if it was retired, it is gone.
    pub fn settled(&self, now: &Now) -> bool {
        let serves = now.unit.in_service && is_ready(&self.spec, &now.unit);
        let fine = if now.unit.leaving { now.unit.pods.is_empty() } else { serves };
        now.broken.is_some() || fine && now.second.is_none() && now.glance.is_none()
    }

    /// What is decided on a view, with the rules that a decision keeps by what it saw.
    fn decide(&self, now: &mut Now, seen: &Unit) -> Option<Batch> {
        let (ops, _) = plan(&self.spec, seen, NOW);
        let own = |pod: &&Pod| pod.incarnation == seen.history.incarnation;
        let workers = seen.pods.iter().filter(own).any(|pod| pod.index > 0);
        let leader = seen.pods.iter().filter(own).find(|pod| pod.index == 0);
        let allowed = workers
            || leader.is_some_and(|leader| match self.spec.startup {
                StartupPolicy::LeaderCreated => true,
                StartupPolicy::LeaderReady => leader.ready,
                StartupPolicy::LeaderHasAddress => leader.has_address,
            });
        let left_over = seen.pods.iter().any(|pod| pod.incarnation != seen.history.incarnation);
        for op in &ops {
            let broken = match op {
                Op::CreatePod { .. } if seen.leaving => Some("a unit that leaves gets pods"),
                Op::CreatePod { .. } if left_over => Some("C6: new pods beside the previous incarnation"),
                Op::CreatePod { index } if *index > 0 && !allowed => Some("C8: a worker before its time"),
                Op::PutInService if !is_ready(&self.spec, seen) => Some("an unready unit in service"),
                _ => None,
            };
            now.broken = now.broken.or(broken);
        }
        (!ops.is_empty()).then(|| Batch { ops, read: Record::of(seen) })
    }

    /// The next write of a batch; what is left of it.
    fn write(&self, now: &mut Now, mut batch: Batch) -> Option<Batch> {
        let op = batch.ops.remove(0);
        let checked = match self.contract {
            Contract::Compared => true,
            Contract::LateCreates => !matches!(op, Op::CreatePod { .. }),
            Contract::Blind => false,
        };
        if checked && Record::of(&now.unit) != batch.read {
            return None;
        }
        self.apply(now, op, batch.read.history.incarnation);
        // Its own writes are known to it.
        if checked {
            batch.read = Record::of(&now.unit);
        }
        (!batch.ops.is_empty()).then_some(batch)
    }

    fn apply(&self, now: &mut Now, op: Op, incarnation: u32) {
        let unit = &mut now.unit;
        match op {
            Op::CreatePod { index } => {
                if !unit.pods.iter().any(|pod| pod.index == index) {
                    if incarnation != unit.history.incarnation && self.contract == Contract::Compared {
                        now.broken = Some("C6: a pod of an incarnation that is over");
                    }
                    unit.pods.push(mk_pod(index, incarnation));
                    unit.pods.sort_by_key(|pod| pod.index);
                }
            }
            Op::PutInService => (unit.in_service, unit.history.served) = (true, true),
            Op::TakeOutOfService => {
                unit.in_service = false;
                unit.draining_since = unit.leaving.then_some(Duration::ZERO);
            }
            Op::RecordStart { baselines } => {
                unit.history.started = true;
                for pod in &mut unit.pods {
                    let recorded = baselines.iter().find(|(uid, _)| *uid == pod.uid);
                    pod.restarts_baseline = recorded.map_or(pod.restarts_baseline, |(_, count)| *count);
                }
            }
            Op::RecordRecreation { incarnation } => {
                unit.history = History { incarnation, served: unit.history.served, ..History::default() };
                now.recreated += 1;
                if now.recreated > self.faults.failures - now.left.failures {
                    now.broken = Some("C7: more recreations than failures");
                }
            }
            Op::RecordSteady => {}
            Op::DeletePods { uids } => {
                if unit.in_service && unit.pods.iter().any(|pod| uids.contains(&pod.uid) && !pod.terminating)
                {
                    now.broken = Some("deleted while in service");
                }
                let pods = unit.pods.iter_mut().filter(|pod| uids.contains(&pod.uid));
                pods.for_each(|pod| pod.terminating = true);
            }
            Op::ForceRelease { uids } => {
                let alive = |pod: &Pod| !pod.node_lost && uids.contains(&pod.uid);
                if unit.pods.iter().any(alive) {
                    now.broken = Some("a pod on a living node is released by force");
                }
                unit.pods.retain(|pod| !uids.contains(&pod.uid));
                for uid in &uids {
                    now.forget(uid);
                }
            }
        }
    }

    /// What may happen to one pod.
    fn pod_events(now: &Now, index: usize, events: &mut Vec<Event>) {
        let pod = &now.unit.pods[index];
        match pod.phase {
            _ if pod.node_lost => return,
            _ if pod.terminating => events.push(Event::Gone(index)),
            Phase::Pending => events.push(Event::Start(index)),
            Phase::Running if !pod.ready => events.push(Event::Ready(index)),
            _ => {}
        }
        if now.left.failures > 0 {
            events.push(Event::LoseNode(index));
            if !pod.terminating {
                events.extend([Event::Delete(index), Event::End(index), Event::Restart(index)]);
            }
        }
    }
}

impl Now {
    /// A pod is no more: what was decided about its uid can never be done, and its uid never comes again. Here the next
    /// pod of its name has the same one, which keeps the world small.
    fn forget(&mut self, gone: &Uid) {
        for batch in [&mut self.first, &mut self.second] {
            let Some(ops) = batch.as_mut().map(|batch| &mut batch.ops) else { continue };
            for op in &mut *ops {
                match op {
                    Op::DeletePods { uids } | Op::ForceRelease { uids } => uids.retain(|uid| uid != gone),
                    Op::RecordStart { baselines } => baselines.retain(|(uid, _)| uid != gone),
                    _ => {}
                }
            }
            ops.retain(
                |op| !matches!(op, Op::DeletePods { uids } | Op::ForceRelease { uids } if uids.is_empty()),
            );
            if ops.is_empty() {
                *batch = None;
            }
        }
    }

    fn fail(&mut self, event: Event) {
        let pods = &mut self.unit.pods;
        match event {
            Event::Restart(index) => {
                pods[index].restarts += 1;
                pods[index].ready = false;
            }
            Event::End(index) => (pods[index].phase, pods[index].ready) = (Phase::Ended, false),
            Event::Delete(index) => pods[index].terminating = true,
            Event::LoseNode(index) => (pods[index].node_lost, pods[index].ready) = (true, false),
            _ => return,
        }
        self.left.failures -= 1;
    }
}

impl Model for World {
    type State = Now;
    type Action = Event;

    fn init_states(&self) -> Vec<Now> {
        vec![self.start()]
    }

    fn actions(&self, now: &Now, events: &mut Vec<Event>) {
        if now.broken.is_some() {
            return;
        }
        events.push(Event::Act);
        if now.left.crashes > 0 && now.first.is_some() {
            events.push(Event::Crash);
        }
        match (&now.second, &now.glance) {
            (Some(_), _) => events.extend([Event::ActSecond, Event::StepDown]),
            (None, Some(_)) => events.push(Event::Decide),
            (None, None) if now.left.looks > 0 => events.push(Event::Look),
            _ => {}
        }
        if !now.unit.leaving {
            events.push(Event::Retire);
        }
        for index in 0..now.unit.pods.len() {
            Self::pod_events(now, index, events);
        }
    }

    fn next_state(&self, before: &Now, event: Event) -> Option<Now> {
        let mut now = before.clone();
        match event {
            Event::Act => {
                if now.first.is_none() {
                    now.first = self.decide(&mut now, &before.unit);
                }
                let batch = now.first.take()?;
                now.first = self.write(&mut now, batch);
            }
            Event::Crash => {
                now.left.crashes -= 1;
                now.first = None;
            }
            Event::Look => {
                now.left.looks -= 1;
                now.glance = Some(Record::of(&now.unit));
            }
            Event::Decide => {
                let seen = now.glance.take()?.with(now.unit.pods.clone());
                now.second = self.decide(&mut now, &seen);
            }
            Event::ActSecond => {
                let batch = now.second.take()?;
                now.second = self.write(&mut now, batch);
            }
            Event::StepDown => now.second = None,
            Event::Start(index) => {
                let pod = &mut now.unit.pods[index];
                (pod.phase, pod.has_address) = (Phase::Running, true);
            }
            Event::Ready(index) => now.unit.pods[index].ready = true,
            Event::Gone(index) => {
                let gone = now.unit.pods.remove(index).uid;
                now.forget(&gone);
            }
            Event::Retire => now.unit.leaving = true,
            failure => now.fail(failure),
        }
        Some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let whole = |world: &Self, now: &Now| {
            // Whoever puts it in service late does so with what it saw; pods of two incarnations never serve.
            let one = now.unit.pods.windows(2).all(|two| two[0].incarnation == two[1].incarnation);
            one || !is_ready(&world.spec, &now.unit)
        };
        vec![
            Property::always("the rules of a unit", |_, now: &Now| now.broken.is_none()),
            Property::always("C6: pods of two incarnations are never ready together", whole),
        ]
    }
}
