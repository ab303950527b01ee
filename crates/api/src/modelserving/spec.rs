use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    crd::{rule_at, transition},
    embedded::PodTemplate,
    percent::{IntOrPercent, positive_schema},
};

/// In CEL, on the spec: roles are replaced one by one and each brings its own budget.
const BY_ROLE: &str = "has(self.rolloutStrategy) && self.rolloutStrategy.type == 'RoleRollingUpdate'";
/// In CEL, on the spec: there is an order of roles.
const HAS_STEPS: &str = "has(self.rolloutStrategy) && has(self.rolloutStrategy.rollingUpdateConfiguration) && \
                         has(self.rolloutStrategy.rollingUpdateConfiguration.roleUpgrade)";
/// In CEL, on the spec: the map of floors is there.
const HAS_FLOORS: &str = "has(self.rolloutStrategy) && has(self.rolloutStrategy.evictionStrategy) && \
                          has(self.rolloutStrategy.evictionStrategy.roleMinAvailable)";
/// In CEL, about a role: nothing of it may be missing and nothing may be added, so nothing of it can be replaced.
const STANDS_STILL: &str = "(role.maxUnavailable == 0 || role.maxUnavailable == '0%') && \
                            (!has(role.maxSurge) || role.maxSurge == 0 || role.maxSurge == '0%')";

/// What is wanted of a ModelServing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".template.roles",
        "self.template.roles.all(role, self.replicas * role.replicas * (1 + role.workerReplicas) <= 2147483647)",
        "'spec.replicas is %d: replicas times role replicas times the pods of each may not exceed 2147483647'\
            .format([self.replicas])"),
    rule_at(".rolloutStrategy.type", &format!("!({BY_ROLE}) || self.recoveryPolicy != 'ServingGroupRecreate'"),
        "'type is \"RoleRollingUpdate\" while recoveryPolicy is \"ServingGroupRecreate\": replacing one role would \
            make its whole group again; allowed are recoveryPolicy RoleRecreate or None, or type \
            ServingGroupRollingUpdate'"),
    rule_at(".template.roles", &format!("{BY_ROLE} || self.template.roles.all(role, !has(role.partition))"),
        "'role \"%s\" has a partition: only allowed when rolloutStrategy.type is RoleRollingUpdate; the one for \
            groups is rollingUpdateConfiguration.partition'\
            .format([self.template.roles.filter(role, has(role.partition))[0].name])"),
    rule_at(".template.roles", &format!("{BY_ROLE} || self.template.roles.all(role, !has(role.maxSurge))"),
        "'role \"%s\" has a maxSurge: only allowed when rolloutStrategy.type is RoleRollingUpdate; the one for \
            groups is rollingUpdateConfiguration.maxSurge'\
            .format([self.template.roles.filter(role, has(role.maxSurge))[0].name])"),
    rule_at(".template.roles",
        &format!("!({BY_ROLE} || {HAS_STEPS}) || self.template.roles.all(role, !({STANDS_STILL}))"),
        &format!("'role \"%s\" has maxUnavailable 0 and no maxSurge: its update could never move; raise one of them'\
            .format([self.template.roles.filter(role, {STANDS_STILL})[0].name])")),
    rule_at(".rolloutStrategy.rollingUpdateConfiguration.roleUpgrade.steps",
        &format!("!({HAS_STEPS}) || self.rolloutStrategy.rollingUpdateConfiguration.roleUpgrade.steps.all(step, \
            self.template.roles.exists(role, role.name == step.role))"),
        "'a step is for role %s: must be one of template.roles, which are %s'.format([\
            [self.rolloutStrategy.rollingUpdateConfiguration.roleUpgrade.steps.filter(step, \
                !self.template.roles.exists(role, role.name == step.role))[0].role], \
            self.template.roles.map(role, role.name)])"),
    rule_at(".rolloutStrategy.evictionStrategy.roleMinAvailable",
        &format!("!({HAS_FLOORS}) || self.rolloutStrategy.evictionStrategy.roleMinAvailable.all(name, \
            self.template.roles.exists(role, role.name == name))"),
        "'roleMinAvailable names %s: each must be one of template.roles, which are %s'.format([\
            self.rolloutStrategy.evictionStrategy.roleMinAvailable.filter(name, \
                !self.template.roles.exists(role, role.name == name)), \
            self.template.roles.map(role, role.name)])"),
]))]
pub struct ModelServingSpec {
    /// How many serving groups.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: i32,
    /// The scheduler of every pod; it overrides the templates.
    #[serde(default = "volcano")]
    #[schemars(length(max = 253))]
    pub scheduler_name: String,
    /// The plugins that change each pod before it is created, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub plugins: Vec<Plugin>,
    /// A serving group. A change of its roles is a new revision, and rolls.
    pub template: ServingGroup,
    /// How a new revision replaces the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_strategy: Option<RolloutStrategy>,
    /// What is recreated when a pod fails.
    #[serde(default)]
    pub recovery_policy: RecoveryPolicy,
    /// Old revisions to keep for going back. 10 where this is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
}

/// A change of pods before they are created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// Which plugin: `demo-pod-tweaks` or `lws-standard-labels`.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Where the plugin comes from.
    #[serde(rename = "type", default)]
    pub ty: PluginType,
    /// The configuration of the plugin, in the format of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub config: Option<Value>,
    /// The pods that it changes; all of them where this is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<PluginScope>,
}

/// The pods that a plugin changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginScope {
    /// Only these roles; all of them where this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 12)))]
    pub roles: Vec<String>,
    /// Only entries or only workers; both where this is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PluginTarget>,
}

/// A serving group: roles that only serve together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    transition("!has(oldSelf.gangPolicy) || has(self.gangPolicy)",
        "gangPolicy cannot be removed from an existing ModelServing"),
    rule_at(".gangPolicy", "!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas) || \
            self.gangPolicy.minRoleReplicas.all(name, self.roles.exists(role, role.name == name))",
        "'minRoleReplicas names %s: each must be one of template.roles, which are %s'.format([\
            self.gangPolicy.minRoleReplicas.filter(name, !self.roles.exists(role, role.name == name)), \
            self.roles.map(role, role.name)])"),
    rule_at(".gangPolicy", "!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas) || \
            self.roles.all(role, !(role.name in self.gangPolicy.minRoleReplicas) || \
                self.gangPolicy.minRoleReplicas[role.name] <= role.replicas)",
        "'minRoleReplicas has %d for a role of %d replicas: may not exceed them'.format([\
            self.roles.filter(role, role.name in self.gangPolicy.minRoleReplicas && \
                self.gangPolicy.minRoleReplicas[role.name] > role.replicas)\
                .map(role, self.gangPolicy.minRoleReplicas[role.name])[0], \
            self.roles.filter(role, role.name in self.gangPolicy.minRoleReplicas && \
                self.gangPolicy.minRoleReplicas[role.name] > role.replicas)[0].replicas])"),
]))]
pub struct ServingGroup {
    /// Seconds between the failure of a pod and its replacement.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub restart_grace_period_seconds: i64,
    /// Pods that are placed together or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_policy: Option<GangPolicy>,
    /// How near to each other pods are placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopology>,
    /// The roles of a group.
    #[schemars(length(min = 1, max = 4), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Vec<Role>,
}

/// Pods that are placed together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    transition("!has(oldSelf.minRoleReplicas) || has(self.minRoleReplicas)",
        "minRoleReplicas cannot be removed from an existing ModelServing"),
]))]
pub struct GangPolicy {
    /// The replicas of each role without which none is placed. A role that is not here needs all of its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "maxProperties" = 4,
        "additionalProperties" = {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000},
        "x-kubernetes-validations" = [
            transition("self == oldSelf", "minRoleReplicas is immutable: it must stay as it was created"),
        ]))]
    pub min_role_replicas: Option<BTreeMap<String, i32>>,
}

/// How near to each other pods are placed, where the scheduler knows the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTopology {
    /// For all pods of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_policy: Option<TopologyPolicy>,
    /// For the pods of a role's replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_policy: Option<TopologyPolicy>,
}

/// How near is near enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyPolicy {
    /// Whether pods wait when there is no room that near.
    #[serde(default)]
    pub mode: TopologyMode,
    /// The highest tier that pods may span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub highest_tier_allowed: Option<i32>,
    /// That tier by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub highest_tier_name: Option<String>,
}

/// A role: replicas of an entry pod and its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".workerTemplate", "self.workerReplicas == 0 || has(self.workerTemplate)",
        "'workerTemplate is required: workerReplicas is %d'.format([self.workerReplicas])"),
]))]
pub struct Role {
    /// The name, unique in the group and part of the names of its pods.
    #[schemars(length(max = 12), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many replicas of this role in each group.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: i32,
    /// The entry's pod; a replica has one.
    pub entry_template: PodTemplate,
    /// How many workers each replica has.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub worker_replicas: i32,
    /// A worker's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_template: Option<PodTemplate>,
    /// How many replicas of this role, or what share rounded down, an update may take away at once. Used where roles are
    /// replaced one by one: with `RoleRollingUpdate` and within the steps of `roleUpgrade`.
    #[serde(default = "one_of")]
    pub max_unavailable: IntOrPercent,
    /// How many replicas, or what share rounded up, may exist beyond `replicas`. Only with `RoleRollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrPercent>,
    /// Replicas with a lower index, or this share of them rounded up, keep the old revision. Only with
    /// `RoleRollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrPercent>,
}

/// How a new revision replaces the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".rollingUpdateConfiguration",
        "self.type == 'ServingGroupRollingUpdate' || !has(self.rollingUpdateConfiguration)",
        "'rollingUpdateConfiguration is set and type is \"%s\": only allowed with ServingGroupRollingUpdate; \
            other budgets are those of each role, template.roles[].maxUnavailable'.format([self.type])"),
    rule_at(".rollingUpdateConfiguration",
        "self.type == 'ServingGroupRollingUpdate' || !has(self.rollingUpdateConfiguration) || \
            !has(self.rollingUpdateConfiguration.roleUpgrade)",
        "'roleUpgrade is set and type is \"%s\": only allowed with ServingGroupRollingUpdate'.format([self.type])"),
]))]
pub struct RolloutStrategy {
    /// Group by group or role by role.
    #[serde(rename = "type", default)]
    pub ty: RolloutStrategyType,
    /// The budgets of a rolling update of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update_configuration: Option<RollingUpdateConfiguration>,
    /// What must stay available while nodes are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
}

/// The budgets of a rolling update of groups, and the order of the roles in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".maxUnavailable", "!(self.maxUnavailable == 0 || self.maxUnavailable == '0%') || \
            (has(self.maxSurge) && self.maxSurge != 0 && self.maxSurge != '0%')",
        "'maxUnavailable is 0 and there is no maxSurge: the update could never move; raise one of them'"),
    rule_at(".maxSurge", "!has(self.roleUpgrade) || !has(self.maxSurge) || self.maxSurge == 0 || self.maxSurge == '0%'",
        "'maxSurge is set beside roleUpgrade: must be 0, because steps replace role replicas in the groups that there are'"),
]))]
pub struct RollingUpdateConfiguration {
    /// How many groups, or what share rounded down, may be missing at once.
    #[serde(default = "one_of")]
    pub max_unavailable: IntOrPercent,
    /// How many groups, or what share rounded up, may exist beyond `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrPercent>,
    /// Groups with a lower index, or this share of them rounded up, keep the old revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrPercent>,
    /// The order in which the roles of a group are upgraded. Without it a group is replaced as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_upgrade: Option<RoleUpgrade>,
}

impl Default for RollingUpdateConfiguration {
    fn default() -> Self {
        Self { max_unavailable: one_of(), max_surge: None, partition: None, role_upgrade: None }
    }
}

/// The order in which the roles of a group are upgraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleUpgrade {
    /// One after the other, in each group: a step starts when the one before it is met. What no step names is upgraded
    /// after the last.
    #[schemars(length(min = 1, max = 32))]
    pub steps: Vec<RoleUpgradeStep>,
}

/// A step of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleUpgradeStep {
    /// The role that it upgrades.
    #[schemars(length(max = 12))]
    pub role: String,
    /// How many replicas of the role, or what share rounded up, are both updated and Ready when the step is met. Counts
    /// what earlier steps of the role upgraded.
    #[schemars(schema_with = "positive_schema")]
    pub update_to: IntOrPercent,
}

/// What must stay available while nodes are drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".minAvailable", "self.protectionLevel != 'ServingGroup' || has(self.minAvailable)",
        "'minAvailable is required: protectionLevel is \"ServingGroup\"'"),
    rule_at(".roleMinAvailable", "self.protectionLevel != 'Role' || \
            (has(self.roleMinAvailable) && size(self.roleMinAvailable) > 0)",
        "'roleMinAvailable is required: protectionLevel is \"Role\"'"),
]))]
pub struct EvictionStrategy {
    /// Whether groups are counted or replicas of roles.
    #[serde(default)]
    pub protection_level: ProtectionLevel,
    /// How many groups, or what share rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrPercent>,
    /// How many replicas of each role, or what share rounded up. A role that is not here is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 4))]
    pub role_min_available: Option<BTreeMap<String, IntOrPercent>>,
}

/// Where a plugin comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum PluginType {
    #[default]
    BuiltIn,
}

/// Entries, workers or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum PluginTarget {
    All,
    Entry,
    Worker,
}

/// Whether pods wait when there is no room near enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TopologyMode {
    /// They wait.
    #[default]
    Hard,
    /// They go where there is room.
    Soft,
}

/// What is replaced at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStrategyType {
    /// A group.
    #[default]
    ServingGroupRollingUpdate,
    /// A replica of a role, in all groups at the same time.
    RoleRollingUpdate,
}

/// What is counted while nodes are drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProtectionLevel {
    /// Groups.
    #[default]
    ServingGroup,
    /// Replicas of each role.
    Role,
}

/// What is recreated when a pod fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPolicy {
    /// The whole group.
    ServingGroupRecreate,
    /// The replica of the role that the pod belongs to.
    #[default]
    RoleRecreate,
    /// Only the pod.
    None,
}

fn one() -> i32 {
    1
}

fn one_of() -> IntOrPercent {
    1.into()
}

fn volcano() -> String {
    "volcano".into()
}
