use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Analysis, Env, Strategy, Workload};
use crate::{
    crd::{rule, rule_at},
    gateway::ParentRef,
};

/// What is wanted of a ModelDeployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".rollback.progressDeadlineSeconds",
        "self.rollback.progressDeadlineSeconds >= self.health.readyDeadlineSeconds + self.traffic.drainSeconds",
        "'progressDeadlineSeconds is %d: must be at least health.readyDeadlineSeconds + traffic.drainSeconds, \
            which is %d, or a step would be given up while it still does what it was given time for'.format([\
            self.rollback.progressDeadlineSeconds, self.health.readyDeadlineSeconds + self.traffic.drainSeconds])"),
    rule_at(".strategy.type",
        "!(self.strategy.type in ['Canary', 'Incremental']) || has(self.traffic.gateway)",
        "'strategy.type is \"%s\": it splits traffic by weight and needs traffic.gateway; without one use Rolling, \
            BlueGreen, InPlace or Recreate'.format([self.strategy.type])"),
    rule_at(".workload.roles", "!has(self.workload.roles) || !has(self.workload.roles.roleUpgrade) || \
            self.strategy.type == 'InPlace'",
        "'strategy.type is \"%s\": roleUpgrade orders an upgrade in place and needs InPlace; the other strategies \
            bring up whole new versions'.format([self.strategy.type])"),
]))]
pub struct ModelDeploymentSpec {
    /// Serving units of the whole service.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: i32,
    /// What people call this version. Without it versions are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub version: Option<String>,
    /// What one serving unit is made of.
    pub workload: Workload,
    /// Environment variables laid over the workload. A change is a new version, like a change of the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub env: Vec<Env>,
    /// How requests reach the service, and how a unit leaves it.
    pub traffic: Traffic,
    /// When a unit may receive requests.
    #[serde(default)]
    pub health: Health,
    /// How a new version takes over.
    #[serde(default)]
    pub strategy: Strategy,
    /// What to do when the peak of a rollout does not fit the cluster.
    #[serde(default)]
    pub capacity: Capacity,
    /// What a new version must prove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Analysis>,
    /// When a rollout is given up, and what happens then.
    #[serde(default)]
    pub rollback: Rollback,
    /// Versions kept to go back to.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    pub revision_history_limit: i32,
}

/// How requests reach the service, and how a unit leaves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".ports", "self.ports.all(p, self.ports.exists_one(q, q.port == p.port))",
        "'ports has a port twice: each entry needs a port of its own'"),
]))]
pub struct Traffic {
    /// The ports of the service.
    #[schemars(length(min = 1, max = 8), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<Port>,
    /// The Gateway that splits traffic by weight. Without one there are Services only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// How long a unit that left the service may finish what it has.
    #[serde(default = "drain")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_seconds: i32,
    /// How long after a Gateway of others accepted a weight it counts as applied.
    #[serde(default = "settle")]
    #[schemars(range(min = 0, max = 3_600))]
    pub settle_seconds: i32,
}

/// A port of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name.
    #[schemars(length(min = 1, max = 15), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its number, of the service and of the pod.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// What is spoken there: the kind of route follows from it.
    #[serde(default)]
    pub protocol: Protocol,
}

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum Protocol {
    #[default]
    Http,
    Grpc,
}

/// The Gateway that splits traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("has(self.className) != has(self.parentRefs)",
        "'gateway needs className, for a Gateway of its own, or parentRefs, for one that exists: exactly one of them'"),
]))]
pub struct Gateway {
    /// A class: the service gets a Gateway of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// Gateways that exist: the service attaches its routes to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub parent_refs: Option<Vec<ParentRef>>,
    /// Host names that the routes answer to; any without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub hostnames: Vec<String>,
    /// Path prefixes that the HTTP route answers to; all without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1_024), regex(pattern = "^/")), extend(
        "x-kubernetes-list-type" = "set"))]
    pub paths: Vec<String>,
}

/// When a unit may receive requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// From the start of a unit until it must be Ready.
    #[serde(default = "ready_deadline")]
    #[schemars(range(min = 1, max = 86_400))]
    pub ready_deadline_seconds: i32,
    /// A request that a version must answer before it gets any of its users'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

impl Default for Health {
    fn default() -> Self {
        Self { ready_deadline_seconds: ready_deadline(), probe: None }
    }
}

/// A request that proves a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Over HTTP.
    pub http: HttpProbe,
}

/// A request over HTTP and the answer that it must get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpProbe {
    /// Where to.
    #[schemars(length(min = 1, max = 1_024), regex(pattern = "^/"))]
    pub path: String,
    /// How.
    #[serde(default)]
    pub method: HttpMethod,
    /// What with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub body: Option<String>,
    /// The status of a good answer.
    #[serde(default = "ok_status")]
    #[schemars(range(min = 100, max = 599))]
    pub expect_status: i32,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum HttpMethod {
    #[default]
    Get,
    Post,
}

/// What to do when the peak of a rollout does not fit the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Capacity {
    /// Do not start.
    #[default]
    Enforce,
    /// Start, and say so.
    Warn,
    /// Do not look: the nodes grow with the need.
    Off,
}

/// When a rollout is given up, and what happens then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// How long a step may take.
    #[serde(default = "progress_deadline")]
    #[schemars(range(min = 1, max = 604_800))]
    pub progress_deadline_seconds: i32,
    /// How often a new unit may restart before the version counts as broken.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 1_000))]
    pub max_restarts: i32,
    /// Go back, or stop and wait for a person.
    #[serde(default)]
    pub on_failure: OnFailure,
}

impl Default for Rollback {
    fn default() -> Self {
        Self {
            progress_deadline_seconds: progress_deadline(),
            max_restarts: three(),
            on_failure: OnFailure::default(),
        }
    }
}

/// Go back, or stop and wait for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum OnFailure {
    #[default]
    Rollback,
    Pause,
}

fn one() -> i32 {
    1
}

fn three() -> i32 {
    3
}

fn ten() -> i32 {
    10
}

fn drain() -> i32 {
    60
}

fn settle() -> i32 {
    5
}

fn ready_deadline() -> i32 {
    600
}

fn progress_deadline() -> i32 {
    900
}

fn ok_status() -> i32 {
    200
}
