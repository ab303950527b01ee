//! What is laid over a template to make a pod of it.

use serde_json::{Value, json};

/// Lays entries over an object that may not be there.
pub(crate) fn lay(under: &mut Value, over: Value) {
    if !under.is_object() {
        *under = json!({});
    }
    if let (Some(under), Value::Object(over)) = (under.as_object_mut(), over) {
        under.extend(over);
    }
}

/// Adds an entry to a list that may not be there, once.
pub(crate) fn push(list: &mut Value, entry: Value) {
    match list.as_array_mut() {
        Some(list) if !list.contains(&entry) => list.push(entry),
        Some(_) => {}
        None => *list = json!([entry]),
    }
}

/// Puts variables in front, so that others can refer to them; those of the same name give way.
pub(crate) fn lead(env: &mut Value, ours: &[(&str, String)]) {
    let mut list: Vec<Value> =
        ours.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let theirs = env.as_array().into_iter().flatten();
    list.extend(theirs.filter(|theirs| ours.iter().all(|(name, _)| theirs["name"] != *name)).cloned());
    *env = list.into();
}
