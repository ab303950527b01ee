//! Only the kinds and namespaces that are switched on are looked after.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use std::sync::Arc;

use api::leaderworkerset::LeaderWorkerSet;
use controllers::{Calls, Settings, kind};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::stage::{Stage, ready_groups};

fn set(name: &str) -> Value {
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": 2,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "one"}]}},
            },
        },
    })
}

/// A set in a namespace, which is made.
async fn set_in(stage: &Stage, namespace: &str) -> Api<LeaderWorkerSet> {
    let named = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(stage.client.clone());
    namespaces.create(&PostParams::default(), &named).await.unwrap();
    let sets: Api<LeaderWorkerSet> = Api::namespaced(stage.client.clone(), namespace);
    sets.create(&PostParams::default(), &serde_json::from_value(set("x")).unwrap()).await.unwrap();
    sets
}

async fn ready(sets: &Api<LeaderWorkerSet>) -> Option<()> {
    let status = sets.get("x").await.unwrap().status?;
    (status.ready_replicas == 1).then_some(())
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_reconciled_and_no_other() {
    let namespaces = vec!["default".to_owned(), "also".to_owned()];
    let settings = Settings { embedded: false, namespaces, ..stage::settings() };
    let stage = Stage::with(Arc::new(Calls::default()), settings).await;
    let other = set_in(&stage, "other").await;
    let also = set_in(&stage, "also").await;
    stage.apply(&set("x")).await;
    stage.eventually("the set of one is ready", ready_groups(&stage, "x", 1)).await;
    stage.eventually("the set of the other is ready", || ready(&also)).await;
    stage.quiet().await;
    assert_eq!(other.get("x").await.unwrap().status, None, "it was made first and nobody looked");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_off_is_left_alone() {
    let kinds = vec![kind::named("LeaderWorkerSet").unwrap()];
    let settings = Settings { embedded: false, kinds, ..stage::settings() };
    let stage = Stage::with(Arc::new(Calls::default()), settings).await;
    let deployment = json!({
        "apiVersion": "segue.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "chat"},
        "spec": {
            "replicas": 1,
            "version": "v1",
            "workload": {"type": "Pod", "pod": {"spec": {"containers": [{"name": "c", "image": "one"}]}}},
            "traffic": {"ports": [{"name": "http", "port": 8000}]},
        },
    });
    stage.apply(&deployment).await;
    stage.apply(&set("x")).await;
    stage.eventually("the set is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    assert_eq!(stage.get("ModelDeployment", "chat").await.unwrap()["status"], Value::Null);
}
