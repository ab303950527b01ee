//! What people ask of a rollout: each verb is carried out once, or refused with the state that there is.

use api::modeldeployment::{Direction, RolloutRequest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use planner::{
    Code, Reason, Time,
    handover::{self, Action, Decision, Phase, Policy},
};

use super::{observe::Observed, rollout};
pub(super) use crate::request::verbs::{ABORT, PAUSE, PROMOTE, RESUME, RETRY};
use crate::{
    count,
    request::{Request, identity_of},
    runtime::timestamp,
    wait::cut,
};

/// The verbs, each with what is answered where nothing better is known.
pub(super) const VERBS: &[(&str, &str)] = &[
    (PROMOTE, "the rollout continues"),
    (ABORT, "the rollout goes back"),
    (RETRY, "the rollout starts again"),
    (PAUSE, "the rollout is paused"),
    (RESUME, "the rollout continues"),
];

/// The longest text that is kept of a request.
const LONGEST: usize = 253;

/// What a request comes to.
#[derive(Debug)]
pub(super) struct Verb {
    /// What is done for it, if it is carried out now.
    pub(super) decision: Option<Decision>,
    /// What is answered.
    pub(super) answer: Result<String, String>,
}

/// What the unanswered request comes to; nothing without one, or for a verb that is not known.
pub(super) fn decide(observed: &Observed, seen: &handover::Observed) -> Option<Verb> {
    let request = observed.request.as_ref()?;
    let answer = match verb(observed, seen, request)? {
        Ok((decision, what)) => return Some(Verb { decision, answer: Ok(what) }),
        Err(why) => Err(why),
    };
    Some(Verb { decision: None, answer })
}

type Outcome = Result<(Option<Decision>, String), String>;

fn verb(observed: &Observed, seen: &handover::Observed, request: &Request) -> Option<Outcome> {
    VERBS.iter().find(|(verb, _)| *verb == request.verb)?;
    if is_carried_out(observed, request) {
        return Some(Ok((None, "it is carried out already".to_owned())));
    }
    if let Some(why) = is_stale(observed, request) {
        return Some(Err(why));
    }
    let name = observed.target().map(|version| version.name.as_str()).unwrap_or_default();
    let is_under_way = seen.current != Some(observed.wanted.target) && !is_over(observed);
    let phase = seen.rollout.phase;
    let does = |action, code, what: String| Ok((Some((action, Reason::new(code, what.clone()))), what));
    Some(match request.verb.as_str() {
        PROMOTE => match handover::promoted(&observed.wanted, seen).filter(|_| is_under_way) {
            Some(step) if phase == Phase::Forward => {
                does(Action::StartStep(step), Code::PromotedByHand, format!("version {name} is promoted"))
            }
            _ => Err(format!("no step waits for a promotion: {}", state(observed))),
        },
        ABORT if !is_under_way => Err(format!("no rollout is under way: {}", state(observed))),
        ABORT if phase == Phase::RollingBack => {
            Ok((None, format!("version {name} is being taken back already")))
        }
        ABORT if seen.current.is_none() => {
            Err(format!("version {name} is the first one: there is none to go back to"))
        }
        ABORT => does(
            Action::SetPhase(Phase::RollingBack),
            Code::Aborted,
            format!("the rollout of {name} is aborted"),
        ),
        RETRY if is_refused(observed) => Err(format!("retry changes nothing: {}", state(observed))),
        RETRY
            if phase == Phase::Forward && !has_failed(observed)
                || seen.current == Some(observed.wanted.target) =>
        {
            Err(format!("no rollout failed or was aborted: {}", state(observed)))
        }
        RETRY => does(
            Action::SetPhase(Phase::Forward),
            Code::Started,
            format!("the rollout of {name} starts again"),
        ),
        PAUSE if !is_under_way || phase != Phase::Forward => {
            Err(format!("no rollout moves forward: {}", state(observed)))
        }
        PAUSE => {
            does(Action::SetPhase(Phase::Paused), Code::Paused, format!("the rollout of {name} is paused"))
        }
        _ if phase != Phase::Paused => Err(format!("the rollout is not paused: {}", state(observed))),
        _ => {
            does(Action::SetPhase(Phase::Forward), Code::Started, format!("the rollout of {name} continues"))
        }
    })
}

/// Whether the request was carried out by a process that did not come to answer it.
fn is_carried_out(observed: &Observed, request: &Request) -> bool {
    let rollout = observed.deployment.status.as_ref().and_then(|status| status.rollout.as_ref());
    let last = rollout.and_then(|rollout| rollout.request.as_ref());
    last.is_some_and(|last| last.id == identity_of(&request.id))
}

fn is_over(observed: &Observed) -> bool {
    let rollout = rollout::written(&observed.deployment, &observed.version_template.hash);
    rollout.is_some_and(|it| it.outcome.is_some() && it.direction != Direction::Forward)
}

/// Whether the rollout has failed and goes on all the same: that of a first version, which has none to go back to.
fn has_failed(observed: &Observed) -> bool {
    let rollout = rollout::written(&observed.deployment, &observed.version_template.hash);
    rollout.is_some_and(|rollout| rollout.failure.is_some())
}

fn is_refused(observed: &Observed) -> bool {
    let rollout = rollout::written(&observed.deployment, &observed.version_template.hash);
    rollout.is_some_and(rollout::is_refused)
}

/// Why a request is not for what there is: it names another rollout, or a step that is over.
fn is_stale(observed: &Observed, request: &Request) -> Option<String> {
    let status = observed.deployment.status.as_ref()?;
    let rollout = status.rollout.as_ref()?;
    let other = request.rollout.as_ref().is_some_and(|id| *id != rollout.id);
    let past = request.step.is_some_and(|step| step != rollout.step);
    (other || past).then(|| {
        let place = match &observed.wanted.policy {
            Policy::Canary(steps) => rollout::step_of(count(rollout.step), steps.len()),
            _ => None,
        };
        let place = place.map(|place| format!(" is at {place}")).unwrap_or_default();
        format!("the request was for another state; now rollout {}{place}: {}", rollout.id, state(observed))
    })
}

fn state(observed: &Observed) -> String {
    let message = observed.deployment.status.as_ref().and_then(|status| status.message.as_deref());
    message.unwrap_or("nothing is known of a rollout yet").to_owned()
}

/// A request as it is kept with the rollout that it was carried out on.
pub(super) fn kept(request: &Request, now: Time) -> RolloutRequest {
    RolloutRequest {
        id: identity_of(&request.id),
        verb: request.verb.clone(),
        actor: request.actor.as_deref().map(|actor| cut(actor, LONGEST)),
        reason: request.reason.as_deref().map(|reason| cut(reason, LONGEST)),
        at: ApiTime(timestamp(now)),
    }
}
