//! What counts as a failure, and what is done about it.

use std::time::Duration;

use super::{Op, Phase, RestartPolicy, Unit, UnitSpec, missing, release};
use crate::{Backoff, Code, Reason, Time, counted};

/// The waits between recreations in a row, the kubelet's own for containers. The first recreation is immediate: most
/// failures are single. A unit that loads a model for longer than five minutes is not slowed down by them, and a unit
/// that fails at once costs the cluster 12 starts an hour.
pub const BACK_OFF: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };

/// A unit that was ready for ten minutes has recovered: its next failure is a new one.
pub const STEADY_AFTER: Duration = Duration::from_mins(10);

/// One thing that went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// The pod's node is lost.
    Lost(u32),
    /// The pod has ended.
    Ended(u32),
    /// A container restarted, beyond the baseline.
    Restarted(u32),
    /// The pod was there and is not.
    Vanished(u32),
}

/// Whether a failure of one pod is a failure of all.
fn together(spec: &UnitSpec, unit: &Unit) -> bool {
    match spec.restart {
        RestartPolicy::RecreateOnPodRestart => true,
        RestartPolicy::RecreateAfterStart => unit.history.started,
        RestartPolicy::None => false,
    }
}

/// The most severe failure that is not answered. Pods that terminate and pods of another incarnation are ignored.
pub(super) fn find(spec: &UnitSpec, unit: &Unit) -> Option<Failure> {
    let together = together(spec, unit);
    let pods = unit.own_pods().filter_map(|pod| match pod {
        pod if pod.node_lost => Some(Failure::Lost(pod.index)),
        pod if pod.terminating => None,
        pod if pod.phase == Phase::Ended => Some(Failure::Ended(pod.index)),
        pod if together && pod.restarts > pod.restarts_baseline => Some(Failure::Restarted(pod.index)),
        _ => None,
    });
    pods.chain(vanished(spec, unit)).min()
}

/// A pod that is not there was there if the unit had started, or if it is the leader that its workers were made for.
fn vanished(spec: &UnitSpec, unit: &Unit) -> Option<Failure> {
    let index = missing(spec, unit).first().copied()?;
    let orphaned = index == 0 && unit.own_pods().next().is_some();
    (unit.history.started || orphaned).then_some(Failure::Vanished(index))
}

/// What to do about a failure, and nothing if there is none or if creating the pod again is all.
pub(super) fn answer(spec: &UnitSpec, unit: &Unit, now: Time) -> Option<(Vec<Op>, Reason)> {
    let together = together(spec, unit);
    match find(spec, unit) {
        Some(failure) if together => Some(recreate(unit, failure, now)),
        Some(Failure::Lost(index) | Failure::Ended(index)) => {
            let ops = release(unit.own_pods().filter(|pod| pod.index == index));
            Some((
                ops,
                Reason::new(Code::ReplacingPod, format!("pod {index} has failed and is replaced"))
                    .then("a new pod is created"),
            ))
        }
        _ if together && unit.own_pods().any(|pod| pod.terminating) => {
            let what = "waiting for a deleted pod to end";
            Some((
                Vec::new(),
                Reason::new(Code::WaitingForTermination, what).then("all its pods are recreated"),
            ))
        }
        _ => None,
    }
}

/// The whole unit again: the record first, so that this failure is answered once, whatever happens to the deletes.
fn recreate(unit: &Unit, failure: Failure, now: Time) -> (Vec<Op>, Reason) {
    let what = failure.text();
    let wait = unit
        .history
        .last_recreation
        .map(|at| (at, at.saturating_add(BACK_OFF.after(unit.history.recreations))));
    // A lost node is no crash loop: its unit comes back at once.
    let held = wait.filter(|(_, until)| now < *until && !matches!(failure, Failure::Lost(_)));
    if let Some((since, until)) = held {
        let what = format!("{what}; backing off after {}", counted(unit.history.recreations, "recreation"));
        let reason = Reason::new(Code::BackingOff, what).since(since).until(until);
        return (Vec::new(), reason.then("all its pods are recreated"));
    }
    let mut ops = vec![Op::RecordRecreation { incarnation: unit.history.incarnation.saturating_add(1) }];
    ops.extend(release(unit.own_pods()));
    (ops, Reason::new(Code::RecreatingUnit, what).then("new pods are created once the old ones have ended"))
}

impl Failure {
    fn text(self) -> String {
        match self {
            Self::Lost(index) => format!("the node of pod {index} is lost"),
            Self::Ended(index) => format!("pod {index} has ended"),
            Self::Restarted(index) => format!("a container of pod {index} restarted"),
            Self::Vanished(index) => format!("pod {index} was deleted"),
        }
    }
}
