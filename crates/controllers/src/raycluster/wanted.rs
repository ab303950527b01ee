//! A spec, in the planner's words: what the controller acts on and what `segue plan` reads.

use std::time::Duration;

use api::raycluster::{
    AuthMode, ClusterUpgradeType, EXTERNAL_STORAGE_NAMESPACE, FT_ENABLED, GcsBackend,
    GcsFaultToleranceOptions, HA_ENABLED, ManagedBy, RayCluster, RayClusterSpec, WorkerGroupSpec,
};
use kube::ResourceExt;
use planner::{
    Uid,
    ray::{Group, Spec, Template, Thresholds, Upgrade},
};
use serde_json::{Value, json};

use crate::{count, digest::sha1, labels};

/// How long the check of a raylet, or of GCS, fails beyond its own threshold before the pod counts as unhealthy. The
/// liveness probe, which restarts the container, acts later.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster in the planner's words.
pub(super) fn spec(cluster: &RayCluster) -> Spec {
    let spec = &cluster.spec;
    let strategy = spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.ty);
    Spec {
        name: cluster.name_any(),
        uid: Uid(cluster.uid().unwrap_or_default()),
        template: template(cluster),
        groups: spec.worker_group_specs.iter().map(group).collect(),
        suspended: spec.suspend == Some(true),
        upgrade: match strategy {
            Some(ClusterUpgradeType::Recreate) => Upgrade::Recreate,
            Some(ClusterUpgradeType::None) | None => Upgrade::None,
        },
        autoscaling: is_autoscaled(cluster),
        fault_tolerant: storage(cluster).is_some(),
        thresholds: Thresholds { head: PATIENCE, worker: PATIENCE },
    }
}

fn group(group: &WorkerGroupSpec) -> Group {
    Group {
        name: group.group_name.clone(),
        replicas: Some(count(group.replicas)),
        min: count(group.min_replicas),
        max: count(group.max_replicas),
        hosts: count(group.num_of_hosts).max(1),
        workers_to_delete: group
            .scale_strategy
            .as_ref()
            .map(|strategy| strategy.workers_to_delete.clone())
            .unwrap_or_default(),
        suspended: group.suspend == Some(true),
    }
}

/// Whether Ray's autoscaler sets the numbers of workers.
pub(super) fn is_autoscaled(cluster: &RayCluster) -> bool {
    cluster.spec.enable_in_tree_autoscaling == Some(true)
}

/// The hash of everything that pods are made from: no counts, and nothing that only Services show.
pub(super) fn template(cluster: &RayCluster) -> Template {
    let spec = &cluster.spec;
    let head = &spec.head_group_spec;
    let group = |group: &WorkerGroupSpec| {
        json!([
            group.group_name,
            group.template.json(),
            group.ray_start_params,
            group.resources,
            group.labels,
            group.num_of_hosts
        ])
    };
    let groups: Vec<Value> = spec.worker_group_specs.iter().map(group).collect();
    let contents = json!([
        head.template.json(),
        head.ray_start_params,
        head.resources,
        head.labels,
        groups,
        spec.ray_version,
        spec.gcs_fault_tolerance_options,
        spec.auth_options,
        is_autoscaled(cluster)
    ]);
    let hash = sha1(&contents.to_string());
    Template(u64::from_str_radix(hash.get(..16).unwrap_or_default(), 16).unwrap_or_default())
}

/// Where the head keeps its tables.
#[derive(Clone, Debug)]
pub(super) struct Storage<'a> {
    /// The part of the storage that is this cluster's own.
    pub(super) namespace: String,
    /// The options, where the spec has them: an annotation leaves the rest to the environment of the head.
    pub(super) options: Option<&'a GcsFaultToleranceOptions>,
}

/// Where the head keeps its tables, for a cluster with GCS fault tolerance.
pub(super) fn storage(cluster: &RayCluster) -> Option<Storage<'_>> {
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    let is_on = |key| cluster.annotations().get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if options.is_none() && !is_on(HA_ENABLED) && !is_on(FT_ENABLED) {
        return None;
    }
    let named = options.and_then(|options| options.external_storage_namespace.as_ref());
    let annotated = cluster.annotations().get(EXTERNAL_STORAGE_NAMESPACE);
    let chosen = named.or(annotated).filter(|name| !name.is_empty()).cloned();
    let namespace = chosen.unwrap_or_else(|| cluster.uid().unwrap_or_default());
    Some(Storage { namespace, options })
}

/// Why a cluster is left to another operator, if it is: Kueue runs some in another cluster, and those that a `RayJob` made
/// belong to the public operator.
pub(super) fn left_to_another(cluster: &RayCluster) -> Option<&'static str> {
    if cluster.spec.managed_by == Some(ManagedBy::MultiKueue) {
        return Some("spec.managedBy hands this cluster to Kueue: nothing is done for it here");
    }
    let of_a_job = cluster.labels().get(labels::RAY_FROM_CRD).is_some_and(|kind| kind == "RayJob")
        || cluster.owner_references().iter().any(|owner| owner.kind == "RayJob");
    of_a_job.then_some("a RayJob made this cluster: nothing is done for it here")
}

/// What a cluster asks for that is not served.
pub(super) fn not_served(cluster: &RayCluster) -> Option<&'static str> {
    if keeps_tables_in_rocksdb(&cluster.spec) {
        return Some("spec.gcsFaultToleranceOptions.backend is rocksdb, which is not served: use redis");
    }
    if asks_for_tokens(&cluster.spec) {
        return Some("spec.authOptions.mode is token, which is not served: use disabled");
    }
    None
}

/// Whether a cluster keeps the tables of GCS in RocksDB.
pub(crate) fn keeps_tables_in_rocksdb(spec: &RayClusterSpec) -> bool {
    let options = spec.gcs_fault_tolerance_options.as_ref();
    options.is_some_and(|options| options.backend == Some(GcsBackend::RocksDb))
}

/// Whether a cluster answers only who has its token.
pub(crate) fn asks_for_tokens(spec: &RayClusterSpec) -> bool {
    let options = spec.auth_options.as_ref();
    options.is_some_and(|options| options.mode == Some(AuthMode::Token))
}
