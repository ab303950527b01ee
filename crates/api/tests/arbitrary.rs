//! Every JSON value gets a verdict: no panic, whatever is sent.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod tables;

use api::{KINDS, Kind, defaulted, validate};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use tables::Table;

/// As the issue that asked for this test has it.
const OBJECTS_PER_KIND: u32 = 10_000;

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let numbers = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![-1_i64, 0, 1, 100, 101, i64::from(i32::MAX), i64::from(i32::MAX) + 1])
            .prop_map(Value::from),
    ];
    let texts = prop_oneof![
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "%",
            "0%",
            "100%",
            "-1%",
            "1e2%",
            "None",
            "a\u{0}b",
            "\u{202e}x",
            "5Gi"
        ])
        .prop_map(Value::from),
        Just(Value::from("x".repeat(70))),
    ];
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), numbers, texts];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,8}", inner, 0..5).prop_map(|m| json!(m)),
        ]
    })
}

/// Every place in a manifest, as JSON pointers.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    let mut visit = |key: &str, child: &Value| {
        places(child, &format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), found);
    };
    match value {
        Value::Object(object) => object.iter().for_each(|(key, child)| visit(key, child)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, child)| visit(&i.to_string(), child)),
        _ => {}
    }
}

/// Good manifests with something arbitrary in up to three places, and objects that are arbitrary throughout.
fn objects(kind: &'static Kind) -> impl Strategy<Value = Value> {
    let table = Table::of(kind);
    let good: Vec<(Value, Vec<String>)> = table
        .good
        .iter()
        .map(|row| {
            let manifest = defaulted(&table.manifest(&row.patch)).unwrap();
            let mut found = Vec::new();
            places(&manifest, "", &mut found);
            (manifest, found)
        })
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), arbitrary_json()), 1..4);
    let altered = (any::<prop::sample::Index>(), changes).prop_map(move |(which, changes)| {
        let (manifest, places) = which.get(good.as_slice());
        let mut manifest = manifest.clone();
        for (place, value) in changes {
            let place: &String = place.get(places);
            if let Some(target) = manifest.pointer_mut(place) {
                *target = value;
            }
        }
        manifest
    });
    let whole = (arbitrary_json(), arbitrary_json()).prop_map(move |(metadata, spec)| {
        json!({"apiVersion": kind.api_version(), "kind": kind.name, "metadata": metadata, "spec": spec})
    });
    prop_oneof![6 => altered, 3 => whole, 1 => arbitrary_json()]
}

/// Judges `OBJECTS_PER_KIND` objects, each as an update of another.
fn each_gets_a_verdict(name: &str) {
    let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
    let config = Config { cases: OBJECTS_PER_KIND, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (mut judged, mut refused) = (0_u32, 0_u32);
    let objects = objects(kind);
    let mut old = Value::Null;
    while judged < OBJECTS_PER_KIND {
        let object = objects.new_tree(&mut runner).unwrap().current();
        let verdict = validate(&object, Some(&old));
        assert!(verdict.violations.iter().all(|violation| !violation.to_string().is_empty()));
        judged += 1;
        refused += u32::from(!verdict.accepted());
        old = object;
    }
    println!("{name}: {judged} objects, {refused} refused");
    assert!(refused > judged / 2 && refused < judged, "{name}: the generator makes only one kind of object");
}

#[test]
fn every_leader_worker_set_gets_a_verdict() {
    each_gets_a_verdict("LeaderWorkerSet");
}

#[test]
fn every_model_serving_gets_a_verdict() {
    each_gets_a_verdict("ModelServing");
}

#[test]
fn every_model_deployment_gets_a_verdict() {
    each_gets_a_verdict("ModelDeployment");
}

#[test]
fn every_ray_cluster_gets_a_verdict() {
    each_gets_a_verdict("RayCluster");
}

#[test]
fn every_ray_service_gets_a_verdict() {
    each_gets_a_verdict("RayService");
}

#[test]
fn every_kind_is_among_these() {
    assert_eq!(KINDS.len(), 5);
}
