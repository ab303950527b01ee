//! Pods: what the server writes into them, and what they must satisfy.
mod container;
mod update;
mod volume;

use serde_json::{Value, json};

use self::container::Containers;
pub use self::update::validate as validate_update;
use super::{
    cause::{Cause, each},
    meta, names,
    strategy::restore,
};

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map_or(&[], Vec::as_slice)
}

/// What the strategy of pods does, and those admission plugins that every cluster has and that need no other object:
/// the default service account, the priority of a pod without a class, and the tolerations of a failing node.
pub fn prepare_create(pod: &mut Value, now: &str) {
    let spec = &mut pod["spec"];
    let absent = [
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ];
    for (name, value) in absent {
        if spec.get(name).is_none() {
            spec[name] = value;
        }
    }
    tolerate_failing_nodes(spec);
    pod["status"] = json!({ "phase": "Pending", "qosClass": qos(&pod["spec"]) });
    if pod["spec"].get("schedulingGates").is_some() {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Keeps the priority and its policy, which the server sets, when an update leaves them empty.
pub fn prepare_update(old: &Value, new: &mut Value) {
    for name in ["priority", "preemptionPolicy"] {
        if new["spec"].get(name).is_none() {
            restore(new, old, "/spec", name);
        }
    }
    tolerate_failing_nodes(&mut new["spec"]);
}

/// The kubelet writes the status and may neither change owners nor lose the class of service.
pub fn prepare_status(old: &Value, new: &mut Value) {
    restore(new, old, "/metadata", "ownerReferences");
    restore(new, old, "/metadata", "deletionTimestamp");
    for name in ["qosClass", "observedGeneration"] {
        if new["status"].get(name).is_none() {
            restore(new, old, "/status", name);
        }
    }
}

fn tolerate_failing_nodes(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |toleration: &Value| {
            let (its, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (its == key || its.is_empty()) && matches!(effect, "NoExecute" | "")
        };
        if list(spec, "tolerations").iter().any(tolerates) {
            continue;
        }
        let toleration =
            json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        match &mut spec["tolerations"] {
            Value::Array(list) => list.push(toleration),
            none => *none = json!([toleration]),
        }
    }
}

/// The class of service: guaranteed if every container is limited to what it requests, best effort if none asks.
fn qos(spec: &Value) -> &'static str {
    let own = spec.get("resources").filter(|resources| !resources.is_null());
    let containers = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    let resources: Vec<&Value> = match own {
        Some(own) => vec![own],
        None => containers.map(|container| &container["resources"]).collect(),
    };
    let amount = |resources: &Value, way: &str, name: &str| {
        resources[way][name].as_str().filter(|amount| *amount != "0").map(str::to_owned)
    };
    let ways = [("requests", "cpu"), ("requests", "memory"), ("limits", "cpu"), ("limits", "memory")];
    if !resources.iter().any(|r| ways.iter().any(|(way, name)| amount(r, way, name).is_some())) {
        return "BestEffort";
    }
    let full = |resources: &&Value| {
        ["cpu", "memory"].into_iter().all(|name| {
            let limit = amount(resources, "limits", name);
            limit.is_some() && limit == amount(resources, "requests", name)
        })
    };
    if resources.iter().all(full) { "Guaranteed" } else { "Burstable" }
}

/// What is wrong with a new pod, its metadata apart.
pub fn validate(pod: &Value) -> Vec<Cause> {
    let mut causes = validate_spec(&pod["spec"]);
    if pod["spec"].get("ephemeralContainers").is_some() {
        causes.push(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if pod["spec"].get("nodeName").is_some() && pod["spec"].get("schedulingGates").is_some() {
        let says = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden("spec.nodeName", says));
    }
    causes
}

fn validate_spec(spec: &Value) -> Vec<Cause> {
    let (volumes, mut causes) = volume::validate(list(spec, "volumes"));
    causes.extend(Containers { volumes: &volumes }.validate(spec));
    causes.extend(one_of(spec, "restartPolicy", "spec", &["Always", "OnFailure", "Never"]));
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    causes.extend(one_of(spec, "dnsPolicy", "spec", &dns));
    causes.extend(meta::labels(&spec["nodeSelector"], "spec.nodeSelector"));
    for (name, rule) in NAMED {
        if let Some(value) = spec[*name].as_str().filter(|value| !value.is_empty()) {
            causes.extend(each(&format!("spec.{name}"), value, rule(value)));
        }
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let says = "must be between 1 and 2147483647, inclusive";
        causes.push(Cause::invalid("spec.activeDeadlineSeconds", &json!(seconds), says));
    }
    causes.extend(tolerations(spec));
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        causes.extend(each(&format!("spec.schedulingGates[{i}]"), name, names::qualified(name)));
    }
    causes.extend(spread(spec));
    causes
}

fn spread(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let field = format!("spec.topologySpreadConstraints[{i}]");
        if constraint["maxSkew"].as_i64().is_none_or(|skew| skew <= 0) {
            let says = "must be greater than zero";
            causes.push(Cause::invalid(format!("{field}.maxSkew"), &constraint["maxSkew"], says));
        }
        if text(constraint, "topologyKey").is_empty() {
            causes.push(Cause::required(format!("{field}.topologyKey"), "can not be empty"));
        }
        causes.extend(one_of(constraint, "whenUnsatisfiable", &field, &["DoNotSchedule", "ScheduleAnyway"]));
    }
    causes
}

type Rule = fn(&str) -> Vec<String>;

/// Fields that hold the name of something else.
const NAMED: &[(&str, Rule)] = &[
    ("serviceAccountName", names::subdomain),
    ("nodeName", names::subdomain),
    ("hostname", names::label),
    ("subdomain", names::label),
    ("priorityClassName", names::subdomain),
    ("runtimeClassName", names::subdomain),
];

/// Checks a field with a set of allowed values; it may be absent.
fn one_of(of: &Value, name: &str, field: &str, supported: &[&str]) -> Option<Cause> {
    let value = of.get(name).filter(|value| !supported.contains(&value.as_str().unwrap_or_default()))?;
    Some(Cause::unsupported(format!("{field}.{name}"), value, supported))
}

fn tolerations(spec: &Value) -> Vec<Cause> {
    let each = list(spec, "tolerations").iter().enumerate();
    each.flat_map(|(i, toleration)| validate_toleration(toleration, &format!("spec.tolerations[{i}]")))
        .collect()
}

fn validate_toleration(toleration: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let at = |part: &str| format!("{field}.{part}");
    let (key, operator, effect) =
        (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
    if !key.is_empty() {
        causes.extend(each(&at("key"), key, names::qualified(key)));
    } else if operator != "Exists" {
        let says =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(Cause::invalid(at("operator"), &json!(operator), says));
    }
    if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
        let says = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(Cause::invalid(at("effect"), &json!(effect), says));
    }
    let value = text(toleration, "value");
    match operator {
        "Equal" | "" => {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                causes.push(Cause::invalid(at("operator"), &json!(value), &wrong.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let says = "value must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(at("operator"), &json!(value), says));
        }
        "Exists" => {}
        _ => causes.push(Cause::unsupported(at("operator"), &json!(operator), &["Equal", "Exists"])),
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let supported = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        causes.push(Cause::unsupported(at("effect"), &json!(effect), supported));
    }
    causes
}
