//! What is, of a service: its clusters with their capacity and traffic, what Serve was told and answered, and what is waited
//! for. Everything that must be remembered is here.

use api::rayservice::{
    ClusterServiceStatus, GivenUp, RayService, RayServiceStatus, RetiringCluster, Upgrade,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time as ApiTime};
use planner::Time;

use super::{
    decide::{Action, ClusterSlot, Decision, attempts},
    observe::{Cluster, Observed},
    serve, verbs,
};
use crate::{
    Answer,
    conditions::{Writer, rayservice as types, rayservice_reasons as reasons},
    int,
    runtime::{moment, timestamp},
    wait::{self, cut},
};

/// The longest message of a status.
const LONGEST: usize = 1_024;

/// The status of a service when this was observed, that was decided, and so much was heard.
pub(super) fn status(
    observed: &Observed,
    decision: &Decision,
    heard: &[Answer],
    now: Time,
) -> RayServiceStatus {
    let before = observed.service.status.clone().unwrap_or_default();
    let mut status = before.clone();
    status.observed_generation = observed.service.metadata.generation.unwrap_or_default();
    status.active_service_status = read(observed.active.as_ref(), decision, heard);
    status.pending_service_status = read(observed.pending.as_ref(), decision, heard);
    status.given_up = observed.given_up.clone().filter(|_| decision.held.is_given_up);
    keep_retiring(&mut status, observed, now);
    if let Some(upgrade) = &mut status.upgrade {
        keep_times(upgrade, observed, now);
        hold(upgrade, observed, decision, now);
    }
    apply(&mut status, observed, decision, now);
    let serving = observed.clusters().filter(|it| it.weight().is_some_and(|weight| weight > 0));
    status.num_serve_endpoints = int(serving.map(|cluster| cluster.endpoints).sum::<u32>());
    status.service_status = (status.num_serve_endpoints > 0).then(|| "Running".to_owned());
    status.message = Some(cut(&wait::sentence(&decision.reason), LONGEST));
    let waits = matches!(decision.action, Action::Wait);
    let wait = || wait::of(&decision.reason, None, before.waiting_for.as_ref(), now);
    status.waiting_for = waits.then(wait);
    set_conditions(&mut status, observed, decision, now);
    status
}

/// Writes the times of an upgrade as they are read after a step of the clock, so that a process that has not seen the step
/// reads them right.
fn keep_times(upgrade: &mut Upgrade, observed: &Observed, now: Time) {
    let written = |time: &MicroTime| moment(time.0);
    let Some(progressed_at) = observed.progressed_at else { return };
    if progressed_at == written(&upgrade.progressed_at)
        && observed.moved_at == upgrade.moved_at.as_ref().map(written)
    {
        return;
    }
    let micro = |time: Time| MicroTime(timestamp(time));
    upgrade.progressed_at = micro(progressed_at);
    upgrade.moved_at = observed.moved_at.map(micro);
    upgrade.adjusted_at = Some(micro(now));
}

/// What people have asked of an upgrade. The time that it was held is no time without progress.
fn hold(upgrade: &mut Upgrade, observed: &Observed, decision: &Decision, now: Time) {
    let held = decision.held;
    if upgrade.paused && !held.is_paused {
        upgrade.progressed_at = MicroTime(timestamp(now));
    }
    let asked = observed.asked.as_ref().filter(|asked| asked.verb == verbs::PAUSE && held.is_paused);
    if !held.is_paused {
        (upgrade.paused_by, upgrade.paused_because) = (None, None);
    } else if let Some(asked) = asked {
        let kept = |text: &Option<String>| text.as_deref().map(|text| cut(text, verbs::LONGEST));
        (upgrade.paused_by, upgrade.paused_because) = (kept(&asked.actor), kept(&asked.reason));
    }
    (upgrade.paused, upgrade.promoted) = (held.is_paused, held.is_promoted);
}

/// Whether two statuses say the same. The time of the last change is no change.
pub(super) fn say_the_same(one: &RayServiceStatus, other: &RayServiceStatus) -> bool {
    let still = |status: &RayServiceStatus| RayServiceStatus { last_update_time: None, ..status.clone() };
    still(one) == still(other)
}

/// A cluster as it is, with what was heard of it.
fn read(cluster: Option<&Cluster>, decision: &Decision, heard: &[Answer]) -> Option<ClusterServiceStatus> {
    let cluster = cluster?;
    let mut status = cluster.status.clone();
    status.ray_cluster_status = cluster.object.as_ref().and_then(|object| object.status.clone());
    let serve_call = decision.serve_calls.iter().find(|serve_call| serve_call.cluster == cluster.name);
    let found = serve::hear(cluster, &cluster.serve(), serve_call, heard);
    status.serve = Some(found.serve);
    status.application_statuses = found.applications.unwrap_or(status.application_statuses);
    Some(status)
}

/// The clusters that go, until they are gone. A cluster that the status does not name is deleted, too.
fn keep_retiring(status: &mut RayServiceStatus, observed: &Observed, now: Time) {
    let there = |name: &str| observed.retiring.iter().any(|it| it.name == name);
    status.retiring.retain(|it| there(&it.ray_cluster_name));
    for it in observed.retiring.iter().filter(|it| it.delete_at.is_none()) {
        status.retiring.push(RetiringCluster {
            ray_cluster_name: it.name.clone(),
            goal: it.goal.clone(),
            delete_at: delete_at(observed, now),
        });
    }
}

/// When a cluster that goes now is deleted: in whole seconds, never sooner than promised.
fn delete_at(observed: &Observed, now: Time) -> ApiTime {
    let delay = if observed.wanted.is_suspended { Time::ZERO } else { observed.wanted.delay };
    let at = now + delay;
    ApiTime(timestamp(Time::from_secs(at.as_secs() + u64::from(at.subsec_nanos() > 0))))
}

fn retire(status: &mut RayServiceStatus, observed: &Observed, cluster: Option<&Cluster>, now: Time) {
    // A cluster that was not made yet has nothing to delete.
    let Some(cluster) = cluster.filter(|cluster| cluster.object.is_some()) else { return };
    status.retiring.retain(|it| it.ray_cluster_name != cluster.name);
    status.retiring.push(RetiringCluster {
        ray_cluster_name: cluster.name.clone(),
        goal: cluster.status.goal.clone().unwrap_or_default(),
        delete_at: delete_at(observed, now),
    });
}

/// What a decision changes.
fn apply(status: &mut RayServiceStatus, observed: &Observed, decision: &Decision, now: Time) {
    let micro = || MicroTime(timestamp(now));
    let second = || ApiTime(timestamp(now));
    let (active, pending) = (observed.active.as_ref(), observed.pending.as_ref());
    match &decision.action {
        Action::Done | Action::Wait => {}
        Action::Begin { name, attempt } => {
            status.retiring.retain(|it| it.ray_cluster_name != *name);
            status.pending_service_status = Some(begun(observed, name));
            status.upgrade = active.map(|_| Upgrade {
                goal: observed.goal.clone(),
                attempt: *attempt,
                started_at: second(),
                progressed_at: micro(),
                moved_at: None,
                adjusted_at: None,
                paused: false,
                paused_by: None,
                paused_because: None,
                promoted: false,
            });
        }
        Action::Revise(which) => {
            if let Some(it) = of(status, *which) {
                it.revision = Some(observed.revisions.newest().key.clone());
                anew(it);
            }
            progressed(status, micro());
        }
        Action::Capacity(which, to) => {
            if let Some(it) = of(status, *which) {
                it.target_capacity = Some(int(*to));
                anew(it);
            }
            progressed(status, micro());
        }
        Action::Move(to) => {
            let shares = [(ClusterSlot::Pending, *to), (ClusterSlot::Active, 100 - *to)];
            for (which, weight) in shares {
                if let Some(it) = of(status, which) {
                    it.traffic_routed_percent = Some(int(weight));
                    it.last_traffic_migrated_time = Some(second());
                }
            }
            if let Some(upgrade) = &mut status.upgrade {
                upgrade.moved_at = Some(micro());
            }
            progressed(status, micro());
        }
        Action::Promote => {
            retire(status, observed, active, now);
            status.active_service_status = status.pending_service_status.take();
            status.upgrade = None;
        }
        Action::Discard => {
            retire(status, observed, pending, now);
            (status.pending_service_status, status.upgrade) = (None, None);
        }
        Action::GiveUp(why) => {
            status.given_up = Some(GivenUp {
                goal: observed.goal.clone(),
                attempts: attempts(observed),
                reason: cut(why, LONGEST),
                at: second(),
            });
        }
        Action::Suspend => {
            retire(status, observed, active, now);
            retire(status, observed, pending, now);
            (status.active_service_status, status.pending_service_status) = (None, None);
            status.upgrade = None;
        }
    }
}

/// A cluster that begins. The first one of a service has everything from the start.
fn begun(observed: &Observed, name: &str) -> ClusterServiceStatus {
    let share = if observed.active.is_none() { 100 } else { 0 };
    let is_incremental = observed.wanted.strategy.is_incremental();
    ClusterServiceStatus {
        ray_cluster_name: Some(name.to_owned()),
        target_capacity: is_incremental.then_some(share),
        traffic_routed_percent: Some(share),
        goal: Some(observed.goal.clone()),
        revision: Some(observed.revisions.newest().key.clone()),
        ..ClusterServiceStatus::default()
    }
}

fn of(status: &mut RayServiceStatus, which: ClusterSlot) -> Option<&mut ClusterServiceStatus> {
    match which {
        ClusterSlot::Active => status.active_service_status.as_mut(),
        ClusterSlot::Pending => status.pending_service_status.as_mut(),
    }
}

/// What Serve is told next has an id that it never had: an old answer is never taken for one to it.
fn anew(cluster: &mut ClusterServiceStatus) {
    let serve = cluster.serve.get_or_insert_default();
    serve.attempt = serve.attempt.saturating_add(1);
    (serve.failures, serve.failed_at) = (0, None);
}

fn progressed(status: &mut RayServiceStatus, at: MicroTime) {
    if let Some(upgrade) = &mut status.upgrade {
        upgrade.progressed_at = at;
    }
}

fn set_conditions(status: &mut RayServiceStatus, observed: &Observed, decision: &Decision, now: Time) {
    let generation = status.observed_generation;
    let message = status.message.clone().unwrap_or_default();
    let endpoints = status.num_serve_endpoints;
    let was_ready = is_true(&observed.service, types::READY.name);
    let (active, pending) = (status.active_service_status.is_some(), status.pending_service_status.is_some());
    let is_suspended = observed.wanted.is_suspended;
    let left = status.retiring.len();
    let given_up = status.given_up.as_ref().map(|given_up| given_up.reason.clone());
    let mut conditions = Writer::new(&mut status.conditions, generation, now);
    if is_suspended {
        let done = left == 0 && !active && !pending;
        let reason = if done { reasons::SUSPEND_COMPLETE } else { reasons::SUSPEND_IN_PROGRESS };
        let told = if done {
            "No RayCluster is left".to_owned()
        } else {
            format!("{left} RayClusters are being deleted")
        };
        for ty in [types::READY, types::UPGRADE_IN_PROGRESS] {
            conditions.set_false(ty, reason, &told);
        }
        let (is, is_not) =
            if done { (types::SUSPENDED, types::SUSPENDING) } else { (types::SUSPENDING, types::SUSPENDED) };
        conditions.set_true(is, reason, &told);
        conditions.set_false(is_not, reason, &told);
    } else {
        conditions.set_false(types::SUSPENDED, reasons::RESUMED, "");
        conditions.set_false(types::SUSPENDING, reasons::RESUMED, "");
        let zero = "Number of serve endpoints dropped to 0";
        match (endpoints > 0, active) {
            (true, _) => {
                let told = "Number of serve endpoints is greater than 0";
                conditions.set_true(types::READY, reasons::NON_ZERO_ENDPOINTS, told);
            }
            _ if decision.is_overdue => {
                conditions.set_false(types::READY, reasons::INITIALIZING_TIMEOUT, &message);
            }
            (false, true) => conditions.set_false(types::READY, reasons::ZERO_ENDPOINTS, zero),
            (false, false) if was_ready => {
                conditions.set_false(types::READY, reasons::ZERO_ENDPOINTS, zero);
            }
            (false, false) => conditions.set_false(types::READY, reasons::INITIALIZING, &message),
        }
        match (active, pending) {
            (true, true) => {
                let told = "Both active and pending Ray clusters exist";
                conditions.set_true(types::UPGRADE_IN_PROGRESS, reasons::BOTH_CLUSTERS, told);
            }
            (true, false) => {
                let told = "Active Ray cluster exists and no pending Ray cluster";
                conditions.set_false(types::UPGRADE_IN_PROGRESS, reasons::NO_PENDING_CLUSTER, told);
            }
            (false, _) => {
                conditions.set_false(types::UPGRADE_IN_PROGRESS, reasons::INITIALIZING, &message);
            }
        }
    }
    let goes_back = decision.goes_back && active && pending;
    conditions.alarm(
        types::ROLLBACK_IN_PROGRESS,
        if given_up.is_some() { reasons::UPGRADE_GIVEN_UP } else { reasons::DESIRED_SPEC_CHANGED },
        goes_back.then_some(message.as_str()),
    );
    let is_paused = decision.held.is_paused && pending && active;
    conditions.alarm(
        types::PAUSED,
        crate::conditions::reasons::PAUSED,
        is_paused.then_some(message.as_str()),
    );
    conditions.alarm(types::GIVEN_UP, reasons::UPGRADE_GIVEN_UP, given_up.as_deref());
}

fn is_true(service: &RayService, ty: &str) -> bool {
    let conditions = service.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == ty && condition.status == "True")
}
