use k8s_openapi::api::core::v1::Service;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    crd::rule_at,
    embedded::{Embedded, PodTemplate, Texts, labels_schema, texts_schema},
};

/// The head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = group_rules()))]
pub struct HeadGroupSpec {
    /// Its pod. The first container runs Ray.
    pub template: PodTemplate,
    /// Its Service; the fields override those of the generated Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("required" = []))]
    pub head_service: Option<Embedded<Service>>,
    /// Whether the dashboard gets an Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ingress: Option<bool>,
    /// That Ingress; kept as written, not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<Map<String, Value>>,
    /// What Ray believes the head has, in place of what its container has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts_schema")]
    pub resources: Option<Texts>,
    /// Ray's labels of the head, which its pod carries too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "labels_schema")]
    pub labels: Option<Texts>,
    /// Flags of `ray start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts_schema")]
    pub ray_start_params: Option<Texts>,
    /// The type of its Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<ServiceType>,
}

/// A group of workers that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = worker_rules()))]
pub struct WorkerGroupSpec {
    /// Deletes the group's pods and keeps the group. Not possible while the autoscaler runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The name of the group.
    // Capitals are allowed because KubeRay allows them, and lowers them in the names of pods.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"))]
    pub group_name: String,
    /// The number of replicas, limited to `minReplicas` and `maxReplicas`.
    #[serde(default)]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub replicas: i32,
    /// The fewest replicas.
    #[serde(default)]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub min_replicas: i32,
    /// The most replicas.
    #[serde(default = "no_limit")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub max_replicas: i32,
    /// How long a worker of this group may be idle before it is removed; only the autoscaler v2 reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub idle_timeout_seconds: Option<i32>,
    /// Which group grows first where several would do, the highest; only the second autoscaler reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub priority: Option<i32>,
    /// What Ray believes a worker has, in place of what its container has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts_schema")]
    pub resources: Option<Texts>,
    /// Ray's labels of the workers, which their pods carry too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "labels_schema")]
    pub labels: Option<Texts>,
    /// Flags of `ray start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts_schema")]
    pub ray_start_params: Option<Texts>,
    /// A worker's pod. The first container runs Ray.
    pub template: PodTemplate,
    /// Which workers go first. The autoscaler writes this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// Pods in a replica, which start and go together.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub num_of_hosts: i32,
}

/// Which workers go first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Their pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 253)))]
    pub workers_to_delete: Vec<String>,
}

/// The type of a Service in front of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ServiceType {
    ClusterIP,
    NodePort,
    LoadBalancer,
}

/// What head and workers have in common.
fn group_rules() -> Vec<Value> {
    const BOTH: &str = "['num-cpus', 'num-gpus', 'memory', 'resources']\
                        .filter(k, k in self.rayStartParams && self.rayStartParams[k] != '')";
    vec![
        rule_at(
            ".template.spec.containers",
            "has(self.template.spec) && size(self.template.spec.containers) > 0",
            "'containers is empty: at least one container, and the first runs Ray'",
        ),
        rule_at(
            ".resources",
            &format!(
                "!has(self.resources) || size(self.resources) == 0 || \
                 !has(self.rayStartParams) || size({BOTH}) == 0"
            ),
            &format!(
                "'resources are given twice, here and as \"%s\" in rayStartParams: keep one of the two'\
                 .format([{BOTH}[0]])"
            ),
        ),
        rule_at(
            ".rayStartParams",
            "!has(self.rayStartParams) || !('labels' in self.rayStartParams)",
            "'labels is set: labels of Ray go into the field labels beside rayStartParams'",
        ),
    ]
}

fn worker_rules() -> Vec<Value> {
    let mut rules = group_rules();
    rules.extend([
        rule_at(
            ".minReplicas",
            "self.minReplicas <= self.maxReplicas",
            "'minReplicas is %d: may not exceed maxReplicas, which is %d'\
             .format([self.minReplicas, self.maxReplicas])",
        ),
        rule_at(
            ".replicas",
            "self.replicas * self.numOfHosts <= 2147483647",
            "'replicas is %d: replicas times numOfHosts may not exceed 2147483647 pods'.format([self.replicas])",
        ),
        // Pods say by this name which of them is the head, and the autoscaler believes them.
        rule_at(
            ".groupName",
            "self.groupName != 'headgroup'",
            "'groupName is \"headgroup\": the head has that name; choose another'",
        ),
    ]);
    rules
}

fn one() -> i32 {
    1
}

fn no_limit() -> i32 {
    i32::MAX
}
