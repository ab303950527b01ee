//! The fields that the server writes into an object before validation.
//!
//! Which part of an object a request may change is the same for most kinds: `status` only at its own place, everything
//! else only at the other.
use serde_json::{Value, json};

use super::{BuiltIn, Generation, defaults, pod, service, structs};

/// Completes a new object. `now` is the time as Kubernetes prints it.
pub fn prepare_create(kind: &BuiltIn, object: &mut Value, now: &str) {
    if kind.generation != Generation::Unused {
        object["metadata"]["generation"] = json!(1);
    }
    match kind.go {
        "core/v1.Pod" => pod::prepare_create(object, now),
        "core/v1.Namespace" => {
            object["status"] = json!({ "phase": "Active" });
            require_finalizer(object);
        }
        // A node is created by the kubelet that knows its status.
        "core/v1.Node" => {}
        "apiextensions/v1.CustomResourceDefinition" => {
            reset_status(kind, object);
            remember_storage_version(object);
        }
        "core/v1.PersistentVolumeClaim" => {
            object["status"] = json!({ "phase": "Pending" });
            mirror_data_source(object);
        }
        "core/v1.Service" => {
            reset_status(kind, object);
            service::complete(None, object);
        }
        "discovery/v1.EndpointSlice" => drop_topology(object),
        "coordination/v1.Lease" => drop_election(object),
        _ => reset_status(kind, object),
    }
}

/// Completes an object that replaces `old`.
pub fn prepare_update(kind: &BuiltIn, old: &Value, new: &mut Value) {
    restore(new, old, "/metadata", "generation");
    if has_status(kind) {
        restore(new, old, "", "status");
    }
    match kind.go {
        "core/v1.Pod" => pod::prepare_update(old, new),
        "core/v1.Namespace" => restore(new, old, "/spec", "finalizers"),
        "core/v1.PersistentVolumeClaim" => mirror_data_source(new),
        "core/v1.Service" => service::complete(Some(old), new),
        "discovery/v1.EndpointSlice" => drop_topology(new),
        "coordination/v1.Lease" => drop_election(new),
        "apiextensions/v1.CustomResourceDefinition" => remember_storage_version(new),
        _ => {}
    }
    let changed = match kind.generation {
        Generation::Unused => false,
        Generation::Spec => old["spec"] != new["spec"],
        Generation::Content => content_changed(old, new),
    };
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Completes an object whose status replaces that of `old`.
pub fn prepare_status(kind: &BuiltIn, old: &Value, new: &mut Value) {
    restore(new, old, "/metadata", "generation");
    restore(new, old, "", "spec");
    if kind.go == "core/v1.Pod" {
        pod::prepare_status(old, new);
    }
}

/// Completes a namespace whose finalizers replace those of `old`.
pub fn prepare_finalize(old: &Value, new: &mut Value) {
    restore(new, old, "", "status");
}

/// What can only be known once the name has been generated.
pub fn canonicalize(kind: &BuiltIn, object: &mut Value) {
    if let (Value::Object(map), "core/v1.Namespace") = (object, kind.go) {
        defaults::namespace(map);
    }
}

fn has_status(kind: &BuiltIn) -> bool {
    kind.subresources.iter().any(|sub| sub.name == "status")
}

fn reset_status(kind: &BuiltIn, object: &mut Value) {
    if let Some(field) = structs::field(kind.go, "status").filter(|_| has_status(kind)) {
        object["status"] = field.ty.zero();
    }
}

/// Puts back what was there, also if it was nothing.
pub(super) fn restore(new: &mut Value, old: &Value, parent: &str, name: &str) {
    let was = old.pointer(parent).and_then(|parent| parent.get(name)).cloned();
    let Some(Value::Object(parent)) = new.pointer_mut(parent) else { return };
    match was {
        Some(was) => parent.insert(name.to_owned(), was),
        None => parent.remove(name),
    };
}

fn require_finalizer(namespace: &mut Value) {
    let finalizer = json!("kubernetes");
    match &mut namespace["spec"]["finalizers"] {
        Value::Array(list) if list.contains(&finalizer) => {}
        Value::Array(list) => list.push(finalizer),
        none => *none = json!([finalizer]),
    }
}

fn remember_storage_version(crd: &mut Value) {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let Some(name) = versions.into_iter().find(|v| v["storage"] == true).map(|v| v["name"].clone()) else {
        return;
    };
    match &mut crd["status"]["storedVersions"] {
        Value::Array(list) if list.contains(&name) => {}
        Value::Array(list) => list.push(name),
        none => *none = json!([name]),
    }
}

/// The two ways to name the source of a claim are kept the same.
fn mirror_data_source(claim: &mut Value) {
    let spec = &mut claim["spec"];
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => spec["dataSourceRef"] = source,
        (None, Some(reference)) if reference.get("namespace").is_none() => spec["dataSource"] = reference,
        _ => {}
    }
}

/// A field of the first version of slices, which the present one does not take.
fn drop_topology(slice: &mut Value) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}

/// Coordinated leader election is off unless its feature is turned on, and its fields are not kept then.
fn drop_election(lease: &mut Value) {
    if let Some(Value::Object(spec)) = lease.get_mut("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn content_changed(old: &Value, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        map
    };
    content(old) != content(new) || old["metadata"]["labels"] != new["metadata"]["labels"]
}
