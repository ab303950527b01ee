//! What may change in a pod: very little.
use serde_json::{Value, json};

use super::{list, text, validate_spec};
use crate::builtin::cause::Cause;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                          `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                          `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a pod that replaces another, its metadata apart.
pub fn validate(new: &Value, old: &Value) -> Vec<Cause> {
    let (new, old) = (&new["spec"], &old["spec"]);
    let mut causes = validate_spec(new);
    for group in ["containers", "initContainers"] {
        if list(new, group).len() != list(old, group).len() {
            let says = "pod updates may not add or remove containers";
            causes.push(Cause::forbidden(format!("spec.{group}"), says));
            return causes;
        }
    }
    // Said once more, as upstream does.
    for (i, _) in list(new, "containers").iter().enumerate().filter(|(_, c)| text(c, "image").is_empty()) {
        causes.push(Cause::required(format!("spec.containers[{i}].image"), ""));
    }
    causes.extend(deadline(new, old));
    causes.extend(tolerations(new, old));
    causes.extend(gates(new, old));
    let changed = changes(&without_what_may_change(new, old), &without_what_may_change(old, old));
    if !changed.is_empty() {
        // A kube-apiserver prints the difference of two Go structs here.
        causes.push(Cause::forbidden("spec", &format!("{MAY_CHANGE}\nchanged: {}\n", changed.join(", "))));
    }
    causes
}

fn deadline(new: &Value, old: &Value) -> Option<Cause> {
    let field = "spec.activeDeadlineSeconds";
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (None, Some(_)) => {
            let says = "must not update from a positive integer to nil value";
            Some(Cause::invalid(field, &Value::Null, says))
        }
        (Some(new), Some(old)) if new > old => {
            Some(Cause::invalid(field, &json!(new), "must be less than or equal to previous value"))
        }
        _ => None,
    }
}

fn tolerations(new: &Value, old: &Value) -> Option<Cause> {
    let timeless = |toleration: &Value| {
        let mut map = toleration.as_object().cloned().unwrap_or_default();
        map.remove("tolerationSeconds");
        map
    };
    let kept = |old: &Value| list(new, "tolerations").iter().any(|new| timeless(new) == timeless(old));
    let says = "existing toleration can not be modified except its tolerationSeconds";
    (!list(old, "tolerations").iter().all(kept)).then(|| Cause::forbidden("spec.tolerations", says))
}

fn gates(new: &Value, old: &Value) -> Vec<Cause> {
    let known = |gate: &Value| list(old, "schedulingGates").iter().any(|old| old["name"] == gate["name"]);
    let added = list(new, "schedulingGates").iter().enumerate().filter(|(_, gate)| !known(gate));
    let says = |gate: &Value| {
        format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"))
    };
    added.map(|(i, gate)| Cause::forbidden(format!("spec.schedulingGates[{i}].name"), &says(gate))).collect()
}

fn without_what_may_change(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    let negative = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    let gated = !list(old, "schedulingGates").is_empty();
    if let Value::Object(map) = &mut spec {
        map.retain(|name, value| match name.as_str() {
            "activeDeadlineSeconds" | "tolerations" | "schedulingGates" => false,
            "terminationGracePeriodSeconds" => !(negative && (*value == 1 || value.as_i64() < Some(0))),
            // The node selector of a pod that is not scheduled yet may change.
            "nodeSelector" | "affinity" => !gated,
            _ => true,
        });
    }
    for group in ["containers", "initContainers"] {
        let containers = spec.get_mut(group).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("image");
        }
    }
    spec
}

/// The fields in which two specs differ.
fn changes(new: &Value, old: &Value) -> Vec<String> {
    let names = |spec: &Value| spec.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let mut all: Vec<String> =
        [names(new), names(old)].into_iter().flat_map(|names: Vec<String>| names).collect();
    all.sort();
    all.dedup();
    all.retain(|name| new[name] != old[name]);
    all.into_iter().map(|name| format!("spec.{name}")).collect()
}
