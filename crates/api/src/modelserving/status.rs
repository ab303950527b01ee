use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Wait,
    embedded::{Conditions, conditions_schema},
    leaderworkerset::GroupFailure,
};

/// What is, of a ModelServing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelServingStatus {
    /// The generation of the spec that this status is of.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Groups that exist.
    pub replicas: i32,
    /// Groups of the revision that the ModelServing comes from.
    pub current_replicas: i32,
    /// Groups of the revision that the update goes to.
    pub updated_replicas: i32,
    /// Groups whose pods are all Ready.
    pub available_replicas: i32,
    /// The revision that the ModelServing comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub current_revision: Option<String>,
    /// The revision that the update goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub update_revision: Option<String>,
    /// One pod of each group, for the autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub label_selector: Option<String>,
    /// What the controller does for the ModelServing, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The same for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// Each role, over all groups. Roles that were removed are here until their last replica is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Vec<RoleStatus>,
    /// The groups that need a second look: not Ready, in the middle of an upgrade, or of an old revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["index"]))]
    pub groups: Vec<GroupStatus>,
    /// `Available`, `Progressing`, `UpdateInProgress`, and where there is something to say `Stalled`, `Degraded`,
    /// `SchedulerMissing` and `NotActedOn`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Conditions,
}

/// One role, over all groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// Its name.
    #[schemars(length(max = 12))]
    pub name: String,
    /// Its replicas that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Those whose pods are all Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Those with the current template of the role.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Those of which both are true.
    #[serde(default)]
    pub updated_ready_replicas: i32,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its index.
    pub index: i32,
    /// Its revision.
    #[schemars(length(max = 63))]
    pub revision: String,
    /// How often the group was recreated as a whole.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// How often since it was last steady.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_in_a_row: i32,
    /// Why it was recreated last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<GroupFailure>,
    /// Whether it served before it was recreated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// Where it is in its upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepStatus>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// Its role replicas that were recreated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["role", "index"]))]
    pub replicas: Vec<ReplicaStatus>,
}

/// One replica of a role in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Its role.
    #[schemars(length(max = 12))]
    pub role: String,
    /// Its index in the role.
    pub index: i32,
    /// What it is made from: the hash of its role's template.
    #[schemars(length(max = 63))]
    pub hash: String,
    /// How often it was recreated.
    #[serde(default)]
    pub restarts: i32,
    /// How often since it was last steady.
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

/// The step that a group is at, and what holds it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The step, counted from 0. What is left after the last step of the list counts on from there, role by role.
    pub index: i32,
    /// The role that it upgrades.
    #[schemars(length(max = 12))]
    pub role: String,
    /// Replicas of that role that must be both updated and Ready.
    pub required: i32,
    /// Replicas that are.
    pub satisfied: i32,
    /// The pod that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub blocking_pod: Option<String>,
    /// Why that pod is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}
