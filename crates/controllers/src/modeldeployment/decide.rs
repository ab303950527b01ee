//! What is done next for a deployment, by the planner.

use std::time::Duration;

use api::modeldeployment as spec;
use planner::{
    Reason, Time,
    handover::{self, Action, Phase, Rollout, Verdict, Weights},
};

use super::{
    capacity::{self, Short},
    checks::{self, Judged},
    observe::{Observed, Version},
    outside_checks, rollout, verbs,
};
use crate::{count, request::Request};

/// What is done next, and why.
#[derive(Debug)]
pub(crate) struct Decision {
    /// What there is, in the planner's words.
    pub(super) seen: handover::Observed,
    pub(super) action: Action,
    pub(super) reason: Reason,
    /// When something is seen otherwise though nothing changes.
    pub(super) changes_at: Option<Time>,
    /// The verb of a person that the action carries out.
    pub(super) verb: Option<Request>,
    /// What is answered to the request of a person.
    pub(super) answer: Option<Result<String, String>>,
    /// How the checks of the rollout stand.
    pub(super) checks: Vec<Judged>,
    /// Whether the cluster holds a rollout that has not begun.
    pub(super) capacity: Option<capacity::Judged>,
    /// The data plane has not taken note of everything that is ready.
    pub(super) is_behind: bool,
}

pub(super) fn decide(observed: &Observed, now: Time) -> Decision {
    let capacities: Vec<Capacity> =
        observed.versions.iter().filter_map(|version| capacity(observed, version, now)).collect();
    let applied_at = observed.route_weights.as_ref().and_then(|route_weights| route_weights.applied_at);
    let found = route(observed);
    let applied = applied_at.filter(|at| *at <= now && found.total() > 0).map(|_| found.clone());
    let route = if found.total() > 0 { found } else { asked_before(observed) };
    let capacity = capacity::judge(observed);
    // One that has not begun, or that was refused and is not any more, begins now.
    let rollout = observed.rollout.filter(|_| capacity.is_none());
    let rollout =
        rollout.map_or_else(|| begun(now), |it| rollout::without_hold(it, observed.held_since, now));
    let refused = capacity.as_ref().filter(|it| it.is_refused).and_then(|it| it.short.as_ref());
    let phase = if refused.is_some() { Phase::RollingBack } else { rollout.phase };
    let rollout = Rollout { phase, ..rollout };
    let checks = judged(observed, &route, &rollout, now);
    let rollout = Rollout { verdict: verdict(observed, &checks, &rollout, now), ..rollout };
    let seen = handover::Observed {
        versions: capacities.iter().map(|capacity| capacity.version).collect(),
        current: observed.current(),
        route,
        applied,
        rollout,
        retained: observed.retained,
        in_place: None,
    };
    let asked = verbs::decide(observed, &seen);
    let answer = asked.as_ref().map(|asked| asked.answer.clone());
    let asked = asked.and_then(|asked| asked.decision);
    let verb = asked.as_ref().and_then(|_| observed.request.clone());
    let (action, reason) = match (asked, refused) {
        (Some(asked), _) => asked,
        (None, Some(short)) => refusal(observed, &seen, short, now),
        (None, None) => handover::plan(&observed.wanted, &seen, now),
    };
    let settling = capacities.iter().filter_map(|capacity| capacity.changes_at);
    let settling = settling.chain(applied_at).chain(no_room_at(observed)).filter(|at| *at > now);
    let changes_at = settling.chain(checks::next(&checks, now)).min();
    let is_behind = capacities.iter().any(|capacity| capacity.is_behind);
    Decision { seen, action, reason, changes_at, verb, answer, checks, capacity, is_behind }
}

/// What is done while a version is refused: what serves is kept as it is wanted, and what is left over goes.
fn refusal(observed: &Observed, seen: &handover::Observed, short: &Short, now: Time) -> handover::Decision {
    if seen.current.is_none() && seen.versions.is_empty() {
        return (Action::Done, short.reason.clone());
    }
    let target = seen.current.unwrap_or(observed.wanted.target);
    match handover::plan(&handover::Wanted { target, ..observed.wanted.clone() }, seen, now) {
        (Action::Done, _) => (Action::Done, short.reason.clone()),
        decision => decision,
    }
}

/// How the checks stand of a rollout that goes forward; of another one they stand as they stood.
fn judged(observed: &Observed, route: &Weights, rollout: &Rollout, now: Time) -> Vec<Judged> {
    let target = observed.wanted.target;
    if rollout.phase != Phase::Forward || observed.current() == Some(target) {
        return Vec::new();
    }
    if route.of(target) == 0 {
        return checks::before_traffic(outside_checks::ask(observed, false, now));
    }
    if observed.current().is_none() {
        return Vec::new();
    }
    let answers = observed.target().and_then(|version| version.answers);
    let outside = outside_checks::ask(observed, true, now);
    checks::judge(&observed.deployment.spec, rollout.step, &observed.checks, answers, outside, now)
}

/// The scheduler may find a node when its view is older than what has just gone: after so long there is none.
const NO_ROOM: Duration = Duration::from_secs(30);

/// When a rollout has failed because no node has room for its pods. Without Enforce they may wait for a node until the
/// deadline of the rollout.
fn no_room_at(observed: &Observed) -> Option<Time> {
    let since = observed.target()?.unschedulable_since?;
    let is_enforced = observed.deployment.spec.capacity == spec::Capacity::Enforce;
    (observed.rollout.is_some() && is_enforced).then(|| since + NO_ROOM)
}

fn verdict(observed: &Observed, checks: &[Judged], rollout: &Rollout, now: Time) -> Verdict {
    if no_room_at(observed).is_some_and(|at| at <= now) {
        return Verdict::NoRoom;
    }
    let most = count(observed.deployment.spec.rollback.max_restarts);
    if observed.rollout.is_some() && observed.target().is_some_and(|version| version.restarts > most) {
        return Verdict::CrashLoop;
    }
    checks::verdict(checks, rollout.step_since)
}

/// A rollout that begins now.
fn begun(now: Time) -> Rollout {
    Rollout {
        phase: Phase::Forward,
        step: 0,
        step_since: now,
        moved_at: None,
        progressed_at: now,
        verdict: Verdict::Open,
    }
}

fn route(observed: &Observed) -> Weights {
    let shares =
        observed.route_weights.as_ref().map(|route_weights| observed.by_version(&route_weights.shares));
    shares.unwrap_or_default().into_iter().collect()
}

/// What the status says that the route should say: for a route that is gone, or that cannot be read because it has lost its
/// owner. It is made again so, and moved on from there.
fn asked_before(observed: &Observed) -> Weights {
    let status = observed.deployment.status.as_ref();
    let known = status.map(|status| status.versions.as_slice()).unwrap_or_default();
    let share = |version: &Version| {
        let before = known.iter().find(|before| before.name == version.name)?;
        Some((version.id, count(before.traffic.desired)))
    };
    observed.versions.iter().filter_map(share).collect()
}

/// A version in the planner's words.
struct Capacity {
    version: handover::Version,
    changes_at: Option<Time>,
    is_behind: bool,
}

fn capacity(observed: &Observed, version: &Version, now: Time) -> Option<Capacity> {
    let set = version.set.as_ref()?;
    let settled = version.settled_at.iter().filter(|at| **at <= now).count();
    let (mut changes_at, mut is_behind) = (None, false);
    let ready = match version.endpoints {
        _ if !observed.protections.gate => version.live,
        Some(_) if !observed.protections.settle => version.ready,
        // A route and the endpoints that it needs come by different ways: what the data plane has not heard of yet gets no
        // traffic.
        Some(known) => {
            is_behind = known < version.ready;
            known.min(version.ready)
        }
        None => {
            changes_at = version.settled_at.iter().copied().filter(|at| *at > now).min();
            version.ready.min(u32::try_from(settled).unwrap_or(u32::MAX))
        }
    };
    let version = handover::Version {
        id: version.id,
        asked: count(set.spec.replicas),
        live: version.live,
        ready: if has_a_way_in(observed, version) { ready } else { 0 },
        proven: version.id != observed.wanted.target
            || observed.current() == Some(version.id)
            || observed.retained.is_some_and(|(kept, until)| kept == version.id && now < until)
            || outside_checks::are_passed(&observed.deployment.spec, &observed.checks),
    };
    Some(Capacity { version, changes_at, is_behind })
}

/// Whether traffic that is sent to a version would reach it. A route names a Service, and a Service of that name may have
/// another owner: a version gets its first traffic when its own Service exists.
fn has_a_way_in(observed: &Observed, version: &Version) -> bool {
    let name = observed.service_of(version.id).unwrap_or_default();
    let mut routed = observed.route_weights.iter().flat_map(|route_weights| &route_weights.shares);
    observed.traffic.gateway.is_none()
        || !observed.protections.gate
        || routed.any(|(service, weight)| *service == name && *weight > 0)
        || observed.reached.service(&name).is_some()
}
