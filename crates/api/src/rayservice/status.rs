use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    embedded::{Conditions, conditions_schema},
    raycluster::RayClusterStatus,
};

/// What is, of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RayServiceStatus {
    /// The generation that this status speaks of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// `Running` or nothing: what KubeRay had before there were conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub service_status: Option<String>,
    /// Pods that take requests.
    pub num_serve_endpoints: i32,
    /// What the service is doing, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The cluster that the service comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_service_status: Option<ClusterServiceStatus>,
    /// The cluster that the service goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_service_status: Option<ClusterServiceStatus>,
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
    /// How many percent of its replicas Serve is told to run.
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
