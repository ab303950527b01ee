//! Custom resources: what a CustomResourceDefinition adds to the registry.
use serde_json::{Map, Value, json};

use crate::{
    builtin, object,
    registry::resource::{Custom, Resource, Rules, Scale},
    status::{Cause, cause},
    table::Columns,
    type_schema::TypeSchema,
};

/// The finalizer that keeps a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The kinds that a definition serves, one per version; what is wrong with it otherwise.
pub fn resources(crd: &Value) -> Result<Vec<Resource>, Vec<Cause>> {
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored: Vec<&str> = versions.iter().filter(|v| v["storage"] == true).filter_map(name_of).collect();
    let mut causes = check_names(crd);
    if stored.len() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(cause("FieldValueInvalid", "spec.versions", format!("Invalid value: {why}")));
    }
    let mut served = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        match custom(version, object::is_terminating(crd)) {
            Ok(custom) if version["served"] == true => {
                served.push(resource(crd, version, stored.first().copied().unwrap_or_default(), custom));
            }
            Ok(_) => {}
            Err(why) => {
                let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
                causes.push(cause("FieldValueInvalid", field, format!("Invalid value: {why}")));
            }
        }
    }
    if causes.is_empty() { Ok(served) } else { Err(causes) }
}

fn name_of(version: &Value) -> Option<&str> {
    version["name"].as_str()
}

fn check_names(crd: &Value) -> Vec<Cause> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let expected = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    let mut causes = Vec::new();
    if object::name(crd) != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &json!(object::name(crd)), why));
    }
    for field in ["plural", "kind"] {
        if text(&spec["names"][field]).is_empty() {
            causes.push(cause("FieldValueRequired", format!("spec.names.{field}"), "Required value"));
        }
    }
    if text(&spec["group"]).is_empty() {
        causes.push(cause("FieldValueRequired", "spec.group", "Required value"));
    }
    causes
}

fn custom(version: &Value, terminating: bool) -> Result<Custom, String> {
    let openapi = &version["schema"]["openAPIV3Schema"];
    if !openapi.is_object() {
        return Err("schemas are required".to_owned());
    }
    let subresources = &version["subresources"];
    Ok(Custom {
        terminating,
        schema: schema::Schema::new(openapi).map_err(|error| error.to_string())?,
        type_schema: TypeSchema::new(openapi, &builtin::DEFINITIONS),
        has_status: subresources["status"].is_object(),
        scale: scale(&subresources["scale"]),
        openapi: openapi.clone(),
    })
}

fn scale(scale: &Value) -> Option<Scale> {
    let path = |field: &str| {
        let text = scale[field].as_str()?;
        Some(text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    };
    Some(Scale {
        spec: path("specReplicasPath")?,
        status: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

fn resource(crd: &Value, version: &Value, stored: &str, custom: Custom) -> Resource {
    let names = &crd["spec"]["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let kind = text(&names["kind"]);
    let or = |value: &Value, other: String| if value.is_string() { text(value) } else { other };
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let selectable =
        selectable.filter_map(|field| Some(field["jsonPath"].as_str()?.trim_start_matches('.').to_owned()));
    Resource {
        group: text(&crd["spec"]["group"]),
        version: text(&version["name"]),
        list_kind: or(&names["listKind"], format!("{kind}List")),
        plural: text(&names["plural"]),
        singular: or(&names["singular"], kind.to_lowercase()),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: crd["spec"]["scope"] == "Namespaced",
        stored_version: stored.to_owned(),
        selectable: selectable.collect(),
        columns: Columns::for_crd(
            version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default(),
        ),
        rules: Rules::Custom(Box::new(custom)),
        kind,
    }
}

/// The status of a definition whose kind is served, as its controllers would write it.
pub fn established(crd: &Value, now: &str) -> Value {
    let condition = |ty: &str, reason: &str, message: &str| json!({"type": ty, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    let stored: Vec<&Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .collect();
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": accepted(&crd["spec"]["names"]),
        "storedVersions": stored,
    })
}

fn accepted(names: &Value) -> Map<String, Value> {
    let mut names = names.as_object().cloned().unwrap_or_default();
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
    names
}
