//! The built-in kinds against what a kube-apiserver 1.36 did with the same objects.
//!
//! `builtin/cases.jsonl` holds one case a line: what was sent (with what stood there before, if it was an update) and
//! what was stored, or the causes of the refusal, or the sentence in which it could not be read. What differs from one
//! cluster to the next is taken out: identity, times, managed fields, allocated addresses, the token volume of pods.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

use apiserver::builtin::{self, BuiltIn, Cause, Need, meta, structs};
use serde_json::{Value, json};

const NOW: &str = "2020-01-01T00:00:00Z";
const NAMESPACE: &str = "builtin-cases";

#[derive(Debug, PartialEq)]
enum Outcome {
    Stored(Value),
    Refused(Vec<(String, String, String)>),
    Unreadable(String),
}

fn cases() -> Vec<Value> {
    let lines = include_str!("builtin/cases.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kind_of(case: &Value) -> &'static BuiltIn {
    let version = case["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    builtin::find(group, version, case["kind"].as_str().unwrap()).unwrap()
}

fn read(kind: &BuiltIn, sent: &Value) -> Result<(Value, Vec<String>), Outcome> {
    let mut object = sent.clone();
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    let unknown = builtin::decode(kind, &mut object).map_err(Outcome::Unreadable)?;
    builtin::default(kind, &mut object);
    if kind.namespaced {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    Ok((object, unknown))
}

fn judged(causes: Vec<Cause>) -> Result<(), Outcome> {
    let mut causes: Vec<_> = causes.into_iter().map(|c| (c.reason.to_owned(), c.field, c.message)).collect();
    causes.sort();
    if causes.is_empty() { Ok(()) } else { Err(Outcome::Refused(causes)) }
}

fn give(need: Need) -> Value {
    match need {
        Need::ClusterIp => json!("10.0.0.1"),
        Need::NodePort => json!(30000),
    }
}

fn finish(kind: &BuiltIn, mut object: Value) -> Value {
    if kind.kind == "Service" {
        assert_eq!(builtin::allocate(&mut object, &mut |need| Some(give(need))), None);
    }
    builtin::canonicalize(kind, &mut object);
    object
}

fn create(kind: &BuiltIn, sent: &Value) -> Result<(Value, Vec<String>), Outcome> {
    let (mut object, unknown) = read(kind, sent)?;
    builtin::prepare_create(kind, &mut object, NOW);
    let mut causes = meta::validate_meta(kind.name_rule, &object);
    causes.extend(builtin::validate_create(kind, &object));
    judged(causes)?;
    Ok((finish(kind, object), unknown))
}

fn update(kind: &BuiltIn, old: &Value, sent: &Value, status: bool) -> Result<(Value, Vec<String>), Outcome> {
    let (mut new, unknown) = read(kind, sent)?;
    let mut causes = meta::validate_meta_update(&new);
    if status {
        builtin::prepare_status(kind, old, &mut new);
        causes.extend(builtin::validate_status(kind, old, &new));
    } else {
        builtin::prepare_update(kind, old, &mut new);
        causes.extend(builtin::validate_update(kind, old, &new));
    }
    judged(causes)?;
    Ok((finish(kind, new), unknown))
}

/// Without what a test cannot know.
fn comparable(mut object: Value) -> Value {
    let map = object.as_object_mut().unwrap();
    map.remove("apiVersion");
    map.remove("kind");
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    object
}

/// What we refuse in other words, or not at all; see the documentation of the module.
fn with_deviations(refused: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let causes = refused.as_array().unwrap().iter().map(|c| (text(&c[0]), text(&c[1]), text(&c[2])));
    let mut causes: Vec<_> = causes.filter(|(_, _, message)| !message.contains("loopback range")).collect();
    for (_, _, message) in &mut causes {
        *message = first_line(message);
    }
    causes.sort();
    causes
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap().to_owned()
}

fn expected(case: &Value) -> Option<Outcome> {
    if let Some(stored) = case.get("stored") {
        return Some(Outcome::Stored(stored.clone()));
    }
    if let Some(error) = case["error"].as_str() {
        return Some(Outcome::Unreadable(error.to_owned()));
    }
    let causes = with_deviations(&case["refused"]);
    (!causes.is_empty()).then_some(Outcome::Refused(causes))
}

fn outcome(case: &Value) -> (Outcome, Vec<String>) {
    let kind = kind_of(case);
    let done = match case.get("before") {
        None => create(kind, &case["sent"]),
        Some(before) => {
            let (old, _) = create(kind, before).unwrap();
            update(kind, &old, &case["sent"], case["status"] == true)
        }
    };
    match done {
        Ok((object, unknown)) => (Outcome::Stored(comparable(object)), unknown),
        Err(Outcome::Refused(causes)) => {
            let causes =
                causes.into_iter().map(|(reason, field, message)| (reason, field, first_line(&message)));
            (Outcome::Refused(causes.collect()), Vec::new())
        }
        Err(outcome) => (outcome, Vec::new()),
    }
}

#[test]
fn every_object_ends_as_it_does_in_a_cluster() {
    let mut wrong = Vec::new();
    for case in cases() {
        let Some(expected) = expected(&case) else { continue };
        let (found, unknown) = outcome(&case);
        if found != expected {
            wrong.push(format!(
                "{} ({}):\n  expected {expected:?}\n  found    {found:?}",
                case["name"], case["kind"]
            ));
        }
        let mut said: Vec<&str> =
            case["unknown"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        said.sort_unstable();
        let mut unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
        unknown.sort_unstable();
        if matches!(expected, Outcome::Stored(_)) && said != unknown {
            wrong.push(format!("{}: expected {said:?}, found {unknown:?}", case["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases().len(), wrong.join("\n"));
}

#[test]
fn what_was_stored_is_stored_again_unchanged() {
    for case in cases().iter().filter(|case| case.get("stored").is_some()) {
        let kind = kind_of(case);
        let (object, unknown) = read(kind, &case["stored"]).unwrap();
        assert_eq!(comparable(object), case["stored"], "{}", case["name"]);
        assert!(unknown.is_empty(), "{}: {unknown:?}", case["name"]);
    }
}

#[test]
fn the_structs_have_the_fields_of_the_schemas() {
    for (name, schema) in builtin::DEFINITIONS.iter() {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { continue };
        // io.k8s.api.core.v1.Pod and io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta end in package, version and name.
        let parts: Vec<&str> = name.rsplitn(4, '.').collect();
        let go = format!("{}/{}.{}", parts[2], parts[1], parts[0]);
        let mut fields: Vec<&str> = structs::fields(&go).iter().map(|field| field.name).collect();
        fields.sort_unstable();
        let properties: Vec<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(fields, properties, "{name} as {go}");
    }
}

#[test]
fn every_kind_has_a_struct_and_a_schema() {
    for kind in builtin::KINDS {
        assert!(!structs::fields(kind.go).is_empty(), "{}", kind.kind);
        assert!(kind.type_schema().root().field("metadata").is_some(), "{}", kind.kind);
        assert!(kind.type_schema().root().rest().is_none(), "{}", kind.kind);
    }
}

#[test]
fn loopback_is_an_address_here() {
    let slice = json!({
        "metadata": { "name": "local" },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["127.0.0.1"] }],
    });
    let kind = builtin::find("discovery.k8s.io", "v1", "EndpointSlice").unwrap();
    assert!(create(kind, &slice).is_ok());
}

#[test]
fn annotations_have_a_largest_size() {
    let kind = builtin::find("", "v1", "ConfigMap").unwrap();
    let object = json!({ "metadata": { "name": "large", "annotations": { "a": "x".repeat(256 * 1024) } } });
    let causes = meta::validate_meta(kind.name_rule, &object);
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0].reason, "FieldValueTooLong");
    assert_eq!(causes[0].message, "Too long: may not be more than 262144 bytes");
}

#[test]
fn a_prefix_may_end_in_a_dash() {
    let kind = builtin::find("", "v1", "ConfigMap").unwrap();
    let object = |prefix: &str| json!({ "metadata": { "name": "web-abcde", "generateName": prefix } });
    assert!(meta::validate_meta(kind.name_rule, &object("web-")).is_empty());
    assert_eq!(meta::validate_meta(kind.name_rule, &object("A_"))[0].field, "metadata.generateName");
}

#[test]
fn an_event_is_the_same_under_both_names() {
    let mut seen = 0;
    for case in cases().iter().filter(|case| case.get("also").is_some()) {
        let (stored, _) = read(kind_of(case), &case["stored"]).unwrap();
        let mut there = stored.clone();
        there["metadata"].as_object_mut().unwrap().remove("namespace");
        let unchanged = there.clone();
        if kind_of(case).group.is_empty() {
            builtin::event_to_events(&mut there);
            assert_eq!(there, case["also"], "{}", case["name"]);
            builtin::event_to_core(&mut there);
        } else {
            builtin::event_to_core(&mut there);
            assert_eq!(there, case["also"], "{}", case["name"]);
            builtin::event_to_events(&mut there);
        }
        assert_eq!(there, unchanged, "{}", case["name"]);
        seen += 1;
    }
    assert!(seen > 0);
}
