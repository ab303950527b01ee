//! Going in two writes: out of service, then delete.

use std::time::Duration;

use super::{Op, Unit, UnitSpec, is_ready, release};
use crate::{Code, Reason, Time, counted};

/// How long a unit may finish what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drain {
    /// Until every gateway has noticed that it is out of service.
    pub settle: Duration,
    /// After that, for its requests, where they are not counted.
    pub drain: Duration,
    /// From when it is out of service: the most, where they are counted.
    pub deadline: Duration,
}

/// Whether a leaving unit may be deleted.
pub(super) fn is_done(spec: &UnitSpec, unit: &Unit, now: Time) -> bool {
    let over = until(spec, unit).is_none_or(|until| now >= until);
    !unit.in_service && (over || unit.in_flight == Some(0) || !is_ready(spec, unit))
}

/// When the drain ends at the latest; nothing, where it never served.
fn until(spec: &UnitSpec, unit: &Unit) -> Option<Time> {
    let Drain { settle, drain, deadline } = spec.drain;
    let most = if unit.in_flight.is_some() { deadline } else { settle.saturating_add(drain) };
    unit.draining_since.map(|since| since.saturating_add(most))
}

/// The next write of a unit that goes.
pub(super) fn plan(spec: &UnitSpec, unit: &Unit, now: Time) -> (Vec<Op>, Reason) {
    let waiting = || Reason::new(Code::WaitingForTermination, "waiting for the pods to end");
    let terminating = unit.pods.iter().any(|pod| pod.terminating);
    match unit.draining_since {
        _ if unit.pods.is_empty() => (Vec::new(), Reason::new(Code::Retired, "all pods have ended")),
        _ if unit.in_service => {
            let reason = Reason::new(Code::TakingOutOfService, "leaving service");
            (vec![Op::TakeOutOfService], reason.then("it finishes its requests"))
        }
        _ if terminating => (release(unit.pods.iter()), waiting()),
        Some(since) if !is_done(spec, unit, now) => {
            let what = unit.in_flight.map_or_else(
                || "waiting for the drain time to end: the requests in flight are not counted".to_owned(),
                |count| format!("waiting for {} to finish", counted(count, "request")),
            );
            let reason = Reason::new(Code::WaitingForDrain, what).since(since).then("its pods are deleted");
            (Vec::new(), Reason { until: until(spec, unit), ..reason })
        }
        _ => {
            let ops = release(unit.pods.iter());
            (
                ops,
                Reason::new(Code::DeletingUnit, "deleting pods that are out of service and have no requests"),
            )
        }
    }
}
