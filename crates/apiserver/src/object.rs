//! The parts of an object that every kind has.
use serde_json::{Map, Value, json};

/// The text at `metadata.{field}`, or nothing.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

pub fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The finalizers that hold an object, those of a namespace's own field apart.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The metadata, made when there is none. What is not an object is replaced: it was refused before, or is ours.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("should be an object: it was just made one")
}

pub fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    meta_mut(object).insert(field.to_owned(), value.into());
}

pub fn remove_meta(object: &mut Value, field: &str) -> Option<Value> {
    meta_mut(object).remove(field)
}

/// Makes a field of `object` what it is in `other`, there or not.
pub fn copy(object: &mut Value, other: &Value, field: &str) {
    match other.get(field) {
        Some(value) => object[field] = value.clone(),
        None => drop(object.as_object_mut().map(|object| object.remove(field))),
    }
}

/// The same for a field of the metadata.
pub fn copy_meta(object: &mut Value, other: &Value, field: &str) {
    match other["metadata"].get(field) {
        Some(value) => set_meta(object, field, value.clone()),
        None => drop(remove_meta(object, field)),
    }
}

/// Equal in everything that a client can change: the revision is the store's.
pub fn same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let plain = |object: &Map<String, Value>| object.keys().filter(|key| *key != "metadata").count();
    plain(a) == plain(b)
        && a.iter().filter(|(key, _)| *key != "metadata").all(|(key, value)| b.get(key) == Some(value))
        && same_meta(a.get("metadata"), b.get("metadata"))
}

fn same_meta(a: Option<&Value>, b: Option<&Value>) -> bool {
    fields_of(a).eq(fields_of(b))
}

fn fields_of(meta: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    let meta = meta.and_then(Value::as_object).into_iter().flatten();
    meta.filter(|(key, _)| *key != "resourceVersion")
}

/// A reference to an owner, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// The owner's deletion in the foreground waits for this object.
    pub blocks: bool,
}

pub fn owners<'a>(object: &'a Value) -> Vec<Owner<'a>> {
    let list = object["metadata"]["ownerReferences"].as_array();
    let read = |owner: &'a Value| {
        let field = |name: &str| owner[name].as_str().unwrap_or_default();
        Owner {
            api_version: field("apiVersion"),
            kind: field("kind"),
            name: field("name"),
            uid: field("uid"),
            blocks: owner["blockOwnerDeletion"].as_bool().unwrap_or_default(),
        }
    };
    list.into_iter().flatten().map(read).collect()
}
