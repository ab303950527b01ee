//! Sets on the embedded API, with a kubelet that runs nothing. Where a test is named for a bug, it is one of the public
//! operator, and that operator fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod claims;
mod clock;
mod conditions;
mod counters;
mod events;
mod groups;
mod names;
mod refused;
mod requests;
mod restarts;
mod revisions;
#[path = "../stage/mod.rs"]
mod stage;
mod startup;

use serde_json::{Value, json};

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

/// The same, with a budget.
fn rolling(mut set: Value, max_unavailable: u32, max_surge: u32) -> Value {
    set["spec"]["rolloutStrategy"] = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": {
        "maxUnavailable": max_unavailable, "maxSurge": max_surge,
    }});
    set
}
