//! A unit: a leader and its workers, all of one revision, started, restarted and retired as one. A plain pod is a unit
//! of one.
//!
//! # Guarantees
//! - Workers are created when the startup policy allows, once per incarnation; a leader that is unready later costs no
//!   worker.
//! - One recreation per failure: recreating writes the next incarnation first, and pods of an earlier one never count
//!   as failures again (LWS#805). A crash between that write and the deletes only delays the deletes.
//! - All pods go in parallel, each with its uid, and new ones come when the old ones are gone. A pod on a lost node is
//!   released by force: its node will never confirm.
//! - A unit with pods of two revisions or two incarnations is never ready.
//! - Retiring is two writes: out of service, then delete.
//!
//! # Assumptions
//! - The incarnation is written with a compare-and-set, and so are the baselines.
//! - `in_flight` is what the gateway reports *after* it has acknowledged that the unit is out of service; before, it is
//!   unknown.
//! - A node is lost when the caller says so; how long it must be unreachable is the caller's to decide, because pods on
//!   it may still run.

mod failure;
mod retire;

use crate::{Code, Reason, Time, Uid, agreed, counted, sets};

pub use failure::{BACK_OFF, STEADY_AFTER};
pub use retire::Drain;

/// The number of a revision, as the owner's history counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// What is wanted of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitSpec {
    /// Pods, the leader included.
    pub size: u32,
    /// When workers start.
    pub startup: StartupPolicy,
    /// What a failed pod means for the others.
    pub restart: RestartPolicy,
    /// How long it may finish what it has.
    pub drain: Drain,
}

/// When workers start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartupPolicy {
    /// As soon as the leader exists.
    LeaderCreated,
    /// When the leader is ready.
    LeaderReady,
    /// When the leader has an address: no race for its name, and no deadlock where it needs its workers to be ready.
    LeaderHasAddress,
}

/// What a failed pod means for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Any failure recreates the whole unit.
    RecreateOnPodRestart,
    /// The same, once every pod has started; before, a restart is part of starting.
    RecreateAfterStart,
    /// A pod fails for itself.
    None,
}

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not started: unscheduled, pulling, or waiting for a volume.
    Pending,
    /// Its containers have started.
    Running,
    /// Succeeded or failed: it will not run again.
    Ended,
}

/// A pod, as observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts, each observed by itself")]
pub struct Pod {
    /// Its place in the unit; the leader is 0.
    pub index: u32,
    /// Which one of this name it is.
    pub uid: Uid,
    /// The revision that it was made from.
    pub revision: Revision,
    /// The incarnation of the unit that it was made for.
    pub incarnation: u32,
    /// How far it has come.
    pub phase: Phase,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it has an address.
    pub has_address: bool,
    /// How often its containers have restarted.
    pub restarts: u32,
    /// How often they had when the unit was last judged started: those are answered.
    pub restarts_baseline: u32,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether its node is lost.
    pub node_lost: bool,
}

/// What is remembered of a unit, in the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// How often the unit was recreated since it was made. Pods carry the number they were made for.
    pub incarnation: u32,
    /// How often it was recreated since it was last steady.
    pub recreations: u32,
    /// When it was last recreated.
    pub last_recreation: Option<Time>,
    /// All pods of this incarnation have started, and their baselines are recorded.
    pub started: bool,
    /// Since when it is ready.
    pub ready_since: Option<Time>,
    /// It has been in service, in this incarnation or an earlier one.
    pub served: bool,
}

/// A unit, as observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The one revision of all its pods.
    pub revision: Revision,
    /// Its pods, of every incarnation.
    pub pods: Vec<Pod>,
    /// Whether it is in service (its readiness gate).
    pub in_service: bool,
    /// Whether the set has chosen it to go.
    pub leaving: bool,
    /// Since when it is out of service in order to go.
    pub draining_since: Option<Time>,
    /// Requests that it still works on, where they are counted.
    pub in_flight: Option<u64>,
    /// What is remembered.
    pub history: History,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Make the pod of this index, of the unit's revision and incarnation, unless there is one.
    CreatePod {
        /// Its place in the unit.
        index: u32,
    },
    /// Let traffic come.
    PutInService,
    /// Let no more traffic come.
    TakeOutOfService,
    /// All pods have started: remember that, and how often each had restarted by then.
    RecordStart {
        /// The restarts of each pod.
        baselines: Vec<(Uid, u32)>,
    },
    /// Remember a recreation before anything is deleted: the next incarnation, one more recreation, now, not started.
    RecordRecreation {
        /// The incarnation that begins.
        incarnation: u32,
    },
    /// The unit has been ready for long: forget the recreations.
    RecordSteady,
    /// Delete these, in parallel.
    DeletePods {
        /// Which ones.
        uids: Vec<Uid>,
    },
    /// Delete these without waiting for their node, which is lost.
    ForceRelease {
        /// Which ones.
        uids: Vec<Uid>,
    },
}

/// The next writes for this unit, in order, and why. Any prefix of them is safe.
pub fn plan(spec: &UnitSpec, unit: &Unit, now: Time) -> (Vec<Op>, Reason) {
    if unit.leaving {
        return retire::plan(spec, unit, now);
    }
    if is_going(unit) {
        // Taking the last pods of a unit away answers whatever was wrong with it: no failure is recorded, and the owner
        // of the place decides what comes next.
        let what = "waiting for the last pods to end";
        return (release(unit.pods.iter()), Reason::new(Code::WaitingForTermination, what));
    }
    let ready = is_ready(spec, unit);
    let mut ops = Vec::new();
    if unit.in_service && !ready {
        ops.push(Op::TakeOutOfService);
    }
    let (next, reason) = clear(unit)
        .or_else(|| failure::answer(spec, unit, now))
        .or_else(|| start(spec, unit))
        .unwrap_or_else(|| settle(unit, ready, now));
    ops.extend(next);
    (ops, reason)
}

/// Whether the unit can serve: every pod there, ready, of its revision and incarnation, with no failure unanswered.
pub fn is_ready(spec: &UnitSpec, unit: &Unit) -> bool {
    let whole = unit.pods.len() == spec.size as usize && missing(spec, unit).is_empty();
    whole
        && unit.pods.iter().all(|pod| unit.owns(pod) && pod.ready && !pod.terminating && !pod.node_lost)
        && failure::find(spec, unit).is_none()
}

/// What the set sees of this unit.
pub fn state(spec: &UnitSpec, unit: &Unit, now: Time) -> sets::State {
    if is_going(unit) {
        sets::State::Terminating
    } else if unit.leaving {
        sets::State::Leaving { done: retire::is_done(spec, unit, now) }
    } else if unit.in_service && is_ready(spec, unit) {
        sets::State::Ready
    } else if unit.history.served {
        sets::State::Lapsed
    } else {
        sets::State::Starting
    }
}

/// Whether every pod of a unit is on its way out. Pods of an earlier incarnation that terminate are a recreation: the
/// unit is still there, and comes back.
fn is_going(unit: &Unit) -> bool {
    let going = |pod: &Pod| pod.terminating && (unit.leaving || unit.owns(pod));
    !unit.pods.is_empty() && unit.pods.iter().all(going)
}

impl Unit {
    /// Whether a pod is of this unit as it is now, not a left-over.
    fn owns(&self, pod: &Pod) -> bool {
        pod.revision == self.revision && pod.incarnation == self.history.incarnation
    }

    fn own_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| self.owns(pod))
    }
}

/// The places without a pod of this incarnation.
fn missing(spec: &UnitSpec, unit: &Unit) -> Vec<u32> {
    let mut there: Vec<u32> = unit.own_pods().map(|pod| pod.index).collect();
    there.sort_unstable();
    (0..spec.size).filter(|index| there.binary_search(index).is_err()).collect()
}

/// Deletes `pods`: those on lost nodes by force, the others unless they are going already.
fn release<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Op> {
    let (lost, alive): (Vec<&Pod>, Vec<&Pod>) =
        pods.filter(|pod| pod.node_lost || !pod.terminating).partition(|pod| pod.node_lost);
    let uids = |pods: Vec<&Pod>| {
        let mut uids: Vec<Uid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        uids.sort_unstable();
        uids
    };
    let (lost, alive) = (uids(lost), uids(alive));
    let mut ops = Vec::new();
    if !alive.is_empty() {
        ops.push(Op::DeletePods { uids: alive });
    }
    if !lost.is_empty() {
        ops.push(Op::ForceRelease { uids: lost });
    }
    ops
}

/// Left-overs of an earlier incarnation or of another revision: nothing new starts beside them.
fn clear(unit: &Unit) -> Option<(Vec<Op>, Reason)> {
    let left_over = || unit.pods.iter().filter(|pod| !unit.owns(pod));
    let count = left_over().count();
    if count == 0 {
        return None;
    }
    let what = format!("waiting for {count} of the previous pods to end");
    Some((release(left_over()), Reason::new(Code::WaitingForTermination, what).then("new pods are created")))
}

/// Creates what is missing, when the startup policy allows.
fn start(spec: &UnitSpec, unit: &Unit) -> Option<(Vec<Op>, Reason)> {
    let mut missing = missing(spec, unit);
    if missing.is_empty() {
        return None;
    }
    let leader = unit.own_pods().find(|pod| pod.index == 0);
    let workers = unit.own_pods().any(|pod| pod.index > 0);
    // Once a worker exists the leader has been where it had to be: what it is now holds no worker back.
    let wait = if workers { None } else { gate(spec, leader) };
    if let Some(wait) = wait {
        missing.retain(|index| *index == 0);
        if missing.is_empty() {
            let workers = spec.size - 1;
            let then = format!("{} {} created", counted(workers, "worker"), agreed(workers, "is", "are"));
            return Some((Vec::new(), wait.then(then)));
        }
    }
    let what = format!("creating {} of {}", missing.len(), counted(spec.size, "pod"));
    Some((
        missing.into_iter().map(|index| Op::CreatePod { index }).collect(),
        Reason::new(Code::CreatingPods, what),
    ))
}

/// What workers wait for.
fn gate(spec: &UnitSpec, leader: Option<&Pod>) -> Option<Reason> {
    let Some(leader) = leader.filter(|leader| !leader.terminating) else {
        // The leader's name goes first, whatever the policy: workers without it would have no leader to join.
        return Some(Reason::new(Code::WaitingForLeader, "waiting for the leader to be created"));
    };
    match spec.startup {
        StartupPolicy::LeaderCreated => None,
        StartupPolicy::LeaderReady if leader.ready => None,
        StartupPolicy::LeaderHasAddress if leader.has_address => None,
        StartupPolicy::LeaderReady => Some(Reason::new(
            Code::WaitingForLeaderReady,
            "waiting for the leader to be ready; if it needs its workers for that, use startupPolicy LeaderHasAddress",
        )),
        StartupPolicy::LeaderHasAddress => {
            Some(Reason::new(Code::WaitingForLeaderAddress, "waiting for the leader to have an address"))
        }
    }
}

/// Everything is there: remember the start, let traffic come, forget old failures.
fn settle(unit: &Unit, ready: bool, now: Time) -> (Vec<Op>, Reason) {
    let pending = unit.own_pods().filter(|pod| pod.phase == Phase::Pending).count();
    if pending == 0 && !unit.history.started {
        let mut baselines: Vec<(Uid, u32)> =
            unit.own_pods().map(|pod| (pod.uid.clone(), pod.restarts)).collect();
        baselines.sort_unstable();
        return (vec![Op::RecordStart { baselines }], Reason::new(Code::Started, "all pods have started"));
    }
    if !ready {
        let unready = unit.own_pods().filter(|pod| !pod.ready).count();
        let what = format!("waiting for {unready} of {} to be ready", counted(unit.pods.len(), "pod"));
        return (Vec::new(), Reason::new(Code::WaitingForReady, what).then("they serve"));
    }
    if !unit.in_service {
        return (vec![Op::PutInService], Reason::new(Code::PuttingInService, "all pods are ready"));
    }
    let serving = Reason::new(Code::Serving, "all pods are ready and in service");
    match unit.history.ready_since.filter(|_| unit.history.recreations > 0) {
        Some(since) if now >= since + STEADY_AFTER => (
            vec![Op::RecordSteady],
            Reason::new(Code::Steady, "ready for so long that past recreations no longer count"),
        ),
        Some(since) => {
            let until = since.saturating_add(STEADY_AFTER);
            (Vec::new(), serving.since(since).until(until).then("past recreations no longer count"))
        }
        None => (Vec::new(), serving),
    }
}
