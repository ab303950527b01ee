//! The pods of a cluster.

mod autoscaler;
mod command;
mod env;
mod probes;
#[cfg(test)]
mod tests;
mod volumes;

use api::raycluster::{EXTERNAL_STORAGE_NAMESPACE, FT_ENABLED, HA_ENABLED, RayCluster, WorkerGroupSpec};
use kube::ResourceExt;
use planner::ray::{Op, Template};
use serde_json::{Value, json};

use super::{services, wanted};
use crate::{json::lay, labels, owner};

/// The port of GCS, where the head is not told another.
const GCS_PORT: &str = "6379";

/// A pod of a cluster that is to be made.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    cluster: &'a RayCluster,
    /// The group of a worker; nothing for the head.
    group: Option<&'a WorkerGroupSpec>,
}

impl Node<'_> {
    fn is_head(&self) -> bool {
        self.group.is_none()
    }

    /// The name of the Service of the head in full.
    fn head_address(&self) -> String {
        let namespace = self.cluster.namespace().unwrap_or_default();
        format!("{}.{namespace}.svc.cluster.local", services::head_name(self.cluster))
    }

    /// The port of GCS.
    fn gcs_port(&self) -> &str {
        let params = self.cluster.spec.head_group_spec.ray_start_params.as_ref();
        params.and_then(|params| params.get("port")).map_or(GCS_PORT, String::as_str)
    }
}

/// The pod that an operation makes; nothing where its group is gone.
pub(super) fn pod(cluster: &RayCluster, template: Template, op: &Op, name: &str) -> Option<Value> {
    let spec = &cluster.spec;
    let (group, place) = match op {
        Op::CreateHead => (None, None),
        Op::CreateWorker { group, replica, host, incarnation } => {
            let found = spec.worker_group_specs.iter().find(|it| it.group_name == *group)?;
            (Some(found), Some((*replica, *host, *incarnation)))
        }
        _ => return None,
    };
    let node = Node { cluster, group };
    let mut pod = group.map_or(&spec.head_group_spec.template, |group| &group.template).json().clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    set_metadata(&mut pod["metadata"], node, template, name);
    if let Some((replica, host, incarnation)) = place {
        let metadata = &mut pod["metadata"];
        metadata["labels"][labels::RAY_REPLICA_INDEX] = replica.to_string().into();
        metadata["labels"][labels::RAY_HOST_INDEX] = host.to_string().into();
        metadata["annotations"][labels::INCARNATION] = incarnation.to_string().into();
    }
    let spec = &mut pod["spec"];
    volumes::mount(spec, node);
    let container = &mut spec["containers"][0];
    let start = command::start(node, container);
    env::set(container, node, &start);
    command::set(container, cluster, &start);
    probes::set(container, node);
    if !node.is_head() {
        wait_for_gcs(spec, node);
    }
    if node.is_head() {
        autoscaler::add(spec, cluster);
    }
    autoscaler::prepare(spec, cluster);
    for container in spec["initContainers"].as_array_mut().into_iter().flatten() {
        env::add(container, &env::head_of(node));
    }
    Some(pod)
}

/// The pod of the head, but for its name.
pub(super) fn head(cluster: &RayCluster) -> Option<Value> {
    pod(cluster, wanted::template(cluster), &Op::CreateHead, "")
}

/// What the head pod of a cluster has and no other pod has.
pub(super) fn head_labels(cluster: &RayCluster) -> Value {
    let name = cluster.name_any();
    json!({
        labels::RAY_CLUSTER: name,
        labels::RAY_NODE_TYPE: "head",
        labels::RAY_IDENTIFIER: format!("{name}-head"),
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    })
}

fn set_metadata(metadata: &mut Value, node: Node<'_>, template: Template, name: &str) {
    let Node { cluster, group } = node;
    let of_ray = group.map_or(&cluster.spec.head_group_spec.labels, |group| &group.labels);
    let ty = if node.is_head() { "head" } else { "worker" };
    metadata["name"] = name.into();
    metadata["namespace"] = cluster.namespace().into();
    metadata["ownerReferences"] = json!([owner(cluster)]);
    let mut ours = json!(of_ray.clone().unwrap_or_default());
    lay(&mut ours, head_labels(cluster));
    lay(
        &mut ours,
        json!({
            "ray.io/is-ray-node": "yes",
            labels::RAY_NODE_TYPE: ty,
            labels::RAY_GROUP: group.map_or(labels::RAY_HEAD_GROUP, |group| &group.group_name),
            labels::RAY_IDENTIFIER: format!("{}-{ty}", cluster.name_any()),
        }),
    );
    lay(&mut metadata["labels"], ours);
    let storage = wanted::storage(cluster);
    let mut notes = json!({
        labels::RAY_TEMPLATE: format!("{:016x}", template.0),
        FT_ENABLED: storage.is_some().to_string(),
    });
    if let Some(storage) = storage {
        notes[HA_ENABLED] = "true".into();
        notes[EXTERNAL_STORAGE_NAMESPACE] = storage.namespace.into();
    }
    lay(&mut metadata["annotations"], notes);
}

/// The init container that ends when GCS answers: a worker that starts before gives up.
fn wait_for_gcs(spec: &mut Value, node: Node<'_>) {
    let container = &spec["containers"][0];
    let script = format!(
        "until ray health-check --address {address}:{port} > /dev/null 2>&1; do echo 'GCS of the head does not answer \
         yet'; sleep 5; done",
        address = node.head_address(),
        port = node.gcs_port(),
    );
    let resources = json!({"cpu": "200m", "memory": "256Mi"});
    let mut waits = json!({
        "name": "wait-gcs-ready",
        "image": container["image"],
        "command": ["/bin/bash", "-c", "--"],
        "args": [script],
        "env": container["env"],
        "resources": {"requests": resources, "limits": resources},
    });
    for field in ["imagePullPolicy", "securityContext", "volumeMounts", "envFrom"] {
        if !container[field].is_null() {
            waits[field] = container[field].clone();
        }
    }
    if let Some(list) = spec["initContainers"].as_array_mut() {
        list.push(waits);
    } else {
        spec["initContainers"] = json!([waits]);
    }
}
