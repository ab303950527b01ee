//! What a LeaderWorkerSet is when its author says little, and what clients see of it.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

use api::leaderworkerset::{KIND, LeaderWorkerSet, RollingUpdateConfiguration};
use serde_json::{Value, json};

fn defaulted(spec: &Value) -> Value {
    let object = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "x"}, "spec": spec,
    });
    api::defaulted(&object).unwrap()["spec"].take()
}

/// Rows of 1.1: what is filled in.
#[test]
fn what_is_left_out_is_filled_in_as_the_public_operator_does() {
    let worker = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let template = json!({"workerTemplate": worker});
    let spec = defaulted(&json!({"leaderWorkerTemplate": template}));
    assert_eq!((&spec["replicas"], &spec["startupPolicy"]), (&json!(1), &json!("LeaderCreated")));
    let template = &spec["leaderWorkerTemplate"];
    assert_eq!(template["size"], 1);
    assert_eq!(template["restartPolicy"], "RecreateGroupOnPodRestart");
    let subgroups = json!({"workerTemplate": worker, "subGroupPolicy": {"subGroupSize": 1}});
    let spec = defaulted(
        &json!({"leaderWorkerTemplate": subgroups, "rolloutStrategy": {"rollingUpdateConfiguration": {}}}),
    );
    assert_eq!(spec["leaderWorkerTemplate"]["subGroupPolicy"]["subGroupPolicyType"], "LeaderWorker");
    assert_eq!(spec["rolloutStrategy"]["type"], "RollingUpdate");
    let rolling = json!({"partition": 0, "maxUnavailable": 1, "maxSurge": 0});
    assert_eq!(spec["rolloutStrategy"]["rollingUpdateConfiguration"], rolling);
    assert_eq!(serde_json::to_value(RollingUpdateConfiguration::default()).unwrap(), rolling);
    let object =
        json!({"metadata": {"name": "x"}, "spec": {"leaderWorkerTemplate": {"workerTemplate": worker}}});
    let typed: LeaderWorkerSet = serde_json::from_value(object).unwrap();
    assert_eq!(typed.spec.replicas, 1, "the types agree with the schema");
}

/// Section 1: names, subresources and columns.
#[test]
fn clients_find_the_set_where_they_look_for_it() {
    let crd = KIND.crd();
    assert_eq!(crd["metadata"]["name"], "leaderworkersets.leaderworkerset.x-k8s.io");
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["lws"]));
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1");
    assert_eq!(
        version["subresources"],
        json!({"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.hpaPodSelector",
        }})
    );
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    for (name, path) in [
        ("Ready", ".status.readyReplicas"),
        ("Desired", ".spec.replicas"),
        ("Up-to-date", ".status.updatedReplicas"),
        ("Age", ".metadata.creationTimestamp"),
    ] {
        assert!(columns.iter().any(|it| it["name"] == name && it["jsonPath"] == path), "{name}");
    }
}
