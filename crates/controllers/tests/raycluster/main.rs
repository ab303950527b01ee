//! Ray clusters on the embedded API, with a kubelet that runs nothing. Where a test is named for a weakness, it is one of
//! the public operator, and that operator fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod autoscaler;
mod ending;
mod health;
mod pods;
mod services;
#[path = "../stage/mod.rs"]
mod stage;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::stage::Stage;

/// A cluster with one group of workers.
fn cluster(replicas: u32) -> Value {
    let template = |name: &str| {
        json!({"spec": {"containers": [{
            "name": name, "image": "ray", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        }]}})
    };
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c"},
        "spec": {
            "rayVersion": "2.53.0",
            "headGroupSpec": {"template": template("head")},
            "workerGroupSpecs": [{"groupName": "g", "replicas": replicas, "template": template("worker")}],
        },
    })
}

/// The same with GCS fault tolerance.
fn fault_tolerant(replicas: u32) -> Value {
    let mut cluster = cluster(replicas);
    cluster["metadata"]["annotations"] = json!({"ray.io/ha-enabled": "true"});
    cluster
}

/// The pods of the cluster that are not told to go, by name.
async fn pods(stage: &Stage) -> BTreeMap<String, Pod> {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let list = api.list(&ListParams::default().labels("ray.io/cluster=c")).await.unwrap();
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    list.items.into_iter().filter(stays).map(|pod| (pod.name_any(), pod)).collect()
}

/// The uids of the pods of a type, by name.
async fn uids(stage: &Stage, ty: &str) -> BTreeMap<String, String> {
    let is = |pod: &Pod| pod.labels()["ray.io/node-type"] == ty;
    let pods = pods(stage).await.into_iter().filter(|(_, pod)| is(pod));
    pods.map(|(name, pod)| (name, pod.uid().unwrap())).collect()
}

/// The status once the cluster is ready with so many workers.
async fn ready(stage: &Stage, workers: u64) -> Value {
    let what = format!("the cluster is ready with {workers} workers");
    let status = stage.eventually(&what, || async {
        let status = stage.observed("RayCluster", "c").await?;
        let is = status["state"] == "ready" && status["readyWorkerReplicas"].as_u64() == Some(workers);
        is.then_some(status)
    });
    let status = status.await;
    stage.quiet().await;
    status
}

/// Annotates a pod.
async fn mark(stage: &Stage, pod: &str, health: &str) {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let patch = json!({"metadata": {"annotations": {"ray.io/health-state": health}}});
    api.patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn condition(status: &Value, ty: &str) -> Option<Value> {
    status["conditions"].as_array()?.iter().find(|it| it["type"] == ty).cloned()
}
