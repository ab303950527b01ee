use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::{Conditions, Texts, conditions_schema, texts_schema};

/// What is, of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RayClusterStatus {
    /// The generation that this status speaks of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// `ready`, `suspended` or nothing yet.
    // No enumeration: a cluster that is adopted brings what its last operator wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub state: Option<String>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub reason: Option<String>,
    /// What the cluster is doing, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The processors of all pods that are wanted.
    #[serde(rename = "desiredCPU", skip_serializing_if = "Option::is_none")]
    pub desired_cpu: Option<Quantity>,
    /// Their memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_memory: Option<Quantity>,
    /// Their GPUs.
    #[serde(rename = "desiredGPU", skip_serializing_if = "Option::is_none")]
    pub desired_gpu: Option<Quantity>,
    /// Their TPUs.
    #[serde(rename = "desiredTPU", skip_serializing_if = "Option::is_none")]
    pub desired_tpu: Option<Quantity>,
    /// Worker pods that are Ready.
    pub ready_worker_replicas: i32,
    /// Worker pods that run.
    pub available_worker_replicas: i32,
    /// Worker pods that are wanted.
    pub desired_worker_replicas: i32,
    /// The fewest worker pods that the groups allow.
    pub min_worker_replicas: i32,
    /// The most worker pods that the groups allow.
    pub max_worker_replicas: i32,
    /// When this status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When each state was reached last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub state_transition_times: BTreeMap<String, Time>,
    /// The ports of the head's Service, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts_schema")]
    pub endpoints: Texts,
    /// Where the head is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadStatus>,
    /// `HeadPodReady`, `RayClusterProvisioned`, `ReplicaFailure`, `RayClusterSuspending`, `RayClusterSuspended`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Conditions,
}

/// Where the head is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeadStatus {
    /// The address of its pod.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_ip: Option<String>,
    /// Its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// The address of its Service.
    #[serde(rename = "serviceIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub service_ip: Option<String>,
    /// Its Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_name: Option<String>,
}
