//! What the collector does by the clock, and after a restart. What it does with owners is told, and compared with a
//! cluster, in the test bed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
mod common;

use std::{sync::Arc, time::Duration};

use apiserver::{
    Server,
    environment::{SeededEnvironment, SystemEnvironment},
    store::{History, Settings, Store},
};
use serde_json::{Value, json};

use crate::common::{send, server_over};

const JSON: &str = "application/json";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "Test",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    })
}

async fn make(server: &Server, path: &str, object: &Value) -> Value {
    let answer = send(server, "POST", path, JSON, object.to_string()).await;
    assert_eq!(answer.code, 201, "{answer:?}");
    answer.json()
}

async fn names(server: &Server, path: &str) -> Vec<String> {
    let list = send(server, "GET", path, "", "").await.json();
    let items = list["items"].as_array().unwrap().clone();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_an_hour_after_they_were_last_seen() {
    let world = Arc::new(SeededEnvironment::new(1, "2026-01-01T00:00:00Z".parse().unwrap()));
    let server = Server::new(Store::memory(History::default()), world, Vec::new());
    server.bootstrap().await.unwrap();
    let collecting = tokio::spawn(server.clone().run_garbage_collector());
    make(&server, EVENTS, &event("first")).await;
    make(&server, EVENTS, &event("seen-again")).await;
    make(&server, MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).await;

    tokio::time::sleep(Duration::from_mins(40)).await;
    make(&server, EVENTS, &event("later")).await;
    let again = json!({"count": 2, "lastTimestamp": "2026-01-01T00:40:00Z"}).to_string();
    let patched =
        send(&server, "PATCH", &format!("{EVENTS}/seen-again"), "application/merge-patch+json", again).await;
    assert_eq!(patched.code, 200, "{patched:?}");
    assert_eq!(names(&server, EVENTS).await, ["first", "later", "seen-again"]);

    tokio::time::sleep(Duration::from_mins(25)).await;
    assert_eq!(names(&server, EVENTS).await, ["later", "seen-again"]);
    assert_eq!(names(&server, NEW_EVENTS).await, ["later", "seen-again"]);

    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(names(&server, EVENTS).await.is_empty());
    assert_eq!(names(&server, MAPS).await, ["a"], "nothing else is");
    collecting.abort();
}

#[tokio::test]
async fn what_was_to_be_collected_before_a_restart_is_collected_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path(), Settings::default()).unwrap().store;
    let map = |name: &str, owner: Option<&Value>| {
        let owners: Vec<Value> = owner
            .map(|owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"]}))
            .into_iter()
            .collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
    };
    let before = server_over(open()).await;
    let owner = make(&before, MAPS, &map("a", None)).await;
    make(&before, MAPS, &map("b", Some(&owner))).await;
    make(&before, MAPS, &map("c", None)).await;
    assert_eq!(send(&before, "DELETE", &format!("{MAPS}/a"), JSON, "").await.code, 200);
    assert_eq!(names(&before, MAPS).await, ["b", "c"], "nobody has collected yet");
    drop(before);

    let after = Server::new(open(), Arc::new(SystemEnvironment), Vec::new());
    after.collect_garbage().await;
    assert_eq!(names(&after, MAPS).await, ["c"]);
    // And what is settled makes no more work.
    after.collect_garbage().await;
    assert_eq!(after.collect_garbage().await, 0);
}
