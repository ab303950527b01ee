//! The columns and the cells of the kinds that are built in.
use std::collections::BTreeSet;

use jiff::Timestamp;
use schema::quantity::canonical;
use serde_json::Value;

use super::duration::since;
use super::{Column, Print, network, pod};

/// A head: its name, and whether only the wide output shows it.
type Head = (&'static str, bool);

const SHOWN: bool = false;
const WIDE: bool = true;

pub(super) fn columns(group: &str, resource: &str) -> (Vec<Column>, Print) {
    let (heads, print): (&[Head], Print) = match (group, resource) {
        ("", "namespaces") => (&[("Name", SHOWN), ("Status", SHOWN), ("Age", SHOWN)], namespace),
        ("", "pods") => (POD, pod::print),
        ("", "services") => (SERVICE, network::service),
        ("", "configmaps") => (&[("Name", SHOWN), ("Data", SHOWN), ("Age", SHOWN)], config_map),
        ("", "secrets") => (&[("Name", SHOWN), ("Type", SHOWN), ("Data", SHOWN), ("Age", SHOWN)], secret),
        ("" | "events.k8s.io", "events") => (EVENT, event),
        ("", "nodes") => (NODE, node),
        ("", "serviceaccounts") => (&[("Name", SHOWN), ("Age", SHOWN)], name_and_age),
        ("", "endpoints") => (&[("Name", SHOWN), ("Endpoints", SHOWN), ("Age", SHOWN)], network::endpoints),
        ("", "persistentvolumeclaims") => (CLAIM, claim),
        ("discovery.k8s.io", "endpointslices") => (SLICE, network::endpoint_slice),
        ("coordination.k8s.io", "leases") => (&[("Name", SHOWN), ("Holder", SHOWN), ("Age", SHOWN)], lease),
        ("apps", "controllerrevisions") => (REVISION, revision),
        ("policy", "poddisruptionbudgets") => (BUDGET, budget),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => (BINDING, binding),
        // Roles, definitions of resources and all others.
        _ => (&[("Name", SHOWN), ("Created At", SHOWN)], name_and_creation),
    };
    (heads.iter().map(head).collect(), print)
}

pub(super) fn head(&(name, wide): &Head) -> Column {
    // As upstream has it: nearly everything is text, the counts of data and revisions among it.
    let ty = match name {
        "Created At" => "date",
        "Allowed Disruptions" => "integer",
        _ => "string",
    };
    let format = if name == "Name" { "name" } else { "" };
    Column {
        name: name.into(),
        ty: ty.into(),
        format: format.into(),
        description: String::new(),
        priority: i64::from(wide),
    }
}

const POD: &[Head] = &[
    ("Name", SHOWN),
    ("Ready", SHOWN),
    ("Status", SHOWN),
    ("Restarts", SHOWN),
    ("Age", SHOWN),
    ("IP", WIDE),
    ("Node", WIDE),
    ("Nominated Node", WIDE),
    ("Readiness Gates", WIDE),
];
const SERVICE: &[Head] = &[
    ("Name", SHOWN),
    ("Type", SHOWN),
    ("Cluster-IP", SHOWN),
    ("External-IP", SHOWN),
    ("Port(s)", SHOWN),
    ("Age", SHOWN),
    ("Selector", WIDE),
];
const EVENT: &[Head] = &[
    ("Last Seen", SHOWN),
    ("Type", SHOWN),
    ("Reason", SHOWN),
    ("Object", SHOWN),
    ("Subobject", WIDE),
    ("Source", WIDE),
    ("Message", SHOWN),
    ("First Seen", WIDE),
    ("Count", WIDE),
    ("Name", WIDE),
];
const NODE: &[Head] = &[
    ("Name", SHOWN),
    ("Status", SHOWN),
    ("Roles", SHOWN),
    ("Age", SHOWN),
    ("Version", SHOWN),
    ("Internal-IP", WIDE),
    ("External-IP", WIDE),
    ("OS-Image", WIDE),
    ("Kernel-Version", WIDE),
    ("Container-Runtime", WIDE),
];
const CLAIM: &[Head] = &[
    ("Name", SHOWN),
    ("Status", SHOWN),
    ("Volume", SHOWN),
    ("Capacity", SHOWN),
    ("Access Modes", SHOWN),
    ("StorageClass", SHOWN),
    ("VolumeAttributesClass", SHOWN),
    ("Age", SHOWN),
    ("VolumeMode", WIDE),
];
const SLICE: &[Head] =
    &[("Name", SHOWN), ("AddressType", SHOWN), ("Ports", SHOWN), ("Endpoints", SHOWN), ("Age", SHOWN)];
const REVISION: &[Head] = &[("Name", SHOWN), ("Controller", SHOWN), ("Revision", SHOWN), ("Age", SHOWN)];
const BUDGET: &[Head] = &[
    ("Name", SHOWN),
    ("Min Available", SHOWN),
    ("Max Unavailable", SHOWN),
    ("Allowed Disruptions", SHOWN),
    ("Age", SHOWN),
];
const BINDING: &[Head] = &[
    ("Name", SHOWN),
    ("Role", SHOWN),
    ("Age", SHOWN),
    ("Users", WIDE),
    ("Groups", WIDE),
    ("ServiceAccounts", WIDE),
];

/// The text at a pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn count(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(text(object, "/metadata/creationTimestamp"), now).into()
}

fn or(text: &str, otherwise: &str) -> Value {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

pub(super) fn or_none(text: &str) -> Value {
    or(text, "<none>")
}

fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

fn name_and_creation(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/metadata/creationTimestamp").into()]
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/status/phase").into(), age(object, now)]
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), (count(object, "/data") + count(object, "/binaryData")).into(), age(object, now)]
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/type").into(), count(object, "/data").into(), age(object, now)]
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now)]
}

/// The cells are the same in the form of either group.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut core = object.clone();
    if object.get("regarding").is_some() {
        crate::builtin::event_to_core(&mut core);
    }
    let object = &core;
    let first_of = |a: &'static str, b: &'static str| {
        let first = text(object, a);
        if first.is_empty() { text(object, b) } else { first }
    };
    let first = since(first_of("/firstTimestamp", "/eventTime"), now);
    let last = match (object.get("series"), text(object, "/lastTimestamp")) {
        (Some(Value::Object(_)), _) => since(text(object, "/series/lastObservedTime"), now),
        (_, "") => first.clone(),
        (_, last) => since(last, now),
    };
    let counted = object.pointer("/series/count").or_else(|| object.get("count")).and_then(Value::as_i64);
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let target = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = first_of("/source/component", "/reportingComponent");
    let source = match first_of("/source/host", "/reportingInstance") {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        last.into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        text(object, "/involvedObject/fieldPath").into(),
        source.into(),
        text(object, "/message").trim().into(),
        first.into(),
        counted.filter(|count| *count != 0).unwrap_or(1).into(),
        name(object),
    ]
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions").iter().rfind(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(ready) if ready["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".into(),
        None => "Unknown".into(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status += ",SchedulingDisabled";
    }
    let info = |field: &str| text(object, &format!("/status/nodeInfo/{field}"));
    let kernel = or(info("kernelVersion"), "<unknown>");
    let kernel = match (info("architecture"), kernel.as_str().unwrap_or_default()) {
        ("", kernel) => kernel.to_owned(),
        (architecture, kernel) => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        status.into(),
        or_none(&roles(object)),
        age(object, now),
        info("kubeletVersion").into(),
        address(object, "InternalIP"),
        address(object, "ExternalIP"),
        or(info("osImage"), "<unknown>"),
        kernel.into(),
        or(info("containerRuntimeVersion"), "<unknown>"),
    ]
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address(node: &Value, ty: &str) -> Value {
    let found = list(node, "/status/addresses").iter().find(|address| address["type"] == ty);
    found.map_or_else(|| "<none>".into(), |address| text(address, "/address").into())
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() { (String::new(), String::new()) } else { bound(object) };
    let annotated = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    let class = object.pointer(annotated).or_else(|| object.pointer("/spec/storageClassName"));
    vec![
        name(object),
        if deleting { "Terminating" } else { text(object, "/status/phase") }.into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class.and_then(Value::as_str).unwrap_or_default().into(),
        or(text(object, "/spec/volumeAttributesClassName"), "<unset>"),
        age(object, now),
        or(text(object, "/spec/volumeMode"), "<unset>"),
    ]
}

/// The capacity and the access modes of a bound claim.
fn bound(claim: &Value) -> (String, String) {
    let capacity = claim.pointer("/status/capacity/storage").unwrap_or(&Value::Null);
    let modes = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| list(claim, "/status/accessModes").iter().any(|m| m == mode);
    let modes: Vec<_> = modes.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    (canonical(capacity).unwrap_or_default(), modes.join(","))
}

fn revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = list(object, "/metadata/ownerReferences");
    let owner = owners.iter().find(|owner| owner["controller"] == true).map(|owner| {
        let kind = text(owner, "/kind").to_lowercase();
        match text(owner, "/apiVersion").split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "/name")),
            None => format!("{kind}/{}", text(owner, "/name")),
        }
    });
    let number = object.get("revision").cloned().unwrap_or_else(|| 0.into());
    vec![name(object), owner.unwrap_or_else(|| "<none>".into()).into(), number, age(object, now)]
}

fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |pointer: &str| match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "N/A".into(),
    };
    let allowed = object.pointer("/status/disruptionsAllowed").and_then(Value::as_i64);
    vec![
        name(object),
        bound("/spec/minAvailable").into(),
        bound("/spec/maxUnavailable").into(),
        allowed.unwrap_or_default().into(),
        age(object, now),
    ]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let subjects = list(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
        let named = subjects.map(|subject| match text(subject, "/namespace") {
            "" => text(subject, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "/name")),
        });
        named.collect::<Vec<_>>().join(", ")
    };
    vec![
        name(object),
        format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into(),
        age(object, now),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}
