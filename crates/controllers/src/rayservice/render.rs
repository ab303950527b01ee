//! The objects of a service, as they should be.

use api::{
    raycluster::{EXTERNAL_STORAGE_NAMESPACE, RayCluster},
    rayservice::{ENABLE_AUTOSCALING, RayService},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    observe::{Cluster, Observed},
    wanted::{described, labels_of},
};
use crate::{json::lay, labels, owner, raycluster::head_ports, traffic, traffic::BackendWeights};

/// Annotations of a service that are no matter of its clusters.
const NOT_INHERITED: [&str; 3] = ["kubectl.kubernetes.io/", "segue.dev/", "ray.io/initializing-timeout"];

/// The RayCluster of a cluster; nothing where the config that it is made from is not stored any more.
pub(super) fn cluster(observed: &Observed, cluster: &Cluster) -> Option<Value> {
    let service = observed.service.as_ref();
    let mut spec = cluster.template.clone()?;
    if cluster.status.goal.as_ref() == Some(&observed.goal) {
        // The numbers of workers are those of the spec, which may have changed since.
        spec = serde_json::to_value(&service.spec.ray_cluster_config).ok()?;
    }
    if service.annotations().get(ENABLE_AUTOSCALING).is_some_and(|value| value == "true") {
        spec["enableInTreeAutoscaling"] = true.into();
    }
    // The numbers of a new cluster grow with its capacity, by the autoscaler.
    let starts_small = observed.wanted.strategy.is_incremental() && observed.active.is_some();
    for group in spec["workerGroupSpecs"].as_array_mut().into_iter().flatten() {
        if starts_small && let Some(fields) = group.as_object_mut() {
            fields.remove("replicas");
        }
        mark(&mut group["template"], service);
    }
    mark(&mut spec["headGroupSpec"]["template"], service);
    let mut labels = json!(service.labels());
    lay(&mut labels, labels_of(service));
    labels[labels::RAY_GOAL] = cluster.status.goal.clone().into();
    let inherited = service
        .annotations()
        .iter()
        .filter(|(name, _)| NOT_INHERITED.iter().all(|prefix| !name.starts_with(prefix)));
    let mut annotations: serde_json::Map<String, Value> =
        inherited.map(|(name, value)| (name.clone(), value.clone().into())).collect();
    keep_storage_apart(&mut spec, &mut annotations, &cluster.name);
    Some(json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": cluster.name,
            "namespace": service.namespace(),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(service)],
        },
        "spec": spec,
    }))
}

/// Two clusters of one service do not share what they store of themselves: the end of one erases what it has there.
fn keep_storage_apart(spec: &mut Value, annotations: &mut serde_json::Map<String, Value>, cluster: &str) {
    let by_options = spec.pointer_mut("/gcsFaultToleranceOptions/externalStorageNamespace");
    for name in by_options.into_iter().chain(annotations.get_mut(EXTERNAL_STORAGE_NAMESPACE)) {
        if let Some(text) = name.as_str().filter(|text| !text.is_empty()) {
            *name = format!("{text}-{cluster}").into();
        }
    }
}

/// Pods of all clusters of a service have one label in common, by which a Service selects those of both.
fn mark(template: &mut Value, service: &RayService) {
    lay(template, json!({"metadata": {"labels": {labels::RAY_SERVICE: service.name_any()}}}));
}

/// The change that gives a cluster the numbers of workers of the spec. How many there are is the autoscaler's where it runs.
pub(super) fn in_place(service: &RayService, live: &RayCluster) -> Option<Value> {
    let wanted = serde_json::to_value(&service.spec.ray_cluster_config).ok()?;
    let mut groups = serde_json::to_value(&live.spec.worker_group_specs).ok()?;
    let is_scaled = live.spec.enable_in_tree_autoscaling == Some(true);
    let fields: &[&str] =
        if is_scaled { &["minReplicas", "maxReplicas"] } else { &["minReplicas", "maxReplicas", "replicas"] };
    let mut is_changed = false;
    for group in groups.as_array_mut()? {
        let mut all = wanted["workerGroupSpecs"].as_array()?.iter();
        let Some(wanted) = all.find(|wanted| wanted["groupName"] == group["groupName"]) else { continue };
        for field in fields {
            if !wanted[*field].is_null() && wanted[*field] != group[*field] {
                group[*field] = wanted[*field].clone();
                is_changed = true;
            }
        }
    }
    is_changed.then(|| json!({"spec": {"workerGroupSpecs": groups}}))
}

fn ports(observed: &Observed, cluster: &Cluster) -> Value {
    // Routes name one port for all clusters; each Service leads to the port of its own pods.
    let port = |name: &str, port: i32, target: i32| json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"});
    let mut ports = vec![port("serve", observed.ports.serve, cluster.ports.serve)];
    if let Some(grpc) = observed.ports.grpc {
        let mut entry = port("serve-grpc", grpc, cluster.ports.grpc.unwrap_or(grpc));
        entry["appProtocol"] = "kubernetes.io/h2c".into();
        ports.push(entry);
    }
    ports.into()
}

fn service(name: &str, observed: &Observed, owner: &OwnerReference, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": observed.service.namespace(),
            "labels": labels_of(&observed.service),
            "ownerReferences": [owner],
        },
        "spec": spec,
    })
}

/// The Service of one cluster: what routes refer to.
pub(super) fn service_of_cluster(
    observed: &Observed,
    cluster: &Cluster,
    name: &str,
    owner: &OwnerReference,
) -> Value {
    let selector = json!({labels::RAY_CLUSTER: cluster.name, labels::RAY_SERVE: "true"});
    let spec = json!({"selector": selector, "ports": ports(observed, cluster)});
    let mut body = service(name, observed, owner, &spec);
    body["metadata"]["labels"][labels::RAY_FROM_NAME] = cluster.name.clone().into();
    body["metadata"]["labels"][labels::RAY_SERVE] = format!("{}-serve", cluster.name).into();
    body
}

/// The Service that clients use: it leads to the cluster that has all traffic, and to both while both have some.
pub(super) fn stable_service(observed: &Observed, name: &str, shares: &BackendWeights) -> Option<Value> {
    let carrying: Vec<&Cluster> = observed
        .clusters()
        .filter(|it| it.object.is_some() && it.weight().is_some_and(|it| it > 0))
        .collect();
    let most = carrying.iter().max_by_key(|cluster| cluster.weight())?;
    let mut selector = json!({labels::RAY_SERVE: "true"});
    match carrying.as_slice() {
        [only] => selector[labels::RAY_CLUSTER] = only.name.clone().into(),
        _ => selector[labels::RAY_SERVICE] = observed.service.name_any().into(),
    }
    let spec = json!({"selector": selector, "ports": ports(observed, most)});
    let mut body = service(name, observed, &owner(observed.service.as_ref()), &spec);
    if let Some(described) = described(&observed.service) {
        for part in ["labels", "annotations"] {
            lay(&mut body["metadata"][part], described["metadata"][part].clone());
        }
        lay(&mut body["spec"], described["spec"].clone());
        body["spec"]["selector"] = selector;
    }
    body["metadata"]["annotations"][labels::WEIGHTS] = traffic::to_text(&positive(shares)).into();
    Some(body)
}

fn positive(shares: &BackendWeights) -> BackendWeights {
    shares.iter().filter(|(_, weight)| *weight > 0).cloned().collect()
}

/// The Service of the head of the cluster that users have.
pub(super) fn head_service(observed: &Observed) -> Option<Value> {
    let cluster = observed.clusters().find(|cluster| cluster.object.is_some())?;
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": {labels::RAY_CLUSTER: cluster.name, labels::RAY_NODE_TYPE: "head"},
        "ports": head_ports(cluster.object.as_deref()?, &Value::Null),
    });
    let name = format!("{}-head-svc", observed.service.name_any());
    Some(service(&name, observed, &owner(observed.service.as_ref()), &spec))
}
