//! The environment of the container that runs Ray. What the template sets counts.

use api::raycluster::{GcsFaultToleranceOptions, RedisCredential};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Node, wanted};
use crate::labels;

/// How long a worker tries to reach GCS while there is no head, in seconds, where external storage will bring it back.
const RECONNECT: &str = "600";

/// How long the controller of Serve waits for replicas that were there before the head was lost, in seconds, and the two names
/// of that limit. By default it kills them after 30 s. The nodes of the workers may need longer to find the next head: its
/// name has a new address, and gRPC asks for addresses at most every 30 s.
const RECOVERY: &str = "300";
const RECOVERY_LIMITS: [&str; 2] = ["RAY_SERVE_SLOW_STARTUP_WARNING_S", "SERVE_SLOW_STARTUP_WARNING_S"];

/// Adds the variables that the container does not have.
pub(super) fn add(container: &mut Value, variables: &[Value]) {
    let mut list = container["env"].as_array().cloned().unwrap_or_default();
    for variable in variables {
        if !list.iter().any(|theirs| theirs["name"] == variable["name"]) {
            list.push(variable.clone());
        }
    }
    container["env"] = list.into();
}

/// Where the head is, for workers and for what runs before Ray.
pub(super) fn head_of(node: Node<'_>) -> Vec<Value> {
    if node.is_head() {
        return Vec::new();
    }
    let short = super::services::head_name(node.cluster);
    vec![text("FQ_RAY_IP", &node.head_address()), text("RAY_IP", &short)]
}

pub(super) fn set(container: &mut Value, node: Node<'_>, start: &str) {
    let port = node.gcs_port();
    let host = if node.is_head() { "127.0.0.1".to_owned() } else { node.head_address() };
    let of_label = |label: &str| format!("metadata.labels['{label}']");
    let mut ours = head_of(node);
    ours.extend([
        field("RAY_CLUSTER_NAME", &of_label(labels::RAY_CLUSTER)),
        text("RAY_CLUSTER_NAMESPACE", &node.cluster.namespace().unwrap_or_default()),
        field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        field("RAY_NODE_TYPE_NAME", &of_label(labels::RAY_GROUP)),
        text("KUBERAY_GEN_RAY_START_CMD", start),
        text("RAY_PORT", port),
        text("RAY_ADDRESS", &format!("{host}:{port}")),
        text("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        text("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
    ]);
    if let Some(storage) = wanted::storage(node.cluster) {
        ours.push(text("RAY_external_storage_namespace", &storage.namespace));
        if node.is_head() {
            ours.extend(RECOVERY_LIMITS.map(|name| text(name, RECOVERY)));
            match storage.options {
                Some(options) => ours.extend(redis(options)),
                None => ours.extend(password_param(node)),
            }
        } else {
            ours.push(text("RAY_gcs_rpc_server_reconnect_timeout_s", RECONNECT));
        }
    }
    add(container, &ours);
}

/// Where Redis is, and who the head is to it.
fn redis(options: &GcsFaultToleranceOptions) -> Vec<Value> {
    let address = options.redis_address.as_ref().map(|address| text("RAY_REDIS_ADDRESS", address));
    let credentials =
        [("REDIS_USERNAME", &options.redis_username), ("REDIS_PASSWORD", &options.redis_password)];
    let credentials = credentials.into_iter().filter_map(|(name, it)| Some(credential(name, it.as_ref()?)));
    address.into_iter().chain(credentials).collect()
}

fn credential(name: &str, RedisCredential { value, value_from }: &RedisCredential) -> Value {
    match value_from {
        Some(from) => json!({"name": name, "valueFrom": from.json()}),
        None => text(name, value.as_deref().unwrap_or_default()),
    }
}

/// The password that the head is started with: what cleans Redis up needs it, too.
fn password_param(node: Node<'_>) -> Option<Value> {
    let params = node.cluster.spec.head_group_spec.ray_start_params.as_ref();
    let password = params.and_then(|params| params.get("redis-password"));
    password.filter(|it| !it.is_empty() && !it.starts_with('$')).map(|it| text("REDIS_PASSWORD", it))
}

pub(super) fn text(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

pub(super) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}
