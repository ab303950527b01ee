//! Laws of ownership that hold for any object.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::sync::LazyLock;

use apiserver::managed_fields::{Manager, Reset, apply, update};
use apiserver::type_schema::TypeSchema;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:00:01Z";

fn type_schema() -> &'static TypeSchema {
    static WIDGET: LazyLock<TypeSchema> = LazyLock::new(|| {
        let schema: Value = serde_saphyr::from_str(include_str!("fields/widget.schema.yaml")).unwrap();
        TypeSchema::new(&schema, &Map::new())
    });
    &WIDGET
}

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "fields.segue.dev/v1", subresource: "" }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", Just("x\"<y>".to_owned())]
}

fn table() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(text(), text(), 1..3).prop_map(|m| json!(m))
}

fn set() -> impl Strategy<Value = Value> {
    prop::collection::btree_set(text(), 1..4).prop_map(|s| json!(s))
}

fn part() -> impl Strategy<Value = Value> {
    (prop::option::of(text()), prop::option::of(table())).prop_map(|(image, env)| {
        let mut part = json!({});
        if let Some(image) = image {
            part["image"] = json!(image);
        }
        if let Some(env) = env {
            part["env"] = env;
        }
        part
    })
}

fn parts() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(text(), part(), 1..4).prop_map(|parts| {
        let named = parts.into_iter().map(|(name, mut part)| {
            part["name"] = json!(name);
            part
        });
        Value::Array(named.collect())
    })
}

fn free() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("t")), Just(json!([1, {"a": 2}])), Just(json!(true))];
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 1..3).prop_map(|m| json!(m))
    });
    prop::collection::btree_map("[a-c]", tree, 1..3).prop_map(|m| json!(m))
}

/// A widget with some of its fields.
fn config() -> impl Strategy<Value = Value> {
    let fields = (
        prop::option::of((0..3i64).prop_map(|n| json!(n))),
        prop::option::of(table()),
        prop::option::of(table()),
        prop::option::of(set()),
        prop::option::of(set()),
        prop::option::of(parts()),
        prop::option::of(free()),
        prop::option::of(table()),
    );
    fields.prop_map(|(size, table, whole, tags, order, parts, free, labels)| {
        let fields = [
            ("size", size),
            ("table", table),
            ("wholeTable", whole),
            ("tags", tags),
            ("order", order),
            ("parts", parts),
            ("free", free),
        ];
        let spec: Map<String, Value> =
            fields.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?))).collect();
        let mut object = object(&json!({}));
        if !spec.is_empty() {
            object["spec"] = Value::Object(spec);
        }
        if let Some(labels) = labels {
            object["metadata"]["labels"] = labels;
        }
        object
    })
}

fn object(spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "fields.segue.dev/v1", "kind": "Widget", "metadata": {"name": "x", "namespace": "n"}});
    if *spec != json!({}) {
        object["spec"] = spec.clone();
    }
    object
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v)));
            Value::Object(kept.filter(|(_, v)| *v != json!({})).collect())
        }
        other => other.clone(),
    }
}

fn owners(object: &Value) -> &[Value] {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn forced(type_schema: &TypeSchema, live: Option<&Value>, config: &Value, name: &str, now: &str) -> Value {
    apply(type_schema.root(), live, config, &manager(name), Reset::Status, true, now).unwrap()
}

/// Every leaf of an object is in someone's set: the entries are followed by name, by key and by value.
fn covered(value: &Value, sets: &[&Value]) -> bool {
    let below = |key: &str| -> Vec<&Value> { sets.iter().filter_map(|set| set.get(key)).collect() };
    // A set with nothing below, or one that says so, owns the place itself.
    let owned = sets.iter().any(|s| s.get(".").is_some() || s.as_object().is_some_and(Map::is_empty));
    match value {
        Value::Object(map) => {
            let whole = sets.iter().any(|s| s.as_object().is_some_and(Map::is_empty));
            whole || map.iter().all(|(name, v)| covered(v, &below(&format!("f:{name}"))))
        }
        Value::Array(items) => owned || items.iter().all(|item| item_covered(item, &below)),
        _ => owned,
    }
}

fn item_covered<'v>(item: &Value, below: &impl Fn(&str) -> Vec<&'v Value>) -> bool {
    let escape = |text: &str| text.replace('<', "\\u003c").replace('>', "\\u003e");
    match item.get("name") {
        Some(name) => covered(item, &below(&format!("k:{{\"name\":{}}}", escape(&name.to_string())))),
        None => !below(&format!("v:{}", escape(&item.to_string()))).is_empty(),
    }
}

fn all_covered(object: &Value) -> bool {
    let sets: Vec<&Value> = owners(object).iter().map(|entry| &entry["fieldsV1"]).collect();
    let mut fields = bare(object);
    for name in ["apiVersion", "kind"] {
        fields.as_object_mut().unwrap().remove(name);
    }
    for name in ["name", "namespace"] {
        fields["metadata"].as_object_mut().unwrap().remove(name);
    }
    covered(&fields, &sets)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn applying_again_changes_nothing(first in config(), second in config()) {
        let type_schema = type_schema();
        let live = forced(type_schema, None, &first, "one", NOW);
        let live = forced(type_schema, Some(&live), &second, "two", NOW);
        let again = forced(type_schema, Some(&live), &second, "two", LATER);
        prop_assert_eq!(again, live);
    }

    #[test]
    fn applying_nothing_removes_what_was_owned_alone(first in config(), second in config()) {
        let type_schema = type_schema();
        let alone = forced(type_schema, None, &first, "one", NOW);
        let both = forced(type_schema, Some(&alone), &second, "two", NOW);
        let rest = forced(type_schema, Some(&both), &object(&json!({})), "two", LATER);
        prop_assert!(owners(&rest).iter().all(|entry| entry["manager"] == "one"));
        // Nothing that the other owns went, and nothing that no one owns stayed.
        let of_one = |object: &Value| owners(object).iter().find(|e| e["manager"] == "one").map(|e| e["fieldsV1"].clone());
        prop_assert_eq!(of_one(&rest), of_one(&both));
        prop_assert!(all_covered(&without_nulls(&rest)), "{}", rest);
        prop_assert_eq!(owners(&forced(type_schema, Some(&rest), &object(&json!({})), "one", LATER)).len(), 0);
    }

    #[test]
    fn every_field_has_an_owner(first in config(), second in config(), third in config()) {
        let type_schema = type_schema();
        let created = update(type_schema.root(), None, first, &manager("hand"), Reset::Status, NOW);
        prop_assert!(all_covered(&created), "{}", created);
        let applied = forced(type_schema, Some(&created), &second, "one", NOW);
        prop_assert!(all_covered(&without_nulls(&applied)), "{}", applied);
        let updated = update(type_schema.root(), Some(&applied), third, &manager("hand"), Reset::Status, LATER);
        prop_assert!(all_covered(&updated), "{}", updated);
    }

    #[test]
    fn owners_survive_being_written_and_read(first in config(), second in config()) {
        let type_schema = type_schema();
        let live = forced(type_schema, None, &first, "one", NOW);
        let live = forced(type_schema, Some(&live), &second, "two", NOW);
        let text = serde_json::to_string(&live).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let same = update(type_schema.root(), Some(&read), bare(&read), &manager("hand"), Reset::Status, LATER);
        prop_assert_eq!(same, live);
    }

    #[test]
    fn without_force_nothing_is_taken(first in config(), second in config()) {
        let type_schema = type_schema();
        let live = forced(type_schema, None, &first, "one", NOW);
        let before = owners(&live)[..].to_vec();
        if let Ok(merged) = apply(type_schema.root(), Some(&live), &second, &manager("two"), Reset::Status, false, LATER) {
            prop_assert!(before.iter().all(|entry| owners(&merged).contains(entry)));
        }
    }
}
