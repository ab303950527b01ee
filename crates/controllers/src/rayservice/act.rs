//! A decision, carried out after it was written down: first the clusters and what traffic needs, then the weights, then what
//! goes.

use api::{raycluster::RayCluster, rayservice::RayService};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    decide::{Action, ClusterSlot, Decision},
    observe::{Cluster, Observed, RayPod},
    render,
    wanted::{cluster_service, stable_name},
};
use crate::{
    labels, owner,
    pipeline::Executor,
    runtime::{Apply, Error, Event, Key},
    traffic::BackendWeights,
};

type Exec<'a> = Executor<'a, RayService>;

/// Carries a decision out. Clusters and weights are those of the status before it: what the decision adds to them is carried
/// out by the pass that finds it in the status.
pub(super) async fn act(executor: &Exec<'_>, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    for cluster in observed.clusters() {
        let kept = keep_cluster(executor, observed, cluster).await;
        executor.defer(kept)?;
        label_pods(executor, observed, cluster).await?;
    }
    let traffic = keep_traffic(executor, observed).await;
    executor.defer(traffic)?;
    executor.defer(observed.traffic.forget(executor, &observed.reached).await)?;
    for it in observed.retiring.iter().filter(|it| decision.deleted.contains(&it.name)) {
        let Some(object) = &it.object else { continue };
        executor.delete(object.as_ref(), false).await?;
        let note = format!("RayCluster {} is deleted: it no longer belongs to the service", it.name);
        executor.record(Event::normal("Delete", "DeletedRayCluster", note)).await;
    }
    Ok(())
}

/// Makes a cluster that is not there, and keeps what of its spec changes in place.
async fn keep_cluster(executor: &Exec<'_>, observed: &Observed, cluster: &Cluster) -> Result<(), Error> {
    let service = observed.service.as_ref();
    let Some(object) = &cluster.object else {
        let Some(body) = render::cluster(observed, cluster) else { return Ok(()) };
        let key = Key::of(service).beside(cluster.name.clone());
        if executor.create::<RayCluster>(&key, &body).await? {
            let note = format!("RayCluster {} is made", cluster.name);
            executor.record(Event::normal("Create", "CreatedRayCluster", note)).await;
        }
        return Ok(());
    };
    if object.metadata.deletion_timestamp.is_some() || cluster.status.goal.as_ref() != Some(&observed.goal) {
        return Ok(());
    }
    match render::in_place(service, object) {
        Some(patch) => {
            executor.change(object.as_ref(), patch).await?;
            let note = format!("the numbers of workers of RayCluster {} are changed", cluster.name);
            executor.record(Event::normal("Update", "UpdatedRayCluster", note)).await;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Lets those pods take requests whose Serve proxy is healthy, and no others.
async fn label_pods(executor: &Exec<'_>, observed: &Observed, cluster: &Cluster) -> Result<(), Error> {
    let serve = cluster.serve();
    if serve.reported.is_none() {
        // Nothing is known: what was so stays.
        return Ok(());
    }
    let is_excluded = observed.service.spec.exclude_head_pod_from_serve_svc == Some(true);
    for RayPod { name, is_head, pod, .. } in &cluster.pods {
        let is_healthy = serve.serving_pods.as_ref().is_none_or(|pods| pods.contains(name));
        let serves = if is_healthy && !(*is_head && is_excluded) { "true" } else { "false" };
        if pod.labels().get(labels::RAY_SERVE).map(String::as_str) != Some(serves) {
            let patch = json!({"metadata": {"labels": {labels::RAY_SERVE: serves}}});
            let changed = executor.change::<Pod>(pod.as_ref(), patch).await;
            executor.defer(changed)?;
        }
    }
    Ok(())
}

/// Keeps what traffic comes in by: first what routes refer to, then the routes.
async fn keep_traffic(executor: &Exec<'_>, observed: &Observed) -> Result<(), Error> {
    for cluster in observed.clusters() {
        let Some(object) = cluster.object.as_deref() else { continue };
        let name = cluster_service(&cluster.name);
        let body = render::service_of_cluster(observed, cluster, &name, &owner(object));
        // It belongs to its cluster, and goes with it.
        keep_service(executor, observed, &name, object.uid().unwrap_or_default(), body).await?;
    }
    let uid = observed.service.uid().unwrap_or_default();
    if let Some(body) = render::head_service(observed) {
        let name = format!("{}-head-svc", observed.service.name_any());
        keep_service(executor, observed, &name, uid.clone(), body).await?;
    }
    let shares = routed(observed);
    if shares.iter().all(|(_, weight)| *weight == 0) {
        return Ok(());
    }
    let name = stable_name(&observed.service);
    if let Some(body) = render::stable_service(observed, &name, &shares) {
        keep_service(executor, observed, &name, uid, body).await?;
    }
    observed.traffic.keep_gateway(executor, &observed.reached).await?;
    let said =
        observed.route_weights.as_ref().map(|route_weights| route_weights.shares.clone()).unwrap_or_default();
    let counts = |shares: &BackendWeights| {
        let mut shares: BackendWeights = shares.iter().filter(|(_, weight)| *weight > 0).cloned().collect();
        shares.sort();
        shares
    };
    let moves = counts(&said) != counts(&shares);
    observed.traffic.keep_routes(executor, &observed.reached, &shares, moves).await.map(drop)
}

/// The weights of the clusters that there are: a route names no Service that is not there.
fn routed(observed: &Observed) -> BackendWeights {
    let there = |cluster: &&Cluster| cluster.object.is_some();
    let share = |cluster: &Cluster| (cluster_service(&cluster.name), cluster.weight().unwrap_or_default());
    observed.clusters().filter(there).map(share).collect()
}

async fn keep_service(
    executor: &Exec<'_>,
    observed: &Observed,
    name: &str,
    owner: String,
    body: Value,
) -> Result<(), Error> {
    let live = observed.reached.service(name);
    let key = Key::of(observed.service.as_ref()).beside(name);
    let wanted = Apply::<Service>::new((key, body), live.map(AsRef::as_ref)).exactly(&["selector", "ports"]);
    executor.apply_for(&owner, wanted).await.map(drop)
}

/// What people are told of a decision when it is written down.
pub(super) fn events(observed: &Observed, decision: &Decision) -> Vec<Event> {
    let name = |which: ClusterSlot| {
        let cluster = match which {
            ClusterSlot::Active => observed.active.as_ref(),
            ClusterSlot::Pending => observed.pending.as_ref(),
        };
        cluster.map(|cluster| cluster.name.clone()).unwrap_or_default()
    };
    let (action, reason, note) = match &decision.action {
        Action::Begin { name, .. } => {
            ("Create", "UpgradeStarted", format!("the service goes to RayCluster {name}"))
        }
        Action::Revise(which) => {
            let note = format!("Serve of RayCluster {} gets the changed applications", name(*which));
            ("Update", "UpdatedServeApplications", note)
        }
        Action::Capacity(which, to) => {
            let note = format!("Serve of RayCluster {} gets a target_capacity of {to}%", name(*which));
            ("Update", "UpdatedServeTargetCapacity", note)
        }
        Action::Move(to) => {
            let (old, new) = (name(ClusterSlot::Active), name(ClusterSlot::Pending));
            ("Update", "TrafficMoved", format!("traffic: {old} {}%, {new} {to}%", 100 - to))
        }
        Action::Promote => {
            ("Update", "Promoted", format!("RayCluster {} carries all traffic", name(ClusterSlot::Pending)))
        }
        Action::Discard => (
            "Update",
            "RolledBack",
            format!("RayCluster {} goes: {}", name(ClusterSlot::Pending), decision.reason.what),
        ),
        Action::GiveUp(why) => {
            return vec![Event::warning("Update", "UpgradeGivenUp", format!("the upgrade goes back: {why}"))];
        }
        Action::Suspend => ("Delete", "Suspending", "spec.suspend is true: the clusters go".to_owned()),
        Action::Done | Action::Wait => return Vec::new(),
    };
    vec![Event::normal(action, reason, note)]
}
