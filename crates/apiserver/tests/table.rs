//! Tables as a real kube-apiserver 1.36 fills them: each file next to this one holds the columns of a resource, and
//! objects with the cells of their rows.
#![allow(clippy::unwrap_used, clippy::panic)]

use apiserver::table::{Columns, Include, Request, Version, human_duration, single, table};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Recorded {
    now: String,
    columns: Vec<(String, String, String, i64)>,
    rows: Vec<(Vec<Value>, Value)>,
}

fn check(columns: &Columns, recorded: &str) {
    let recorded: Recorded = serde_json::from_str(recorded).unwrap();
    let heads: Vec<_> = columns
        .heads()
        .iter()
        .map(|h| (h.name.clone(), h.ty.clone(), h.format.clone(), h.priority))
        .collect();
    assert_eq!(heads, recorded.columns);
    let now: Timestamp = recorded.now.parse().unwrap();
    for (cells, object) in recorded.rows {
        // The server read its clock within a second after the recorder did.
        let at = |seconds| columns.cells(&object, now + SignedDuration::from_secs(seconds));
        assert!(cells == at(0) || cells == at(1), "{cells:?}\n{:?}", at(0));
    }
}

macro_rules! recorded {
    ($($group:literal $resource:literal,)*) => {
        #[test]
        fn rows_of_built_in_kinds_are_those_of_a_real_server() {
            $(check(&Columns::built_in($group, $resource), include_str!(concat!("table/", $resource, ".json")));)*
        }
    };
}

recorded! {
    "" "namespaces",
    "" "pods",
    "" "services",
    "" "configmaps",
    "" "secrets",
    "" "events",
    "" "nodes",
    "" "serviceaccounts",
    "" "endpoints",
    "" "persistentvolumeclaims",
    "discovery.k8s.io" "endpointslices",
    "coordination.k8s.io" "leases",
    "apps" "controllerrevisions",
    "policy" "poddisruptionbudgets",
    "rbac.authorization.k8s.io" "roles",
    "rbac.authorization.k8s.io" "rolebindings",
    "rbac.authorization.k8s.io" "clusterroles",
    "rbac.authorization.k8s.io" "clusterrolebindings",
    "apiextensions.k8s.io" "customresourcedefinitions",
}

#[test]
fn rows_of_custom_resources_are_those_of_a_real_server() {
    let columns: Vec<Value> = serde_json::from_str(include_str!("table/printer-columns.json")).unwrap();
    check(&Columns::for_crd(&columns), include_str!("table/widgets.json"));
    check(&Columns::for_crd(&[]), include_str!("table/plains.json"));
}

#[test]
fn a_revision_names_its_controller_and_a_bound_claim_its_volume() {
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "controller": true});
    let object = json!({
        "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]},
        "revision": 3,
    });
    let cells = Columns::built_in("apps", "controllerrevisions").cells(&object, now);
    assert_eq!(cells, [json!("r"), json!("statefulset.apps/w"), json!(3), json!("60s")]);
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"volumeName": "v", "storageClassName": "fast"},
        "status": {"phase": "Bound", "capacity": {"storage": "2048Mi"}, "accessModes": ["ReadOnlyMany", "ReadWriteOnce"]},
    });
    let cells = Columns::built_in("", "persistentvolumeclaims").cells(&claim, now);
    let want = ["c", "Bound", "v", "2Gi", "RWO,ROX", "fast", "<unset>", "<unknown>", "<unset>"];
    assert_eq!(cells, want.map(Value::from));
}

fn request(include: Include, version: Version) -> Request {
    Request { include, version, now: "2026-01-01T00:01:00Z".parse().unwrap() }
}

#[test]
fn a_table_carries_the_metadata_that_was_asked_for() {
    let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "data": {"k": "v"}});
    let columns = Columns::built_in("", "configmaps");
    let meta = json!({"resourceVersion": "9", "remainingItemCount": 3});
    let list = |include| table(&columns, std::slice::from_ref(&object), &meta, request(include, Version::V1));
    let whole = list(Include::Metadata);
    assert_eq!((&whole["kind"], &whole["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(whole["metadata"], meta);
    let head = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    assert_eq!(whole["columnDefinitions"][0], head);
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
    assert_eq!(whole["rows"], json!([{"cells": ["a", 1, "<unknown>"], "object": partial}]));
    assert_eq!(list(Include::None)["rows"][0]["object"], Value::Null);
    assert_eq!(list(Include::Object)["rows"][0]["object"], object);
}

#[test]
fn the_events_of_a_watch_repeat_no_heads() {
    let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
    let columns = Columns::for_crd(&[]);
    let event = single(&columns, &object, false, request(Include::Metadata, Version::V1Beta1));
    assert_eq!(event["columnDefinitions"], Value::Null);
    assert_eq!(event["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(event["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(event["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
    let first = single(&columns, &object, true, request(Include::None, Version::V1));
    assert_eq!(first["columnDefinitions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_pod_that_has_ended_says_so_in_its_row() {
    let ended = json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": "Failed"}});
    let row = single(&Columns::built_in("", "pods"), &ended, true, request(Include::None, Version::V1));
    let want =
        json!([{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]);
    assert_eq!(row["rows"][0]["conditions"], want);
}

#[test]
fn durations_have_two_or_three_figures() {
    let (minute, hour, day) = (60, 3600, 86400);
    let cases = [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * minute, "2m"),
        (2 * minute + 5, "2m5s"),
        (10 * minute - 1, "9m59s"),
        (10 * minute, "10m"),
        (3 * hour - 1, "179m"),
        (3 * hour, "3h"),
        (3 * hour + 5 * minute, "3h5m"),
        (8 * hour, "8h"),
        (48 * hour - 1, "47h"),
        (48 * hour, "2d"),
        (51 * hour, "2d3h"),
        (8 * day, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (735 * day, "2y5d"),
        (8 * 365 * day, "8y"),
    ];
    for (seconds, text) in cases {
        assert_eq!(human_duration(seconds), text, "{seconds}");
    }
}

#[test]
fn the_object_of_a_row_is_chosen_by_three_words() {
    assert_eq!(Include::parse(""), Ok(Include::Metadata));
    assert_eq!(Include::parse("None"), Ok(Include::None));
    let refusal = "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', \
                   'Object', 'None', or empty";
    assert_eq!(Include::parse("Foo"), Err(refusal.into()));
}
