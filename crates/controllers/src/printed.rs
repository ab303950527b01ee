//! Objects as Go prints them, so that two texts of one thing are one: what is stored by an operator in Go has passed
//! through its structs, and what people write has not.

use schema::{
    quantity,
    structs::{self, Is, Type},
};
use serde_json::{Map, Value, json};

/// A pod template as Go prints it, if there is one.
pub(crate) fn pod(template: &mut Value) {
    if template.is_object() {
        through("meta/v1.ObjectMeta", &mut template["metadata"]);
        through("core/v1.PodSpec", &mut template["spec"]);
    }
}

/// What Go prints of a value after it has read it into this struct.
pub(crate) fn through(name: &str, value: &mut Value) {
    if value.is_null() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else { return };
    map.retain(|_, value| !value.is_null());
    for field in structs::fields(name) {
        let printed =
            map.remove(field.name).map_or_else(|| field.ty.zero(), |value| printed(&field.ty, value));
        if !field.omits(&printed) {
            map.insert(field.name.to_owned(), printed);
        }
    }
}

fn printed(ty: &Type, mut value: Value) -> Value {
    match (&ty.is, value) {
        (_, Value::Null) => ty.zero(),
        (Is::Pointer(of), value) => printed(of, value),
        (Is::List(of), Value::Array(list)) => list.into_iter().map(|item| printed(of, item)).collect(),
        (Is::Map(of), Value::Object(map)) => {
            map.into_iter().map(|(key, item)| (key, printed(of, item))).collect::<Map<_, _>>().into()
        }
        (Is::Quantity, amount) => quantity::canonical(&amount).map_or(amount, Value::from),
        (Is::Struct, object) => {
            value = object;
            through(ty.name(), &mut value);
            value
        }
        (_, other) => other,
    }
}
