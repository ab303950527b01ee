//! Patches as a real kube-apiserver 1.36 answers them: the files next to this one hold a pod template, patches of it
//! and what became of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use apiserver::patch::{PatchError, json, merge, strategic, unknown_fields};
use apiserver::type_schema::TypeSchema;
use proptest::prelude::*;
use serde_json::{Map, Value, json as j};

const DEFINITIONS: &str = include_str!("../src/builtin/schemas.json");

/// The shape of a pod, whose metadata and spec are those of a pod template.
fn pod() -> TypeSchema {
    let definitions: Map<String, Value> = serde_json::from_str(DEFINITIONS).unwrap();
    TypeSchema::new(&j!({"$ref": "#/components/schemas/io.k8s.api.core.v1.Pod"}), &definitions)
}

fn check(recorded: &str, apply: impl Fn(&Value, &Value) -> Result<Value, PatchError>) {
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    for case in recorded["cases"].as_array().unwrap() {
        let got = apply(&recorded["doc"], &case["patch"]);
        match (got, case.get("changed")) {
            (Ok(got), Some(changed)) => {
                let mut want = recorded["doc"].clone();
                for (path, value) in changed.as_object().unwrap() {
                    let (group, name) = path.split_once('.').unwrap();
                    want[group][name] = value.clone();
                }
                assert_eq!(as_kept(got), as_kept(want), "{}", case["patch"]);
            }
            (Err(error), None) => {
                let got = (u64::from(error.code()), error.reason().into(), error.message().into());
                let want = (case["code"].as_u64().unwrap(), case["reason"].clone(), case["message"].clone());
                assert_eq!(got, want, "{}", case["patch"]);
            }
            (got, _) => panic!("{}: {got:?}, wanted {case}", case["patch"]),
        }
    }
}

/// Typed objects lose what is empty when they are stored.
fn as_kept(mut doc: Value) -> Value {
    let empty = |value: &Value| *value == Value::Null || *value == j!({}) || *value == j!([]);
    for group in ["metadata", "spec"] {
        doc[group].as_object_mut().unwrap().retain(|_, value| !empty(value));
    }
    without_nulls(doc)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

#[test]
fn json_patches_end_as_on_a_real_server() {
    check(include_str!("patch/json.json"), json);
}

#[test]
fn merge_patches_end_as_on_a_real_server() {
    check(include_str!("patch/merge.json"), merge);
}

#[test]
fn strategic_patches_end_as_on_a_real_server() {
    let pod = pod();
    check(include_str!("patch/strategic.json"), |doc, patch| strategic(doc, patch, pod.root()));
}

#[test]
fn what_is_no_patch_is_refused_in_the_words_of_a_real_server() {
    let doc = j!({"a": 1});
    let message = |result: Result<Value, PatchError>| result.unwrap_err().message();
    assert_eq!(
        message(json(&doc, &j!({}))),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    assert_eq!(
        message(merge(&doc, &j!([]))),
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
    assert_eq!(message(merge(&doc, &Value::Null)), "Invalid JSON Patch");
    assert_eq!(
        message(strategic(&doc, &j!(1), pod().root())),
        "json: cannot unmarshal number into Go value of type map[string]interface {}"
    );
    assert_eq!(json(&doc, &Value::Null).unwrap(), doc);
    assert_eq!(strategic(&doc, &Value::Null, pod().root()).unwrap(), doc);
}

#[test]
fn a_finalizer_is_added_where_none_were() {
    let patch = j!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
    ]);
    let doc = j!({"metadata": {"name": "x"}});
    assert_eq!(json(&doc, &patch).unwrap(), j!({"metadata": {"name": "x", "finalizers": ["a/b"]}}));
}

#[test]
fn a_copy_of_nothing_is_null() {
    let patch = j!([{"op": "copy", "from": "/b", "path": "/c"}]);
    assert_eq!(json(&j!({"a": 1}), &patch).unwrap(), j!({"a": 1, "c": null}));
}

#[test]
fn the_whole_document_is_replaced_by_an_object_or_a_list_only() {
    let replace = |value: Value| json(&j!({"a": 1}), &j!([{"op": "replace", "path": "", "value": value}]));
    assert_eq!(replace(j!({"b": 2})).unwrap(), j!({"b": 2}));
    assert_eq!(replace(j!([])).unwrap(), j!([]));
    assert_eq!(replace(j!(1)).unwrap_err().code(), 422);
}

#[test]
fn fields_that_mean_nothing_are_named() {
    let patch = j!([{"op": "move", "from": "/a", "path": "/b", "zork": 1}]);
    assert_eq!(unknown_fields(&patch), ["json patch unknown field \"[0].zork\""]);
}

#[test]
fn more_than_ten_thousand_operations_are_refused() {
    let test = j!({"op": "test", "path": "/a", "value": 1});
    let error = json(&j!({"a": 1}), &Value::Array(vec![test.clone(); 10_001])).unwrap_err();
    assert_eq!((error.code(), error.reason()), (413, "RequestEntityTooLarge"));
    assert_eq!(
        error.message(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    assert!(json(&j!({"a": 1}), &Value::Array(vec![test; 10_000])).is_ok());
}

#[test]
fn copies_do_not_fill_the_memory() {
    let double: Vec<Value> =
        (0..40).map(|n| j!({"op": "copy", "from": "/d", "path": format!("/d/x{n}")})).collect();
    assert_eq!(json(&j!({"d": {"k": "v"}}), &Value::Array(double)).unwrap_err().code(), 422);
    let wide: Vec<Value> =
        (0..40).map(|n| j!({"op": "copy", "from": "/d", "path": format!("/e{n}")})).collect();
    let large = "x".repeat(100_000);
    assert_eq!(json(&j!({"d": large}), &Value::Array(wide)).unwrap_err().code(), 422);
}

#[test]
fn no_patch_digs_deeper_than_a_parser_reads() {
    // Each operation puts another level below the last.
    let dig = |levels: usize| {
        (0..levels).map(|n| j!({"op": "add", "path": "/a".repeat(n + 1), "value": {}})).collect::<Value>()
    };
    assert!(json(&j!({}), &dig(90)).is_ok());
    assert_eq!(json(&j!({}), &dig(110)).unwrap_err().code(), 422);
}

#[test]
fn a_merge_patch_prunes_nulls_where_nothing_was() {
    let patch = j!({"a": {"b": null, "c": [{"d": null}, null]}, "o": [{"d": null}]});
    assert_eq!(merge(&j!({"o": {}}), &patch).unwrap(), j!({"a": {"c": [{}, null]}, "o": [{"d": null}]}));
}

fn operation() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    let path = "(/(a|b|l|0|1|-1|-|~1)){0,4}";
    let value = prop::sample::select(vec![j!(null), j!(1), j!({"a": {"b": []}}), j!([1, {"a": 2}])]);
    (op, path, path, value)
        .prop_map(|(op, path, from, value)| j!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #[test]
    fn no_operation_does_harm(operations in prop::collection::vec(operation(), 0..20)) {
        let doc = j!({"a": {"b": [1, 2]}, "l": [{"a": 1}, []]});
        if let Err(error) = json(&doc, &Value::Array(operations)) {
            prop_assert_eq!(error.code(), 422);
        }
    }
}
