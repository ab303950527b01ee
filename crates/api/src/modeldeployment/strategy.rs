use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    crd::{rule, rule_at},
    percent::IntOrPercent,
};

/// How a new version takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".rolling", "!has(self.rolling) || self.type == 'Rolling'",
        "'strategy.type is \"%s\": rolling is not allowed with it'.format([self.type])"),
    rule_at(".blueGreen", "!has(self.blueGreen) || self.type == 'BlueGreen'",
        "'strategy.type is \"%s\": blueGreen is not allowed with it'.format([self.type])"),
    rule_at(".canary", "has(self.canary) == (self.type == 'Canary')",
        "'strategy.type is \"%s\": canary is required when it is Canary and not allowed otherwise'\
            .format([self.type])"),
    rule_at(".incremental", "has(self.incremental) == (self.type == 'Incremental')",
        "'strategy.type is \"%s\": incremental is required when it is Incremental and not allowed otherwise'\
            .format([self.type])"),
    rule_at(".inPlace", "!has(self.inPlace) || self.type == 'InPlace'",
        "'strategy.type is \"%s\": inPlace is not allowed with it'.format([self.type])"),
]))]
pub struct Strategy {
    /// Which one; the member of the same name holds its settings.
    #[serde(rename = "type", default)]
    pub ty: StrategyType,
    /// Unit by unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
    /// A full second set, then all traffic at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blue_green: Option<BlueGreen>,
    /// By a list of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// By equal steps of capacity and traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incremental: Option<Incremental>,
    /// Inside the one set that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlace>,
}

/// A strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// Unit by unit: create, wait, shift, drain, delete.
    #[default]
    Rolling,
    /// A full second set, then all traffic at once.
    BlueGreen,
    /// By a list of steps.
    Canary,
    /// By equal steps of capacity and traffic.
    Incremental,
    /// Inside the one set that there is: for services whose second copy does not fit.
    InPlace,
    /// Stop the old version, then start the new one.
    Recreate,
}

/// Unit by unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".maxSurge", "!(self.maxUnavailable == 0 || self.maxUnavailable == '0%') || \
            !(self.maxSurge == 0 || self.maxSurge == '0%')",
        "'maxSurge is 0 while maxUnavailable is 0: the update could never move; raise one of them'"),
]))]
pub struct Rolling {
    /// Units, or what share rounded up, beyond `replicas`; those that are still terminating count.
    #[serde(default = "quarter")]
    pub max_surge: IntOrPercent,
    /// Units, or what share rounded down, that may be missing.
    #[serde(default = "none")]
    pub max_unavailable: IntOrPercent,
}

impl Default for Rolling {
    fn default() -> Self {
        Self { max_surge: quarter(), max_unavailable: none() }
    }
}

/// A full second set, then all traffic at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreen {
    /// Promote as soon as the new version is proven; else a person does.
    #[serde(default = "yes")]
    pub auto_promote: bool,
    /// How long the new version is checked before it is promoted.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub promote_delay_seconds: i32,
    /// How many units, or what share rounded up, the new version has until it is promoted.
    #[serde(default = "all")]
    pub preview_replicas: IntOrPercent,
    /// How long the old version stays, ready to take over again.
    #[serde(default = "five_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub retain_seconds: i32,
}

impl Default for BlueGreen {
    fn default() -> Self {
        Self {
            auto_promote: true,
            promote_delay_seconds: 0,
            preview_replicas: all(),
            retain_seconds: five_minutes(),
        }
    }
}

/// By a list of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".maxSurge", "!(self.maxSurge == 0 || self.maxSurge == '0%')",
        "'maxSurge is 0: the new version would have no room to start; allow at least 1'"),
]))]
pub struct Canary {
    /// Units, or what share rounded up, beyond `replicas`.
    #[serde(default = "quarter")]
    pub max_surge: IntOrPercent,
    /// What is done, in order.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = [
        rule("self.exists(s, has(s.weight) && s.weight == 100)",
            "'steps never reach weight 100: the rollout could never end'"),
        rule("self.map(s, has(s.weight) ? s.weight : 0).filter(w, w > 0).isSorted()",
            "'steps lower the weight of the new version: weights may only grow; going back is a rollback'"),
    ]))]
    pub steps: Vec<CanaryStep>,
}

/// One step: a weight, a pause, or an analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("[has(self.weight), has(self.pause), has(self.analysis)].filter(x, x).size() == 1",
        "'a step is a weight, a pause or an analysis: exactly one of them'"),
    rule_at(".replicas", "!has(self.replicas) || has(self.weight)",
        "'replicas goes with a weight: a step that sets none changes no capacity'"),
]))]
pub struct CanaryStep {
    /// The share of the traffic that the new version gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// Units, or what share rounded up, of the new version; what the weight needs without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<IntOrPercent>,
    /// A wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<CanaryPause>,
    /// An analysis of the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<CanaryAnalysis>,
}

/// A wait, for a time or for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryPause {
    /// How long; until a person promotes without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub seconds: Option<i32>,
}

/// An analysis of the new version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryAnalysis {
    /// The checks that must pass; all of them without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub checks: Vec<String>,
    /// How long they are watched.
    #[schemars(range(min = 1, max = 604_800))]
    pub seconds: i32,
}

/// By equal steps of capacity and traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Incremental {
    /// Capacity beyond 100 %, both versions together.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 100))]
    pub max_surge_percent: i32,
    /// Traffic that moves in a step.
    #[schemars(range(min = 1, max = 100))]
    pub step_size_percent: i32,
    /// The time between two steps.
    #[schemars(range(min = 0, max = 604_800))]
    pub interval_seconds: i32,
}

/// Inside the one set that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".maxUnavailable", "!(self.maxUnavailable == 0 || self.maxUnavailable == '0%')",
        "'maxUnavailable is 0: an update in place could never move; allow at least 1'"),
]))]
pub struct InPlace {
    /// Units, or what share rounded down, that may be missing.
    #[serde(default = "one_of")]
    pub max_unavailable: IntOrPercent,
}

fn quarter() -> IntOrPercent {
    IntOrPercent::Percent("25%".into())
}

fn all() -> IntOrPercent {
    IntOrPercent::Percent("100%".into())
}

fn none() -> IntOrPercent {
    0.into()
}

fn one_of() -> IntOrPercent {
    1.into()
}

fn hundred() -> i32 {
    100
}

fn five_minutes() -> i32 {
    300
}

fn yes() -> bool {
    true
}
