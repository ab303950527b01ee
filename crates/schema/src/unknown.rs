//! Fields that a schema does not know: an apiserver drops them, people mistyped them.

use serde_json::Value;

use crate::{check::join, node::Node};

/// The fields of every object; the API server checks them itself.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops them, and names them.
pub(crate) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if let Value::Object(object) = object {
        object.retain(|name, child| {
            OBJECT_FIELDS.contains(&name.as_str()) || is_known(root, name, child, "", &mut dropped)
        });
    }
    dropped
}

fn walk(node: &Node, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.retain(|name, child| is_known(node, name, child, path, dropped)),
        Value::Array(items) => {
            let Some(schema) = node.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                walk(schema, item, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

fn is_known(node: &Node, name: &str, child: &mut Value, path: &str, dropped: &mut Vec<String>) -> bool {
    let path = join(path, name);
    match node.properties.get(name).or(node.additional.as_deref()) {
        Some(schema) => walk(schema, child, &path, dropped),
        None if node.preserve_unknown => {}
        None => {
            dropped.push(path);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Schema;

    #[test]
    fn a_mistyped_field_is_named_and_preserved_ones_are_not() {
        let schema = Schema::new(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "pod": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "roles": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }}}}))
        .unwrap();
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {"replcias": 1, "labels": {"any": "x"}, "pod": {"new": 1}, "roles": [{"nmae": "a"}]}});
        assert_eq!(schema.unknown_fields(&object), ["spec.replcias", "spec.roles[0].nmae"]);

        let mut pruned = object;
        assert_eq!(schema.prune(&mut pruned), ["spec.replcias", "spec.roles[0].nmae"]);
        assert_eq!(pruned["spec"], json!({"labels": {"any": "x"}, "pod": {"new": 1}, "roles": [{}]}));
        assert_eq!(pruned["metadata"], json!({"name": "x", "labels": {"a": "b"}}));
    }
}
