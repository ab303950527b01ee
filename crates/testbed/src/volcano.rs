//! The part of Volcano that is not a program: the kind by which it is told what is placed together.

use serde_json::{Value, json};

/// The definition of a PodGroup, as far as Segue and the tests write one. Those of 1.14 know parts of groups; older ones drop
/// what is said of them.
pub fn pod_groups(with_parts: bool) -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = json!({
        "minMember": {"type": "integer", "format": "int32"},
        "minResources": anything,
        "queue": {"type": "string", "default": "default"},
        "networkTopology": anything,
    });
    if with_parts {
        spec["subGroupPolicy"] = json!({"type": "array", "items": anything});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": spec}, "status": anything},
                }},
            }],
        },
    })
}
