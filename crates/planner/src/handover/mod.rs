//! From one version to the next: capacity and traffic, by replicas.
//!
//! A service has versions, each a set of units that layer 1 keeps, and a route that splits traffic between them.
//! This planner decides one thing at a time: how many units a version is asked for, what the route says, when a version
//! is promoted or goes. It sees what is and nothing else, so it goes on from wherever a crash left it.
//!
//! What holds at every moment, with N units wanted, S beyond them and U missing allowed, and F = N - U:
//!
//! - all units of all versions, also those that are still terminating, are at most N + S;
//! - a version is given a weight w of W only if its k ready units carry it: k x W >= w x F;
//! - a version keeps the units that its weight in force needs, in the same sense;
//! - no voluntary step makes fewer than F units serve.
//!
//! Forward, back, and away from a version that is not wanted any more are the same movement, [`movement`]: traffic goes
//! from one version to another as fast as ready units allow, and units follow traffic. Strategies only say how far
//! traffic may go now ([`policy`]).

pub mod checks;
mod in_place;
pub mod latencies;
mod movement;
mod policy;
mod rehearsal;
mod weights;

use std::time::Duration;

pub(crate) use self::movement::count;
pub use self::{
    policy::{Policy, Step, promoted},
    rehearsal::{Moment, Share, rehearse},
    weights::Weights,
};
use crate::{
    Code,
    budget::Budget,
    reason::{Reason, Time},
};

/// A version of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(pub u32);

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The version that users should have.
    pub target: VersionId,
    /// Units of the whole service.
    pub replicas: u32,
    /// The room of the handover.
    pub budget: Budget,
    /// How traffic moves forward.
    pub policy: Policy,
    /// How long the rollout may stand still before it counts as failed; for ever without.
    pub progress_deadline: Option<Duration>,
    /// What happens then, and when a check fails.
    pub on_failure: OnFailure,
}

impl Wanted {
    /// The fewest units that must serve.
    fn floor(&self) -> u32 {
        self.budget.floor(self.replicas)
    }

    /// The units that carry all traffic: the floor, and one where everything may be missing, because a version without
    /// a unit carries nothing. A service that is scaled to nothing needs none.
    fn carrying(&self) -> u32 {
        self.floor().max(1).min(self.replicas)
    }

    fn ceiling(&self) -> u32 {
        self.budget.ceiling(self.replicas)
    }
}

/// What happens when a rollout fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// Traffic and capacity go back.
    RollBack,
    /// Nothing moves until a person says so.
    Pause,
}

/// A version as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Which one.
    pub id: VersionId,
    /// The units that it is asked for.
    pub asked: u32,
    /// The units that exist, also those that are still terminating: they hold their resources.
    pub live: u32,
    /// The units that are Ready and in service.
    pub ready: u32,
    /// Whether it has proven itself where that is asked of it, by a probe or a check before traffic.
    pub proven: bool,
}

impl Version {
    /// The units that it has or will have without a further word.
    fn committed(&self) -> u32 {
        self.asked.max(self.live)
    }

    /// Its units that were let go and still hold their resources.
    fn leaving(&self) -> u32 {
        if planted!("terminating-units-hold-nothing") {
            return 0;
        }
        self.live.saturating_sub(self.asked)
    }
}

/// Where the rollout is. Everything here is written in the API, so a restart changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rollout {
    /// Its direction.
    pub phase: Phase,
    /// The step of a canary that it is at.
    pub step: u32,
    /// When that step was entered.
    pub step_since: Time,
    /// When traffic last moved forward, under a policy with an interval.
    pub moved_at: Option<Time>,
    /// When anything last changed for the better.
    pub progressed_at: Time,
    /// What the checks say of the current step.
    pub verdict: Verdict,
}

/// The direction of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// To the target.
    Forward,
    /// Nowhere, until a person says so.
    Paused,
    /// To where it came from. Only a person or a new target leaves this.
    RollingBack,
}

/// What the checks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing yet, or nothing is asked.
    Open,
    /// Good.
    Passed,
    /// Bad.
    Failed,
    /// Units of the new version restarted more often than they may.
    CrashLoop,
    /// Nodes have no room for units of the new version.
    NoRoom,
}

/// The one set of a service that is updated in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPlace {
    /// The version that it was told to become.
    pub installed: VersionId,
    /// Its units that are of that version and Ready.
    pub updated: u32,
}

/// What is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Every version that has units or traffic, and the target once it was asked for any.
    pub versions: Vec<Version>,
    /// The version that last carried everything.
    pub current: Option<VersionId>,
    /// What the route says.
    pub route: Weights,
    /// What the data plane confirmed; unknown until it does.
    pub applied: Option<Weights>,
    /// Where the rollout is.
    pub rollout: Rollout,
    /// A version before the current one that stays ready until this time, to go back to.
    pub retained: Option<(VersionId, Time)>,
    /// The set that is updated in place, under that policy; it is listed as the current version.
    pub in_place: Option<InPlace>,
}

impl Observed {
    fn version(&self, id: VersionId) -> Version {
        let none = Version { id, asked: 0, live: 0, ready: 0, proven: false };
        self.versions.iter().find(|version| version.id == id).copied().unwrap_or(none)
    }

    /// Whether there is anything of a version: units, or traffic for them.
    fn exists(&self, id: VersionId) -> bool {
        self.versions.iter().any(|version| version.id == id) || self.has_traffic(id)
    }

    /// Whether a version has a share, as the route says it or as the data plane still has it.
    fn has_traffic(&self, id: VersionId) -> bool {
        self.route.of(id) > 0 || self.applied.as_ref().is_some_and(|applied| applied.of(id) > 0)
    }

    /// The units that were let go and still hold their resources.
    fn leaving(&self) -> u32 {
        self.versions.iter().map(Version::leaving).sum()
    }

    /// Whether the data plane does what the route says.
    fn is_settled(&self) -> bool {
        if planted!("accepted-is-applied") {
            return true;
        }
        self.applied.as_ref() == Some(&self.route)
    }

    /// The units that a version's traffic needs, both as the route says it and as the data plane still has it.
    fn needed(&self, id: VersionId, floor: u32) -> u32 {
        let applied =
            self.applied.as_ref().filter(|_| !planted!("capacity-goes-before-the-route-is-confirmed"));
        let applied = applied.map_or(0, |applied| applied.units_needed(id, floor));
        self.route.units_needed(id, floor).max(applied)
    }

    /// The most units that a version may be asked for beside the others and what it has let go.
    fn room(&self, id: VersionId, ceiling: u32) -> u32 {
        let others = self.versions.iter().filter(|version| version.id != id).map(Version::committed);
        ceiling.saturating_sub(others.sum::<u32>() + self.version(id).leaving())
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a version for so many units.
    Scale(VersionId, u32),
    /// Tell the set that is updated in place to become this version.
    Install(VersionId),
    /// Write these weights to the route. The flag says whether this is a forward move, whose time counts for the pace.
    SetWeights(Weights, bool),
    /// A canary goes on to this step.
    StartStep(u32),
    /// The rollout changes its direction.
    SetPhase(Phase),
    /// The version carries everything: it is the current one from here on.
    Promote(VersionId),
    /// The version has no units and no traffic: it can go.
    Retire(VersionId),
    /// Nothing until something changes, or until the reason's time.
    Wait,
    /// Everything is as it should be.
    Done,
}

/// A decision and why.
pub type Decision = (Action, Reason);

/// The next thing to do.
pub fn plan(wanted: &Wanted, observed: &Observed, now: Time) -> Decision {
    let target = wanted.target;
    let Some(current) = observed.current else { return movement::first(wanted, observed) };
    if wanted.policy == Policy::InPlace
        && let Some(set) = observed.in_place
    {
        let next = in_place::plan(wanted, observed, set, current);
        let failed =
            failure(wanted, observed, now, &next).filter(|_| observed.rollout.phase == Phase::Forward);
        let is_done = set.installed == wanted.target && set.updated >= wanted.replicas;
        return failed.filter(|_| !is_done).unwrap_or(next);
    }
    if let Some(decision) = movement::rescue(wanted, observed, current) {
        return decision;
    }
    let strays = observed.versions.iter().filter(|v| v.id != current && v.id != target);
    if let Some(stray) = strays.min_by_key(|v| v.id) {
        return movement::stray(wanted, observed, stray.id, current, now);
    }
    let is_over = observed.rollout.phase == Phase::RollingBack && !observed.exists(target);
    if planted!("an-abort-with-nothing-to-abort-stops-the-service") && is_over {
        return (Action::Scale(current, 0), Reason::new(Code::Scaling, "planted"));
    }
    if current == target || is_over {
        return movement::scale(wanted, observed, current);
    }
    match observed.rollout.phase {
        Phase::RollingBack if planted!("a-rollback-promotes") && observed.route.is_all(target) => {
            (Action::Promote(target), Reason::new(Code::Promoted, "planted"))
        }
        Phase::RollingBack => movement::away(wanted, observed, target, current, now),
        Phase::Paused => {
            let what = format!(
                "the rollout is paused with {}% of the traffic moved",
                observed.route.percent(target)
            );
            (Action::Wait, Reason::new(Code::Paused, what).then("it continues once it is resumed"))
        }
        Phase::Forward => {
            let next = policy::forward(wanted, observed, current, now);
            failure(wanted, observed, now, &next).unwrap_or(next)
        }
    }
}

/// When the rollout fails if nothing changes for the better; nothing where no deadline runs: of a version that is current
/// already, on the way back, beside a version that goes first, and while a person or a time is waited for.
fn fails_at(wanted: &Wanted, observed: &Observed) -> Option<Time> {
    let target = wanted.target;
    let goes_on = match observed.current {
        // The first version has none to go back to: it is told, and tried on.
        None => true,
        Some(current) => {
            current != target && observed.versions.iter().all(|v| v.id == current || v.id == target)
        }
    };
    let runs =
        goes_on && observed.rollout.phase == Phase::Forward && !policy::waits_for_a_person(wanted, observed);
    wanted.progress_deadline.filter(|_| runs).map(|time| observed.rollout.progressed_at + time)
}

/// Whether what is waited for comes by itself: the end of an interval, or of replicas that were let go, whose drain and
/// grace have times of their own.
fn is_bounded(observed: &Observed, (action, reason): &Decision) -> bool {
    let ends = observed.leaving() > 0 && matches!(reason.code, Code::WaitingForGone | Code::WaitingForRoom);
    *action == Action::Wait && (ends || reason.code == Code::WaitingForInterval)
}

/// Whether the rollout has failed, and what follows.
fn failure(wanted: &Wanted, observed: &Observed, now: Time, next: &Decision) -> Option<Decision> {
    let rollout = &observed.rollout;
    let is_late = fails_at(wanted, observed).is_some_and(|deadline| now >= deadline);
    let (code, what) = if rollout.verdict == Verdict::Failed {
        (Code::CheckFailed, "a check of the new version failed".to_owned())
    } else if rollout.verdict == Verdict::CrashLoop {
        let ready = observed.version(wanted.target).ready;
        let all = movement::count(wanted.replicas);
        (Code::CrashLoop, format!("{ready} of {all} ready, and it restarts repeatedly (crash loop)"))
    } else if rollout.verdict == Verdict::NoRoom {
        let ready = observed.version(wanted.target).ready;
        let all = movement::count(wanted.replicas);
        (Code::InsufficientCapacity, format!("{ready} of {all} ready, and no node has room for the others"))
    } else if is_late && !is_bounded(observed, next) {
        (
            Code::ProgressDeadlineExceeded,
            format!(
                "{} of {} ready, and no progress for {} s",
                observed.version(wanted.target).ready,
                movement::count(wanted.replicas),
                now.saturating_sub(rollout.progressed_at).as_secs()
            ),
        )
    } else {
        return None;
    };
    let phase = match wanted.on_failure {
        OnFailure::RollBack => Phase::RollingBack,
        OnFailure::Pause => Phase::Paused,
    };
    Some((Action::SetPhase(phase), Reason::new(code, what)))
}
