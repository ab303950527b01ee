//! What is, of a deployment: what users have, what is tried, what it waits for, and what became of what was tried.

use api::modeldeployment::{
    CapacityStatus, Direction, ModelDeployment, ModelDeploymentStatus, Outcome, Phase, Rollout,
    RolloutRecord, ServiceHealth, TrafficStatus, VersionStatus, Wait,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time as ApiTime};
use kube::ResourceExt;
use planner::{
    Reason, Time,
    handover::{self, Action},
};

use super::observe::{self, Observed, Version};
use crate::{
    conditions, count, int, labels,
    runtime::{moment, timestamp},
};

/// What became of so many rollouts is kept.
const HISTORY: usize = 32;

/// The status of a deployment when this was seen and that was decided.
pub(super) fn status(
    observed: &Observed,
    action: &Action,
    reason: &Reason,
    now: Time,
) -> ModelDeploymentStatus {
    let Observed { deployment, seen, wanted, .. } = observed;
    let before = deployment.status.clone().unwrap_or_default();
    let name = |id| observed.version(id).map(|version| version.name.clone());
    let promoted = if let Action::Promote(id) = action { Some(*id) } else { None };
    let current = promoted.or(seen.current);
    let ready: u32 = seen.versions.iter().map(|version| version.ready).sum();
    let floor = wanted.budget.floor(wanted.replicas);
    let (rollout, history) = rollout(observed, action, reason, now);
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
        phase: Some(phase(&rollout, action)),
        message: Some(sentence(reason)),
        current_version: current.and_then(name).or(before.current_version),
        target_version: name(wanted.target),
        rollout: Some(rollout),
        versions: observed.versions.iter().filter_map(|version| version_status(observed, version)).collect(),
        history,
        conditions: before.conditions,
    };
    set_conditions(&mut status, deployment, now);
    status
}

/// The status of a deployment of which something is not served.
pub(super) fn not_served(deployment: &ModelDeployment, why: &str, now: Time) -> ModelDeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    status.observed_generation = deployment.metadata.generation.unwrap_or_default();
    status.phase = Some(Phase::Waiting);
    status.message = Some(why.to_owned());
    let condition = ("Degraded", true, "NotServed", why);
    conditions::set(&mut status.conditions, condition, status.observed_generation, now);
    status
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

fn sentence(reason: &Reason) -> String {
    match &reason.then {
        // What happens at a deadline is told with the deadline, in what is waited for.
        Some(then) if reason.until.is_none() => format!("{}; then {then}", reason.what),
        _ => reason.what.clone(),
    }
}

fn phase(rollout: &Rollout, action: &Action) -> Phase {
    match (rollout.direction, action) {
        (_, Action::Done) => Phase::Idle,
        (Direction::Paused, _) => Phase::Paused,
        (Direction::Back, _) => Phase::RollingBack,
        (Direction::Forward, Action::Wait) => Phase::Waiting,
        (Direction::Forward, _) => Phase::Rolling,
    }
}

fn version_status(observed: &Observed, version: &Version) -> Option<VersionStatus> {
    let seen = observed.seen.versions.iter().find(|seen| seen.id == version.id)?;
    let percent = |weights: &handover::Weights| int(weights.percent(version.id));
    Some(VersionStatus {
        name: version.name.clone(),
        revision: version.number,
        capacity: CapacityStatus { asked: int(seen.asked), granted: int(seen.live), ready: int(seen.ready) },
        traffic: TrafficStatus {
            desired: percent(&observed.seen.route),
            applied: observed.seen.applied.as_ref().map(percent),
            observed: share(observed, version),
        },
        replicas: int(seen.live),
        ready_replicas: int(seen.ready),
        in_flight: version.in_flight.and_then(|count| i64::try_from(count).ok()),
    })
}

/// So many requests tell a share; fewer are chance.
const ENOUGH: u64 = 20;

/// The share of the requests of the last seconds that a version got, in percent, where somebody counts.
fn share(observed: &Observed, version: &Version) -> Option<i32> {
    let total: u64 = observed.versions.iter().filter_map(|version| version.lately).sum();
    (total >= ENOUGH).then_some(())?;
    i32::try_from(version.lately? * 100 / total).ok()
}

/// The rollout as it goes on, or the next one, and what became of those that ended.
fn rollout(
    observed: &Observed,
    action: &Action,
    reason: &Reason,
    now: Time,
) -> (Rollout, Vec<RolloutRecord>) {
    let deployment = &observed.deployment;
    let before = deployment.status.clone().unwrap_or_default();
    let mut history = before.history;
    let goes_on = observe::written(deployment, &observed.blueprint.hash).is_some();
    let is_back_home = observed.seen.current == Some(observed.wanted.target);
    let mut rollout = match before.rollout {
        Some(rollout) if goes_on => rollout,
        // What was current is asked for again: the same rollout, called off.
        Some(rollout) if rollout.outcome.is_none() && is_back_home => {
            Rollout { direction: Direction::Back, ..rollout }
        }
        Some(rollout) if rollout.outcome.is_some() && is_back_home => rollout,
        other => {
            if let Some(rollout) = other.filter(|rollout| rollout.outcome.is_none()) {
                let why = "another version was asked for";
                record(&mut history, &rollout, Outcome::Superseded, why.to_owned(), now);
            }
            begin(observed, now)
        }
    };
    // Decided before in the same words, and not done: nothing has progressed.
    let again = goes_on && before.message == Some(sentence(reason));
    let again = again && matches!(action, Action::Ask(..) | Action::Retire(_) | Action::Install(_));
    advance(&mut rollout, observed, action, again, now);
    rollout.waiting_for =
        (*action == Action::Wait).then(|| waiting(rollout.waiting_for.as_ref(), reason, now));
    let ended = match action {
        Action::Promote(id) if Some(*id) == Some(observed.wanted.target) => Some(Outcome::Promoted),
        Action::Done if rollout.direction == Direction::Back => Some(Outcome::RolledBack),
        // Nothing to promote: the wanted version is the current one, as after a restore of an older status.
        Action::Done => Some(Outcome::Promoted),
        _ => None,
    };
    if let Some(outcome) = ended.filter(|_| rollout.outcome.is_none()) {
        rollout.outcome = Some(outcome);
        let why = match outcome {
            Outcome::RolledBack => "traffic and capacity are back where they came from".to_owned(),
            _ => reason.what.clone(),
        };
        record(&mut history, &rollout, outcome, why, now);
    }
    history.truncate(HISTORY);
    (rollout, history)
}

fn begin(observed: &Observed, now: Time) -> Rollout {
    let deployment = &observed.deployment;
    let from = observed.seen.current.and_then(|id| observed.version(id));
    let micro = MicroTime(timestamp(now));
    Rollout {
        id: format!("{}-{}", observed.blueprint.hash, deployment.metadata.generation.unwrap_or_default()),
        strategy: deployment.spec.strategy.ty,
        from: from.map(|version| version.hash.clone()),
        to: observed.blueprint.hash.clone(),
        direction: Direction::Forward,
        step: 0,
        step_since: micro.clone(),
        started_at: ApiTime(timestamp(now)),
        moved_at: None,
        progressed_at: micro,
        most_ready: 0,
        waiting_for: None,
        outcome: None,
    }
}

/// What an action changes of a rollout. It is written before the action is carried out: a move that was not made after
/// all is made again, later than it might have been and never sooner.
fn advance(rollout: &mut Rollout, observed: &Observed, action: &Action, again: bool, now: Time) {
    let micro = || MicroTime(timestamp(now));
    // Of a rollout that is called off, what is wanted is where it came from.
    let target = observed.target().filter(|version| version.hash == rollout.to).map(|version| version.id);
    let target = observed.seen.versions.iter().find(|version| Some(version.id) == target);
    let ready = int(target.map_or(0, |version| version.ready));
    let acts = !matches!(action, Action::Wait | Action::Done) && !again;
    if acts || ready > rollout.most_ready {
        rollout.progressed_at = micro();
    }
    rollout.most_ready = rollout.most_ready.max(ready);
    match action {
        Action::Weigh(_, true) => rollout.moved_at = Some(micro()),
        Action::EnterStep(step) => {
            rollout.step = int(*step);
            rollout.step_since = micro();
        }
        Action::Enter(phase) => {
            rollout.direction = match phase {
                handover::Phase::Forward => Direction::Forward,
                handover::Phase::Paused => Direction::Paused,
                handover::Phase::Back => Direction::Back,
            };
        }
        _ => {}
    }
}

fn waiting(before: Option<&Wait>, reason: &Reason, now: Time) -> Wait {
    let same = before.filter(|wait| wait.reason == reason.code && wait.subject == reason.what);
    let since = reason.since.or_else(|| same.map(|wait| moment(wait.since.0))).unwrap_or(now);
    let time = |time: Time| ApiTime(timestamp(Time::from_secs(time.as_secs())));
    Wait {
        reason: reason.code.to_owned(),
        subject: reason.what.clone(),
        since: time(since),
        deadline: reason.until.map(time),
        on_expiry: reason.then.clone(),
    }
}

fn record(history: &mut Vec<RolloutRecord>, rollout: &Rollout, outcome: Outcome, reason: String, now: Time) {
    history.insert(
        0,
        RolloutRecord {
            id: rollout.id.clone(),
            from: rollout.from.clone(),
            to: rollout.to.clone(),
            outcome,
            reason,
            actor: "segue".to_owned(),
            evidence: None,
            started_at: rollout.started_at.clone(),
            finished_at: ApiTime(timestamp(now)),
        },
    );
}

fn set_conditions(status: &mut ModelDeploymentStatus, deployment: &ModelDeployment, now: Time) {
    let generation = status.observed_generation;
    let message = status.message.clone().unwrap_or_default();
    let is_healthy = status.health == Some(ServiceHealth::Healthy);
    let is_moving = status.phase != Some(Phase::Idle);
    let is_back = status.phase == Some(Phase::RollingBack);
    let is_paused = status.phase == Some(Phase::Paused);
    let ready = format!("{} of {} units serve", status.ready_replicas, count(deployment.spec.replicas));
    let word = |is: bool, yes, no| if is { yes } else { no };
    let said = [
        ("Ready", is_healthy, word(is_healthy, "Serving", "NotEnoughReady"), ready.as_str()),
        ("Progressing", is_moving, word(is_moving, "RollingOut", "Idle"), message.as_str()),
        ("Degraded", !is_healthy, word(is_healthy, "Serving", "NotEnoughReady"), ready.as_str()),
        ("RollbackInProgress", is_back, word(is_back, "RollingBack", "NotRollingBack"), message.as_str()),
        ("Paused", is_paused, word(is_paused, "Paused", "NotPaused"), message.as_str()),
    ];
    for condition in said {
        conditions::set(&mut status.conditions, condition, generation, now);
    }
}
