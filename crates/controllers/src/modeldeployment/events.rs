//! The events of a deployment.

use api::modeldeployment::{ModelDeploymentStatus, Outcome, RolloutRecord};
use planner::{
    counted,
    handover::{Action, Policy, VersionId},
};

use super::{decide::Decision, observe::Observed, rollout};
use crate::{conditions::reasons, runtime::Event};

/// What people are told of a decision that is carried out by writing it down.
pub(super) fn of_decision(observed: &Observed, decision: &Decision) -> Option<Event> {
    let (reason, note) = match &decision.action {
        Action::StartStep(step) => ("StepEntered", entered(observed, *step, &decision.reason.what)),
        Action::Promote(id) => ("Promoted", format!("version {} carries all traffic", name(observed, *id))),
        _ => return None,
    };
    Some(Event::normal("Update", reason, note))
}

/// The step that a rollout enters, as people count; after the last one comes what is left. The stages of other strategies
/// have no numbers: what led to one is told.
fn entered(observed: &Observed, step: u32, what: &str) -> String {
    match &observed.wanted.policy {
        Policy::Canary(steps) => match rollout::step_of(step, steps.len()) {
            Some(step) => format!("the rollout enters {step}"),
            None => format!(
                "{} of the rollout are done",
                counted(steps.len().try_into().unwrap_or(u32::MAX), "step")
            ),
        },
        _ => what.to_owned(),
    }
}

/// What people are told of a rollout that has failed just now, or that does not fit the cluster.
pub(super) fn of_failure(before: &ModelDeploymentStatus, after: &ModelDeploymentStatus) -> Option<Event> {
    // The numbers of a refusal change with the cluster, and are told once.
    let failed_at = |status: &ModelDeploymentStatus| {
        let rollout = status.rollout.as_ref()?;
        rollout
            .failure
            .as_ref()
            .map(|failure| (rollout.id.clone(), failure.reason.clone(), failure.at.clone()))
    };
    let message = after.message.clone().unwrap_or_default();
    if failed_at(after).is_some() && failed_at(after) != failed_at(before) {
        let is_refused = after.rollout.as_ref().is_some_and(rollout::is_refused);
        let reason = if is_refused { reasons::ROLLOUT_REFUSED } else { reasons::ROLLOUT_FAILED };
        return Some(Event::warning("Update", reason, message));
    }
    let short = |status: &ModelDeploymentStatus| {
        let rollout = status.rollout.as_ref().filter(|it| it.outcome.is_none())?;
        Some((rollout.id.clone(), rollout.capacity.as_ref()?.message.clone()))
    };
    let (_, message) = short(after).filter(|it| short(before).as_ref() != Some(it))?;
    Some(Event::warning("Update", reasons::INSUFFICIENT_CAPACITY, message))
}

/// What people are told of rollouts that ended otherwise than asked for.
pub(super) fn of_ends(before: &ModelDeploymentStatus, after: &ModelDeploymentStatus) -> Vec<Event> {
    let is_new = |record: &&RolloutRecord| !before.history.contains(record);
    let told = |record: &RolloutRecord| {
        let reason = match record.outcome {
            Outcome::RolledBack => "RolledBack",
            Outcome::Superseded => "Superseded",
            Outcome::Aborted => "Aborted",
            // A refusal is a warning.
            Outcome::Promoted | Outcome::Refused => return None,
        };
        Some(Event::normal("Update", reason, format!("rollout {}: {}", record.id, record.reason)))
    };
    after.history.iter().filter(is_new).filter_map(told).collect()
}

/// What people are told of a decision when it is carried out.
pub(super) fn of_act(observed: &Observed, decision: &Decision) -> Option<Event> {
    let (reason, note) = match &decision.action {
        Action::Scale(id, _) if observed.version(*id)?.set.is_none() => return None,
        Action::Scale(id, replicas) => (
            "Scaling",
            format!("version {} is scaled to {}", name(observed, *id), counted(*replicas, "replica")),
        ),
        Action::SetWeights(weights, _) => {
            let share = |id| format!("{} {}%", name(observed, id), weights.shown_percent(id));
            let shares: Vec<String> = weights.versions().map(share).collect();
            ("TrafficMoved", format!("traffic: {}", shares.join(", ")))
        }
        _ => return None,
    };
    Some(Event::normal("Update", reason, note))
}

fn name(observed: &Observed, id: VersionId) -> String {
    observed.version(id).map(|version| version.name.clone()).unwrap_or_default()
}
