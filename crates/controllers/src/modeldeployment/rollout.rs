//! The rollout of a deployment, as it is written in its status and as it goes on.

use api::modeldeployment::{
    Direction, Furthest, ModelDeployment, Outcome, Rollout, RolloutFailure, RolloutRecord,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time as ApiTime};
use planner::{
    Code, Time,
    handover::{self, Action, Phase, Verdict, VersionId, Weights},
};

use super::{
    capacity::{Judged, Short},
    checks,
    decide::Decision,
    evidence,
    observe::{Observed, Version},
    verbs,
};
use crate::{
    Answer, count, int,
    runtime::{Times, moment, timestamp},
    wait,
};

/// What became of so many rollouts is kept.
const HISTORY: usize = 32;

/// The longest text of a failure.
const LONGEST: usize = 1_024;

/// The rollout that was written, if it is the one to this version. One that was called off, by asking for what was
/// current, is over: its version is begun anew when it is asked for once more.
pub(super) fn written<'a>(deployment: &'a ModelDeployment, hash: &str) -> Option<&'a Rollout> {
    let status = deployment.status.as_ref()?;
    let rollout = status.rollout.as_ref().filter(|rollout| rollout.to == hash)?;
    let was_called_off =
        rollout.direction == Direction::Back && status.target_version == status.current_version;
    (!was_called_off).then_some(rollout)
}

/// A rollout in the planner's words.
pub(super) fn read(written: &Rollout, times: &Times) -> handover::Rollout {
    let adjusted = written.adjusted_at.as_ref().map(|time| time.0);
    let at = |time: &MicroTime| times.moment_of(time.0, adjusted);
    handover::Rollout {
        phase: match written.direction {
            Direction::Forward => Phase::Forward,
            Direction::Back => Phase::RollingBack,
            Direction::Paused => Phase::Paused,
        },
        step: count(written.step),
        step_since: at(&written.step_since),
        moved_at: written.moved_at.as_ref().map(at),
        progressed_at: at(&written.progressed_at),
        verdict: Verdict::Open,
    }
}

/// The waits that a person or a time ends, as they are written.
const HELD: [Code; 5] =
    [Code::Paused, Code::Previewing, Code::Analysing, Code::WaitingForInterval, Code::WaitingForGone];

/// Since when a rollout is in a wait that no progress is asked of: a wait without the progress deadline.
pub(super) fn held_since(written: &Rollout, times: &Times) -> Option<Time> {
    let wait = written.waiting_for.as_ref().filter(|_| written.direction == Direction::Forward)?;
    let has_time_of_its_own = HELD.iter().any(|code| code.as_str() == wait.reason);
    (has_time_of_its_own || wait.deadline.is_none()).then(|| times.moment(wait.since.0))
}

/// A rollout to which the time of such a wait does not count.
pub(super) fn without_hold(read: handover::Rollout, since: Option<Time>, now: Time) -> handover::Rollout {
    let Some(since) = since else { return read };
    let before = since.saturating_sub(read.progressed_at);
    handover::Rollout { progressed_at: now.saturating_sub(before).max(read.progressed_at), ..read }
}

/// The rollout once such a wait is over.
fn released(
    rollout: Rollout,
    observed: &Observed,
    Decision { seen, action, reason, .. }: &Decision,
) -> Rollout {
    let is_held = *action == Action::Wait && (HELD.contains(&reason.code) || reason.until.is_none());
    if observed.held_since.is_none() || is_held {
        return rollout;
    }
    Rollout { progressed_at: MicroTime(timestamp(seen.rollout.progressed_at)), ..rollout }
}

/// The version that the last rollout came from, and until when it stays ready to take over again.
pub(super) fn retained(
    deployment: &ModelDeployment,
    versions: &[Version],
    wanted: &handover::Wanted,
    times: &Times,
) -> Option<(VersionId, Time)> {
    let handover::Policy::BlueGreen { retain, .. } = wanted.policy else { return None };
    // What was refused changed nothing.
    let mut history = deployment.status.as_ref()?.history.iter();
    let last = history.find(|record| record.outcome != Outcome::Refused)?;
    let before = versions.iter().find(|version| Some(&version.hash) == last.from.as_ref())?;
    let until = times.moment(last.finished_at.0) + retain;
    (last.outcome == Outcome::Promoted).then_some((before.id, until))
}

/// The rollout as it goes on, or the next one, and what became of those that ended.
pub(super) fn after(
    observed: &Observed,
    decision: &Decision,
    heard: &[Answer],
    now: Time,
) -> (Rollout, Vec<RolloutRecord>) {
    let Decision { seen, action, reason, .. } = decision;
    let deployment = &observed.deployment;
    let before = deployment.status.clone().unwrap_or_default();
    let mut history = before.history;
    let goes_on = written(deployment, &observed.version_template.hash).is_some();
    let is_back_home = seen.current == Some(observed.wanted.target);
    let is_retried = decision.verb.as_ref().is_some_and(|verb| verb.verb == verbs::RETRY);
    let mut rollout = match before.rollout {
        Some(rollout) if goes_on && is_retried => {
            if rollout.outcome.is_none() {
                let why = "a request restarted it";
                record(&mut history, &rollout, Outcome::Superseded, why, now);
            }
            again(&rollout, observed, now)
        }
        // It was refused, and fits now.
        Some(rollout)
            if goes_on
                && is_refused(&rollout)
                && decision.capacity.as_ref().is_some_and(|it| !it.is_refused) =>
        {
            again(&rollout, observed, now)
        }
        Some(rollout) if goes_on => {
            released(as_read(rollout, observed.rollout.as_ref(), now), observed, decision)
        }
        // What was current is asked for again: the same rollout, called off.
        Some(rollout) if rollout.outcome.is_none() && is_back_home => {
            Rollout { direction: Direction::Back, ..rollout }
        }
        // Whoever asks for it again knows that the other one failed.
        Some(rollout) if rollout.outcome.is_some() && is_back_home => Rollout { failure: None, ..rollout },
        other => {
            if let Some(rollout) = other.filter(|rollout| rollout.outcome.is_none()) {
                let failed = rollout.failure.as_ref().map(|failure| format!("{}; ", failure.message));
                let why = format!("{}the spec names another version", failed.unwrap_or_default());
                record(&mut history, &rollout, Outcome::Superseded, &why, now);
            }
            begin(observed, now)
        }
    };
    if let Some(judged) = &decision.capacity {
        tell_capacity(&mut rollout, &mut history, judged, now);
    }
    if !decision.checks.is_empty() {
        rollout.checks = checks::status(&decision.checks, &rollout.checks, heard);
    }
    carry_out(&mut rollout, decision, now);
    tell_trouble(&mut rollout, observed, decision, now);
    advance(&mut rollout, observed, decision, now);
    rollout.waiting_for =
        (*action == Action::Wait).then(|| wait::of(reason, None, rollout.waiting_for.as_ref(), now));
    let ended = match action {
        Action::Promote(id) if Some(*id) == Some(observed.wanted.target) => Some(Outcome::Promoted),
        Action::Done if rollout.direction == Direction::Back && is_aborted(&rollout) => {
            Some(Outcome::Aborted)
        }
        Action::Done if rollout.direction == Direction::Back => Some(Outcome::RolledBack),
        // Nothing to promote: the wanted version is the current one, as after a restore of an older status.
        Action::Done => Some(Outcome::Promoted),
        _ => None,
    };
    if let Some(outcome) = ended.filter(|_| rollout.outcome.is_none()) {
        rollout.outcome = Some(outcome);
        let why = match (outcome, &rollout.failure) {
            (Outcome::RolledBack, Some(failure)) => failure.message.clone(),
            (Outcome::Aborted, _) => aborted(&rollout),
            (Outcome::RolledBack, None) => "the spec names the version before again".to_owned(),
            _ => reason.what.clone(),
        };
        record(&mut history, &rollout, outcome, &why, now);
    }
    history.truncate(HISTORY);
    (rollout, history)
}

/// A rollout with its times as they are read after a step of the clock, so that a process that has not seen the step reads
/// them right.
fn as_read(rollout: Rollout, read: Option<&handover::Rollout>, now: Time) -> Rollout {
    let is_moved = |read: &&handover::Rollout| {
        read.progressed_at != moment(rollout.progressed_at.0)
            || read.step_since != moment(rollout.step_since.0)
            || read.moved_at != rollout.moved_at.as_ref().map(|time| moment(time.0))
    };
    let Some(read) = read.filter(is_moved) else { return rollout };
    let micro = |time: Time| MicroTime(timestamp(time));
    Rollout {
        step_since: micro(read.step_since),
        moved_at: read.moved_at.map(micro),
        progressed_at: micro(read.progressed_at),
        adjusted_at: Some(micro(now)),
        ..rollout
    }
}

fn begin(observed: &Observed, now: Time) -> Rollout {
    let deployment = &observed.deployment;
    let from = observed.current().and_then(|id| observed.version(id));
    let micro = MicroTime(timestamp(now));
    Rollout {
        id: format!(
            "{}-{}",
            observed.version_template.hash,
            deployment.metadata.generation.unwrap_or_default()
        ),
        strategy: deployment.spec.strategy.ty,
        from: from.map(|version| version.hash.clone()),
        from_name: from.map(|version| version.name.clone()),
        to_name: observed.target().map(|version| version.name.clone()),
        to: observed.version_template.hash.clone(),
        revision: observed.target().map_or(0, |version| version.number),
        direction: Direction::Forward,
        step: 0,
        step_since: micro.clone(),
        started_at: ApiTime(timestamp(now)),
        moved_at: None,
        progressed_at: micro,
        adjusted_at: None,
        furthest: None,
        waiting_for: None,
        attempt: 0,
        request: None,
        evidence: None,
        capacity: None,
        checks: Vec::new(),
        failure: None,
        outcome: None,
    }
}

/// The same rollout once more.
fn again(rollout: &Rollout, observed: &Observed, now: Time) -> Rollout {
    let attempt = rollout.attempt + 1;
    let begun = begin(observed, now);
    Rollout { id: format!("{}-{attempt}", begun.id), attempt, ..begun }
}

/// Notes what does not fit the cluster. A rollout that is refused is over before it began.
fn tell_capacity(rollout: &mut Rollout, history: &mut Vec<RolloutRecord>, judged: &Judged, now: Time) {
    rollout.capacity = judged.short.as_ref().map(Short::status);
    let Some(short) = judged.short.as_ref().filter(|_| judged.is_refused) else { return };
    let name = rollout.to_name.as_deref().unwrap_or(&rollout.to);
    let message = format!("version {name} is refused: {}", short.reason.what);
    let known = rollout.failure.as_ref().map(|failure| failure.at.clone());
    rollout.direction = Direction::Back;
    rollout.failure = Some(RolloutFailure {
        reason: short.reason.code.to_string(),
        message: wait::cut(&message, LONGEST),
        at: known.unwrap_or_else(|| ApiTime(timestamp(now))),
    });
    if rollout.outcome.is_none() {
        rollout.outcome = Some(Outcome::Refused);
        record(history, rollout, Outcome::Refused, &message, now);
    }
}

/// A step as people count, which have so many; nothing after the last one.
pub(super) fn step_of(step: u32, steps: usize) -> Option<String> {
    let is_one = usize::try_from(step).is_ok_and(|step| step < steps);
    is_one.then(|| format!("step {} of {steps}", step + 1))
}

pub(super) fn is_refused(rollout: &Rollout) -> bool {
    rollout.outcome == Some(Outcome::Refused)
}

/// Why the rollout fails now, in a word and in a sentence. The first version has none to go back to: its failure is told,
/// and it stays.
fn failed(
    rollout: &Rollout,
    observed: &Observed,
    decision: &Decision,
    now: Time,
) -> Option<(String, String)> {
    if let Action::SetPhase(Phase::RollingBack | Phase::Paused) = decision.action {
        let told = (decision.reason.code.to_string(), decision.reason.what.clone());
        return decision.verb.is_none().then_some(told);
    }
    let waits = decision.action == Action::Wait && decision.seen.current.is_none();
    let is_over = decision.reason.until.is_some_and(|until| until <= now);
    (waits && is_over && rollout.failure.is_none()).then(|| {
        let seconds = observed.deployment.spec.rollback.progress_deadline_seconds;
        let what = format!("{}, and no progress for {seconds} s", decision.reason.what);
        (Code::ProgressDeadlineExceeded.to_string(), what)
    })
}

/// Notes what a person asked for, which answers a failure. The time that a rollout was held is no time without progress.
fn carry_out(rollout: &mut Rollout, decision: &Decision, now: Time) {
    let Some(request) = &decision.verb else { return };
    rollout.request = Some(verbs::kept(request, now));
    rollout.failure = None;
    rollout.progressed_at = MicroTime(timestamp(now));
}

pub(super) fn is_aborted(rollout: &Rollout) -> bool {
    rollout.request.as_ref().is_some_and(|request| request.verb == verbs::ABORT)
}

/// Who aborted a rollout, and why.
pub(super) fn aborted(rollout: &Rollout) -> String {
    let name = rollout.to_name.as_deref().unwrap_or(&rollout.to);
    let request = rollout.request.as_ref();
    let by = request.and_then(|it| it.actor.as_ref()).map(|actor| format!(" by {actor}")).unwrap_or_default();
    let why = request.and_then(|it| it.reason.as_ref()).map(|why| format!(": {why}")).unwrap_or_default();
    format!("the rollout of {name} was aborted{by}{why}")
}

/// Who decided how a rollout ended.
fn actor(rollout: &Rollout, outcome: Outcome) -> String {
    let asked = rollout.request.as_ref().filter(|_| outcome == Outcome::Aborted);
    asked.and_then(|asked| asked.actor.clone()).unwrap_or_else(|| "segue".to_owned())
}

/// Keeps what the pods of the new version say of their trouble, and why the rollout fails where it does now.
fn tell_trouble(rollout: &mut Rollout, observed: &Observed, decision: &Decision, now: Time) {
    let version = observed.versions.iter().find(|version| version.hash == rollout.to);
    let pods = version.map(|version| version.pods.as_slice()).unwrap_or_default();
    if rollout.outcome.is_none()
        && let Some(trouble) = evidence::trouble(pods, now)
    {
        rollout.evidence = Some(trouble);
    }
    if matches!(decision.action, Action::Promote(_)) {
        rollout.failure = None;
    }
    let Some((reason, what)) = failed(rollout, observed, decision, now) else { return };
    let name = version.map(|version| version.name.as_str()).unwrap_or_default();
    let unready = || evidence::unready(pods, now);
    rollout.evidence = rollout.evidence.take().or_else(unready).or_else(|| checks::open(&rollout.checks));
    if let Some(said) = checks::failed(&rollout.checks) {
        rollout.evidence = Some(said);
    }
    let cause = rollout.evidence.as_ref().map(|evidence| format!(" ({evidence})")).unwrap_or_default();
    let message = format!("version {name} failed: {what}{cause}");
    let at = ApiTime(timestamp(now));
    rollout.failure = Some(RolloutFailure { reason, message: wait::cut(&message, LONGEST), at });
}

/// What a decision changes of a rollout. It is written before the decision is carried out: a move that was not made after
/// all is made again, later than it might have been and never sooner.
fn advance(rollout: &mut Rollout, observed: &Observed, decision: &Decision, now: Time) {
    let micro = || MicroTime(timestamp(now));
    let before = rollout.direction;
    match &decision.action {
        Action::SetWeights(_, true) => rollout.moved_at = Some(micro()),
        Action::StartStep(step) => {
            rollout.step = int(*step);
            rollout.step_since = micro();
        }
        Action::SetPhase(phase) => {
            rollout.direction = match phase {
                Phase::Forward => Direction::Forward,
                Phase::Paused => Direction::Paused,
                Phase::RollingBack => Direction::Back,
            };
        }
        _ => {}
    }
    let now_at = furthest(rollout, observed, decision);
    let goes_on = |it: &Furthest| it.generation == now_at.generation && rollout.direction == before;
    let (came_to, is_further) = match rollout.furthest.filter(goes_on) {
        Some(before) if rollout.direction == Direction::Forward => further(before, now_at),
        // On the way back nothing is given up: what changes is progress.
        Some(before) => (now_at, before != now_at),
        None => (now_at, true),
    };
    if is_further {
        rollout.progressed_at = micro();
    }
    rollout.furthest = Some(came_to);
}

/// How far a rollout is.
fn furthest(rollout: &Rollout, observed: &Observed, Decision { seen, .. }: &Decision) -> Furthest {
    // Of a rollout that is called off, what is wanted is where it came from.
    let target =
        observed.versions.iter().find(|version| version.hash == rollout.to).map(|version| version.id);
    let of_target = seen.versions.iter().find(|version| Some(version.id) == target);
    let others = seen.versions.iter().filter(|version| Some(version.id) != target);
    let share = |weights: &Weights| {
        let total = u64::from(weights.total()).max(1);
        target.map_or(0, |id| i32::try_from(u64::from(weights.of(id)) * 1_000 / total).unwrap_or(i32::MAX))
    };
    Furthest {
        generation: observed.deployment.metadata.generation.unwrap_or_default(),
        step: rollout.step,
        asked: int(of_target.map_or(0, |version| version.asked)),
        ready: int(of_target.map_or(0, |version| version.ready)),
        traffic: share(&seen.route),
        confirmed: seen.applied.as_ref().map_or(0, share),
        left: int(others.map(|version| version.asked).sum::<u32>()),
    }
}

/// The furthest of both, and whether the later one is further in any respect. What is lost and won back is no progress: a
/// version that becomes ready and fails, again and again, comes no further.
fn further(before: Furthest, now: Furthest) -> (Furthest, bool) {
    let both = Furthest {
        generation: now.generation,
        step: before.step.max(now.step),
        asked: before.asked.max(now.asked),
        ready: before.ready.max(now.ready),
        traffic: before.traffic.max(now.traffic),
        confirmed: before.confirmed.max(now.confirmed),
        left: before.left.min(now.left),
    };
    (both, both != before)
}

fn record(history: &mut Vec<RolloutRecord>, rollout: &Rollout, outcome: Outcome, reason: &str, now: Time) {
    history.insert(
        0,
        RolloutRecord {
            id: rollout.id.clone(),
            from: rollout.from.clone(),
            from_name: rollout.from_name.clone(),
            to_name: rollout.to_name.clone(),
            to: rollout.to.clone(),
            outcome,
            reason: wait::cut(reason, LONGEST),
            actor: actor(rollout, outcome),
            evidence: rollout.evidence.clone(),
            started_at: rollout.started_at.clone(),
            finished_at: ApiTime(timestamp(now)),
        },
    );
}
