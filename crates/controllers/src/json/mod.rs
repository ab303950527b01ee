//! JSON that is laid over other JSON: templates that become pods, specs that become other specs.

pub(crate) mod canonical;
pub(crate) mod digest;

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

/// Says in a merge patch of everything that is there and not wanted that it goes.
pub(crate) fn erase(wanted: &mut Value, live: &Value) {
    let (Some(wanted), Some(live)) = (wanted.as_object_mut(), live.as_object()) else { return };
    for (name, live) in live {
        match wanted.get_mut(name) {
            Some(wanted) => erase(wanted, live),
            None => drop(wanted.insert(name.clone(), Value::Null)),
        }
    }
}
