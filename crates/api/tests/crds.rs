//! The CRDs as they are today. A change that nobody meant shows up here as a diff.
//!
//! After a change that is meant: `INSTA_UPDATE=always cargo test -p api --test crds`, and read the diff.

use api::KINDS;
use serde_json::{Value, json};

/// Core types fill nine tenths of a CRD and are the same wherever they stand: each is one line here, with a hash that
/// changes when the bindings do.
fn fold_core_types(schema: &mut Value) {
    let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true));
    if let (true, Some(properties)) = (open, schema.get("properties").and_then(Value::as_object)) {
        let count = properties.len();
        let hash = fnv(&Value::Object(properties.clone()).to_string());
        schema["properties"] = json!(format!("{count} fields of a core type, {hash:016x}"));
        return;
    }
    match schema {
        Value::Object(object) => object.values_mut().for_each(fold_core_types),
        Value::Array(items) => items.iter_mut().for_each(fold_core_types),
        _ => {}
    }
}

fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn crds_change_only_on_purpose() {
    for kind in KINDS {
        let mut crd = kind.crd();
        fold_core_types(&mut crd);
        let text = serde_saphyr::to_string(&crd).unwrap();
        insta::with_settings!({snapshot_path => "crds", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(kind.singular, text);
        });
    }
}

/// Kubernetes conventions, for every field of ours: no floats, and nothing without a bound.
#[test]
fn every_list_map_and_string_of_ours_is_bounded_and_no_number_is_a_float() {
    let mut found = Vec::new();
    for kind in KINDS {
        let crd = kind.crd();
        let fields = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            unbounded(&fields[part], &format!("{} {part}", kind.name), &mut found);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn unbounded(schema: &Value, path: &str, found: &mut Vec<String>) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)) {
        return;
    }
    let has = |keyword: &str| schema.get(keyword).is_some();
    match schema.get("type").and_then(Value::as_str) {
        Some("number") => found.push(format!("{path} is a float")),
        Some("string") if !(has("maxLength") || has("enum") || has("format")) => {
            found.push(format!("{path} has no maxLength"));
        }
        Some("array") if !has("maxItems") => found.push(format!("{path} has no maxItems")),
        Some("object") if has("additionalProperties") && !has("maxProperties") => {
            found.push(format!("{path} has no maxProperties"));
        }
        _ => {}
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        unbounded(child, &format!("{path}.{name}"), found);
    }
    for (inner, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(child) = schema.get(inner) {
            unbounded(child, &format!("{path}{mark}"), found);
        }
    }
}
