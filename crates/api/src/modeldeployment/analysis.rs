use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::crd::{rule, rule_at};

/// What a new version must prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// How long the checks go on after promotion.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub bake_seconds: i32,
    /// The checks.
    #[schemars(length(min = 1, max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub checks: Vec<Check>,
}

/// One check: on errors, on latency, on a query, or by a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("[has(self.maxErrorPercent), has(self.maxLatencyMillis), has(self.prometheus), has(self.http)]\
            .filter(x, x).size() == 1",
        "'check %s needs maxErrorPercent, maxLatencyMillis, prometheus or http: exactly one of them'\
            .format([self.name])"),
    rule_at(".percentile", "has(self.percentile) == has(self.maxLatencyMillis)",
        "'check %s: percentile goes with maxLatencyMillis, and is required there'.format([self.name])"),
    rule_at(".prometheus", "has(self.prometheus) == (has(self.max) || has(self.min))",
        "'check %s: max and min bound the answer of prometheus; set at least one of them there and none elsewhere'\
            .format([self.name])"),
    rule_at(".comparedTo", "!has(self.comparedTo) || !has(self.http)",
        "'check %s: comparedTo compares numbers, and http has none'.format([self.name])"),
]))]
pub struct Check {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Before the new version has traffic, while it gets it, or after it has all.
    #[serde(default)]
    pub when: When,
    /// Errors that users may see, in percent, from the counters of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_error_percent: Option<Decimal>,
    /// Latency that users may see, from the counters of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub max_latency_millis: Option<i32>,
    /// Of which requests: 99 means all but one in a hundred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percentile: Option<i32>,
    /// A query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// A call that answers 2xx and `{"ok": true}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// The most that the query may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Decimal>,
    /// The least that the query may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Decimal>,
    /// Judge against what the current version does now instead of alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_to: Option<ComparedTo>,
    /// The time that one judgement looks back.
    #[serde(default = "minute")]
    #[schemars(range(min = 1, max = 86_400))]
    pub window_seconds: i32,
    /// Requests without which there is no judgement.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub min_requests: i32,
    /// Bad judgements in a row that make it a failure.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000))]
    pub failures: i32,
    /// What it means when there is nothing to judge.
    #[serde(default)]
    pub no_data: NoData,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// The server.
    #[schemars(length(min = 8, max = 1_024), regex(pattern = "^https?://[^/]"))]
    pub address: String,
    /// The query; `{{version}}` stands for the version.
    #[schemars(length(min = 1, max = 8_192))]
    pub query: String,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpCheck {
    /// Where to; `{{preview}}` stands for the new version.
    #[schemars(length(min = 1, max = 1_024), regex(pattern = "^(https?://[^/]|\\{\\{preview\\}\\})"))]
    pub url: String,
}

/// When a check runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// While the new version has no traffic.
    BeforeTraffic,
    /// While it gets it.
    #[default]
    During,
    /// While it bakes.
    After,
}

/// What a check compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ComparedTo {
    /// The version that carried all traffic.
    Stable,
}

/// What it means when there is nothing to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NoData {
    /// Wait for it; the deadline of the step stands still.
    #[default]
    Wait,
    /// It passes.
    Pass,
    /// It fails.
    Fail,
}

/// A number without the rounding of floats: `1`, `"0.5"` or `"500m"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Decimal {
    Whole(i64),
    Text(String),
}

impl Decimal {
    /// The number in thousandths. Nothing for text that is no number or too large.
    pub fn millis(&self) -> Option<i64> {
        match self {
            Self::Whole(number) => number.checked_mul(1_000),
            Self::Text(text) => {
                if let Some(millis) = text.strip_suffix('m') {
                    return millis.parse().ok();
                }
                let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
                let thousandths: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
                whole.parse::<i64>().ok()?.checked_mul(1_000)?.checked_add(thousandths)
            }
        }
    }
}

impl JsonSchema for Decimal {
    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": 1_000_000_000_000_i64,
            "maxLength": 16,
            "pattern": "^[0-9]+(m|\\.[0-9]{1,3})?$",
        })
    }
}

fn one() -> i32 {
    1
}

fn minute() -> i32 {
    60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let cases =
            [("1", 1_000), ("0.5", 500), ("500m", 500), ("12.25", 12_250), ("0.005", 5), ("7.1", 7_100)];
        for (text, millis) in cases {
            assert_eq!(Decimal::Text(text.into()).millis(), Some(millis), "{text}");
        }
        assert_eq!(Decimal::Whole(3).millis(), Some(3_000));
        assert_eq!(Decimal::Whole(i64::MAX).millis(), None);
        assert_eq!(Decimal::Text("9999999999999999999".into()).millis(), None);
        assert_eq!(Decimal::Text("x".into()).millis(), None);
    }
}
