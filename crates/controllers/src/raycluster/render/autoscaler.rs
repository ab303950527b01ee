//! The container of Ray's autoscaler, beside the head.

use api::raycluster::{AutoscalerOptions, AutoscalerVersion, ImagePullPolicy, RayCluster};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::env;
use crate::{
    json::push,
    labels,
    raycluster::{autoscaling, wanted},
};

/// Where Ray keeps its logs, which the autoscaler reads.
const LOGS: (&str, &str) = ("ray-logs", "/tmp/ray");

const COMMAND: &str = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace \
                       $(RAY_CLUSTER_NAMESPACE)";

/// What every pod of an autoscaled cluster needs: the second autoscaler replaces pods itself.
pub(super) fn prepare(spec: &mut Value, cluster: &RayCluster) {
    if wanted::is_autoscaled(cluster) && version(cluster) == Some(AutoscalerVersion::V2) {
        spec["restartPolicy"] = "Never".into();
    }
}

/// Adds the autoscaler to the pod of the head.
pub(super) fn add(spec: &mut Value, cluster: &RayCluster) {
    if !wanted::is_autoscaled(cluster) {
        return;
    }
    let head = &mut spec["containers"][0];
    if let Some(version) = version(cluster) {
        let is_second = (version == AutoscalerVersion::V2).to_string();
        env::add(head, &[env::text("RAY_enable_autoscaler_v2", &is_second)]);
    }
    let logs = json!({"name": LOGS.0, "mountPath": LOGS.1});
    let mut mounts = head["volumeMounts"].as_array().into_iter().flatten();
    if !mounts.any(|mount| mount["mountPath"] == LOGS.1) {
        push(&mut head["volumeMounts"], logs.clone());
        push(&mut spec["volumes"], json!({"name": LOGS.0, "emptyDir": {}}));
    }
    let image = spec["containers"][0]["image"].clone();
    let container = container(cluster, &image, &logs);
    push(&mut spec["containers"], container);
    spec["serviceAccountName"] = autoscaling::account(cluster).into();
}

fn version(cluster: &RayCluster) -> Option<AutoscalerVersion> {
    cluster.spec.autoscaler_options.as_ref().and_then(|options| options.version)
}

fn container(cluster: &RayCluster, image: &Value, logs: &Value) -> Value {
    let none = AutoscalerOptions::default();
    let options = cluster.spec.autoscaler_options.as_ref().unwrap_or(&none);
    let size = json!({"cpu": "500m", "memory": "512Mi"});
    let resources = options.resources.as_ref().map(|it| it.json().clone());
    let mut container = json!({
        "name": "autoscaler",
        "image": options.image.as_ref().map_or_else(|| image.clone(), |image| json!(image)),
        "imagePullPolicy": options.image_pull_policy.unwrap_or(ImagePullPolicy::IfNotPresent),
        "command": ["/bin/bash", "-c", "--"],
        "args": [COMMAND],
        "env": options.env.iter().map(|it| it.json().clone()).collect::<Vec<_>>(),
        "resources": resources.unwrap_or_else(|| json!({"limits": size, "requests": size})),
        "volumeMounts": [logs],
    });
    env::add(
        &mut container,
        &[
            env::field("RAY_CLUSTER_NAME", &format!("metadata.labels['{}']", labels::RAY_CLUSTER)),
            env::text("RAY_CLUSTER_NAMESPACE", &cluster.namespace().unwrap_or_default()),
            env::field("RAY_HEAD_POD_NAME", "metadata.name"),
            env::text("KUBERAY_CRD_VER", "v1"),
            env::text("KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND),
        ],
    );
    if !options.command.is_empty() {
        container["command"] = json!(options.command);
    }
    if !options.args.is_empty() {
        container["args"] = json!(options.args);
    }
    if !options.env_from.is_empty() {
        container["envFrom"] = options.env_from.iter().map(|it| it.json().clone()).collect();
    }
    if let Some(context) = &options.security_context {
        container["securityContext"] = context.json().clone();
    }
    for mount in &options.volume_mounts {
        push(&mut container["volumeMounts"], mount.json().clone());
    }
    container
}
