//! The volumes that Ray needs: memory that its processes share.

use serde_json::{Value, json};

use super::Node;
use crate::json::push;

const SHARED: (&str, &str) = ("shared-mem", "/dev/shm");

/// Mounts memory where Ray keeps its objects, unless the template does, or Ray keeps them elsewhere.
pub(super) fn mount(spec: &mut Value, Node { cluster, group }: Node<'_>) {
    let params =
        group.map_or(&cluster.spec.head_group_spec.ray_start_params, |group| &group.ray_start_params);
    let elsewhere = params.as_ref().is_some_and(|params| params.contains_key("plasma-directory"));
    let container = &spec["containers"][0];
    let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
    if elsewhere || mounts.any(|mount| mount["mountPath"] == SHARED.1) {
        return;
    }
    let resources = &container["resources"];
    let memory = [&resources["limits"]["memory"], &resources["requests"]["memory"]];
    let mut volume = json!({"name": SHARED.0, "emptyDir": {"medium": "Memory"}});
    if let Some(limit) = memory.into_iter().find(|amount| !amount.is_null()) {
        volume["emptyDir"]["sizeLimit"] = limit.clone();
    }
    push(&mut spec["volumes"], volume);
    push(&mut spec["containers"][0]["volumeMounts"], json!({"name": SHARED.0, "mountPath": SHARED.1}));
}
