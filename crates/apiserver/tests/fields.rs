//! Ownership of fields, against recordings of what kube-apiserver does.
#![allow(clippy::unwrap_used, clippy::panic)]
use apiserver::managed_fields::{ApplyError, Manager, Reset, apply, update};
use apiserver::type_schema::TypeSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A sequence of writes to one object.
#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    /// The server fills in fields that were not sent.
    #[serde(default)]
    defaults: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    apply: Option<Writer>,
    create: Option<Writer>,
    update: Option<Writer>,
    merge: Option<Writer>,
    sent: Value,
    #[serde(default)]
    stored: Value,
    #[serde(default)]
    owners: Vec<Value>,
    message: Option<String>,
    #[serde(default)]
    causes: Vec<Value>,
    code: Option<u16>,
}

#[derive(Deserialize)]
struct Writer {
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    force: bool,
}

fn type_schema(kind: &str) -> TypeSchema {
    let definitions: Map<String, Value> =
        serde_json::from_str(include_str!("../src/builtin/schemas.json")).unwrap();
    match kind {
        "Widget" => {
            let schema: Value = serde_saphyr::from_str(include_str!("fields/widget.schema.yaml")).unwrap();
            TypeSchema::new(&schema, &definitions)
        }
        "Lease" => TypeSchema::new(&definitions["io.k8s.api.coordination.v1.Lease"], &definitions),
        _ => TypeSchema::new(&definitions[&format!("io.k8s.api.core.v1.{kind}")], &definitions),
    }
}

fn reset(kind: &str, subresource: &str) -> Reset {
    match (kind, subresource) {
        ("ConfigMap" | "Lease", _) => Reset::Nothing,
        (_, "") => Reset::Status,
        ("Widget", _) => Reset::MetadataAndSpec,
        ("Pod", _) => Reset::SpecAndOwners,
        _ => Reset::Spec,
    }
}

fn with_owners(object: &Value, owners: Option<&Value>) -> Value {
    let mut object = object.clone();
    if let (Some(metadata), Some(owners)) = (object["metadata"].as_object_mut(), owners) {
        metadata.insert("managedFields".to_owned(), owners.clone());
    }
    object
}

fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

/// What the endpoint writes.
fn visible(mut object: Value, reset: Reset) -> Value {
    match reset {
        Reset::Nothing => object,
        Reset::Status => {
            object.as_object_mut().unwrap().remove("status");
            object
        }
        _ => json!({"status": object["status"]}),
    }
}

/// A widget without what is empty and without its only default.
fn plain(value: &Value) -> Value {
    let empty = |v: &Value| v.is_null() || *v == json!({}) || *v == json!([]);
    match value {
        Value::Object(map) => {
            let plain = map.iter().map(|(name, v)| (name.clone(), plain(v)));
            Value::Object(plain.filter(|(name, v)| !empty(v) && (name != "protocol" || v != "TCP")).collect())
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// Everything of `part` is in `whole`; what is null or empty in the one need not be in the other.
fn contained(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(k, v)| {
            v.is_null() || v == &json!({}) || v == &json!([]) || whole.get(k).is_some_and(|w| contained(v, w))
        }),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(p, w)| contained(p, w))
        }
        _ => part == whole,
    }
}

fn run(case: &Case) {
    let type_schema = type_schema(&case.kind);
    let mut live: Option<Value> = None;
    for (i, step) in case.steps.iter().enumerate() {
        let place = format!("{}, step {i}", case.name);
        let now = format!("2026-01-01T00:00:{i:02}Z");
        let writer =
            [&step.apply, &step.create, &step.update, &step.merge].into_iter().flatten().next().unwrap();
        let api_version = match case.kind.as_str() {
            "Widget" => "fields.segue.dev/v1",
            "Lease" => "coordination.k8s.io/v1",
            _ => "v1",
        };
        let manager = Manager { name: &writer.manager, api_version, subresource: &writer.subresource };
        let reset = reset(&case.kind, &writer.subresource);
        let result = if step.apply.is_some() {
            apply(type_schema.root(), live.as_ref(), &step.sent, &manager, reset, writer.force, &now)
        } else {
            let new = with_owners(&step.stored, step.sent.pointer("/metadata/managedFields"));
            Ok(update(type_schema.root(), live.as_ref(), new, &manager, reset, &now))
        };
        match result {
            Ok(object) => {
                assert_eq!(step.message, None, "{place}: was to be refused");
                let owners = object.pointer("/metadata/managedFields").cloned().unwrap_or_else(|| json!([]));
                assert_eq!(owners, json!(step.owners), "{place}: owners");
                let object = without_owners(&object);
                let (object, stored) = (visible(object, reset), visible(step.stored.clone(), reset));
                let fits = match (case.defaults, case.kind.as_str()) {
                    (true, "Widget") => plain(&object) == plain(&stored),
                    (true, _) => contained(&object, &stored),
                    (false, _) => object == stored,
                };
                assert!(fits, "{place}: {object}\nis not {stored}");
                live =
                    Some(with_owners(&step.stored, Some(&json!(step.owners)).filter(|o| **o != json!([]))));
            }
            Err(error) => refused(&place, step, &error),
        }
    }
}

fn refused(place: &str, step: &Step, error: &ApplyError) {
    assert_eq!(Some(error.to_string()), step.message, "{place}");
    let (code, causes) = match error {
        ApplyError::Conflicts(conflicts) => (409, conflicts.causes()),
        ApplyError::BadRequest(_) => (400, vec![]),
        ApplyError::Untyped { .. } | ApplyError::ManagedFields(_) => (500, vec![]),
    };
    assert_eq!(Some(code), step.code, "{place}");
    // Upstream names the managers in any order.
    let sorted = |causes: &[Value]| {
        let mut causes: Vec<String> = causes.iter().map(Value::to_string).collect();
        causes.sort();
        causes
    };
    assert_eq!(sorted(&causes), sorted(&step.causes), "{place}");
}

fn run_all(text: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(text).unwrap();
    let mut failed = Vec::new();
    for case in &cases {
        if let Err(problem) = std::panic::catch_unwind(|| run(case)) {
            failed.push(problem.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n\n"));
}

#[test]
fn applies_and_updates_own_what_they_write() {
    run_all(include_str!("fields/apply.yaml"));
}

#[test]
fn lists_and_maps_are_owned_as_their_schema_says() {
    run_all(include_str!("fields/lists.yaml"));
}

#[test]
fn whatever_is_written_is_owned_as_upstream_owns_it() {
    run_all(include_str!("fields/random.yaml"));
}

#[test]
fn each_endpoint_owns_its_part() {
    run_all(include_str!("fields/paths.yaml"));
}
