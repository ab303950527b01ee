//! Nodes with accelerators, and a scheduler that places pods on them by their requests.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::stage::Stage;

pub const GPU: &str = "gpu.example/one";

/// A scheduler that finds no node for any pod.
pub const ANOTHER: &str = "another";

/// A node with so many accelerators.
pub async fn node(stage: &Stage, name: &str, gpus: u32) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    stage.apply(&node).await;
    let status = json!({"status": {
        "allocatable": {GPU: gpus.to_string(), "pods": "100"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let nodes: Api<DynamicObject> = stage.api(&node);
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// A pod of somebody else that holds accelerators of a node.
pub async fn occupy(stage: &Stage, name: &str, node: &str, gpus: u32) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "other", "resources": requests(gpus)}]},
    });
    stage.apply(&pod).await;
}

pub fn requests(gpus: u32) -> Value {
    json!({"requests": {GPU: gpus.to_string()}, "limits": {GPU: gpus.to_string()}})
}

/// Places pods from now on, and has them ready on their nodes.
pub fn schedule(stage: &Stage) {
    stage.kubelet.ready_if(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    let (nodes, pods) = (all(stage, "Node"), all(stage, "Pod"));
    tokio::spawn(async move {
        loop {
            place(&nodes, &pods).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
}

fn all(stage: &Stage, kind: &str) -> Api<DynamicObject> {
    stage.api(&json!({"apiVersion": "v1", "kind": kind}))
}

async fn place(nodes: &Api<DynamicObject>, pods: &Api<DynamicObject>) {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let listed = nodes.list(&ListParams::default()).await.unwrap().items;
    let offers = |node: &DynamicObject| number(&node.data["status"]["allocatable"][GPU]);
    let mut free: BTreeMap<String, u32> = listed.iter().map(|node| (node.name_any(), offers(node))).collect();
    let asked =
        |pod: &DynamicObject| number(&pod.data["spec"]["containers"][0]["resources"]["requests"][GPU]);
    let mut waiting = Vec::new();
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        match pod.data["spec"]["nodeName"].as_str().and_then(|name| free.get_mut(name)) {
            Some(left) => *left = left.saturating_sub(asked(&pod)),
            None => waiting.push(pod),
        }
    }
    for pod in waiting {
        let (name, asked) = (pod.name_any(), asked(&pod));
        let is_ours = pod.data["spec"]["schedulerName"] != ANOTHER;
        if let Some((node, left)) = free.iter_mut().find(|(_, left)| is_ours && **left >= asked) {
            *left -= asked;
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": node},
            });
            let bound: Result<Value, _> =
                pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
            drop(bound);
            continue;
        }
        let conditions = pod.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|it| it["type"] == "PodScheduled" && it["status"] == "False") {
            continue;
        }
        let status = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": format!("0/{} nodes are available: insufficient {GPU}", free.len()),
            "lastTransitionTime": testbed::virtual_time::timestamp(),
        }]}});
        drop(pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await);
    }
}
