//! The Services of a cluster: the name of its head, and the names of workers that have several hosts.

use api::raycluster::{RayCluster, ServiceType};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{observe::Observed, render};
use crate::{
    json::lay,
    labels, owner,
    pipeline::Executor,
    runtime::{Apply, Error, Key},
};

/// The ports of a head whose container names none.
const PORTS: [(&str, i64); 4] =
    [("client", 10_001), ("gcs-server", 6_379), ("dashboard", 8_265), ("serve", 8_000)];

/// Where Ray tells its numbers.
const METRICS: (&str, i64) = ("metrics", 8_080);

/// Makes the Services that are needed, before the pods that look for them. One that could not be made holds no pod back.
pub(super) async fn keep(executor: &Executor<'_, RayCluster>, observed: &Observed) -> Result<(), Error> {
    let cluster = &observed.cluster;
    let several = cluster.spec.worker_group_specs.iter().any(|group| group.num_of_hosts > 1);
    for (name, body) in [Some(head(cluster)), several.then(|| headless(cluster))].into_iter().flatten() {
        let live = observed.services.iter().find(|service| service.name_any() == name);
        let key = Key::of(cluster.as_ref()).beside(name);
        let service = Apply::new((key, body), live.map(AsRef::as_ref)).exactly(&["selector"]);
        let applied = executor.apply::<Service>(service).await;
        executor.defer(applied.map(drop))?;
    }
    Ok(())
}

/// The name of the Service of the head.
pub(super) fn head_name(cluster: &RayCluster) -> String {
    let theirs = cluster.spec.head_group_spec.head_service.as_ref();
    let named = theirs.and_then(|service| service.json()["metadata"]["name"].as_str());
    named.map_or_else(|| format!("{}-head-svc", cluster.name_any()), str::to_owned)
}

/// The Service of the head. What the spec says of it counts, but for the pod that it leads to.
fn head(cluster: &RayCluster) -> (String, Value) {
    let name = head_name(cluster);
    let group = &cluster.spec.head_group_spec;
    let none = Value::Null;
    let theirs = group.head_service.as_ref().map_or(&none, |service| service.json());
    let mut selector = theirs["spec"]["selector"].clone();
    lay(&mut selector, render::head_labels(cluster));
    let ty = match group.service_type {
        None => theirs["spec"]["type"].as_str().unwrap_or("ClusterIP"),
        Some(ServiceType::ClusterIP) => "ClusterIP",
        Some(ServiceType::NodePort) => "NodePort",
        Some(ServiceType::LoadBalancer) => "LoadBalancer",
    };
    let mut spec = json!({"type": ty});
    if ty == "ClusterIP" {
        spec["clusterIP"] = "None".into();
        // Workers look for their head before it is ready.
        spec["publishNotReadyAddresses"] = true.into();
    }
    lay(&mut spec, theirs["spec"].clone());
    spec["type"] = ty.into();
    spec["selector"] = selector;
    spec["ports"] = head_ports(cluster, &theirs["spec"]["ports"]);
    let mut annotations = theirs["metadata"]["annotations"].clone();
    lay(&mut annotations, json!(cluster.spec.head_service_annotations));
    let mut ours = theirs["metadata"]["labels"].clone();
    lay(&mut ours, render::head_labels(cluster));
    (name.clone(), service(cluster, &name, &ours, annotations, &spec))
}

fn service(cluster: &RayCluster, name: &str, labels: &Value, annotations: Value, spec: &Value) -> Value {
    let mut labels = labels.clone();
    labels[labels::MANAGED_BY] = labels::SEGUE.into();
    let mut metadata = json!({
        "name": name,
        "namespace": cluster.namespace(),
        "labels": labels,
        "ownerReferences": [owner(cluster)],
    });
    if annotations.as_object().is_some_and(|it| !it.is_empty()) {
        metadata["annotations"] = annotations;
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

/// The ports of the container that runs Ray, or those that Ray has, behind what the spec says of the Service.
pub(crate) fn head_ports(cluster: &RayCluster, theirs: &Value) -> Value {
    let container = &cluster.spec.head_group_spec.template.json()["spec"]["containers"][0];
    let named = container["ports"].as_array().into_iter().flatten().filter_map(|port| {
        let number = port["containerPort"].as_i64()?;
        let name = port["name"].as_str().map_or_else(|| format!("{number}-port"), str::to_owned);
        Some((name, number))
    });
    let mut ours: Vec<(String, i64)> = named.collect();
    if ours.is_empty() {
        ours = PORTS.map(|(name, number)| (name.to_owned(), number)).into();
    }
    if !ours.iter().any(|(name, _)| name == METRICS.0) {
        ours.push((METRICS.0.to_owned(), METRICS.1));
    }
    let mut list = theirs.as_array().cloned().unwrap_or_default();
    for (name, number) in ours {
        if !list.iter().any(|port| port["name"] == *name || port["port"] == number) {
            list.push(json!({"name": name, "port": number, "targetPort": number, "protocol": "TCP", "appProtocol": "tcp"}));
        }
    }
    list.into()
}

/// The Service that names the workers of replicas with several hosts.
fn headless(cluster: &RayCluster) -> (String, Value) {
    let name = format!("{}-headless", cluster.name_any());
    let labels = json!({labels::RAY_CLUSTER: cluster.name_any(), "ray.io/headless-worker-svc": name});
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": {labels::RAY_CLUSTER: cluster.name_any(), labels::RAY_NODE_TYPE: "worker"},
    });
    (name.clone(), service(cluster, &name, &labels, Value::Null, &spec))
}
