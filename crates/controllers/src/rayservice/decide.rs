//! What is done next for a service, by the planner of granted percents.

use std::time::Duration;

use planner::{
    Code, Reason, Time, agreed, counted,
    granted::{self, Goal, Side},
};

use super::{
    observe::{Cluster, Observed},
    serve::{self, ServeCall},
    verbs,
    wanted::{Strategy, cluster_service},
};
use crate::{count, digest::digest, wait::cut};

/// How long a cluster that was replaced waits at most for the end of its requests, after its delay.
const LONGEST_DRAIN: Duration = Duration::from_mins(10);

/// What is done next. Everything but the names is in the status before it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The service is as it is wanted.
    Done,
    /// Nothing before the reason's time, or before something changes.
    Wait,
    /// A cluster for the wanted goal: of this name, by so many attempts before it.
    Begin { name: String, attempt: i32 },
    /// The Serve of the active cluster, or of the pending one, gets the wanted applications.
    Revise(ClusterSlot),
    /// The Serve of a cluster is asked for a capacity.
    Capacity(ClusterSlot, u32),
    /// The pending cluster gets this share of the traffic, and the active one the rest.
    Move(u32),
    /// The pending cluster is the active one from here on.
    Promote,
    /// The pending cluster goes.
    Discard,
    /// The wanted goal is given up.
    GiveUp(String),
    /// All clusters go.
    Suspend,
}

/// One of the two clusters of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterSlot {
    Active,
    Pending,
}

/// What is done next, and why.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(super) action: Action,
    pub(super) reason: Reason,
    /// What is told to the Serve of each cluster, and asked of it.
    pub(super) serve_calls: Vec<ServeCall>,
    /// The clusters that are deleted.
    pub(super) deleted: Vec<String>,
    pub(super) held: Holds,
    /// Whether traffic goes back to the active cluster.
    pub(super) goes_back: bool,
    /// Whether the first cluster has taken longer than it may.
    pub(super) is_overdue: bool,
    /// When anything is decided otherwise though nothing changes.
    pub(super) next: Option<Time>,
}

/// What holds the way to the wanted goal up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    /// Whether a person has paused the upgrade.
    pub(super) is_paused: bool,
    /// Whether a person wants no more waits for an interval.
    pub(super) is_promoted: bool,
    /// Whether the goal that was given up stays so.
    pub(super) is_given_up: bool,
}

pub(super) fn decide(observed: &Observed, now: Time) -> Decision {
    let is_given_up = observed.given_up.is_some() && observed.verb() != Some(verbs::RETRY);
    let direction = direction(observed, is_given_up);
    let held = held(observed, direction, is_given_up);
    let (action, reason) = match (&observed.active, &observed.pending) {
        _ if observed.wanted.is_suspended => suspend(observed),
        (None, None) => begin(observed),
        (None, Some(pending)) => first(observed, pending),
        (Some(active), None) => alone(observed, active, is_given_up),
        (Some(active), Some(pending)) => both(observed, active, pending, Upgrade { direction, held, now }),
    };
    let is_busy = observed.pending.is_some() || matches!(action, Action::Wait);
    let serve_calls: Vec<ServeCall> = observed
        .clusters()
        .filter_map(|cluster| serve::serve_call(cluster, cluster.sent_capacity, is_busy, now))
        .collect();
    let overdue_at = observed.created_at.zip(observed.wanted.initializing).map(|(at, limit)| at + limit);
    let overdue_at = overdue_at.filter(|_| observed.active.is_none() && !observed.wanted.is_suspended);
    let (mut deleted, deleted_next) = deletions(observed, now);
    if let Action::Begin { name, .. } = &action {
        deleted.retain(|deleted| deleted != name);
    }
    let applied_at = observed.route_weights.as_ref().and_then(|route_weights| route_weights.applied_at);
    let times = serve_calls.iter().filter_map(|serve_call| serve_call.next);
    let times = times.chain(reason.until).chain(overdue_at).chain(deleted_next).chain(applied_at);
    Decision {
        next: times.filter(|at| *at > now).min(),
        is_overdue: overdue_at.is_some_and(|at| at <= now),
        goes_back: observed.active.is_some() && observed.pending.is_some() && direction != Goal::New,
        action,
        reason,
        serve_calls,
        deleted,
        held,
    }
}

/// What people have asked for, of an upgrade that moves forward: others cannot be paused or promoted.
fn held(observed: &Observed, direction: Goal, is_given_up: bool) -> Holds {
    let upgrade = observed.upgrade.as_ref();
    let (was_paused, was_promoted) = upgrade.map_or((false, false), |it| (it.paused, it.promoted));
    let is_forward = observed.active.is_some() && observed.pending.is_some() && direction == Goal::New;
    let (is_paused, is_promoted) = match observed.verb().filter(|_| is_forward) {
        Some(verbs::PAUSE) => (true, was_promoted),
        Some(verbs::PROMOTE) => (false, true),
        Some(verbs::RESUME | verbs::ABORT | verbs::RETRY) => (false, was_promoted),
        _ => (was_paused, was_promoted),
    };
    Holds { is_paused, is_promoted, is_given_up }
}

/// Which cluster users are to have in the end.
fn direction(observed: &Observed, is_given_up: bool) -> Goal {
    let goal = |of: &Option<Cluster>| of.as_ref().and_then(|it| it.status.goal.clone()).unwrap_or_default();
    if is_given_up {
        return Goal::Old;
    }
    Goal::of(&goal(&observed.active), &goal(&observed.pending), &observed.goal)
}

fn suspend(observed: &Observed) -> (Action, Reason) {
    if observed.clusters().next().is_some() {
        return (Action::Suspend, Reason::new(Code::Suspending, "spec.suspend is true: the clusters go"));
    }
    if observed.retiring.is_empty() {
        return (Action::Done, Reason::new(Code::Suspended, "spec.suspend is true: no cluster is left"));
    }
    let left = observed.retiring.len();
    (
        Action::Wait,
        Reason::new(
            Code::WaitingForGone,
            format!("{} {} being deleted", counted(left, "cluster"), agreed(left, "is", "are")),
        ),
    )
}

/// A cluster for the wanted goal. One that is still there is taken again.
fn begin(observed: &Observed) -> (Action, Reason) {
    let lives = |it: &&super::observe::Retiring| {
        let going = it.object.as_ref().is_some_and(|object| object.metadata.deletion_timestamp.is_some());
        it.goal == observed.goal && !going
    };
    let given_up = observed.given_up.as_ref().map_or(0, |given_up| given_up.attempts);
    if let Some(found) = observed.retiring.iter().find(lives).filter(|_| given_up == 0) {
        let reason = Reason::new(Code::Started, format!("RayCluster {} is used again", found.name));
        return (Action::Begin { name: found.name.clone(), attempt: 0 }, reason);
    }
    let taken = |name: &String| observed.retiring.iter().any(|it| it.name == *name);
    // One more name than can be taken.
    let mut attempts = (given_up..).take(observed.retiring.len() + 1);
    let attempt = attempts.find(|attempt| !taken(&cluster_name(observed, *attempt))).unwrap_or(given_up);
    let name = cluster_name(observed, attempt);
    let reason = Reason::new(Code::Started, format!("RayCluster {name} is made for the wanted config"));
    (Action::Begin { name, attempt }, reason)
}

/// The name of a cluster: it follows from the service, the goal and the attempt, so that two leaders give the same.
fn cluster_name(observed: &Observed, attempt: i32) -> String {
    let meta = &observed.service.metadata;
    let suffix = digest(&serde_json::json!([meta.uid, observed.goal, attempt]));
    format!("{}-{}", meta.name.as_deref().unwrap_or_default(), &suffix[..5])
}

/// The first cluster of a service: it has all traffic from the start, as far as it serves.
fn first(observed: &Observed, pending: &Cluster) -> (Action, Reason) {
    if pending.status.goal.as_ref() != Some(&observed.goal) {
        return (Action::Discard, Reason::new(Code::Superseded, "another config is wanted before it served"));
    }
    if let Some(revise) = revise(observed, pending, ClusterSlot::Pending) {
        return revise;
    }
    match serve::lacks(pending, pending.sent_capacity) {
        Some(what) => (Action::Wait, Reason::new(Code::WaitingForReady, what).then("the service is ready")),
        None => (Action::Promote, Reason::new(Code::Promoted, "the first cluster serves")),
    }
}

/// The applications changed for a cluster that stays.
fn revise(observed: &Observed, cluster: &Cluster, which: ClusterSlot) -> Option<(Action, Reason)> {
    let same =
        cluster.applications == observed.revisions.newest().applications && cluster.status.revision.is_some();
    let name = &cluster.name;
    let what = || format!("the applications of RayCluster {name} are changed in place");
    (!same).then(|| (Action::Revise(which), Reason::new(Code::TemplateChanged, what())))
}

/// A service of one cluster.
fn alone(observed: &Observed, active: &Cluster, is_given_up: bool) -> (Action, Reason) {
    let is_wanted = active.status.goal.as_ref() == Some(&observed.goal);
    if is_given_up {
        let why = observed.given_up.as_ref().map(|it| it.reason.clone()).unwrap_or_default();
        return (
            Action::Done,
            Reason::new(Code::RolledBack, format!("the new config was rolled back: {why}")),
        );
    }
    if !is_wanted && observed.wanted.strategy != Strategy::None {
        return begin(observed);
    }
    if let Some(revise) = revise(observed, active, ClusterSlot::Active) {
        return revise;
    }
    let full = Some(100);
    if observed.wanted.strategy.is_incremental() && active.status.target_capacity != full {
        return (
            Action::Capacity(ClusterSlot::Active, 100),
            Reason::new(Code::RaisingOld, "it carries everything"),
        );
    }
    match serve::lacks(active, active.sent_capacity) {
        Some(what) => (Action::Wait, Reason::new(Code::WaitingForReady, what)),
        None => (Action::Done, Reason::new(Code::UpToDate, "the service runs on the wanted config")),
    }
}

/// How an upgrade goes on.
#[derive(Clone, Copy)]
struct Upgrade {
    direction: Goal,
    held: Holds,
    now: Time,
}

fn both(observed: &Observed, active: &Cluster, pending: &Cluster, upgrade: Upgrade) -> (Action, Reason) {
    let Upgrade { direction, held, now } = upgrade;
    let forward = direction == Goal::New;
    if let Some(given_up) = give_up(observed, pending, upgrade) {
        return given_up;
    }
    if forward && let Some(revise) = revise(observed, pending, ClusterSlot::Pending) {
        return revise;
    }
    let strategy = match observed.wanted.strategy {
        // What has begun ends, without steps.
        Strategy::None => Strategy::BlueGreen,
        strategy => strategy,
    };
    let Some(pace) = strategy.pace() else {
        return (Action::Wait, Reason::new(Code::Paused, "the upgrade has no steps"));
    };
    let pace = if held.is_promoted { pace.without_interval() } else { pace };
    let lacks = (serve::lacks(active, active.sent_capacity), serve::lacks(pending, pending.sent_capacity));
    let weight = pending.weight().unwrap_or_default().min(100);
    let mut old = Side { capacity: active.sent_capacity, ready: lacks.0.is_none(), weight: 100 - weight };
    let mut new = Side { capacity: pending.sent_capacity, ready: lacks.1.is_none(), weight };
    if !strategy.is_incremental() {
        // Both have everything that they need. What would be taken from a cluster is taken as a whole, with the cluster.
        let goes = weight == 100 && (forward || direction == Goal::Another && new.ready);
        (old.capacity, new.capacity) =
            (if goes { 0 } else { 100 }, if forward || goes { 100 } else { weight });
    }
    let moved_at = observed.moved_at;
    let (action, mut reason) = granted::plan(pace, &granted::Observed { old, new, moved_at }, direction, now);
    let lack = if forward { lacks.1 } else { lacks.0 };
    if let (Code::WaitingForReady, Some(what)) = (reason.code, lack) {
        reason.what = what;
    }
    let moves_on = matches!(action, granted::Action::Move(to) if to > weight);
    let takes = matches!(
        action,
        granted::Action::LowerOld(_)
            | granted::Action::LowerNew(_)
            | granted::Action::Promote
            | granted::Action::Discard
    );
    if held.is_paused && forward {
        return (Action::Wait, paused(observed, weight));
    }
    if (moves_on || takes) && !is_acknowledged(observed, now) {
        let what = "waiting for the data plane to do what the routes say";
        return (Action::Wait, deadline(observed, upgrade, Reason::new(Code::WaitingForRoute, what)));
    }
    let goes = match action {
        granted::Action::Promote => Some(active),
        granted::Action::Discard => Some(pending),
        _ => None,
    };
    if let Some(going) = goes.filter(|going| strategy.is_incremental() && serve::is_unheard(going)) {
        let what = format!("Serve of RayCluster {} is scaled to 0 replicas", going.name);
        return (Action::Wait, Reason::new(Code::LoweringOld, what));
    }
    let action = match action {
        granted::Action::RaiseNew(to) | granted::Action::LowerNew(to) => {
            Action::Capacity(ClusterSlot::Pending, to)
        }
        granted::Action::RaiseOld(to) | granted::Action::LowerOld(to) => {
            Action::Capacity(ClusterSlot::Active, to)
        }
        granted::Action::Move(to) => Action::Move(to),
        granted::Action::Promote => Action::Promote,
        granted::Action::Discard => Action::Discard,
        granted::Action::Wait => return (Action::Wait, deadline(observed, upgrade, reason)),
    };
    (action, reason)
}

/// A pause of a person: it has no end of its own.
fn paused(observed: &Observed, weight: u32) -> Reason {
    let asked = observed.asked.as_ref().filter(|asked| asked.verb == verbs::PAUSE);
    let upgrade = observed.upgrade.as_ref();
    let (by, why) = match asked {
        Some(asked) => (asked.actor.as_ref(), asked.reason.as_ref()),
        None => {
            (upgrade.and_then(|it| it.paused_by.as_ref()), upgrade.and_then(|it| it.paused_because.as_ref()))
        }
    };
    let by = by.map(|by| format!(" by {}", cut(by, verbs::LONGEST))).unwrap_or_default();
    let why = why.map(|why| format!(" ({})", cut(why, verbs::LONGEST))).unwrap_or_default();
    let what = format!("paused{by}{why} with {weight}% of the traffic moved and no time limit");
    Reason::new(Code::Paused, what).then("it continues after `segue resume`, or back after `segue abort`")
}

/// Whether the data plane does what the status says.
fn is_acknowledged(observed: &Observed, now: Time) -> bool {
    let Some(route_weights) = &observed.route_weights else { return false };
    let mut wanted = observed.shares();
    wanted.retain(|(_, weight)| *weight > 0);
    let mut said = route_weights.shares.clone();
    said.retain(|(_, weight)| *weight > 0);
    wanted.sort();
    said.sort();
    wanted == said && route_weights.applied_at.is_some_and(|at| at <= now)
}

/// Whether the wanted goal is given up, and why.
fn give_up(observed: &Observed, pending: &Cluster, upgrade: Upgrade) -> Option<(Action, Reason)> {
    if upgrade.direction != Goal::New {
        return None;
    }
    let why = if observed.verb() == Some(verbs::ABORT) {
        "a user requested it".to_owned()
    } else {
        let after = observed.wanted.rollback_after?;
        let failed = serve::failed(pending, pending.sent_capacity);
        // The time of a pause is no time without progress, also in the pass that ends it.
        let is_held = upgrade.held.is_paused || observed.upgrade.as_ref().is_some_and(|it| it.paused);
        let is_late = !is_held && observed.progressed_at.is_some_and(|at| at + after <= upgrade.now);
        let lack = || serve::lacks(pending, pending.sent_capacity);
        let late = || {
            let what = lack().map(|what| format!(": {what}")).unwrap_or_default();
            format!("nothing has moved for {} s{what}", after.as_secs())
        };
        failed.or_else(|| is_late.then(late))?
    };
    let reason = Reason::new(Code::ProgressDeadlineExceeded, format!("the upgrade goes back: {why}"));
    Some((Action::GiveUp(why), reason))
}

/// A wait of an upgrade, with the time at which it is given up.
fn deadline(observed: &Observed, upgrade: Upgrade, reason: Reason) -> Reason {
    let limit = observed.progressed_at.zip(observed.wanted.rollback_after).map(|(at, after)| at + after);
    match limit.filter(|_| upgrade.direction == Goal::New && reason.until.is_none()) {
        Some(limit) => reason.until(limit).then("the upgrade goes back"),
        None => reason,
    }
}

/// The clusters that are deleted now, and when the next one may be.
fn deletions(observed: &Observed, now: Time) -> (Vec<String>, Option<Time>) {
    let (mut deleted, mut next) = (Vec::new(), None);
    for it in &observed.retiring {
        let Some(at) = it.delete_at else { continue };
        let is_going = it.object.as_ref().is_none_or(|object| object.metadata.deletion_timestamp.is_some());
        let name = cluster_service(&it.name);
        let routed = observed.route_weights.iter().flat_map(|route_weights| &route_weights.shares);
        let is_routed = routed.into_iter().any(|(service, weight)| *service == name && *weight > 0);
        if is_going || is_routed && !observed.wanted.is_suspended {
            continue;
        }
        let at = if it.in_flight.is_some_and(|count| count > 0) { at + LONGEST_DRAIN } else { at };
        if at <= now {
            deleted.push(it.name.clone());
        } else {
            next = Some(next.map_or(at, |next: Time| next.min(at)));
        }
    }
    (deleted, next)
}

/// The attempts that were made for a goal, where this one is given up.
pub(super) fn attempts(observed: &Observed) -> i32 {
    let attempt = observed.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
    i32::try_from(count(attempt)).unwrap_or_default() + 1
}
