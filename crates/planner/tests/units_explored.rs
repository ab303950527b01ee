//! Every history of a small unit: crashes between any two writes, pods that restart, end, are deleted by somebody or lose
//! their node, and a set that retires it at any moment.

mod explore;

use std::time::Duration;

use explore::explore;
use planner::units::{
    Drain, History, Op, Phase, Pod, RestartPolicy, Revision, StartupPolicy, Uid, Unit, UnitSpec, is_ready,
    plan,
};
use stateright::{Model, Property};

/// Long after everything: no back-off and no drain is left, so that order is all that matters.
const NOW: Duration = Duration::from_hours(1000);

#[derive(Clone)]
struct World {
    spec: UnitSpec,
    crashes: u8,
    failures: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Now {
    unit: Unit,
    sent: Vec<Op>,
    crashes: u8,
    failures: u8,
    recreated: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Act,
    Crash,
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
        uid: Uid(u128::from(index)),
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
    fn decide(&self, now: &mut Now) {
        let (ops, _) = plan(&self.spec, &now.unit, NOW);
        let own = |pod: &&Pod| pod.incarnation == now.unit.history.incarnation;
        let workers = now.unit.pods.iter().filter(own).any(|pod| pod.index > 0);
        let leader = now.unit.pods.iter().filter(own).find(|pod| pod.index == 0);
        let allowed = workers
            || leader.is_some_and(|leader| match self.spec.startup {
                StartupPolicy::LeaderCreated => true,
                StartupPolicy::LeaderReady => leader.ready,
                StartupPolicy::LeaderHasAddress => leader.has_address,
            });
        let left_over = now.unit.pods.iter().any(|pod| pod.incarnation != now.unit.history.incarnation);
        for op in &ops {
            let broken = match op {
                Op::CreatePod { .. } if now.unit.leaving => Some("a unit that leaves gets pods"),
                Op::CreatePod { .. } if left_over => Some("C6: new pods beside the previous incarnation"),
                Op::CreatePod { index } if *index > 0 && !allowed => Some("C8: a worker before its time"),
                Op::PutInService if !is_ready(&self.spec, &now.unit) => Some("an unready unit in service"),
                Op::DeletePods { .. } if now.unit.leaving && now.unit.in_service => {
                    Some("deleted while in service")
                }
                _ => None,
            };
            now.broken = now.broken.or(broken);
        }
        now.sent = ops;
    }

    fn write(&self, now: &mut Now, op: Op) {
        let unit = &mut now.unit;
        match op {
            Op::CreatePod { index } => {
                if !unit.pods.iter().any(|pod| pod.index == index) {
                    unit.pods.push(mk_pod(index, unit.history.incarnation));
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
                // Compare and set.
                if incarnation == unit.history.incarnation + 1 {
                    unit.history = History { incarnation, served: unit.history.served, ..History::default() };
                    now.recreated += 1;
                    if now.recreated > self.failures - now.failures {
                        now.broken = Some("C7: more recreations than failures");
                    }
                }
            }
            Op::RecordSteady => {}
            Op::DeletePods { uids } => {
                let pods = unit.pods.iter_mut().filter(|pod| uids.contains(&pod.uid));
                pods.for_each(|pod| pod.terminating = true);
            }
            Op::ForceRelease { uids } => {
                let lost: Vec<Uid> =
                    unit.pods.iter().filter(|pod| pod.node_lost).map(|pod| pod.uid).collect();
                if uids.iter().any(|uid| !lost.contains(uid)) {
                    now.broken = Some("a pod on a living node is released by force");
                }
                unit.pods.retain(|pod| !uids.contains(&pod.uid));
            }
        }
    }
}

impl Model for World {
    type State = Now;
    type Action = Event;

    fn init_states(&self) -> Vec<Now> {
        let unit = Unit {
            revision: Revision(1),
            pods: Vec::new(),
            in_service: false,
            leaving: false,
            draining_since: None,
            in_flight: None,
            history: History::default(),
        };
        let (crashes, failures) = (self.crashes, self.failures);
        vec![Now { unit, sent: Vec::new(), crashes, failures, recreated: 0, broken: None }]
    }

    fn actions(&self, now: &Now, actions: &mut Vec<Event>) {
        if now.broken.is_some() {
            return;
        }
        actions.push(Event::Act);
        if now.crashes > 0 && !now.sent.is_empty() {
            actions.push(Event::Crash);
        }
        if !now.unit.leaving {
            actions.push(Event::Retire);
        }
        for (index, pod) in now.unit.pods.iter().enumerate() {
            match pod.phase {
                _ if pod.node_lost => continue,
                _ if pod.terminating => actions.push(Event::Gone(index)),
                Phase::Pending => actions.push(Event::Start(index)),
                Phase::Running if !pod.ready => actions.push(Event::Ready(index)),
                _ => {}
            }
            if now.failures > 0 {
                actions.push(Event::LoseNode(index));
                if !pod.terminating {
                    actions.extend([Event::Delete(index), Event::End(index), Event::Restart(index)]);
                }
            }
        }
    }

    fn next_state(&self, before: &Now, event: Event) -> Option<Now> {
        let mut now = before.clone();
        let failing =
            matches!(event, Event::Restart(_) | Event::End(_) | Event::Delete(_) | Event::LoseNode(_));
        now.failures -= u8::from(failing);
        let pods = &mut now.unit.pods;
        match event {
            Event::Act => {
                if now.sent.is_empty() {
                    self.decide(&mut now);
                }
                if !now.sent.is_empty() {
                    let op = now.sent.remove(0);
                    self.write(&mut now, op);
                }
            }
            Event::Crash => {
                now.crashes -= 1;
                now.sent.clear();
            }
            Event::Start(index) => (pods[index].phase, pods[index].has_address) = (Phase::Running, true),
            Event::Ready(index) => pods[index].ready = true,
            Event::Gone(index) => {
                // What was decided about its uid can never be done.
                let gone = pods.remove(index).uid;
                for op in &mut now.sent {
                    if let Op::DeletePods { uids } | Op::ForceRelease { uids } = op {
                        uids.retain(|uid| *uid != gone);
                    }
                }
            }
            Event::Restart(index) => {
                pods[index].restarts += 1;
                pods[index].ready = false;
            }
            Event::End(index) => (pods[index].phase, pods[index].ready) = (Phase::Ended, false),
            Event::Delete(index) => pods[index].terminating = true,
            Event::LoseNode(index) => (pods[index].node_lost, pods[index].ready) = (true, false),
            Event::Retire => now.unit.leaving = true,
        }
        Some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the rules of a unit", |_, now: &Now| now.broken.is_none())]
    }
}

/// It serves or, if it was retired, it is gone.
fn settled(spec: &UnitSpec, now: &Now) -> bool {
    let serves = now.unit.in_service && is_ready(spec, &now.unit);
    now.broken.is_some() || if now.unit.leaving { now.unit.pods.is_empty() } else { serves }
}

#[test]
fn a_unit_of_two_comes_back_from_every_failure_and_leaves_from_every_state() {
    let drain = Drain { settle: Duration::ZERO, drain: Duration::ZERO, deadline: Duration::ZERO };
    let startups =
        [StartupPolicy::LeaderCreated, StartupPolicy::LeaderReady, StartupPolicy::LeaderHasAddress];
    let restarts =
        [RestartPolicy::RecreateOnPodRestart, RestartPolicy::RecreateAfterStart, RestartPolicy::None];
    let mut states = 0;
    for startup in startups {
        for restart in restarts {
            let spec = UnitSpec { size: 2, startup, restart, drain };
            let world = World { spec, crashes: 1, failures: 2 };
            states += explore(&format!("{startup:?}, {restart:?}"), world, |now| settled(&spec, now)).states;
        }
    }
    println!("units: {states} states in all");
}
