//! How far traffic may go now: the strategies.

use std::time::Duration;

use super::{Action, Decision, Observed, Phase, Verdict, VersionId, Wanted, movement, movement::Goal};
use crate::{
    Code,
    budget::Amount,
    reason::{Reason, Time},
};

/// How traffic moves forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// As units become ready.
    Rolling,
    /// All at once, when everything of the new version is ready.
    BlueGreen {
        /// Go on without a person.
        auto_promote: bool,
        /// How long the new version is previewed first.
        delay: Duration,
        /// Its units until then.
        preview: Amount,
        /// How long the old version stays afterwards, ready to take over again.
        retain: Duration,
    },
    /// By a list of steps.
    Canary(Vec<Step>),
    /// By equal steps of traffic, each after an interval.
    Incremental {
        /// The share that moves, in percent.
        step: u32,
        /// The time between two moves.
        interval: Duration,
    },
    /// Inside the one set that there is: for services whose second copy does not fit.
    InPlace,
    /// Stop, then start.
    Recreate,
}

impl Policy {
    /// Whether a move must be so long after the one before.
    pub(super) fn is_paced(&self) -> bool {
        matches!(self, Self::Incremental { .. })
    }
}

/// A step of a canary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// This share, in percent, with at least so many units.
    Weight(u32, Option<Amount>),
    /// A wait, or until a person goes on.
    Pause(Option<Duration>),
    /// The checks are watched for so long, and must pass.
    Analysis(Duration),
}

/// The step that a rollout enters when a person promotes it now; nothing where no step waits.
pub fn promoted(wanted: &Wanted, observed: &Observed) -> Option<u32> {
    let step = observed.rollout.step;
    let waits = match &wanted.policy {
        Policy::Canary(steps) => {
            matches!(steps.get(step as usize), Some(Step::Pause(_) | Step::Analysis(_)))
        }
        Policy::BlueGreen { .. } => step == PREVIEWED,
        Policy::Rolling | Policy::Incremental { .. } | Policy::InPlace | Policy::Recreate => false,
    };
    waits.then_some(step + 1)
}

/// Whether a person or a time makes it go on, and nothing else does: then no deadline runs.
pub(super) fn waits_for_a_person(wanted: &Wanted, observed: &Observed) -> bool {
    match &wanted.policy {
        Policy::Canary(steps) => {
            matches!(steps.get(observed.rollout.step as usize), Some(Step::Pause(_) | Step::Analysis(_)))
        }
        Policy::BlueGreen { .. } => observed.rollout.step == PREVIEWED,
        Policy::Rolling | Policy::Incremental { .. } | Policy::InPlace | Policy::Recreate => false,
    }
}

/// The next thing on the way to the target.
pub(super) fn forward(wanted: &Wanted, observed: &Observed, current: VersionId, now: Time) -> Decision {
    let target = wanted.target;
    let promote = (
        Action::Promote(target),
        Reason::new(Code::Promoted, "the new version carries all traffic and is ready"),
    );
    // Recreate takes units from traffic on purpose; everyone else gives back what is missing first.
    if wanted.policy != Policy::Recreate
        && let Some(decision) = movement::repair(wanted, observed, current, target)
    {
        return decision;
    }
    match &wanted.policy {
        // A service to be updated in place that has no set yet gets one like any other.
        Policy::Rolling | Policy::InPlace => {
            movement::shift(wanted, observed, target, current, whole(wanted, promote))
        }
        Policy::Incremental { step, interval } => {
            incremental(wanted, observed, current, now, (*step, *interval), promote)
        }
        Policy::Canary(steps) => canary(wanted, observed, current, now, steps, promote),
        Policy::BlueGreen { auto_promote, delay, preview, .. } => {
            blue_green(wanted, observed, current, now, (*auto_promote, *delay, *preview), promote)
        }
        Policy::Recreate => recreate(wanted, observed, current, promote),
    }
}

fn whole(wanted: &Wanted, reached: Decision) -> Goal {
    Goal { forward: true, ..Goal::everything(wanted, reached) }
}

fn incremental(
    wanted: &Wanted,
    observed: &Observed,
    current: VersionId,
    now: Time,
    (step, interval): (u32, Duration),
    promote: Decision,
) -> Decision {
    let target = wanted.target;
    let share = observed.route.percent(target);
    let next = observed.rollout.moved_at.map(|at| at + interval).filter(|time| now < *time);
    let next = next.filter(|_| !planted!("the-interval-starts-anew-after-a-restart"));
    let percent = if next.is_some() { share } else { (share + step).min(100) };
    // The old version makes room as its traffic moves.
    let goal = Goal { percent, ..whole(wanted, promote) };
    let decision = movement::shift(wanted, observed, target, current, goal);
    let Some(time) = next.filter(|_| share < 100) else { return decision };
    let then = (share + step).min(100);
    match &decision {
        // What is reached now is only the step before: the next one has its time. Until then the old version makes no room.
        (action, reason)
            if matches!(action, Action::Promote(_))
                || reason.code == Code::WaitingForRoom && observed.leaving() == 0 =>
        {
            let what = format!("waiting {}s with {share}% of the traffic moved", interval.as_secs());
            let then = format!("{then}% of the traffic is moved");
            (Action::Wait, Reason::new(Code::WaitingForInterval, what).until(time).then(then))
        }
        // The end of the interval comes first: it fails nothing.
        (Action::Wait, reason) if reason.until.is_none_or(|until| time < until) => {
            let then = format!("up to {then}% of the traffic may move");
            (Action::Wait, reason.clone().until(time).then(then))
        }
        _ => decision,
    }
}

fn canary(
    wanted: &Wanted,
    observed: &Observed,
    current: VersionId,
    now: Time,
    steps: &[Step],
    promote: Decision,
) -> Decision {
    let index = observed.rollout.step;
    let enter_next = |what: String| (Action::StartStep(index + 1), Reason::new(Code::StepDone, what));
    match steps.get(index as usize) {
        Some(Step::Weight(percent, units)) => {
            let needed = Amount::Percent(*percent).ceil_of(wanted.carrying()).max(1);
            let units = units.map_or(needed, |units| units.ceil_of(wanted.replicas).max(needed));
            let (units, least) = if *percent >= 100 {
                (wanted.replicas, wanted.replicas)
            } else {
                (units.min(wanted.replicas), needed.min(wanted.replicas))
            };
            let reached = enter_next(format!("the new version has {percent}% of the traffic"));
            let goal =
                Goal { percent: (*percent).min(100), units, least, frees: true, forward: true, reached };
            movement::shift(wanted, observed, wanted.target, current, goal)
        }
        Some(Step::Pause(time)) => {
            let until = time.map(|time| observed.rollout.step_since + time);
            if until.is_some_and(|until| now >= until) {
                return enter_next("the pause is over".to_owned());
            }
            let share = observed.route.shown_percent(wanted.target);
            let what = format!(
                "paused with {share}% of the traffic moved, at step {} of {}",
                index + 1,
                steps.len()
            );
            let reason = Reason::new(Code::Paused, what).since(observed.rollout.step_since);
            let next = upcoming(steps.get(index as usize + 1));
            let reason = match until {
                Some(until) => reason.until(until).then(next),
                None => reason.then(format!("{next}, once it is promoted")),
            };
            (Action::Wait, reason)
        }
        Some(Step::Analysis(time)) => analysis(observed, now, *time, enter_next),
        None => movement::shift(wanted, observed, wanted.target, current, whole(wanted, promote)),
    }
}

/// What a step of a canary does, as what happens next.
fn upcoming(step: Option<&Step>) -> String {
    match step {
        Some(Step::Weight(percent, _)) => format!("{percent}% of the traffic moves"),
        Some(Step::Pause(_)) => "another pause begins".to_owned(),
        Some(Step::Analysis(_)) => "the checks are watched".to_owned(),
        None => "all traffic moves".to_owned(),
    }
}

fn analysis(
    observed: &Observed,
    now: Time,
    time: Duration,
    enter_next: impl Fn(String) -> Decision,
) -> Decision {
    let until = observed.rollout.step_since + time;
    let reason = |what: &str| Reason::new(Code::Analysing, what).since(observed.rollout.step_since);
    match observed.rollout.verdict {
        Verdict::Open if now >= until && planted!("no-verdict-is-a-good-verdict") => {
            enter_next(String::new())
        }
        Verdict::Passed if now >= until => enter_next("the checks passed".to_owned()),
        // Waiting for data is not failing: without a verdict it goes on.
        _ if now >= until => {
            (Action::Wait, reason("waiting for a verdict of the checks").then("the next step begins"))
        }
        _ => (Action::Wait, reason("the checks run").until(until).then("the next step begins")),
    }
}

/// The step of a blue-green rollout whose preview is whole: its delay runs from then on.
const PREVIEWED: u32 = 1;

/// The step in which all traffic goes to the new version.
const FLIPPING: u32 = 2;

fn blue_green(
    wanted: &Wanted,
    observed: &Observed,
    current: VersionId,
    now: Time,
    (auto_promote, delay, preview): (bool, Duration, Amount),
    promote: Decision,
) -> Decision {
    let target = wanted.target;
    let version = observed.version(target);
    let preview = preview.ceil_of(wanted.replicas).clamp(1, wanted.replicas.max(1)).min(wanted.replicas);
    let is_whole = version.ready >= preview && version.proven && version.asked >= preview;
    let is_promoted = observed.rollout.step >= FLIPPING;
    // What users had a while ago needs no second look: its preview and its promotion lie behind it.
    let is_kept = observed.retained.is_some_and(|(kept, until)| kept == target && now < until);
    if is_kept && !is_promoted {
        let what = "the version that was kept for a rollback takes over again";
        return (Action::StartStep(FLIPPING), Reason::new(Code::StepDone, what));
    }
    // One flip and no shares: until then the new version has no traffic, however many of its units are ready.
    if observed.route.of(target) > 0 || (is_promoted && version.ready >= wanted.carrying()) {
        // The old version stays whole until it is promoted away from, and then as long as it is to be kept.
        let goal = Goal { frees: false, ..whole(wanted, promote) };
        return movement::shift(wanted, observed, target, current, goal);
    }
    let units = if is_promoted { wanted.replicas } else { preview };
    if is_promoted || !is_whole {
        // A preview that lost a unit is a new one once it is whole.
        if observed.rollout.step == PREVIEWED {
            return (
                Action::StartStep(0),
                Reason::new(Code::StepRegressed, "the preview has lost a replica"),
            );
        }
        let (code, what) = if version.ready >= units && !version.proven {
            (Code::WaitingForProbe, movement::unproven("the new version"))
        } else {
            let ready = version.ready;
            let what = format!("waiting for replicas of the new version to be ready: {ready} of {units}");
            (Code::WaitingForReady, what)
        };
        let reached = movement::waiting(wanted, observed, code, what);
        let goal = Goal { percent: 0, units, least: units, frees: false, forward: true, reached };
        return movement::shift(wanted, observed, target, current, goal);
    }
    if observed.rollout.step < PREVIEWED {
        let what = format!("the preview is whole: {} ready", movement::count(version.ready));
        return (Action::StartStep(PREVIEWED), Reason::new(Code::StepDone, what));
    }
    let until = observed.rollout.step_since + delay;
    let look =
        Reason::new(Code::Previewing, "the new version can be previewed").since(observed.rollout.step_since);
    if !auto_promote {
        return (Action::Wait, look.then("all traffic moves once it is promoted"));
    }
    if now < until {
        return (Action::Wait, look.until(until).then("all traffic is moved"));
    }
    (Action::StartStep(FLIPPING), Reason::new(Code::StepDone, "the new version is proven"))
}

/// Down first: for services of which not even one more unit fits.
fn recreate(wanted: &Wanted, observed: &Observed, current: VersionId, promote: Decision) -> Decision {
    let old = observed.version(current);
    if old.asked > 0 {
        return (
            Action::Scale(current, 0),
            Reason::new(
                Code::Stopping,
                "scaling the current version to 0 replicas before the new one starts",
            ),
        );
    }
    if old.live > 0 {
        let what = format!("waiting for {} of the current version to end", movement::count(old.live));
        return (Action::Wait, Reason::new(Code::WaitingForGone, what).then("the new version starts"));
    }
    movement::shift(wanted, observed, wanted.target, current, whole(wanted, promote))
}

/// The phase in which every rollout begins.
impl Default for Phase {
    fn default() -> Self {
        Self::Forward
    }
}
