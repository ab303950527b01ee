//! Types of Kubernetes in fields of the kinds, kept as they were written.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::Condition};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::tidy;

/// A value of a core type, as JSON.
///
/// Guarantees: nothing that a user wrote is lost, also where their cluster is newer than our bindings. The schema checks
/// the types of the fields that we know and lets the others through.
pub struct Embedded<T> {
    json: Value,
    core: PhantomData<fn() -> T>,
}

/// A pod template.
pub type PodTemplate = Embedded<PodTemplateSpec>;

impl<T: DeserializeOwned> Embedded<T> {
    /// The value as the binding has it; fields newer than the binding are not in it.
    pub fn typed(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.json)
    }
}

impl<T> Embedded<T> {
    /// The value as it was written.
    pub fn json(&self) -> &Value {
        &self.json
    }
}

impl<T> From<Value> for Embedded<T> {
    fn from(json: Value) -> Self {
        Self { json, core: PhantomData }
    }
}

impl<T> Clone for Embedded<T> {
    fn clone(&self) -> Self {
        self.json.clone().into()
    }
}

impl<T> PartialEq for Embedded<T> {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl<T> fmt::Debug for Embedded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

impl<T> Serialize for Embedded<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Embedded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Into::into)
    }
}

impl<T: JsonSchema> JsonSchema for Embedded<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Embedded_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = tidy::schema_of::<T>();
        open(&mut schema);
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// Lists of core types whose entries have names: two managers can then own an entry each.
const KEYED_LISTS: [(&str, &str); 5] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
];

/// What a template cannot hold, claims inside volumes, and the volume drivers that Kubernetes no longer has. Their types
/// are not checked, which keeps a CRD of five templates below what `kubectl apply` takes.
const UNCHECKED: [&str; 22] = [
    "ephemeralContainers",
    "managedFields",
    "ephemeral",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "iscsi",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Lets fields through that the schema does not know, at every level, and drops the descriptions: every pod template
/// would otherwise carry the handbook of Kubernetes, and `kubectl apply` refuses a CRD of that size.
fn open(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("description");
    object.remove("format");
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| !UNCHECKED.contains(&name.as_str()));
    }
    if object.contains_key("properties") {
        object.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, child) in properties {
            open(child);
            let key = KEYED_LISTS.iter().find(|(list, _)| list == name);
            if let (Some((_, key)), Some("array")) = (key, child.get("type").and_then(Value::as_str)) {
                child["x-kubernetes-list-type"] = json!("map");
                child["x-kubernetes-list-map-keys"] = json!([key]);
            }
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(child) = object.get_mut(inner) {
            open(child);
        }
    }
}

/// Standard conditions, one of each type.
pub type Conditions = Vec<Condition>;

/// The schema of [`Conditions`]: an entry per type, so that each can have an owner, with the bounds of Kubernetes.
pub(crate) fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    })
}

/// Text by name.
pub type Texts = BTreeMap<String, String>;

/// The schema of [`Texts`].
pub(crate) fn texts_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 16384},
    })
}

/// The schema of [`Texts`] that become labels: their values are as short as those of labels.
pub(crate) fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}
