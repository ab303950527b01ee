use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Wait,
    embedded::{Conditions, conditions_schema},
    raycluster::RayClusterStatus,
};

/// What is, of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RayServiceStatus {
    /// The generation of the spec that this status is of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// `Running` or nothing: what KubeRay had before there were conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub service_status: Option<String>,
    /// Pods that take requests.
    pub num_serve_endpoints: i32,
    /// What the controller does for the service, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The cluster that the service comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_service_status: Option<ClusterServiceStatus>,
    /// The cluster that the upgrade goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_service_status: Option<ClusterServiceStatus>,
    /// What the service waits for, while something is left to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// The upgrade that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// The cluster config that is wanted and was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// Clusters that no longer belong to the service, until they are deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub retiring: Vec<RetiringCluster>,
    /// When this status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// `Ready`, `UpgradeInProgress`, `RollbackInProgress`, `Suspending`, `Suspended`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Conditions,
}

/// The service on one of its clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterServiceStatus {
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub ray_cluster_name: Option<String>,
    /// The percentage of its replicas that Serve is configured to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub target_capacity: Option<i32>,
    /// How many percent of the traffic it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub traffic_routed_percent: Option<i32>,
    /// When that changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_traffic_migrated_time: Option<Time>,
    /// The digest of the cluster config that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub goal: Option<String>,
    /// The revision whose `serveConfigV2` its Serve is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub revision: Option<String>,
    /// What its Serve was told, and what it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeStatus>,
    /// Its applications, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub application_statuses: BTreeMap<String, ApplicationStatus>,
    /// The status of the cluster, copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
}

/// An application, as Serve reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationStatus {
    /// `RUNNING` when it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub status: Option<String>,
    /// Why, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Its deployments, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub serve_deployment_statuses: BTreeMap<String, DeploymentStatus>,
}

/// A deployment of an application, as Serve reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// `HEALTHY` when it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub status: Option<String>,
    /// Why, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// What the Serve of a cluster was told, and what it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServeStatus {
    /// The id of the config that was told last: a digest of config and capacity, and the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub told: Option<String>,
    /// The id of the config that Serve has accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub accepted: Option<String>,
    /// When Serve accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<MicroTime>,
    /// The id of the accepted config that the report below is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub reported: Option<String>,
    /// The `target_capacity` that Serve reports; absent where none is set, which is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub reported_capacity: Option<i32>,
    /// The replicas that run, of those that Serve aims for.
    #[schemars(range(min = 0))]
    pub running_replicas: i32,
    /// The replicas that Serve aims for.
    #[schemars(range(min = 0))]
    pub target_replicas: i32,
    /// The pods whose Serve proxy is healthy; absent where Serve does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), inner(length(max = 253)))]
    pub serving_pods: Option<Vec<String>>,
    /// The id of the accepted config with which the readiness check of the user succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub checked: Option<String>,
    /// What the readiness check of the user failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub check_failure: Option<String>,
    /// How often Serve was told anew: part of the id, so that a config that failed or was lost is told once more.
    #[schemars(range(min = 0))]
    pub attempt: i32,
    /// How many of the last calls in a row failed.
    #[schemars(range(min = 0))]
    pub failures: i32,
    /// When the last of them failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<MicroTime>,
    /// What the last call failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// An upgrade that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// The digest of the cluster config that is on its way.
    #[schemars(length(max = 63))]
    pub goal: String,
    /// How often this goal was tried before.
    #[schemars(range(min = 0))]
    pub attempt: i32,
    /// When it began.
    pub started_at: Time,
    /// When capacity or traffic changed last.
    pub progressed_at: MicroTime,
    /// When traffic moved last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<MicroTime>,
    /// When these times were last moved along with a clock that had stepped; those from before are moved no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_at: Option<MicroTime>,
    /// Whether a person has paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The name that the request to pause it gives for its author: a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub paused_by: Option<String>,
    /// Why it is paused, as that request says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub paused_because: Option<String>,
    /// Whether a person has promoted it: it waits for no interval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promoted: bool,
}

/// A cluster config that was given up: it is not tried again before it is asked for by `retry` or by another spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GivenUp {
    /// Its digest.
    #[schemars(length(max = 63))]
    pub goal: String,
    /// How often it was tried.
    #[schemars(range(min = 0))]
    pub attempts: i32,
    /// Why it was given up.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// When.
    pub at: Time,
}

/// A cluster that no longer belongs to the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetiringCluster {
    /// Its name.
    #[schemars(length(max = 63))]
    pub ray_cluster_name: String,
    /// The digest of the cluster config that it was made from.
    #[schemars(length(max = 63))]
    pub goal: String,
    /// When it is deleted, if its requests have ended.
    pub delete_at: Time,
}
