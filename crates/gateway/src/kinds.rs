//! What is read of the kinds of the Gateway API, and of Services and their endpoints.
//!
//! Types of our own, with the fields that decide something here: what is not read is not compiled, and an object with
//! a field that this version does not know is still read.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

pub const GROUP: &str = "gateway.networking.k8s.io";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    pub controller_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<ListenerSpec>,
    pub addresses: Vec<AddressSpec>,
    pub tls: GatewayTls,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GatewayTls {
    /// How clients show who they are.
    pub frontend: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AddressSpec {
    pub r#type: Option<String>,
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSpec {
    pub name: String,
    pub hostname: Option<String>,
    pub port: u16,
    pub protocol: String,
    pub allowed_routes: AllowedRoutes,
    pub tls: ListenerTls,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    pub mode: Option<String>,
    pub certificate_refs: Vec<BackendRef>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AllowedRoutes {
    pub namespaces: RouteNamespaces,
    pub kinds: Vec<RouteKind>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RouteNamespaces {
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RouteKind {
    pub group: Option<String>,
    pub kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteSpec {
    pub parent_refs: Vec<serde_json::Value>,
    pub hostnames: Vec<String>,
    pub rules: Vec<RuleSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub section_name: Option<String>,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleSpec {
    pub matches: Vec<MatchSpec>,
    pub filters: Vec<FilterSpec>,
    pub backend_refs: Vec<BackendRef>,
    pub timeouts: TimeoutSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeoutSpec {
    pub request: Option<String>,
    pub backend_request: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchSpec {
    pub path: Option<TypedValue>,
    pub headers: Vec<TypedValue>,
    pub query_params: Vec<TypedValue>,
    pub method: Option<String>,
}

/// A path, header or query parameter to match.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TypedValue {
    pub r#type: Option<String>,
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterSpec {
    pub r#type: String,
    pub request_header_modifier: Option<HeaderChange>,
    pub response_header_modifier: Option<HeaderChange>,
    pub request_redirect: Option<UrlChange>,
    pub url_rewrite: Option<UrlChange>,
    pub request_mirror: Option<MirrorSpec>,
}

/// Where requests are copied to, and how many of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MirrorSpec {
    pub backend_ref: BackendRef,
    pub percent: Option<u32>,
    pub fraction: Option<Fraction>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Fraction {
    pub numerator: u32,
    pub denominator: Option<u32>,
}

/// What a redirect or a URL rewrite changes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UrlChange {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub port: Option<u16>,
    pub path: Option<PathSpec>,
    pub status_code: Option<u16>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathSpec {
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

/// What a filter does to headers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeaderChange {
    pub set: Vec<NameValue>,
    pub add: Vec<NameValue>,
    pub remove: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NameValue {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct BackendRef {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub port: Option<u16>,
    pub weight: Option<u32>,
    pub filters: Vec<FilterSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GrantSpec {
    pub from: Vec<GrantFrom>,
    pub to: Vec<GrantTo>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GrantTo {
    pub group: String,
    pub kind: String,
    pub name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    pub r#type: Option<String>,
    pub ports: Vec<ServicePortSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortSpec {
    pub name: Option<String>,
    pub port: u16,
    pub protocol: Option<String>,
    pub app_protocol: Option<String>,
}

/// An `EndpointSlice`: its fields are at the top.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Slice {
    pub endpoints: Vec<SliceEndpoint>,
    pub ports: Vec<SlicePort>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SliceEndpoint {
    pub addresses: Vec<String>,
    pub conditions: EndpointConditions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SlicePort {
    pub name: Option<String>,
    pub port: Option<u16>,
}
