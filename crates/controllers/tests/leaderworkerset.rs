//! Sets on the embedded API, with a kubelet that runs nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use serde_json::{Value, json};

use crate::stage::{Stage, ready_groups};

fn set(name: &str, replicas: u32, size: u32, image: &str) -> Value {
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": size,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_created_become_ready_and_are_counted() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 3, "one")).await;
    let status = stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    assert_eq!((&status["replicas"], &status["updatedReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(stage.pods("x").await, ["x-0", "x-0-1", "x-0-2", "x-1", "x-1-1", "x-1-2"]);
    assert_eq!(stage.condition("x", "Available").await, "True");
}
