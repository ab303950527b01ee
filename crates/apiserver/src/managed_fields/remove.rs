//! An object without some of its fields.
use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;
use super::typed::{Representation, Typed};

/// Takes away the members of a set. A map or list that loses its last part, and a single value that should lose a
/// part, becomes null.
pub(crate) fn remove(typed: Typed<'_>, value: &Value, fields: &Set) -> Value {
    match typed.form(value) {
        Representation::Scalar => value.clone(),
        Representation::List => remove_items(typed, value, fields),
        Representation::Map | Representation::Open => remove_fields(typed, value, fields),
    }
}

fn remove_items(typed: Typed<'_>, value: &Value, fields: &Set) -> Value {
    let Some(items) = value.as_array().filter(|_| !typed.atomic_list()) else { return Value::Null };
    let kept: Vec<Value> = items
        .iter()
        .enumerate()
        .filter_map(|(i, item)| keep(typed.item(), item, fields, &typed.stored_element(i, item)))
        .collect();
    if kept.is_empty() { Value::Null } else { Value::Array(kept) }
}

fn remove_fields(typed: Typed<'_>, value: &Value, fields: &Set) -> Value {
    let Some(map) = value.as_object().filter(|_| !typed.atomic_map()) else { return Value::Null };
    let kept: Map<String, Value> = map
        .iter()
        .filter_map(|(name, value)| {
            Some((name.clone(), keep(typed.field(name), value, fields, &Element::field(name))?))
        })
        .collect();
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn keep(typed: Typed<'_>, value: &Value, fields: &Set, element: &Element) -> Option<Value> {
    match fields.get(element) {
        None => Some(value.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(remove(typed, value, &node.below)),
    }
}
