use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    crd::{rule, rule_at, transition},
    embedded::{Embedded, PodTemplate},
    percent::IntOrPercent,
};

/// What is wanted of a LeaderWorkerSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".replicas", "self.replicas * self.leaderWorkerTemplate.size <= 2147483647",
        "'spec.replicas is %d: replicas times size may not exceed 2147483647 pods'.format([self.replicas])"),
]))]
pub struct LeaderWorkerSetSpec {
    /// How many groups.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: i32,
    /// The pods of a group. A change is a new revision, and rolls.
    pub leader_worker_template: LeaderWorkerTemplate,
    /// How a new revision replaces the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_strategy: Option<RolloutStrategy>,
    /// When the workers of a group start.
    #[serde(default)]
    pub startup_policy: StartupPolicy,
    /// The names of the pods in DNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_config: Option<NetworkConfig>,
    /// How a group keeps its identity. Only `Ordinal` is acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_identity: Option<GroupIdentity>,
    /// When a replacement of a group may start. Only `PostTermination` is acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_replacement_policy: Option<GroupReplacementPolicy>,
    /// Native gang scheduling; kept as written, not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Map<String, Value>>,
}

/// The pods of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".subGroupPolicy", "!has(self.subGroupPolicy) || !has(self.subGroupPolicy.subGroupSize) || \
            self.subGroupPolicy.subGroupSize <= self.size",
        "'subGroupSize is %d: may not exceed size, which is %d'\
            .format([self.subGroupPolicy.subGroupSize, self.size])"),
    rule_at(".subGroupPolicy", "!has(self.subGroupPolicy) || !has(self.subGroupPolicy.subGroupSize) || \
            (self.size - 1) % self.subGroupPolicy.subGroupSize == 0 || \
            (self.size % self.subGroupPolicy.subGroupSize == 0 && \
             self.subGroupPolicy.subGroupPolicyType != 'LeaderExcluded')",
        "'subGroupSize is %d: must divide size - 1, or size itself where the leader is in a subgroup; size is %d'\
            .format([self.subGroupPolicy.subGroupSize, self.size])"),
    transition("has(self.subGroupPolicy) == has(oldSelf.subGroupPolicy)",
        "subGroupPolicy can neither be added to nor removed from an existing set"),
]))]
pub struct LeaderWorkerTemplate {
    /// The leader's pod. The default is the template of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_template: Option<PodTemplate>,
    /// A worker's pod.
    pub worker_template: PodTemplate,
    /// Pods in a group, the leader included.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub size: i32,
    /// What happens to the group when one of its pods fails.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    /// Subgroups of a group: labels to place them by, and TPUs that know their peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_policy: Option<SubGroupPolicy>,
    /// Claims that are created for every pod, as by a StatefulSet. A change affects claims that are created after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub volume_claim_templates: Vec<Embedded<PersistentVolumeClaim>>,
    /// What becomes of those claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,
}

/// How a new revision replaces the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// Group by group.
    #[serde(rename = "type", default)]
    pub ty: RolloutStrategyType,
    /// The budgets of a rolling update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update_configuration: Option<RollingUpdateConfiguration>,
}

/// The budgets of a rolling update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".maxUnavailable", "!(self.maxUnavailable == 0 || self.maxUnavailable == '0%') || \
            !(self.maxSurge == 0 || self.maxSurge == '0%')",
        "'maxUnavailable is 0 while maxSurge is 0: the update could never move; raise one of them'"),
]))]
pub struct RollingUpdateConfiguration {
    /// Groups with a lower index keep the old revision.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub partition: i32,
    /// How many groups, or what share rounded down, may be missing at once.
    #[serde(default = "one_of")]
    pub max_unavailable: IntOrPercent,
    /// How many groups, or what share rounded up, may exist beyond `replicas`.
    #[serde(default = "none_of")]
    pub max_surge: IntOrPercent,
}

impl Default for RollingUpdateConfiguration {
    fn default() -> Self {
        Self { partition: 0, max_unavailable: one_of(), max_surge: none_of() }
    }
}

/// Subgroups of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    transition("has(self.subGroupSize) == has(oldSelf.subGroupSize)",
        "subGroupSize can neither be added to nor removed from an existing set"),
]))]
pub struct SubGroupPolicy {
    /// Whether the leader belongs to the first subgroup.
    #[serde(default)]
    pub sub_group_policy_type: SubGroupPolicyType,
    /// Pods in a subgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000), extend("x-kubernetes-validations" = [
        rule("self == oldSelf", "'subGroupSize is immutable: it is %d, not %d'.format([oldSelf, self])"),
    ]))]
    pub sub_group_size: Option<i32>,
}

/// The names of the pods in DNS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfig {
    /// One headless Service for all groups or one for each.
    pub subdomain_policy: SubdomainPolicy,
    /// Whether names resolve before their pods are Ready; true by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,
}

/// What happens to the claims that were created for pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRetentionPolicy {
    /// When the set is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_deleted: Option<ClaimRetention>,
    /// When the group is scaled away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_scaled: Option<ClaimRetention>,
}

/// Keep a claim or delete it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ClaimRetention {
    Retain,
    Delete,
}

/// When the workers of a group start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StartupPolicy {
    /// With the leader.
    #[default]
    LeaderCreated,
    /// Once the leader is Ready.
    LeaderReady,
    /// Once the leader has an address: before it is Ready, but never before it can be reached.
    LeaderHasAddress,
}

/// What happens to the group when one of its pods fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// The old name of `None`.
    Default,
    /// The whole group is recreated.
    #[default]
    RecreateGroupOnPodRestart,
    /// The whole group is recreated, but only after all of its pods have started.
    RecreateGroupAfterStart,
    /// Only the pod is.
    None,
}

/// The only way to roll out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum RolloutStrategyType {
    #[default]
    RollingUpdate,
}

/// Whether the leader belongs to the first subgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum SubGroupPolicyType {
    #[default]
    LeaderWorker,
    LeaderExcluded,
}

/// One headless Service for all groups or one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum SubdomainPolicy {
    Shared,
    UniquePerReplica,
}

/// How a group keeps its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum GroupIdentity {
    Ordinal,
    Hash,
}

/// When a replacement of a group may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum GroupReplacementPolicy {
    PostTermination,
    Immediate,
}

fn one() -> i32 {
    1
}

fn one_of() -> IntOrPercent {
    1.into()
}

fn none_of() -> IntOrPercent {
    0.into()
}
