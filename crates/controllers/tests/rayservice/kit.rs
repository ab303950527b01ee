//! A stage on which each `RayCluster` has pods and Serve is scripted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controllers::{Clock, Outside, Settings, kind};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    serve::{Serve, Window},
    stage::{self, Stage},
};

/// How long replicas take to start.
pub const START: Duration = Duration::from_secs(20);

pub async fn stage() -> (Stage, Arc<Serve>) {
    stage_at(stage::settings().clock).await
}

/// One on which controllers tell this time.
pub async fn stage_at(clock: Clock) -> (Stage, Arc<Serve>) {
    let serve = Serve::start(START);
    let kinds = kind::named("RayService").into_iter().collect();
    let settings = Settings { kinds, clock, ..stage::settings() };
    let window: Arc<dyn Outside> = Arc::new(Window(Arc::clone(&serve)));
    let stage = Stage::with(window, settings).await;
    tokio::spawn(make_pods(stage.client.clone()));
    (stage, serve)
}

/// Gives every RayCluster a head and a worker.
async fn make_pods(client: Client) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
    loop {
        for cluster in clusters.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default() {
            let groups = [
                ("head", &cluster.data["spec"]["headGroupSpec"]),
                ("worker", &cluster.data["spec"]["workerGroupSpecs"][0]),
            ];
            for (role, group) in groups.into_iter().filter(|_| cluster.meta().deletion_timestamp.is_none()) {
                let name = format!("{}-{role}", cluster.name_any());
                let mut labels = group["template"]["metadata"]["labels"].clone();
                labels["ray.io/cluster"] = cluster.name_any().into();
                labels["ray.io/node-type"] = role.into();
                labels["ray.io/serve"] = "false".into();
                let mut spec = group["template"]["spec"].clone();
                spec["nodeName"] = "node".into();
                let pod = json!({
                    "metadata": {
                        "name": name, "labels": labels,
                        "ownerReferences": [cluster.controller_owner_ref(&resource)],
                    },
                    "spec": spec,
                });
                drop(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A service whose cluster has this image, with an application of so many replicas.
pub fn service(image: &str, replicas: u32, strategy: &Value) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "chat"},
        "spec": {
            "upgradeStrategy": strategy,
            "serveConfigV2": config("app", replicas),
            "rayClusterConfig": {
                "enableInTreeAutoscaling": true,
                "headGroupSpec": {"template": pod},
                "workerGroupSpecs": [{
                    "groupName": "w", "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "template": pod,
                }],
            },
        },
    })
}

pub fn config(import: &str, replicas: u32) -> String {
    format!(
        "applications:\n- name: app\n  import_path: {import}\n  deployments:\n  - name: d\n    num_replicas: {replicas}\n"
    )
}

pub fn blue_green() -> Value {
    json!({"type": "NewCluster"})
}

pub async fn status(stage: &Stage) -> Value {
    stage.get("RayService", "chat").await.unwrap()["status"].clone()
}

/// The status, once it speaks of the spec as it is and this is so.
pub async fn until(stage: &Stage, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1_500 {
        if let Some(status) = stage.observed("RayService", "chat").await.filter(&is_so) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("in vain: {what}: {:#}", stage.get("RayService", "chat").await.unwrap()["status"]);
}

/// The status, once the service runs on one cluster and waits for nothing.
pub async fn settled(stage: &Stage) -> Value {
    let is_settled = |status: &Value| {
        status["activeServiceStatus"].is_object()
            && status["pendingServiceStatus"].is_null()
            && status["waitingFor"].is_null()
    };
    until(stage, "it is settled", is_settled).await
}

pub fn active(status: &Value) -> String {
    status["activeServiceStatus"]["rayClusterName"].as_str().unwrap().to_owned()
}

pub fn pending(status: &Value) -> Option<String> {
    status["pendingServiceStatus"]["rayClusterName"].as_str().map(ToOwned::to_owned)
}

pub fn condition<'a>(status: &'a Value, ty: &str) -> (&'a str, &'a str) {
    let mut all = status["conditions"].as_array().unwrap().iter();
    all.find(|it| it["type"] == ty)
        .map_or(("absent", ""), |it| (it["status"].as_str().unwrap(), it["reason"].as_str().unwrap()))
}

pub async fn clusters(stage: &Stage) -> Vec<String> {
    stage.names("RayCluster").await
}

pub async fn selector(stage: &Stage, service: &str) -> BTreeMap<String, String> {
    let service = stage.get("Service", service).await.unwrap();
    serde_json::from_value(service["spec"]["selector"].clone()).unwrap()
}
