use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StrategyType;
use crate::{
    Wait,
    embedded::{Conditions, conditions_schema},
};

/// What is, of a ModelDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelDeploymentStatus {
    /// The generation of the spec that this status is of.
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
    /// The highest number that a version was ever given: a number is never given twice, whatever became of its version.
    #[schemars(range(min = 0))]
    pub latest_revision: i64,
    /// The rollout that is under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The versions that exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub versions: Vec<VersionStatus>,
    /// The last request to scale a version. It is written before the request is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale: Option<LastScale>,
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
    /// The version that it comes from, by its hash; nothing for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// The name of that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from_name: Option<String>,
    /// The name of the version that it goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub to_name: Option<String>,
    /// The version that it goes to.
    #[schemars(length(max = 63))]
    pub to: String,
    /// The number of that version, which it has from when the rollout begins.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub revision: i64,
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
    /// When traffic last moved forward, under a strategy with an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<MicroTime>,
    /// When anything last changed for the better; the progress deadline runs from here.
    pub progressed_at: MicroTime,
    /// When these times were last moved along with a clock that had stepped; those from before are moved no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_at: Option<MicroTime>,
    /// How far it ever came in its direction: beyond that is progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest: Option<Furthest>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// What the pods of the new version last said of why they do not serve. It stays when they are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub evidence: Option<String>,
    /// How often it was restarted for the same spec.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub attempt: i32,
    /// What a person last asked of it, and what was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RolloutRequest>,
    /// What did not fit the cluster when it was to begin. It stays until the rollout ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityFinding>,
    /// How its checks stand, and its probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 17), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub checks: Vec<CheckStatus>,
    /// Why it failed. It stays until another version is asked for, or the version before is asked for again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RolloutFailure>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// What does not fit the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityFinding {
    /// The replicas that are needed beyond those that exist.
    #[schemars(range(min = 0))]
    pub needed: i32,
    /// The replicas for which there is room.
    #[schemars(range(min = 0))]
    pub room: i32,
    /// The same as a sentence, with what a replica requests.
    #[schemars(length(max = 512))]
    pub message: String,
}

/// Why a rollout failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFailure {
    /// The cause in one word: `ProgressDeadlineExceeded`, `CheckFailed`, `InsufficientCapacity`.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// The version, and the cause with its numbers.
    #[schemars(length(max = 1_024))]
    pub message: String,
    /// When it was found.
    pub at: Time,
}

/// What a person asked of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRequest {
    /// What tells it from others: it is carried out once.
    #[schemars(length(max = 253))]
    pub id: String,
    /// What was asked.
    #[schemars(length(max = 63))]
    pub verb: String,
    /// The name that it gives for its author: a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub actor: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub reason: Option<String>,
    /// When it was carried out.
    pub at: Time,
}

/// How a check stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// What it says.
    pub verdict: CheckVerdict,
    /// Bad judgements in a row.
    #[schemars(range(min = 0))]
    pub failures: i32,
    /// The last judgement, with its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
    /// When the last judgement was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_at: Option<MicroTime>,
    /// When the window began that is judged next.
    pub since: MicroTime,
    /// The answers of the new version that were counted by then.
    #[schemars(range(min = 0))]
    pub answers: i64,
    /// Those of them that were errors.
    #[schemars(range(min = 0))]
    pub errors: i64,
}

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum CheckVerdict {
    Open,
    Passed,
    Failed,
}

/// How far a rollout ever came, in each respect by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Furthest {
    /// The spec that it came so far with.
    pub generation: i64,
    /// The last step that was entered.
    pub step: i32,
    /// The most replicas of the new version that were asked for.
    pub asked: i32,
    /// The most that were ready at once.
    pub ready: i32,
    /// The largest share of the traffic that routes gave it, in thousandths.
    pub traffic: i32,
    /// The largest share that the data plane confirmed.
    pub confirmed: i32,
    /// The fewest replicas that other versions were asked for.
    pub left: i32,
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

/// A request to scale a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastScale {
    /// The version, by its hash.
    #[schemars(length(max = 63))]
    pub version: String,
    /// The replicas that it was asked for.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The resourceVersion of its set for which the request is made. A set with a later one has been changed by the
    /// request, or the request can no longer change it.
    #[schemars(length(max = 63))]
    pub resource_version: String,
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
    /// From this version, by its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// The name of that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from_name: Option<String>,
    /// The name of the version that it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub to_name: Option<String>,
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
