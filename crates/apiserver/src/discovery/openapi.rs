//! OpenAPI v3, as far as clients need it to check and patch: one document per group and version.
use serde_json::{Map, Value, json};

use crate::{
    builtin,
    registry::Registry,
    registry::resource::{Resource, Rules},
    type_schema::{OBJECT_META, REFERENCE},
};

/// The document at a path below the root, such as `openapi/v3/apis/apps/v1`.
pub fn document(registry: &Registry, path: &str) -> Option<Value> {
    let path = path.strip_prefix("openapi/v3")?.trim_start_matches('/');
    if path.is_empty() {
        return Some(index(registry));
    }
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => ("", (*version).to_owned()),
        ["apis", group, version] => (*group, (*version).to_owned()),
        _ => return None,
    };
    let resources: Vec<&Resource> = registry
        .all()
        .filter(|resource| resource.group == group && resource.version == version)
        .map(AsRef::as_ref)
        .collect();
    if resources.is_empty() { None } else { Some(group_version(&resources)) }
}

fn folder(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for resource in registry.all() {
        let folder = folder(resource);
        let url = format!("/openapi/v3/{folder}");
        paths.insert(folder, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn group_version(resources: &[&Resource]) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in resources {
        let name = define(resource, &mut schemas);
        let folder = folder(resource);
        let base = if resource.namespaced {
            format!("/{folder}/namespaces/{{namespace}}")
        } else {
            format!("/{folder}")
        };
        paths.insert(format!("{base}/{}/{{name}}", resource.plural), operations(resource, &name));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Adds the schema of a kind and of everything it refers to; its name.
fn define(resource: &Resource, schemas: &mut Map<String, Value>) -> String {
    let gvk = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    let (name, mut schema) = match &resource.rules {
        Rules::BuiltIn(kind) => {
            let schema = builtin::DEFINITIONS.get(kind.definition).cloned().unwrap_or_default();
            (kind.definition.to_owned(), schema)
        }
        Rules::Custom(custom) => {
            let group: Vec<&str> = resource.group.split('.').rev().collect();
            let mut schema = custom.openapi.clone();
            schema["properties"]["metadata"] = json!({"$ref": OBJECT_META});
            (format!("{}.{}.{}", group.join("."), resource.version, resource.kind), schema)
        }
    };
    schema["x-kubernetes-group-version-kind"] = gvk;
    add_references(&schema, schemas);
    schemas.insert(name.clone(), schema);
    name
}

fn add_references(schema: &Value, schemas: &mut Map<String, Value>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                let name = name.trim_start_matches(REFERENCE);
                if let (false, Some(found)) = (schemas.contains_key(name), builtin::DEFINITIONS.get(name)) {
                    schemas.insert(name.to_owned(), found.clone());
                    add_references(found, schemas);
                }
            }
            fields.values().for_each(|value| add_references(value, schemas));
        }
        Value::Array(items) => items.iter().for_each(|item| add_references(item, schemas)),
        _ => {}
    }
}

/// What kubectl looks for: which kind a PATCH is for, and that it can be validated.
fn operations(resource: &Resource, schema: &str) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let gvk = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let reference = json!({"$ref": format!("{}{schema}", REFERENCE)});
    let answer =
        json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}});
    let changes = ["dryRun", "fieldManager", "fieldValidation"].map(parameter);
    json!({
        "get": {
            "responses": answer,
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": gvk,
        },
        "patch": {
            "parameters": changes,
            "requestBody": {"content": {
                "application/apply-patch+yaml": {}, "application/merge-patch+json": {}, "application/json-patch+json": {},
            }},
            "responses": answer,
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": gvk,
        },
    })
}
