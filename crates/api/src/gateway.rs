//! What kinds that route traffic say about Gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::object;

object! {
    /// Where traffic comes in. Its fields are the Gateway API's, kept as they are.
    Gateway, Value, Value, "gateway.networking.k8s.io", "v1", "gateways"
}

object! {
    /// Where HTTP goes. Its fields are the Gateway API's, kept as they are.
    HTTPRoute, Value, Value, "gateway.networking.k8s.io", "v1", "httproutes"
}

object! {
    /// Where gRPC goes. Its fields are the Gateway API's, kept as they are.
    GRPCRoute, Value, Value, "gateway.networking.k8s.io", "v1", "grpcroutes"
}

/// The parent of a route, as in a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; that of the object by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// One of its listeners; all that fit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
    /// Its listeners of one port; all that fit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Its kind; a Gateway if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Its API group; the Gateway API's if absent, the core group if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
}
