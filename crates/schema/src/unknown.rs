//! Fields that a schema does not know: an apiserver drops them, people mistyped them.

use serde_json::Value;

use crate::{check::join, node::Node};

/// What every object has beside its own fields; the API server itself looks after these.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(crate) fn fields(root: &Node, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, child) in object.as_object().into_iter().flatten() {
        if !OBJECT_FIELDS.contains(&name.as_str()) {
            visit(root, name, child, "", &mut found);
        }
    }
    found
}

fn walk(node: &Node, value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(name, child)| visit(node, name, child, path, found));
        }
        Value::Array(items) => {
            let Some(schema) = node.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(schema, item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn visit(node: &Node, name: &str, child: &Value, path: &str, found: &mut Vec<String>) {
    let path = join(path, name);
    match node.properties.get(name).or(node.additional.as_deref()) {
        Some(schema) => walk(schema, child, &path, found),
        None if node.preserve_unknown => {}
        None => found.push(path),
    }
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
    }
}
