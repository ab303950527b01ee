use k8s_openapi::api::core::v1::Service;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    crd::{rule, rule_at},
    embedded::Embedded,
    gateway::ParentRef,
    raycluster::{ManagedBy, RayClusterSpec, managed_by_rule},
};

/// What is wanted of a RayService.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".rayClusterConfig.headGroupSpec.headService.metadata.name",
        "!has(self.rayClusterConfig.headGroupSpec.headService) || \
            !has(self.rayClusterConfig.headGroupSpec.headService.metadata) || \
            !has(self.rayClusterConfig.headGroupSpec.headService.metadata.name) || \
            self.rayClusterConfig.headGroupSpec.headService.metadata.name == ''",
        "'the name of the head Service may not be set here: two clusters exist during an upgrade, each with its own'"),
    rule_at(".rayClusterConfig.authOptions.enableK8sTokenAuth", "!has(self.rayClusterConfig.authOptions) || \
            !has(self.rayClusterConfig.authOptions.enableK8sTokenAuth) || \
            !self.rayClusterConfig.authOptions.enableK8sTokenAuth",
        "'enableK8sTokenAuth is true: a RayService cannot have it; use mode token without it'"),
    rule_at(".rayClusterConfig.upgradeStrategy.type", "!has(self.rayClusterConfig.upgradeStrategy) || \
            !has(self.rayClusterConfig.upgradeStrategy.type)",
        "'type is \"%s\": the clusters of a RayService are upgraded by spec.upgradeStrategy; remove this one'\
            .format([self.rayClusterConfig.upgradeStrategy.type])"),
]))]
pub struct RayServiceSpec {
    /// How long a replaced cluster is kept, in seconds; 60 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub ray_cluster_deletion_delay_seconds: Option<i32>,
    /// Has had no effect for long; kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub service_unhealthy_second_threshold: Option<i32>,
    /// Has had no effect for long; kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub deployment_unhealthy_second_threshold: Option<i32>,
    /// The Service that clients use; its fields override those of the generated Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("required" = []))]
    pub serve_service: Option<Embedded<Service>>,
    /// How a new cluster takes over from the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,
    /// The applications, as the YAML that Ray Serve reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub serve_config_v2: Option<String>,
    /// The cluster that the applications run on. A change makes a new one.
    pub ray_cluster_config: RayClusterSpec,
    /// The operator of this service. The default is `ray.io/kuberay-operator`, which is Segue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 64, "x-kubernetes-validations" = [managed_by_rule()]))]
    pub managed_by: Option<ManagedBy>,
    /// Deletes the clusters and keeps the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Whether the head never takes requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_head_pod_from_serve_svc: Option<bool>,
}

/// How a new cluster takes over from the old one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = spelling_rules()))]
pub struct UpgradeStrategy {
    /// Blue/green, `NewCluster`, if absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 64))]
    pub ty: Option<UpgradeType>,
    /// The steps of `NewClusterWithIncrementalUpgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_upgrade_options: Option<IncrementalUpgradeOptions>,
    /// The steps of `IncrementalUpgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental_upgrade_options: Option<IncrementalUpgradeOptions>,
}

impl UpgradeStrategy {
    /// The steps of an incremental upgrade, under either of its names.
    pub fn incremental(&self) -> Option<&IncrementalUpgradeOptions> {
        match self.ty {
            Some(UpgradeType::IncrementalUpgrade) => self.incremental_upgrade_options.as_ref(),
            Some(UpgradeType::NewClusterWithIncrementalUpgrade) => self.cluster_upgrade_options.as_ref(),
            Some(UpgradeType::NewCluster | UpgradeType::None) | None => None,
        }
    }
}

/// Each name of the incremental upgrade has its own name for the options: a manifest speaks one or the other.
fn spelling_rules() -> Vec<Value> {
    let spellings = [
        ("IncrementalUpgrade", "incrementalUpgradeOptions"),
        ("NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions"),
    ];
    let rules = spellings.into_iter().flat_map(|(ty, options)| {
        let at = format!(".{options}");
        let is = format!("has(self.type) && self.type == '{ty}'");
        let goes_with = format!(
            "'{options} goes with type {ty}, and type is \"%s\": remove the options or change the type'\
             .format([has(self.type) ? self.type : 'NewCluster'])"
        );
        [
            rule_at(&at, &format!("!({is}) || has(self.{options})"), &format!("'type {ty} needs {options}'")),
            rule_at(&at, &format!("!has(self.{options}) || ({is})"), &goes_with),
        ]
    });
    rules.collect()
}

/// The steps of an incremental upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".gatewayClassName", "has(self.gatewayClassName) || has(self.gateway)",
        "'gatewayClassName is missing: name the class of the Gateway to make, or a Gateway of your own in gateway'"),
]))]
pub struct IncrementalUpgradeOptions {
    /// By how many percent the capacity of both clusters may exceed what one has.
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 100), extend("x-kubernetes-validations" = [
        rule("self > 0", "'maxSurgePercent is 0: the new cluster could never grow and the upgrade never end; allowed \
            are 1 to 100'"),
    ]))]
    pub max_surge_percent: i32,
    /// How many percent of the traffic move at a time.
    #[schemars(range(min = 0, max = 100), extend("x-kubernetes-validations" = [
        rule("self > 0", "'stepSizePercent is 0: no traffic would ever move and the upgrade never end; allowed are 1 \
            to 100'"),
    ]))]
    pub step_size_percent: i32,
    /// How long to wait between two moves.
    #[schemars(range(min = 0, max = i32::MAX))]
    pub interval_seconds: i32,
    /// The class of the generated Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub gateway_class_name: Option<String>,
    /// An existing Gateway, to which the routes attach; no Gateway is generated then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<OwnGateway>,
}

/// A Gateway that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnGateway {
    /// What our routes attach to.
    #[schemars(length(min = 1, max = 32))]
    pub parent_refs: Vec<ParentRef>,
    /// The hosts that our routes are for; all of the Gateway's if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(
            length(min = 1, max = 253),
            regex(pattern = "^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        ),
        extend("x-kubernetes-list-type" = "set"),
    )]
    pub hostnames: Vec<String>,
}

/// How a new cluster takes over from the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeType {
    /// All at once, when the new cluster is ready. Needs no Gateway.
    #[default]
    NewCluster,
    /// Step by step, as the feature was designed.
    IncrementalUpgrade,
    /// Step by step, as the feature was shipped: the Gateway listens on port 80.
    NewClusterWithIncrementalUpgrade,
    /// Not at all: the old cluster stays.
    None,
}

fn all() -> i32 {
    100
}
