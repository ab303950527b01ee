//! Defaults, as an apiserver fills them in while it decodes.

use serde_json::Value;

use crate::node::Node;

/// Fills in what is missing; `nulls` says what a null means where none is allowed.
pub(crate) fn apply(node: &Node, value: &mut Value, nulls: Nulls) {
    match value {
        Value::Object(object) => {
            drop_nulls(node, object, nulls);
            for (name, schema) in &node.properties {
                if let (Some(default), false) = (&schema.default, object.contains_key(name)) {
                    object.insert(name.clone(), default.clone());
                }
            }
            for (name, child) in object.iter_mut() {
                if let Some(schema) = node.properties.get(name).or(node.additional.as_deref()) {
                    apply(schema, child, nulls);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = node.items.as_deref() {
                for item in items {
                    apply(schema, item, nulls);
                }
            }
        }
        _ => {}
    }
}

/// What becomes of nulls that the schema does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// They mean "not set" and go. Tools print such nulls all the time (`creationTimestamp: null`).
    Dropped,
    /// Only a default takes their place.
    Kept,
}

fn drop_nulls(node: &Node, object: &mut serde_json::Map<String, Value>, nulls: Nulls) {
    object.retain(|name, child| {
        let schema = node.properties.get(name).or(node.additional.as_deref());
        let stays = |schema: &Node| schema.nullable || (nulls == Nulls::Kept && schema.default.is_none());
        !child.is_null() || schema.is_none_or(stays)
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Schema;

    #[test]
    fn defaults_fill_what_is_missing_at_every_depth_and_nothing_else() {
        let schema = Schema::new(&json!({"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "strategy": {"type": "object", "properties": {"type": {"type": "string", "default": "Rolling"}}},
            "roles": {"type": "array", "items": {"type": "object", "properties": {
                "n": {"type": "integer", "default": 2}}}},
        }}))
        .unwrap();
        let mut value = json!({"roles": [{}, {"n": 5}], "strategy": {"type": null}, "replicas": null});
        schema.default(&mut value);
        assert_eq!(
            value,
            json!({"replicas": 1, "roles": [{"n": 2}, {"n": 5}], "strategy": {"type": "Rolling"}})
        );
        let mut value = json!({"replicas": 3});
        schema.default(&mut value);
        assert_eq!(value, json!({"replicas": 3}));
    }
}
