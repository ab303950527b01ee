//! The validation of the built-in kinds other than pods and services, and which rules each kind has.
use std::{collections::HashSet, net::IpAddr};

use serde_json::{Value, json};

use super::{
    BuiltIn, NameRule, address, base64,
    cause::{Cause, each},
    events, meta, names, pod, rbac, service,
};

const MOST_DATA: usize = 1024 * 1024;

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map_or(&[], Vec::as_slice)
}

/// What is wrong with a new object, its metadata apart ([`meta::validate_meta`]).
pub fn validate_create(kind: &BuiltIn, object: &Value) -> Vec<Cause> {
    let mut causes = finalizers(kind, object);
    causes.extend(match kind.go {
        "core/v1.Pod" => pod::validate(object),
        "core/v1.Event" => events::validate(object, "reportingComponent"),
        "events/v1.Event" => events::validate_new(object),
        _ => validate(kind, object, None),
    });
    causes
}

/// Kinds whose metadata is validated by the general rules only.
const PLAIN_META: &[&str] = &[
    "core/v1.Event",
    "policy/v1.PodDisruptionBudget",
    "coordination/v1.Lease",
    "apiextensions/v1.CustomResourceDefinition",
];

fn finalizers(kind: &BuiltIn, object: &Value) -> Vec<Cause> {
    if PLAIN_META.contains(&kind.go) { Vec::new() } else { meta::bare_finalizers(object) }
}

/// What is wrong with an object that replaces `old`, its metadata apart.
pub fn validate_update(kind: &BuiltIn, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = finalizers(kind, new);
    causes.extend(match kind.go {
        "core/v1.Pod" => pod::validate_update(new, old),
        "core/v1.Event" => events::validate(new, "reportingComponent"),
        "events/v1.Event" => events::validate_change(new, old),
        _ => validate(kind, new, Some(old)),
    });
    causes
}

/// What is wrong with a status that replaces that of `old`.
pub fn validate_status(kind: &BuiltIn, _old: &Value, new: &Value) -> Vec<Cause> {
    match kind.go {
        "core/v1.Service" => service::validate_status(new),
        _ => Vec::new(),
    }
}

fn validate(kind: &BuiltIn, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    match kind.go {
        "core/v1.Service" => service::validate(new, old),
        "core/v1.ConfigMap" => config_map(new, old),
        "core/v1.Secret" => secret(new, old),
        "core/v1.Namespace" => namespace(new),
        "coordination/v1.Lease" => lease(new),
        "discovery/v1.EndpointSlice" => slice(new, old),
        "apps/v1.ControllerRevision" => revision(new, old),
        "policy/v1.PodDisruptionBudget" => budget(new),
        "core/v1.PersistentVolumeClaim" => claim(new, old),
        "apiextensions/v1.CustomResourceDefinition" => definition(new),
        "rbac/v1.Role" | "rbac/v1.ClusterRole" => rbac::role(kind, new),
        "rbac/v1.RoleBinding" | "rbac/v1.ClusterRoleBinding" => rbac::binding(kind, new, old),
        _ => Vec::new(),
    }
}

fn keys<'a>(object: &'a Value, field: &'a str) -> impl Iterator<Item = (String, &'a String)> {
    let entries = object[field].as_object().into_iter().flatten();
    entries.map(move |(key, _)| (format!("{field}[{key}]"), key))
}

fn unchangeable(new: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<Cause> {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return Vec::new() };
    let loosened = new["immutable"] != true;
    let changed = fields.iter().filter(|field| new[**field] != old[**field]).copied();
    let fields = loosened.then_some("immutable").into_iter().chain(changed);
    fields.map(|field| Cause::forbidden(field, "field is immutable when `immutable` is set")).collect()
}

fn config_map(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = unchangeable(new, old, &["data", "binaryData"]);
    for (field, key) in keys(new, "data") {
        causes.extend(each(&field, key, names::config_key(key)));
        if new["binaryData"].get(key).is_some() {
            causes.push(Cause::invalid(field, &json!(key), "duplicate of key present in binaryData"));
        }
    }
    causes.extend(
        keys(new, "binaryData")
            .flat_map(|(field, key)| each(&field, key, names::config_key(key)).collect::<Vec<_>>()),
    );
    let size = |field: &str, of: fn(&str) -> usize| -> usize {
        let values = new[field].as_object().into_iter().flatten();
        values.map(|(_, value)| of(value.as_str().unwrap_or_default())).sum()
    };
    if size("data", str::len) + size("binaryData", decoded) > MOST_DATA {
        causes.push(Cause::too_long("", MOST_DATA));
    }
    causes
}

fn decoded(text: &str) -> usize {
    base64::decode(text).map_or(0, |bytes| bytes.len())
}

/// What a secret of a type must hold.
const SECRETS: &[(&str, &[&str])] = &[
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
];

fn secret(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_some_and(|old| old["type"] != new["type"]) {
        causes.push(Cause::immutable("type", &new["type"]));
    }
    causes.extend(unchangeable(new, old, &["data"]));
    for (field, key) in keys(new, "data") {
        causes.extend(each(&field, key, names::config_key(key)));
    }
    let values = new["data"].as_object().into_iter().flatten();
    if values.map(|(_, value)| decoded(value.as_str().unwrap_or_default())).sum::<usize>() > MOST_DATA {
        causes.push(Cause::too_long("data", MOST_DATA));
    }
    causes.extend(secret_type(new));
    causes
}

fn secret_type(secret: &Value) -> Vec<Cause> {
    let ty = text(secret, "type");
    let absent = |key: &&&str| secret["data"].get(**key).is_none();
    let missing = |keys: &[&str]| -> Vec<Cause> {
        keys.iter().filter(absent).map(|key| Cause::required(format!("data[{key}]"), "")).collect()
    };
    match ty {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let named = !text(&secret["metadata"]["annotations"], key).is_empty();
            (!named)
                .then(|| Cause::required(format!("metadata.annotations[{key}]"), ""))
                .into_iter()
                .collect()
        }
        "kubernetes.io/basic-auth" => {
            // One of the two is enough.
            let both = missing(&["username", "password"]);
            if both.len() == 2 { both } else { Vec::new() }
        }
        _ => {
            let keys = SECRETS.iter().find(|(of, _)| *of == ty).map_or(&[][..], |(_, keys)| keys);
            let mut causes = missing(keys);
            causes
                .extend(keys.iter().filter(|key| key.starts_with('.')).filter_map(|key| docker(secret, key)));
            causes
        }
    }
}

fn docker(secret: &Value, key: &str) -> Option<Cause> {
    let bytes = base64::decode(secret["data"].get(key)?.as_str()?).ok()?;
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_ok() {
        return None;
    }
    let says = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(byte) => format!("invalid character '{}' looking for beginning of value", *byte as char),
    };
    Some(Cause::invalid(format!("data[{key}]"), &json!("<secret contents redacted>"), &says))
}

fn namespace(namespace: &Value) -> Vec<Cause> {
    let finalizers = list(&namespace["spec"], "finalizers").iter().filter_map(Value::as_str);
    let judge = |name: &str| {
        let field = "spec.finalizers";
        each(field, name, names::qualified(name)).chain(meta::bare(name, field)).collect::<Vec<_>>()
    };
    finalizers.flat_map(judge).collect()
}

fn lease(lease: &Value) -> Vec<Cause> {
    let spec = &lease["spec"];
    let mut causes = Vec::new();
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        let value = &spec["leaseDurationSeconds"];
        causes.push(Cause::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|times| times < 0) {
        let says = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &spec["leaseTransitions"], says));
    }
    causes
}

fn slice(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ty = text(new, "addressType");
    let supported = ["FQDN", "IPv4", "IPv6"];
    if ty.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !supported.contains(&ty) {
        causes.push(Cause::unsupported("addressType", &new["addressType"], &supported));
    }
    causes.extend(slice_ports(list(new, "ports")));
    if old.is_none_or(|old| old["endpoints"] != new["endpoints"]) {
        causes.extend(endpoints(list(new, "endpoints"), ty));
    }
    if old.is_some_and(|old| old["addressType"] != new["addressType"]) {
        causes.push(Cause::immutable("addressType", &new["addressType"]));
    }
    causes
}

fn slice_ports(ports: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let name = text(port, "name");
        let at = |part: &str| format!("ports[{i}].{part}");
        if !name.is_empty() {
            causes.extend(each(&at("name"), name, names::label(name)));
        }
        if !seen.insert(name) {
            causes.push(Cause::duplicate(at("name"), &json!(name).to_string()));
        }
        if !matches!(text(port, "protocol"), "SCTP" | "TCP" | "UDP") {
            causes.push(Cause::unsupported(at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]));
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            causes.extend(each(&at("appProtocol"), protocol, names::qualified(protocol)));
        }
    }
    causes
}

fn endpoints(endpoints: &[Value], ty: &str) -> Vec<Cause> {
    if endpoints.len() > 1000 {
        return vec![Cause::too_many("endpoints", endpoints.len(), 1000)];
    }
    let mut causes = Vec::new();
    for (i, endpoint) in endpoints.iter().enumerate() {
        let field = format!("endpoints[{i}]");
        let addresses = list(endpoint, "addresses");
        match addresses.len() {
            0 => {
                causes.push(Cause::required(format!("{field}.addresses"), "must contain at least 1 address"));
            }
            count @ 101.. => causes.push(Cause::too_many(format!("{field}.addresses"), count, 100)),
            _ => {}
        }
        for (j, value) in addresses.iter().enumerate() {
            causes.extend(endpoint_address(value, ty, &format!("{field}.addresses"), j));
        }
        for (name, rule) in [("nodeName", NameRule::Subdomain), ("hostname", NameRule::Label)] {
            if let Some(value) = endpoint[name].as_str() {
                causes.extend(each(&format!("{field}.{name}"), value, names::of(rule, value)));
            }
        }
    }
    causes
}

fn endpoint_address(value: &Value, ty: &str, field: &str, i: usize) -> Vec<Cause> {
    let address = value.as_str().unwrap_or_default();
    let at = format!("{field}[{i}]");
    let parsed = address.parse::<IpAddr>();
    match (ty, parsed) {
        ("IPv4" | "IPv6", Err(_)) => vec![Cause::invalid(at, value, address::NOT_AN_IP)],
        ("IPv4" | "IPv6", Ok(ip)) => {
            let fits = ip.is_ipv4() == (ty == "IPv4");
            let says = format!("must be an {ty} address");
            let mut causes: Vec<Cause> =
                (!fits).then(|| Cause::invalid(field, value, &says)).into_iter().collect();
            causes.extend(address::endpoint(ip, &at, value));
            causes
        }
        ("FQDN", _) => each(&at, address, names::subdomain(address.trim_end_matches('.'))).collect(),
        _ => Vec::new(),
    }
}

fn revision(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if new["revision"].as_i64().is_some_and(|revision| revision < 0) {
        let says = "must be greater than or equal to 0";
        causes.push(Cause::invalid("revision", &new["revision"], says));
    }
    if new["data"].is_null() {
        causes.push(Cause::required("data", "data is mandatory"));
    }
    if old.is_some_and(|old| old["data"] != new["data"]) {
        causes.push(Cause::immutable("data", &new["data"]));
    }
    causes
}

fn budget(budget: &Value) -> Vec<Cause> {
    let spec = &budget["spec"];
    let mut causes = Vec::new();
    if let (Some(least), Some(most)) = (spec.get("minAvailable"), spec.get("maxUnavailable")) {
        let nothing = |name: &str| spec.get(name).cloned().unwrap_or_default();
        let printed = format!(
            r#"{{"MinAvailable":{least},"Selector":{},"MaxUnavailable":{most},"UnhealthyPodEvictionPolicy":{}}}"#,
            nothing("selector"),
            nothing("unhealthyPodEvictionPolicy")
        );
        causes.push(Cause::invalid_text(
            "spec",
            &printed,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        let field = format!("spec.{name}");
        match &spec[name] {
            Value::String(share) => {
                causes.extend(names::percent(share).map(|says| Cause::invalid(field, &json!(share), &says)));
            }
            count if count.as_i64().is_some_and(|n| n < 0) => {
                causes.push(Cause::invalid(field, count, "must be greater than or equal to 0"));
            }
            _ => {}
        }
    }
    causes.extend(meta::labels(&spec["selector"]["matchLabels"], "spec.selector.matchLabels"));
    for (i, expression) in list(&spec["selector"], "matchExpressions").iter().enumerate() {
        if !matches!(text(expression, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist") {
            let field = format!("spec.selector.matchExpressions[{i}].operator");
            causes.push(Cause::invalid(field, &expression["operator"], "not a valid selector operator"));
        }
    }
    causes
}

fn claim(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &new["spec"];
    let mut causes = Vec::new();
    if let Some(old) = old {
        let fixed = |claim: &Value| {
            let mut spec = claim["spec"].as_object().cloned().unwrap_or_default();
            spec.retain(|name, _| {
                !matches!(name.as_str(), "resources" | "volumeAttributesClassName" | "volumeName")
            });
            spec
        };
        if fixed(old) != fixed(new) {
            let says = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                        bound claims";
            causes.push(Cause::forbidden("spec", says));
        }
    }
    if list(spec, "accessModes").is_empty() {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if spec["resources"]["requests"].get("storage").is_none() {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
    causes
}

/// The violations of a definition outside its schemas, which are checked when the kind is installed.
fn definition(crd: &Value) -> Vec<Cause> {
    let spec = &crd["spec"];
    let mut causes = Vec::new();
    if text(&crd["metadata"], "name") != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"))
    {
        let says = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &crd["metadata"]["name"], says));
    }
    if !matches!(text(spec, "scope"), "Cluster" | "Namespaced") {
        causes.push(Cause::unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]));
    }
    let versions = list(spec, "versions");
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let says = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(versions), says));
        causes.push(Cause::invalid(
            "status.storedVersions",
            &Value::Null,
            "must have at least one stored version",
        ));
    }
    for (i, version) in versions.iter().enumerate() {
        if version["schema"].get("openAPIV3Schema").is_none() {
            causes.push(Cause::required(format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
        }
    }
    causes
}
