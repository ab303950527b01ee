//! Canonical JSON: objects as Go prints them, so that two spellings of one object are equal. What an operator in Go
//! stored has passed through its structs; what people write has not.

use schema::{
    quantity,
    structs::{self, Is, Type},
};
use serde_json::{Map, Value, json};

/// Makes a pod template canonical, if it is an object.
pub(crate) fn pod_template(template: &mut Value) {
    if template.is_object() {
        canonicalize("meta/v1.ObjectMeta", &mut template["metadata"]);
        canonicalize("core/v1.PodSpec", &mut template["spec"]);
    }
}

/// Makes a value what Go prints after it has read it into the struct of this name.
pub(crate) fn canonicalize(name: &str, value: &mut Value) {
    if value.is_null() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else { return };
    map.retain(|_, value| !value.is_null());
    for field in structs::fields(name) {
        let canonical =
            map.remove(field.name).map_or_else(|| field.ty.zero(), |value| canonical(&field.ty, value));
        if !field.omits(&canonical) {
            map.insert(field.name.to_owned(), canonical);
        }
    }
}

fn canonical(ty: &Type, mut value: Value) -> Value {
    match (&ty.is, value) {
        (_, Value::Null) => ty.zero(),
        (Is::Pointer(of), value) => canonical(of, value),
        (Is::List(of), Value::Array(list)) => list.into_iter().map(|item| canonical(of, item)).collect(),
        (Is::Map(of), Value::Object(map)) => {
            map.into_iter().map(|(key, item)| (key, canonical(of, item))).collect::<Map<_, _>>().into()
        }
        (Is::Quantity, amount) => quantity::canonical(&amount).map_or(amount, Value::from),
        (Is::Struct, object) => {
            value = object;
            canonicalize(ty.name(), &mut value);
            value
        }
        (_, other) => other,
    }
}
