//! The built-in plugins: what changes a pod before it is made.

use api::modelserving::{ModelServing, Plugin, PluginTarget, Role};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::render::{Place, group_name};
use crate::{digest::sha1, json::lay, labels};

/// Has every plugin change a pod, in their order.
pub(super) fn change(serving: &ModelServing, role: &Role, place: Place<'_>, pod: &mut Value) {
    for plugin in serving.spec.plugins.iter().filter(|plugin| concerns(plugin, role, place)) {
        match plugin.name.as_str() {
            "demo-pod-tweaks" => tweak(plugin.config.as_ref().unwrap_or(&Value::Null), pod),
            "lws-standard-labels" => label(serving, place, pod),
            _ => {}
        }
    }
}

/// The plugins that do not exist, and so change nothing.
pub(super) fn unknown(serving: &ModelServing) -> impl Iterator<Item = &str> {
    let names = serving.spec.plugins.iter().map(|plugin| plugin.name.as_str());
    names.filter(|name| !matches!(*name, "demo-pod-tweaks" | "lws-standard-labels"))
}

fn concerns(plugin: &Plugin, role: &Role, place: Place<'_>) -> bool {
    let Some(scope) = &plugin.scope else { return true };
    let is_of_role = scope.roles.is_empty() || scope.roles.contains(&role.name);
    let is_target = match scope.target {
        None | Some(PluginTarget::All) => true,
        Some(PluginTarget::Entry) => place.index == 0,
        Some(PluginTarget::Worker) => place.index > 0,
    };
    is_of_role && is_target
}

/// A runtime class, annotations and variables, as they are told.
fn tweak(config: &Value, pod: &mut Value) {
    if let Some(class) = config["runtimeClassName"].as_str() {
        pod["spec"]["runtimeClassName"] = class.into();
    }
    if config["annotations"].is_object() {
        lay(&mut pod["metadata"]["annotations"], config["annotations"].clone());
    }
    let variables = config["env"].as_array().cloned().unwrap_or_default();
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        env.retain(|theirs| variables.iter().all(|variable| variable["name"] != theirs["name"]));
        env.extend(variables.iter().cloned());
        if !env.is_empty() {
            container["env"] = env.into();
        }
    }
}

/// The labels that tools of LeaderWorkerSet look for.
fn label(serving: &ModelServing, place: Place<'_>, pod: &mut Value) {
    let group = group_name(serving, place.group);
    let key = format!("{}/{group}", serving.namespace().unwrap_or_default());
    lay(
        &mut pod["metadata"]["labels"],
        json!({
            labels::SET_NAME: serving.name_any(),
            labels::GROUP_INDEX: place.group.to_string(),
            labels::WORKER_INDEX: place.index.to_string(),
            labels::GROUP_KEY: sha1(&key),
        }),
    );
}
