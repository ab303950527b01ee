//! The built-in kinds: decoding, defaults and validation as in kube-apiserver 1.36.
//!
//! The steps of a create: [`decode`], [`default`], [`prepare_create`], [`meta::validate_meta`] and
//! [`validate_create`], [`allocate`]. All of it is a function of its arguments: names, times and addresses are given.
//!
//! Where we differ on purpose:
//! - an `EndpointSlice` may name loopback addresses, because in embedded mode that is where the pods listen;
//! - of the admission plugins only those are mirrored that need no other object: no token volume is mounted into pods, a
//!   node gets no `not-ready` taint, a claim no `pvc-protection` finalizer, and a priority that was sent is kept;
//! - there is one IP family, and `ipFamilies` is not checked against those of a cluster;
//! - the refusal of a pod's update names the fields that changed instead of printing a Go struct.
//!
//! Objects are maps sorted by name, so of several unknown fields or wrong types the first by name is reported first; a
//! kube-apiserver goes by the order in which they were sent.
mod address;
pub(crate) mod base64;
mod cause;
mod decode;
mod defaults;
mod events;
mod kinds;
pub mod meta;
mod names;
mod pod;
mod rbac;
mod service;
mod strategy;
mod time;
mod validate;

pub use schema::structs;
use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

use serde_json::{Map, Value};

pub use self::{
    cause::Cause,
    decode::{decode, decode_meta, decode_struct},
    defaults::default,
    events::{to_core as event_to_core, to_events as event_to_events},
    kinds::KINDS,
    service::{Need, allocate},
    strategy::{canonicalize, prepare_create, prepare_finalize, prepare_status, prepare_update},
    validate::{validate_create, validate_status, validate_update},
};
use crate::type_schema::TypeSchema;

/// How the name of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Dots are allowed.
    Subdomain,
    Label,
    /// What fits between two slashes of a path.
    PathSegment,
}

/// What changes `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Unused,
    /// A change of `spec`.
    Spec,
    /// A change of anything but metadata, or of labels.
    Content,
}

/// A subresource, such as `pods/log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Group, version and kind of what is sent there; the group and version are empty where they are the parent's.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [&'static str],
}

/// A built-in kind.
#[derive(Debug)]
pub struct BuiltIn {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// What a field selector may name, `metadata.name` and `metadata.namespace` apart.
    pub selectable: &'static [&'static str],
    /// An update without a resource version is taken.
    pub unconditional_update: bool,
    /// An update of what is not there creates it.
    pub create_on_update: bool,
    pub generation: Generation,
    pub name_rule: NameRule,
    /// The Go struct ([`structs`]).
    pub go: &'static str,
    /// The name of its schema.
    pub definition: &'static str,
}

impl BuiltIn {
    /// The type schema of the kind.
    pub fn type_schema(&self) -> &'static TypeSchema {
        // Each when it is first needed: all of them would take most of the time of a start.
        static SHAPES: LazyLock<HashMap<&'static str, OnceLock<TypeSchema>>> =
            LazyLock::new(|| KINDS.iter().map(|kind| (kind.definition, OnceLock::new())).collect());
        static NOTHING: LazyLock<TypeSchema> = LazyLock::new(|| TypeSchema::new(&Value::Null, &Map::new()));
        let read = || {
            let schema = DEFINITIONS.get(self.definition).unwrap_or(&Value::Null);
            TypeSchema::new(schema, &DEFINITIONS)
        };
        SHAPES.get(self.definition).map_or(&NOTHING, |type_schema| type_schema.get_or_init(read))
    }

    /// The `apiVersion` of the kind's objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// The kind of a group and version, by its name.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static BuiltIn> {
    KINDS.iter().find(|k| k.group == group && k.version == version && k.kind == kind)
}

/// The schemas of the built-in kinds, by name, without descriptions.
pub static DEFINITIONS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("schemas.json")).unwrap_or_default());
