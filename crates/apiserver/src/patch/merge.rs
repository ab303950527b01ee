//! Merge patch, RFC 7386 as Kubernetes has it.
use serde_json::{Map, Value};

use super::{PatchError, go};

/// Merges `patch` into a copy of `doc`. Only a patch that is an object is one.
pub fn merge(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(fields) => {
            let mut merged = doc.clone();
            if let Value::Object(target) = &mut merged {
                merge_fields(target, fields);
                return Ok(merged);
            }
            Ok(without_nulls(patch))
        }
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".into())),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_name(other)
        ))),
    }
}

fn merge_fields(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (target.get_mut(name), value) {
            (_, Value::Null) => {
                target.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge_fields(old, new),
            // What takes the place of an object is taken as it is, nulls in a list of objects included.
            (Some(old @ Value::Object(_)), new) => *old = new.clone(),
            (Some(old), new) => *old = without_nulls(new),
            (None, new) => {
                target.insert(name.clone(), without_nulls(new));
            }
        }
    }
}

/// A field that is null asks for nothing where there is nothing to remove. Unlike the RFC, Kubernetes drops it from
/// the objects of a new list too; an element that is null stays.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}
