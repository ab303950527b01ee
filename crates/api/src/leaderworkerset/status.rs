use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Wait,
    embedded::{Conditions, conditions_schema},
};

/// What is, of a LeaderWorkerSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetStatus {
    /// The generation of the spec that this status is of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Groups that exist.
    pub replicas: i32,
    /// Groups whose pods are all Ready.
    pub ready_replicas: i32,
    /// Groups of the current revision.
    pub updated_replicas: i32,
    /// The leaders, for the autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub hpa_pod_selector: Option<String>,
    /// The revision that the set comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub current_revision: Option<String>,
    /// The revision that the update goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub update_revision: Option<String>,
    /// What the controller does for the set, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The same for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// The groups that need a second look: not Ready, restarted, or of an old revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["index"]))]
    pub groups: Vec<GroupStatus>,
    /// `Available`, `Progressing`, `UpdateInProgress`, `Degraded`, `NamesTaken`, `DisruptionsMiscounted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Conditions,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its index.
    pub index: i32,
    /// Its revision.
    #[schemars(length(max = 63))]
    pub revision: String,
    /// Its pods that are Ready.
    pub ready: i32,
    /// How often the group was recreated because of a failure.
    #[serde(default)]
    pub restarts: i32,
    /// How often of these since it was last steady: the wait before the next one grows with it.
    #[serde(default)]
    pub restarts_in_a_row: i32,
    /// Whether it has been in service.
    #[serde(default)]
    pub served: bool,
    /// Why it was recreated last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<GroupFailure>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
}

/// A failure because of which a group was recreated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupFailure {
    /// The pod that failed.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub container: Option<String>,
    /// How the container ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why, in a word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// When.
    pub time: Time,
}
