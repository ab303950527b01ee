//! The wait of an object, as in every status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wait: its reason, its subject, since when, until when, and what happens then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// Why, in a word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// For what.
    #[schemars(length(max = 512))]
    pub subject: String,
    /// The pod that it is about, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod: Option<String>,
    /// Since when.
    pub since: Time,
    /// Until when; for ever without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// What happens then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub on_expiry: Option<String>,
}
