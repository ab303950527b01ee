//! The scale subresource, which `kubectl scale` and autoscalers read and write.
use serde_json::{Map, Value, json};

use crate::{
    object,
    registry::resource::{Resource, Rules, Scale},
    status::{Cause, StatusError},
};

fn paths(resource: &Resource) -> Result<&Scale, StatusError> {
    match &resource.rules {
        Rules::Custom(custom) => custom.scale.as_ref().ok_or_else(StatusError::no_such_resource),
        Rules::BuiltIn(_) => Err(StatusError::no_such_resource()),
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, part| value.get(part))
}

/// The scale of an object.
pub fn of(resource: &Resource, object: &Value) -> Result<Value, StatusError> {
    let paths = paths(resource)?;
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64);
    let mut meta = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta.insert(field.to_owned(), value.clone());
        }
    }
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": meta,
        "spec": {},
        "status": {"replicas": number(&paths.status).unwrap_or_default()},
    });
    match number(&paths.spec) {
        Some(replicas) if replicas != 0 => scale["spec"]["replicas"] = json!(replicas),
        _ => {}
    }
    let selector = paths.selector.as_ref().and_then(|path| at(object, path)).and_then(Value::as_str);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        scale["status"]["selector"] = json!(selector);
    }
    Ok(scale)
}

/// Returns the object with the replicas of `scale`.
pub fn apply(resource: &Resource, old: &Value, scale: &Value) -> Result<Value, StatusError> {
    let paths = paths(resource)?;
    // A number below 0 is for the kind's own rules to refuse.
    let wanted = &scale["spec"]["replicas"];
    let replicas = match wanted {
        Value::Null => 0,
        value => value.as_i64().ok_or_else(|| {
            let why = "should be an integer";
            StatusError::invalid(
                "autoscaling",
                "Scale",
                object::name(old),
                &[Cause::invalid("spec.replicas", value, why)],
            )
        })?,
    };
    let mut new = old.clone();
    let place = paths.spec.iter().fold(&mut new, |value, part| {
        if !value.is_object() {
            *value = json!({});
        }
        &mut value[part.as_str()]
    });
    *place = json!(replicas);
    object::copy_meta(&mut new, scale, "resourceVersion");
    Ok(new)
}

/// Returns whether a field manager owns the number of replicas.
pub fn is_owned(resource: &Resource, object: &Value) -> bool {
    let Ok(paths) = paths(resource) else { return false };
    let owners = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    owners.map(|owner| &owner["fieldsV1"]).any(|fields| {
        paths.spec.iter().try_fold(fields, |fields, part| fields.get(format!("f:{part}"))).is_some()
    })
}

/// Removes the ownership of a scale of 0, which is absent from the JSON of a Scale.
pub fn disown_zero(resource: &Resource, object: &mut Value) {
    let zero = paths(resource).is_ok_and(|paths| at(object, &paths.spec).and_then(Value::as_i64) == Some(0));
    if let (true, Some(owners)) = (zero, object["metadata"]["managedFields"].as_array_mut()) {
        owners.retain(|owner| owner["subresource"] != "scale");
    }
}
