//! What becomes of a cluster with external storage when it is deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use crate::{cluster, fault_tolerant, ready, stage::Stage};

const FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";

async fn set_phase(stage: &Stage, pod: &str, phase: &str) {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let mut pod = api.get(pod).await.unwrap();
    pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
    api.replace_status(&pod.name_any(), &PostParams::default(), &pod).await.unwrap();
}

/// The pod that cleans up, once it runs.
async fn cleanup(stage: &Stage) -> Value {
    stage
        .eventually("Redis is being cleaned up", || async {
            let pod = stage.get("Pod", "c-redis-cleanup").await?;
            (pod["status"]["phase"] == "Running").then_some(pod)
        })
        .await
}

async fn gone(stage: &Stage) {
    stage
        .eventually("the cluster is gone", || async {
            stage.get("RayCluster", "c").await.is_none().then_some(())
        })
        .await;
}

async fn said(stage: &Stage) -> Option<String> {
    let events = stage.list("Event").await;
    let event = events.iter().find(|event| event.data["reason"] == "RedisCleanupSkipped")?;
    Some(event.data["note"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn redis_is_cleaned_up_when_the_last_pod_is_gone() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(2)).await;
    ready(&stage, 2).await;
    let object = stage.get("RayCluster", "c").await.unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!([FINALIZER]));
    let storage = object["metadata"]["uid"].as_str().unwrap().to_owned();
    stage.delete("RayCluster", "c").await;
    let pod = cleanup(&stage).await;
    assert_eq!(stage.names("Pod").await, ["c-redis-cleanup"]);
    let container = &pod["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    let namespace = env.iter().find(|it| it["name"] == "RAY_external_storage_namespace").unwrap();
    assert_eq!(namespace["value"], json!(storage));
    assert!(container["args"][0].as_str().unwrap().contains("cleanup_redis_storage"));
    assert!(container["readinessProbe"].is_null());
    assert!(stage.get("RayCluster", "c").await.is_some(), "it waits for the cleanup");
    set_phase(&stage, "c-redis-cleanup", "Succeeded").await;
    gone(&stage).await;
    assert_eq!(said(&stage).await, None);
}

/// Weakness 11: a pod that never ends holds the deletion for ever, and what is left in Redis is not told.
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_though_redis_could_not_be_cleaned_up_and_that_is_said() {
    for stuck in ["head", "redis-cleanup"] {
        let stage = Stage::start().await;
        let mut cluster = fault_tolerant(1);
        // Pods on no node go at once.
        cluster["spec"]["headGroupSpec"]["template"]["spec"]["nodeName"] = json!("n");
        stage.apply(&cluster).await;
        ready(&stage, 1).await;
        stage.kubelet.gone_if(move |pod| pod.labels().get("ray.io/node-type").is_none_or(|ty| ty != stuck));
        let began = tokio::time::Instant::now();
        stage.delete("RayCluster", "c").await;
        gone(&stage).await;
        let took = began.elapsed().as_secs();
        assert!((298..330).contains(&took), "{stuck}: after five minutes, not {took} s");
        let said = stage.eventually("it is said", || said(&stage)).await;
        assert!(said.starts_with("Redis was not cleaned up: "), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_fails_is_said() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(0)).await;
    ready(&stage, 0).await;
    stage.delete("RayCluster", "c").await;
    cleanup(&stage).await;
    set_phase(&stage, "c-redis-cleanup", "Failed").await;
    gone(&stage).await;
    let said = stage.eventually("it is said", || said(&stage)).await;
    assert!(said.contains("has failed") && said.contains("stay"), "{said}");
}

/// Weakness 22: a namespace that two clusters have is deleted under the one that lives.
#[tokio::test(start_paused = true)]
async fn a_storage_namespace_that_another_cluster_uses_is_left_alone() {
    let stage = Stage::start().await;
    let mut first = fault_tolerant(0);
    first["metadata"]["annotations"]["ray.io/external-storage-namespace"] = json!("shared");
    let mut second = first.clone();
    second["metadata"]["name"] = json!("d");
    stage.apply(&first).await;
    stage.apply(&second).await;
    ready(&stage, 0).await;
    stage.delete("RayCluster", "c").await;
    gone(&stage).await;
    assert!(stage.get("Pod", "c-redis-cleanup").await.is_none());
    let said = stage.eventually("it is said", || said(&stage)).await;
    assert!(said.contains("default/d"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_external_storage_has_nothing_to_clean_up() {
    let stage = Stage::start().await;
    stage.apply(&cluster(1)).await;
    ready(&stage, 1).await;
    assert!(stage.get("RayCluster", "c").await.unwrap()["metadata"]["finalizers"].is_null());
}
