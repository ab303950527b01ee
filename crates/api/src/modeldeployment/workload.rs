use k8s_openapi::api::core::v1::EnvVarSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    crd::{rule, rule_at},
    embedded::{Embedded, PodTemplate},
    leaderworkerset::{RestartPolicy, StartupPolicy},
    modelserving::{Role, RoleUpgrade},
};

/// What one serving unit is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".pod", "has(self.pod) == (self.type == 'Pod')",
        "'workload.type is \"%s\": pod is required when it is Pod and not allowed otherwise'.format([self.type])"),
    rule_at(".leaderWorker", "has(self.leaderWorker) == (self.type == 'LeaderWorker')",
        "'workload.type is \"%s\": leaderWorker is required when it is LeaderWorker and not allowed otherwise'\
            .format([self.type])"),
    rule_at(".roles", "has(self.roles) == (self.type == 'Roles')",
        "'workload.type is \"%s\": roles is required when it is Roles and not allowed otherwise'.format([self.type])"),
]))]
pub struct Workload {
    /// Which of the members below is set.
    #[serde(rename = "type")]
    pub ty: WorkloadType,
    /// A pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodTemplate>,
    /// A leader and its workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_worker: Option<LeaderWorker>,
    /// Roles that serve together, such as prefill and decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Roles>,
}

/// What a serving unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum WorkloadType {
    Pod,
    LeaderWorker,
    Roles,
}

/// A leader and its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderWorker {
    /// Pods in the unit, the leader included.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub size: i32,
    /// The leader's pod. The default is the template of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_template: Option<PodTemplate>,
    /// A worker's pod.
    pub worker_template: PodTemplate,
    /// When the workers start.
    #[serde(default)]
    pub startup_policy: StartupPolicy,
    /// What happens to the unit when one of its pods fails.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
}

/// Roles that serve together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Roles {
    /// The roles.
    #[schemars(length(min = 1, max = 4), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub roles: Vec<Role>,
    /// The order in which roles are upgraded in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_upgrade: Option<RoleUpgrade>,
}

/// An environment variable laid over the containers of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("!(has(self.value) && has(self.valueFrom))",
        "'%s has a value and a valueFrom: set one of them'.format([self.name])"),
]))]
pub struct Env {
    /// The name of the variable.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Embedded<EnvVarSource>>,
    /// The containers that get it; all of them when this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub containers: Vec<String>,
}
