//! The CustomResourceDefinition of a kind.

use serde_json::{Value, json};

use crate::kind::Kind;

/// A CEL rule and the sentence for who breaks it. The message is an expression too, so that it can name the value:
/// numbers go in by `format`, because an apiserver takes `string(number)` for text without a bound and refuses it.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "messageExpression": message, "message": "this combination of values is not allowed"})
}

/// A rule whose error points at a field below the one that carries the rule.
pub(crate) fn rule_at(field: &str, text: &str, message: &str) -> Value {
    let mut rule = rule(text, message);
    rule["fieldPath"] = json!(field);
    rule
}

/// A rule about two states of a field, with a plain sentence.
pub(crate) fn transition(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

pub(crate) fn build(kind: &Kind) -> Value {
    let mut subresources = json!({"status": {}});
    if let Some(scale) = &kind.scale {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": scale.selector,
        });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name()},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": format!("{}List", kind.name),
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": kind.short_names,
                "categories": kind.categories,
            },
            "scope": "Namespaced",
            "versions": [{
                "name": kind.version,
                "served": true,
                "storage": true,
                "subresources": subresources,
                "additionalPrinterColumns": columns(kind),
                "schema": {"openAPIV3Schema": root_schema(kind)},
            }],
        },
    })
}

/// The schema of the whole object.
pub(crate) fn root_schema(kind: &Kind) -> Value {
    let mut schema = json!({
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": name_schema(kind.longest_name)}},
            "spec": (kind.spec)(),
            "status": (kind.status)(),
        },
    });
    if !kind.rules.is_empty() {
        schema["x-kubernetes-validations"] = kind.rules.iter().map(|r| rule(r.rule, r.message)).collect();
    }
    schema
}

/// Names become labels and host names: a DNS label that starts with a letter.
fn name_schema(longest: u32) -> Value {
    json!({"type": "string", "maxLength": longest, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"})
}

fn columns(kind: &Kind) -> Value {
    let column = |name: &str, ty: &str, path: &str, wide: bool| json!({"name": name, "type": ty, "jsonPath": path, "priority": i32::from(wide)});
    // A sentence is as long as it is: what stood behind it would have no place.
    let (sentences, own): (Vec<_>, Vec<_>) = kind.columns.iter().partition(|c| c.path == ".status.message");
    let age = column("Age", "date", ".metadata.creationTimestamp", false);
    let column = |c: &crate::kind::Column| column(c.name, c.ty, c.path, c.wide);
    own.into_iter().map(column).chain([age]).chain(sentences.into_iter().map(column)).collect()
}
