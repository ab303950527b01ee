//! How Ray is started: the flags that the spec gives, those that follow from the container, and those that the pod needs.

use api::{Texts, raycluster::RayCluster};
use kube::ResourceExt;
use schema::quantity::Quantity;
use serde_json::{Value, json};

use super::{Node, wanted};

/// Flags whose value may be `false`. Any other flag that is false is left out.
const WITH_FALSE: [&str; 3] = ["log-color", "include-dashboard", "include-log-monitor"];

/// Annotation of a cluster: the commands of its containers stay as they are.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// The command that starts Ray.
pub(super) fn start(node: Node<'_>, container: &Value) -> String {
    let head = if node.is_head() { " --head" } else { "" };
    let flags: Vec<String> =
        params(node, container).iter().filter_map(|(name, value)| flag(name, value)).collect();
    format!("ray start{head}{}", flags.concat())
}

fn flag(name: &str, value: &str) -> Option<String> {
    let is = |text: &str| value.eq_ignore_ascii_case(text) && !WITH_FALSE.contains(&name);
    if is("false") {
        return None;
    }
    Some(if is("true") { format!(" --{name}") } else { format!(" --{name}={value}") })
}

/// The flags, by name: what the spec says counts.
pub(super) fn params(node: Node<'_>, container: &Value) -> Texts {
    let Node { cluster, group } = node;
    let head = &cluster.spec.head_group_spec;
    let (given, resources, labels) = match group {
        None => (&head.ray_start_params, &head.resources, &head.labels),
        Some(group) => (&group.ray_start_params, &group.resources, &group.labels),
    };
    let mut params = given.clone().unwrap_or_default();
    let mut add = |name: &str, value: String| {
        params.entry(name.to_owned()).or_insert(value);
    };
    if node.is_head() {
        add("dashboard-host", "0.0.0.0".to_owned());
        if wanted::is_autoscaled(cluster) {
            // The autoscaler runs in a container of its own.
            add("no-monitor", "true".to_owned());
        }
        let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
        if options.is_some_and(|options| options.redis_username.is_some()) {
            add("redis-username", "$REDIS_USERNAME".to_owned());
        }
        if options.is_some_and(|options| options.redis_password.is_some()) {
            add("redis-password", "$REDIS_PASSWORD".to_owned());
        }
    } else {
        add("address", format!("{}:{}", node.head_address(), node.gcs_port()));
    }
    add("metrics-export-port", "8080".to_owned());
    add("block", "true".to_owned());
    add("dashboard-agent-listen-port", "52365".to_owned());
    if let Some(labels) = labels.as_ref().filter(|labels| !labels.is_empty()) {
        let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        add("labels", pairs.join(","));
    }
    let sizes = match resources.as_ref().filter(|it| !it.is_empty()) {
        Some(resources) => given_sizes(resources),
        None => sizes(container),
    };
    for (name, value) in sizes {
        params.entry(name).or_insert(value);
    }
    params
}

/// What the spec says that Ray has, in flags.
fn given_sizes(resources: &Texts) -> Texts {
    let mut flags = Texts::new();
    let mut custom = json!({});
    for (name, text) in resources {
        let amount = Quantity::parse(text).ok();
        let units = amount.map(Quantity::units).unwrap_or_default();
        match name.as_str() {
            "CPU" | "cpu" => drop(flags.insert("num-cpus".to_owned(), units.to_string())),
            "memory" => drop(flags.insert("memory".to_owned(), units.to_string())),
            name if is_gpu(name) || name == "GPU" => {
                drop(flags.insert("num-gpus".to_owned(), units.to_string()));
            }
            name => custom[name] = units.into(),
        }
    }
    add_custom(&mut flags, &custom);
    flags
}

/// What the container may use, in flags.
fn sizes(container: &Value) -> Texts {
    let resources = &container["resources"];
    let amount =
        |list: &str, name: &str| Quantity::read(resources[list].get(name)?).ok().filter(|it| !it.is_zero());
    let mut flags = Texts::new();
    if let Some(cpu) = amount("limits", "cpu").or_else(|| amount("requests", "cpu")) {
        flags.insert("num-cpus".to_owned(), cpu.units().to_string());
    }
    if let Some(memory) = amount("limits", "memory") {
        flags.insert("memory".to_owned(), memory.units().to_string());
    }
    let mut custom = json!({});
    for name in resources["limits"].as_object().into_iter().flat_map(|limits| limits.keys()) {
        let Some(units) = amount("limits", name).map(Quantity::units) else { continue };
        if is_gpu(name) {
            flags.entry("num-gpus".to_owned()).or_insert_with(|| units.to_string());
        }
        match name.as_str() {
            "google.com/tpu" => custom["TPU"] = units.into(),
            "aws.amazon.com/neuroncore" => custom["neuron_cores"] = units.into(),
            _ => {}
        }
    }
    add_custom(&mut flags, &custom);
    flags
}

/// Resources that Ray has no flag for, for a shell.
fn add_custom(flags: &mut Texts, custom: &Value) {
    if custom.as_object().is_some_and(|custom| !custom.is_empty()) {
        flags.insert("resources".to_owned(), format!("'{custom}'"));
    }
}

fn is_gpu(name: &str) -> bool {
    name.ends_with("gpu") || name.starts_with("nvidia.com/mig-")
}

/// Has the container start Ray, after its own command where it has one that does not.
pub(super) fn set(container: &mut Value, cluster: &RayCluster, start: &str) {
    if cluster.annotations().get(OVERWRITE).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return;
    }
    let words = ["command", "args"].map(|list| container[list].as_array().cloned().unwrap_or_default());
    let words: Vec<String> =
        words.concat().iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let theirs = words.join(" ");
    if theirs.contains("ray start") {
        return;
    }
    let first = if theirs.is_empty() { String::new() } else { format!("{theirs} && ") };
    container["command"] = json!(["/bin/bash", "-c", "--"]);
    container["args"] = json!([format!("{first}ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {start}")]);
}
