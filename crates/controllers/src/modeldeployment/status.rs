//! What is, of a deployment: what users have, what is tried, what it waits for, and what became of what was tried.

use api::modeldeployment::{
    CapacityStatus, Direction, ModelDeployment, ModelDeploymentStatus, Phase, Rollout, RolloutFailure,
    ServiceHealth, TrafficStatus, VersionStatus,
};
use kube::ResourceExt;
use planner::{
    Code, Reason, Time, agreed, counted,
    handover::{self, Action, VersionId},
    percents,
};

use super::{
    decide::Decision,
    observe::{Observed, Version},
    rollout, scaling, verbs,
    wanted::not_acted_on,
};
use crate::{
    Answer,
    conditions::{Writer, modeldeployment as types, reasons, types as common},
    count, int, labels, wait,
};

/// The status of a deployment when this was observed, that was decided, and so much was heard from outside.
pub(super) fn status(
    observed: &Observed,
    decision: &Decision,
    heard: &[Answer],
    now: Time,
) -> ModelDeploymentStatus {
    let Observed { deployment, wanted, .. } = observed;
    let Decision { seen, action, reason, .. } = decision;
    let before = deployment.status.clone().unwrap_or_default();
    let name = |id| observed.version(id).map(|version| version.name.clone());
    let promoted = if let Action::Promote(id) = action { Some(*id) } else { None };
    let current = promoted.or(seen.current);
    let ready: u32 = seen.versions.iter().map(|version| version.ready).sum();
    let floor = wanted.budget.floor(wanted.replicas);
    let (rollout, history) = rollout::after(observed, decision, heard, now);
    let selector = format!("{}={},{}=0", labels::DEPLOYMENT, deployment.name_any(), labels::WORKER_INDEX);
    let mut status = ModelDeploymentStatus {
        observed_generation: deployment.metadata.generation.unwrap_or_default(),
        replicas: int(seen.versions.iter().map(|version| version.live).sum::<u32>()),
        ready_replicas: int(ready),
        selector: Some(selector),
        health: Some(match ready {
            0 if wanted.replicas > 0 => ServiceHealth::Down,
            ready if ready < floor => ServiceHealth::Degraded,
            _ => ServiceHealth::Healthy,
        }),
        phase: Some(phase(&rollout, action, reason.code)),
        message: Some(message(&rollout, decision, current.and_then(name), wanted.target)),
        current_version: current.and_then(name).or(before.current_version),
        target_version: name(wanted.target),
        latest_revision: observed.versions.iter().map(|it| it.number).fold(before.latest_revision, i64::max),
        rollout: Some(rollout),
        versions: version_statuses(observed, seen),
        last_scale: scaling::request(observed, action).or(before.last_scale),
        history,
        conditions: before.conditions,
    };
    set_conditions(&mut status, deployment, now);
    status
}

/// The status of a deployment of which something is not served.
pub(super) fn not_served(before: &ModelDeploymentStatus, why: &str) -> ModelDeploymentStatus {
    ModelDeploymentStatus { phase: Some(Phase::Waiting), message: Some(why.to_owned()), ..before.clone() }
}

/// Whether two statuses say the same, but for what moves all the time and is only written along. What users get counts
/// as new when it has moved by a few points while a rollout is under way.
pub(super) fn say_the_same(one: &ModelDeploymentStatus, other: &ModelDeploymentStatus) -> bool {
    let shares = |status: &ModelDeploymentStatus| -> Vec<Option<i32>> {
        status.versions.iter().map(|version| version.traffic.observed).collect()
    };
    let moved = shares(one).iter().zip(shares(other)).any(|(one, other)| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() >= 5,
        (one, other) => one.is_none() && other.is_some(),
    });
    if moved && other.phase != Some(Phase::Idle) {
        return false;
    }
    let still = |status: &ModelDeploymentStatus| {
        let mut status = status.clone();
        for version in &mut status.versions {
            version.in_flight = None;
            version.traffic.observed = None;
        }
        status
    };
    still(one) == still(other)
}

/// What is done and why. Of a rollout that failed it says so until a person answers it.
fn message(rollout: &Rollout, decision: &Decision, current: Option<String>, target: VersionId) -> String {
    let Decision { action, reason, seen, .. } = decision;
    let Some(failure) = &rollout.failure else {
        return asked(rollout, action, reason, current, seen.route.shown_percent(target));
    };
    if rollout::is_refused(rollout) {
        return refused(failure, action, reason, current);
    }
    let current = current.unwrap_or_default();
    let next = match (rollout.direction, action) {
        (Direction::Paused, _) => {
            "paused: nothing moves until `segue retry`, `resume` or `abort`, or another version".to_owned()
        }
        (_, Action::Done) => {
            format!("rolled back to {current}, which serves; apply another version, or `segue retry`")
        }
        (Direction::Forward, _) => {
            let doing = sentence(reason);
            format!(
                "there is no version to go back to, so the controller keeps trying: {doing}; apply another version, or \
                 `segue retry`"
            )
        }
        (_, Action::SetPhase(_)) => format!("rolling back to {current}"),
        _ => format!("rolling back to {current}: {}", sentence(reason)),
    };
    let room = MESSAGE.saturating_sub(next.chars().count() + 2);
    format!("{}; {next}", wait::cut(&failure.message, room))
}

/// The same of a rollout that does not fit the cluster.
fn refused(failure: &RolloutFailure, action: &Action, reason: &Reason, current: Option<String>) -> String {
    let doing = match action {
        Action::Done => String::new(),
        _ => format!("; {}", sentence(reason)),
    };
    let serves =
        current.map_or_else(|| "nothing is started".to_owned(), |current| format!("{current} serves"));
    let next =
        format!("{serves}{doing}; it is judged again when capacity changes, and `capacity: Warn` starts it");
    let room = MESSAGE.saturating_sub(next.chars().count() + 2);
    format!("{}; {next}", wait::cut(&failure.message, room))
}

/// The same where nothing failed and the new version has this share of the traffic: what a person asked for is told with its
/// author.
fn asked(rollout: &Rollout, action: &Action, reason: &Reason, current: Option<String>, share: u32) -> String {
    let request = rollout.request.as_ref();
    if rollout.direction == Direction::Back && rollout::is_aborted(rollout) {
        let (aborted, current) = (rollout::aborted(rollout), current.unwrap_or_default());
        return match action {
            Action::Done => format!("{aborted}; {current} serves; apply another version, or `segue retry`"),
            _ => format!("{aborted}; going back to {current}: {}", sentence(reason)),
        };
    }
    if let Some(request) =
        request.filter(|it| rollout.direction == Direction::Paused && it.verb == verbs::PAUSE)
    {
        let by = request.actor.as_ref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        let why = request.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        return format!(
            "paused{by}{why} with {share}% of the traffic moved and no time limit: nothing moves until `segue resume` or \
             `segue abort`"
        );
    }
    sentence(reason)
}

/// The longest message.
const MESSAGE: usize = 1_024;

fn sentence(reason: &Reason) -> String {
    let pauses = matches!(reason.code, Code::Paused | Code::Previewing);
    match &reason.then {
        _ if pauses => wait::sentence(reason),
        // What happens at a deadline is told with the deadline, in what is waited for.
        Some(then) if reason.until.is_none() => format!("{}; then {then}", reason.what),
        _ => reason.what.clone(),
    }
}

fn phase(rollout: &Rollout, action: &Action, code: Code) -> Phase {
    match (rollout.direction, action) {
        (_, Action::Done) => Phase::Idle,
        // The rollout is over: only the version before is still there.
        (_, Action::Wait) if code == Code::Retaining => Phase::Idle,
        (Direction::Paused, _) => Phase::Paused,
        // Only what serves is scaled.
        (Direction::Back, Action::Wait) if rollout::is_refused(rollout) => Phase::Waiting,
        (Direction::Back, _) if rollout::is_refused(rollout) => Phase::Rolling,
        (Direction::Back, _) => Phase::RollingBack,
        (Direction::Forward, Action::Wait) => Phase::Waiting,
        (Direction::Forward, _) => Phase::Rolling,
    }
}

/// Each version that exists. Shares of traffic add up to 100.
fn version_statuses(observed: &Observed, seen: &handover::Observed) -> Vec<VersionStatus> {
    let lately: Vec<u64> =
        observed.versions.iter().map(|it| it.recent_requests.unwrap_or_default()).collect();
    let shares = shares(&lately);
    let status = |(version, share): (&Version, Option<i32>)| {
        let found = seen.versions.iter().find(|seen| seen.id == version.id)?;
        let percent = |weights: &handover::Weights| int(weights.shown_percent(version.id));
        Some(VersionStatus {
            name: version.name.clone(),
            revision: version.number,
            capacity: CapacityStatus {
                asked: int(found.asked),
                granted: int(found.live),
                ready: int(found.ready),
            },
            traffic: TrafficStatus {
                desired: percent(&seen.route),
                applied: seen.applied.as_ref().map(percent),
                observed: share.filter(|_| version.recent_requests.is_some()),
            },
            replicas: int(found.live),
            ready_replicas: int(found.ready),
            in_flight: version.in_flight.and_then(|count| i64::try_from(count).ok()),
        })
    };
    observed.versions.iter().zip(shares).filter_map(status).collect()
}

/// So many requests tell a share; fewer are chance.
const ENOUGH: u64 = 20;

/// The shares of the requests of the last seconds, in percent, where there were enough.
fn shares(lately: &[u64]) -> Vec<Option<i32>> {
    if lately.iter().sum::<u64>() < ENOUGH {
        return vec![None; lately.len()];
    }
    let parts: Vec<u32> = lately.iter().map(|count| u32::try_from(*count).unwrap_or(u32::MAX)).collect();
    percents(&parts).into_iter().map(|share| Some(int(share))).collect()
}

fn set_conditions(status: &mut ModelDeploymentStatus, deployment: &ModelDeployment, now: Time) {
    let message = status.message.clone().unwrap_or_default();
    let is_healthy = status.health == Some(ServiceHealth::Healthy);
    let is_moving = status.phase != Some(Phase::Idle);
    let is_back = status.phase == Some(Phase::RollingBack);
    let is_paused = status.phase == Some(Phase::Paused);
    let (ready, all) = (status.ready_replicas, counted(count(deployment.spec.replicas), "replica"));
    let ready = format!("{ready} of {all} {}", agreed(ready, "serves", "serve"));
    let word = |is: bool, yes, no| if is { yes } else { no };
    let failed = status.rollout.as_ref().is_some_and(|rollout| rollout.failure.is_some());
    let is_degraded = !is_healthy || failed;
    let serving = word(is_healthy, reasons::SERVING, reasons::NOT_ENOUGH_READY);
    let is_refused = status.rollout.as_ref().is_some_and(rollout::is_refused);
    let failure = word(is_refused, reasons::ROLLOUT_REFUSED, reasons::ROLLOUT_FAILED);
    let degraded = if failed { (failure, &message) } else { (serving, &ready) };
    let moving = word(is_moving, reasons::ROLLING_OUT, reasons::IDLE);
    let back = word(is_back, reasons::ROLLING_BACK, reasons::NOT_ROLLING_BACK);
    let paused = word(is_paused, reasons::PAUSED, reasons::NOT_PAUSED);
    let said = [
        (types::READY, is_healthy, serving, &ready),
        (types::PROGRESSING, is_moving, moving, &message),
        (types::DEGRADED, is_degraded, degraded.0, degraded.1),
        (types::ROLLBACK_IN_PROGRESS, is_back, back, &message),
        (types::PAUSED, is_paused, paused, &message),
    ];
    let mut conditions = Writer::new(&mut status.conditions, status.observed_generation, now);
    for (ty, is, reason, message) in said {
        if is { conditions.set_true(ty, reason, message) } else { conditions.set_false(ty, reason, message) }
    }
    let ignored = not_acted_on(&deployment.spec).join("; ");
    let ignored = (!ignored.is_empty()).then_some(ignored.as_str());
    conditions.alarm(common::NOT_ACTED_ON, reasons::FIELDS_IGNORED, ignored);
    let rollout = status.rollout.as_ref().filter(|it| it.outcome.is_none());
    let short = rollout.and_then(|it| it.capacity.as_ref()).map(|it| it.message.as_str());
    conditions.alarm(types::CAPACITY_SHORT, reasons::INSUFFICIENT_CAPACITY, short);
}
