//! From what schemars writes to what a CRD may hold.
//!
//! A structural schema has one type per place, no references, no null as a type, and plain enumerations.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The structural schema of a type.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// The structural schema of a status. It has no defaults, because controllers write every field.
pub(crate) fn status_of<T: JsonSchema>() -> Value {
    let mut schema = schema_of::<T>();
    drop_defaults(&mut schema);
    schema
}

fn drop_defaults(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("default");
        subschemas(object, drop_defaults);
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn anything() -> Value {
    json!({PRESERVE: true})
}

fn tidy(schema: &mut Value) {
    // `true` and `{}` are "anything" to JSON Schema; a CRD says so in its own word.
    if schema.as_bool() == Some(true) || schema.as_object().is_some_and(Map::is_empty) {
        *schema = anything();
        return;
    }
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    unwrap_optional(object);
    plain_enumeration(object);
    if let Some(Value::Array(types)) = object.get("type")
        && let Some(ty) = types.iter().find(|ty| **ty != "null")
    {
        object.insert("type".into(), ty.clone());
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    object.retain(|keyword, value| keyword != "default" || !value.is_null());
    if object.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        object.remove("format");
    }
    if object.get("additionalProperties") == Some(&json!(false)) {
        object.remove("additionalProperties");
    }
    subschemas(object, tidy);
    // A map of anything is an object that keeps what it does not know.
    if object.get("additionalProperties") == Some(&anything()) {
        object.remove("additionalProperties");
        object.insert(PRESERVE.into(), true.into());
    }
}

/// `Option<T>` is "T or null" to schemars. In a CRD an absent field is absent, and a null is dropped.
fn unwrap_optional(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("anyOf") else { return };
    let real: Vec<&Value> = choices.iter().filter(|choice| choice["type"] != "null").collect();
    let ([only], true) = (real.as_slice(), choices.len() == 2) else { return };
    let Some(only) = only.as_object().cloned() else { return };
    object.remove("anyOf");
    for (keyword, value) in only {
        // What is said about the field (its description, its bounds) goes before what is said about its type.
        object.entry(keyword).or_insert(value);
    }
}

/// An enumeration whose variants have doc comments is a choice of constants to schemars.
fn plain_enumeration(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("oneOf") else { return };
    let values = choices.iter().flat_map(|choice| match (&choice["const"], &choice["enum"]) {
        (Value::Null, Value::Array(values)) => values.clone(),
        (constant, _) => vec![constant.clone()],
    });
    let values: Vec<Value> = values.collect();
    object.remove("oneOf");
    object.insert("type".into(), "string".into());
    object.insert("enum".into(), Value::Array(values));
}

fn subschemas(object: &mut Map<String, Value>, change: impl Fn(&mut Value) + Copy) {
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(change);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(child) = object.get_mut(inner) {
            change(child);
        }
    }
}
