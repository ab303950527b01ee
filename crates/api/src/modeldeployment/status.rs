use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StrategyType;
use crate::embedded::{Conditions, conditions_schema};

/// What is, of a ModelDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelDeploymentStatus {
    /// The generation that this status speaks of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Units of all versions.
    pub replicas: i32,
    /// Units in service.
    pub ready_replicas: i32,
    /// The pods, for the autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub selector: Option<String>,
    /// How users fare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<ServiceHealth>,
    /// Where the rollout is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What is being done, and what for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub message: Option<String>,
    /// The version that users have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub current_version: Option<String>,
    /// The version that they will have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub target_version: Option<String>,
    /// The rollout that is under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The versions that exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub versions: Vec<VersionStatus>,
    /// What became of earlier rollouts, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub history: Vec<RolloutRecord>,
    /// `Ready`, `Progressing`, `Degraded`, `RollbackInProgress`, `Paused`, `DataPlane`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Conditions,
}

/// How users fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ServiceHealth {
    Healthy,
    Degraded,
    Down,
}

/// Where a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Phase {
    Idle,
    Waiting,
    Rolling,
    Paused,
    RollingBack,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// What verbs refer to.
    #[schemars(length(max = 63))]
    pub id: String,
    /// How it is done.
    pub strategy: StrategyType,
    /// The version that it comes from; nothing for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// The version that it goes to.
    #[schemars(length(max = 63))]
    pub to: String,
    /// Where it goes now.
    #[serde(default)]
    pub direction: Direction,
    /// The step that it is at.
    #[schemars(range(min = 0))]
    pub step: i32,
    /// When that step was entered.
    pub step_since: MicroTime,
    /// When it began.
    pub started_at: Time,
    /// When traffic last moved forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<MicroTime>,
    /// When anything last changed for the better; the progress deadline runs from here.
    pub progressed_at: MicroTime,
    /// The most units of the new version that were ready at once: more than that is progress.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub most_ready: i32,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// Where a rollout goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Direction {
    /// To the new version.
    #[default]
    Forward,
    /// To where it came from.
    Back,
    /// Nowhere, until a person says so.
    Paused,
}

/// A wait: for what, since when, until when, and what then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// Why, in a word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// For what.
    #[schemars(length(max = 512))]
    pub subject: String,
    /// Since when.
    pub since: Time,
    /// Until when; for ever without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// What happens then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub on_expiry: Option<String>,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Outcome {
    Promoted,
    RolledBack,
    Aborted,
    Superseded,
    Refused,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionStatus {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its number.
    pub revision: i64,
    /// Its capacity.
    pub capacity: CapacityStatus,
    /// Its traffic.
    pub traffic: TrafficStatus,
    /// Its units.
    pub replicas: i32,
    /// Its units in service.
    pub ready_replicas: i32,
    /// Requests that it is answering; unknown without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<i64>,
}

/// Capacity, in units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityStatus {
    /// What it should have.
    pub asked: i32,
    /// What it was given.
    pub granted: i32,
    /// What is Ready.
    pub ready: i32,
}

/// Traffic, in percent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// What it should get.
    pub desired: i32,
    /// What the data plane was told and confirmed; unknown without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<i32>,
    /// What it gets; unknown without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<i32>,
}

/// What became of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// Which one.
    #[schemars(length(max = 63))]
    pub id: String,
    /// From this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// To this one.
    #[schemars(length(max = 63))]
    pub to: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    #[schemars(length(max = 1_024))]
    pub reason: String,
    /// By whom.
    #[schemars(length(max = 253))]
    pub actor: String,
    /// What was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub evidence: Option<String>,
    /// When it began.
    pub started_at: Time,
    /// When it ended.
    pub finished_at: Time,
}
