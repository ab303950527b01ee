//! One movement for every direction: traffic goes as far as ready units allow, and units follow traffic.

use super::{Action, Decision, Observed, OnFailure, VersionId, Wanted, Weights, fails_at, weights};
use crate::{
    Code, agreed, counted,
    reason::{Reason, Time},
};

/// How far traffic may go now, and what for.
pub(super) struct Goal {
    /// The share that `to` may have, in percent.
    pub(super) percent: u32,
    /// The units that `to` should have, if they fit.
    pub(super) units: u32,
    /// The units without which the goal is not reached; `from` makes room for these.
    pub(super) least: u32,
    /// Whether `from` gives up what it has left once `to` has everything.
    pub(super) frees: bool,
    /// Whether this is a step forward: it waits until the data plane confirmed the one before, and its time counts.
    pub(super) forward: bool,
    /// What is said when the goal is reached.
    pub(super) reached: Decision,
}

impl Goal {
    /// All traffic and all units, as fast as units allow.
    pub(super) fn everything(wanted: &Wanted, reached: Decision) -> Self {
        let units = wanted.replicas;
        Self { percent: 100, units, least: units, frees: true, forward: false, reached }
    }
}

/// The next thing on the way of `to` toward its goal, at the cost of `from`.
pub(super) fn shift(
    wanted: &Wanted,
    observed: &Observed,
    to: VersionId,
    from: VersionId,
    goal: Goal,
) -> Decision {
    raise(wanted, observed, to, &goal)
        .or_else(|| weigh(wanted, observed, to, from, &goal))
        .or_else(|| lower(wanted, observed, to, from, &goal))
        .or_else(|| wait(wanted, observed, to, &goal))
        .unwrap_or(goal.reached)
}

/// More units for `to`, as far as there is room. Never fewer: that is [`lower`]'s and [`repair`]'s.
fn raise(wanted: &Wanted, observed: &Observed, to: VersionId, goal: &Goal) -> Option<Decision> {
    let version = observed.version(to);
    let units = goal.units.min(observed.room(to, wanted.ceiling()));
    (units > version.asked).then(|| {
        let name = called(wanted, observed, to);
        let what = match goal.units {
            all if all == units => format!("scaling {name} to {}", count(units)),
            all => format!("scaling {name} to {units} of {}: no more fit into the surge", count(all)),
        };
        (Action::Scale(to, units), Reason::new(Code::Raising, what))
    })
}

/// More traffic for `to`, as far as its ready units carry it.
fn weigh(
    wanted: &Wanted,
    observed: &Observed,
    to: VersionId,
    from: VersionId,
    goal: &Goal,
) -> Option<Decision> {
    let version = observed.version(to);
    let has_route = observed.route.total() > 0;
    if goal.forward && has_route && !observed.is_settled() {
        return None;
    }
    // A service that is scaled to nothing has no unit that could be ready.
    let may_serve = version.ready > 0 && (version.proven || observed.route.of(to) > 0);
    if wanted.replicas > 0 && !may_serve {
        return None;
    }
    let weights = share(wanted, observed, to, from, goal.percent);
    grows(&observed.route, &weights, to).then(|| {
        let (ready, percent) = (ready(version.ready), weights.shown_percent(to));
        let name = called(wanted, observed, to);
        let what = format!("giving {name} {percent}% of the traffic: {ready}");
        // Where nothing is to serve there is nothing to pace. Time that no pace needs is not noted: a move that is refused
        // again and again would be another one each time.
        let is_paced = goal.forward && wanted.replicas > 0 && wanted.policy.is_paced();
        (Action::SetWeights(weights, is_paced), Reason::new(Code::MovingTraffic, what))
    })
}

/// The weights that `to` should have now on its way to `percent`.
fn share(wanted: &Wanted, observed: &Observed, to: VersionId, from: VersionId, percent: u32) -> Weights {
    if to == from || wanted.replicas == 0 {
        return Weights::all(to);
    }
    if planted!("units-that-were-asked-for-count-as-ready") {
        return weights::toward(to, from, percent, observed.version(to).asked, wanted.carrying());
    }
    if planted!("a-rollback-flips-all-traffic-at-once") && to != wanted.target {
        return Weights::all(to);
    }
    weights::toward(to, from, percent, observed.version(to).ready, wanted.carrying())
}

/// Whether `to` has a larger share in `after` than in `before`.
fn grows(before: &Weights, after: &Weights, to: VersionId) -> bool {
    let (was, is) = (u64::from(before.of(to)), u64::from(after.of(to)));
    was * u64::from(after.total()) < is * u64::from(before.total()) || (before.total() == 0 && is > 0)
}

/// Fewer units for `from`: what its traffic no longer needs, where `to` needs the room or has everything.
fn lower(
    wanted: &Wanted,
    observed: &Observed,
    to: VersionId,
    from: VersionId,
    goal: &Goal,
) -> Option<Decision> {
    let version = observed.version(from);
    let wants_room = observed.version(to).asked < goal.least;
    let has_everything = goal.frees && observed.route.is_all(to);
    let is_settled = observed.is_settled() || planted!("capacity-goes-before-the-route-is-confirmed");
    if to == from || !is_settled || !(wants_room || has_everything) {
        return None;
    }
    let kept = kept(wanted, observed, from, to);
    (kept < version.asked).then(|| {
        let (name, to) = (called(wanted, observed, from), count(kept));
        let what = match kept {
            0 => format!("scaling {name} to {to}: it has no traffic left"),
            _ => format!("scaling {name} to {to}: its traffic needs no more"),
        };
        (Action::Scale(from, kept), Reason::new(Code::Lowering, what))
    })
}

/// Returns a number of units in the word of users.
pub(crate) fn count(units: u32) -> String {
    counted(units, "replica")
}

fn ready(units: u32) -> String {
    format!("{} {} ready", count(units), agreed(units, "is", "are"))
}

/// Returns the name of a version in a sentence.
pub(super) fn called(wanted: &Wanted, observed: &Observed, id: VersionId) -> &'static str {
    match observed.current {
        None if id == wanted.target => "the first version",
        Some(current) if id == current => "the current version",
        _ if id == wanted.target => "the new version",
        _ => "a previous version",
    }
}

/// The units that a version must keep: what its traffic needs, and what the other one lacks to the floor.
fn kept(wanted: &Wanted, observed: &Observed, id: VersionId, other: VersionId) -> u32 {
    if planted!("capacity-is-judged-by-weight-alone") {
        return observed.needed(id, wanted.floor());
    }
    let lacking = wanted.floor().saturating_sub(observed.version(other).ready);
    let serves = observed.has_traffic(id);
    observed.needed(id, wanted.floor()).max(if serves { lacking } else { 0 })
}

/// What the movement waits for; nothing when the goal is reached.
fn wait(wanted: &Wanted, observed: &Observed, to: VersionId, goal: &Goal) -> Option<Decision> {
    let version = observed.version(to);
    if !observed.is_settled() && observed.route.total() > 0 {
        let what = "waiting for the data plane to confirm the traffic weights";
        return Some(waiting(wanted, observed, Code::WaitingForRoute, what.to_owned()));
    }
    let (weight, total) = (u64::from(observed.route.of(to)), u64::from(observed.route.total()));
    let has_share = weight * 100 >= u64::from(goal.percent) * total && (total > 0 || goal.percent == 0);
    let carries_it = version.ready >= observed.needed(to, wanted.floor());
    if has_share && carries_it && version.asked >= goal.least {
        return None;
    }
    let name = called(wanted, observed, to);
    if version.ready > 0 && !version.proven && observed.route.of(to) == 0 {
        return Some(waiting(wanted, observed, Code::WaitingForProbe, unproven(name)));
    }
    if version.ready < version.asked {
        let what =
            format!("waiting for replicas of {name} to be ready: {} of {}", version.ready, version.asked);
        return Some(waiting(wanted, observed, Code::WaitingForReady, what));
    }
    let leaving = observed.leaving();
    if leaving > 0 {
        // Their drain and grace end it: the time of a replica that is let go is no time without progress.
        let what = format!("waiting for {} to finish requests and end, to make room", count(leaving));
        return Some((Action::Wait, Reason::new(Code::WaitingForRoom, what)));
    }
    let what = format!("waiting for room to run {} of {name}", count(goal.least));
    Some(waiting(wanted, observed, Code::WaitingForRoom, what))
}

pub(super) fn unproven(name: &str) -> String {
    format!("waiting for {name} to pass its checks before it gets traffic")
}

/// A wait that the progress deadline ends, where it runs.
pub(super) fn waiting(wanted: &Wanted, observed: &Observed, code: Code, what: String) -> Decision {
    let reason = Reason::new(code, what);
    let reason = match fails_at(wanted, observed) {
        Some(time) => {
            reason.since(observed.rollout.progressed_at).until(time).then(failing(wanted, observed))
        }
        None => reason,
    };
    (Action::Wait, reason)
}

/// What happens at the progress deadline.
fn failing(wanted: &Wanted, observed: &Observed) -> &'static str {
    match wanted.on_failure {
        _ if observed.current.is_none() => {
            "the version counts as failed; it stays, because no other version can serve"
        }
        OnFailure::RollBack => "the rollout fails and goes back",
        OnFailure::Pause => "the rollout fails and is paused",
    }
}

/// The first version: there is nothing to take traffic from.
pub(super) fn first(wanted: &Wanted, observed: &Observed) -> Decision {
    let target = wanted.target;
    let promote = (Action::Promote(target), Reason::new(Code::Promoted, "the first version serves"));
    // A stray of an earlier try has neither traffic nor a successor: it only takes room.
    if let Some(stray) = observed.versions.iter().filter(|v| v.id != target).min_by_key(|v| v.id) {
        return discard(stray.id, observed);
    }
    shift(wanted, observed, target, target, Goal::everything(wanted, promote))
}

/// Nothing but the right number of units.
pub(super) fn scale(wanted: &Wanted, observed: &Observed, current: VersionId) -> Decision {
    let done = if current == wanted.target {
        Reason::new(Code::Idle, "every replica has the version of the spec")
    } else {
        Reason::new(Code::RolledBack, "the rollout is over, and every replica has the previous version")
    };
    let done = (Action::Done, done);
    if observed.version(current).asked > wanted.replicas {
        let what = format!("the spec asks for {}", count(wanted.replicas));
        return (Action::Scale(current, wanted.replicas), Reason::new(Code::Scaling, what));
    }
    shift(wanted, observed, current, current, Goal::everything(wanted, done))
}

/// Traffic for versions with no unit left is lost: a version with units takes it, crowded or not and in whatever phase.
pub(super) fn rescue(wanted: &Wanted, observed: &Observed, current: VersionId) -> Option<Decision> {
    let is_alive = |id: VersionId| observed.version(id).ready > 0;
    if wanted.replicas == 0 || observed.route.total() == 0 || observed.route.versions().any(is_alive) {
        return None;
    }
    let can_serve = |id: &VersionId| is_alive(*id) && observed.version(*id).proven;
    let others = observed.versions.iter().map(|version| version.id).filter(can_serve).min();
    let rescuer = [current, wanted.target].into_iter().find(can_serve).or(others)?;
    let what = "no version with traffic has a ready replica: traffic moves to one that has";
    Some((Action::SetWeights(Weights::all(rescuer), false), Reason::new(Code::Rescuing, what)))
}

/// A version that is not wanted any more: its traffic goes back to the current one, and then it goes itself.
pub(super) fn stray(
    wanted: &Wanted,
    observed: &Observed,
    stray: VersionId,
    current: VersionId,
    now: Time,
) -> Decision {
    // It carries everything and the current one has nothing left: then it is what users have, and what to start from.
    let carries_all = observed.route.is_all(stray) && observed.is_settled();
    if carries_all && observed.version(current).ready == 0 && observed.version(stray).ready > 0 {
        let what = "it carries all traffic, and the version before it has no ready replica";
        return (Action::Promote(stray), Reason::new(Code::Promoted, what));
    }
    away(wanted, observed, stray, current, now)
}

/// Keeps the bounds when something else moved them: replicas were changed, or units were.
pub(super) fn repair(
    wanted: &Wanted,
    observed: &Observed,
    current: VersionId,
    target: VersionId,
) -> Option<Decision> {
    trim(wanted, observed, current, target).or_else(|| top_up(wanted, observed, current, target))
}

/// Fewer units are wanted than there are: a version with more than its traffic needs gives up some.
fn trim(wanted: &Wanted, observed: &Observed, current: VersionId, target: VersionId) -> Option<Decision> {
    let asked: u32 = observed.versions.iter().map(|v| v.asked).sum();
    let excess = asked.saturating_sub(wanted.ceiling());
    if excess == 0 {
        return None;
    }
    [(target, current), (current, target)].into_iter().find_map(|(id, other)| {
        let asked = observed.version(id).asked;
        let spare = asked.saturating_sub(kept(wanted, observed, id, other));
        (spare > 0).then(|| {
            let units = asked - spare.min(excess);
            let what = format!(
                "scaling {} down: at most {} may exist",
                called(wanted, observed, id),
                count(wanted.ceiling())
            );
            (Action::Scale(id, units), Reason::new(Code::Trimming, what))
        })
    })
}

/// More units are wanted than there are: each version is asked for what its traffic needs.
fn top_up(wanted: &Wanted, observed: &Observed, current: VersionId, target: VersionId) -> Option<Decision> {
    [current, target].into_iter().filter(|id| observed.exists(*id)).find_map(|id| {
        let units = observed.needed(id, wanted.floor()).min(observed.room(id, wanted.ceiling()));
        (units > observed.version(id).asked).then(|| {
            let what = format!(
                "scaling {} to {}, which its traffic needs",
                called(wanted, observed, id),
                count(units)
            );
            (Action::Scale(id, units), Reason::new(Code::Raising, what))
        })
    })
}

/// Away from a version: back to where its traffic came from, and then it goes.
pub(super) fn away(
    wanted: &Wanted,
    observed: &Observed,
    from: VersionId,
    to: VersionId,
    now: Time,
) -> Decision {
    if let Some(decision) = repair(wanted, observed, to, from) {
        return decision;
    }
    if !observed.has_traffic(from) || (planted!("a-third-version-drops-the-second") && wanted.target != to) {
        let kept = observed.retained.filter(|(version, until)| *version == from && now < *until);
        return match kept.filter(|_| wanted.target == to) {
            Some((_, until)) => retained(wanted, observed, to, until),
            None => discard(from, observed),
        };
    }
    let reached = (Action::Wait, Reason::new(Code::RolledBack, "all traffic is back on the current version"));
    shift(wanted, observed, to, from, Goal::everything(wanted, reached))
}

/// The version before is kept unchanged for a while; the current one is scaled and repaired meanwhile.
fn retained(wanted: &Wanted, observed: &Observed, current: VersionId, until: Time) -> Decision {
    match scale(wanted, observed, current) {
        (Action::Done, _) => {
            let what = "the previous version is kept ready for a rollback";
            (Action::Wait, Reason::new(Code::Retaining, what).until(until).then("it is removed"))
        }
        decision => decision,
    }
}

/// A version without traffic loses its units and then goes.
fn discard(id: VersionId, observed: &Observed) -> Decision {
    let version = observed.version(id);
    if version.asked > 0 {
        let what = "scaling a version without traffic to 0 replicas";
        return (Action::Scale(id, 0), Reason::new(Code::Retiring, what));
    }
    if version.live > 0 {
        let what = format!("waiting for {} to finish requests and end", count(version.live));
        return (Action::Wait, Reason::new(Code::WaitingForGone, what).then("the version is removed"));
    }
    (Action::Retire(id), Reason::new(Code::Retiring, "removing a version that has no replicas left"))
}
