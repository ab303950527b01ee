use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Wait,
    embedded::{Conditions, Texts, conditions_schema, texts_schema},
};

/// What is, of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RayClusterStatus {
    /// The generation of the spec that this status is of.
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
    /// What the controller does for the cluster, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The same for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
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
    /// What must outlive the pods, for each place that a pod had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65_536))]
    pub places: Vec<PlaceStatus>,
    /// `HeadPodReady`, `RayClusterProvisioned`, `RayClusterSuspending`, `RayClusterSuspended`, `Degraded`.
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

/// What is remembered of the place of the head, or of a replica of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceStatus {
    /// The group of the replica; absent for the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub group: Option<String>,
    /// The index of the replica in its group.
    #[schemars(range(min = 0))]
    pub replica: i32,
    /// The lowest incarnation whose pods may stay. Pods of those below it are to go.
    #[schemars(range(min = 0))]
    pub floor: i32,
    /// The highest incarnation that was seen. Names of pods are not given again up to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seen: Option<i32>,
    /// The UID of the head pod that is to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub condemned: Option<String>,
    /// Why the last pods of the place had to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Whether its last pods were unhealthy, and no ready ones are there since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unhealthy: bool,
    /// How often in a row its pods were replaced because they failed.
    #[schemars(range(min = 0))]
    pub replaced: i32,
    /// When they last were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_at: Option<Time>,
}
