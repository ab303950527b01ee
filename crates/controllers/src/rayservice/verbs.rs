//! What people ask of an upgrade. Each verb may be carried out twice, because a process can end before it has answered: so it
//! is refused only where there is nothing that it could mean.

use super::{
    decide::{Action, Decision},
    observe::Observed,
};
pub(super) use crate::request::verbs::{ABORT, PAUSE, PROMOTE, RESUME, RETRY};
use crate::wait;

/// The longest text that is kept of a request.
pub(super) const LONGEST: usize = 253;

/// The verbs, each with what is answered when it is carried out.
pub(super) const VERBS: &[(&str, &str)] = &[
    (
        PROMOTE,
        "the upgrade skips its intervals from now on; each step still waits until its capacity is ready",
    ),
    (PAUSE, "the upgrade is paused: no more traffic moves to the new cluster until it is resumed"),
    (RESUME, "the upgrade continues"),
    (ABORT, "the upgrade is aborted, and traffic goes back to the old cluster"),
    (RETRY, "the aborted config is tried again"),
];

/// Why the verb of the unanswered request is refused, if it is.
pub(super) fn refusal(observed: &Observed, decision: &Decision) -> Option<String> {
    let is_upgraded = observed.active.is_some() && observed.pending.is_some();
    let is_forward = is_upgraded && !decision.goes_back && !matches!(decision.action, Action::GiveUp(_));
    let is_given_up = observed.given_up.is_some() || matches!(decision.action, Action::GiveUp(_));
    let what = match observed.verb()? {
        PROMOTE | PAUSE | RESUME if !is_forward => "no upgrade moves forward",
        ABORT if !(is_given_up || is_upgraded && decision.goes_back) => "no upgrade is under way",
        RETRY if !is_given_up && observed.pending.is_none() => "no config was aborted or rolled back",
        _ => return None,
    };
    Some(format!("{what}: {}", wait::sentence(&decision.reason)))
}
