//! The description of a kind besides its fields.

use std::{fmt, sync::LazyLock};

use schema::{Schema, Violation};
use serde_json::Value;

use crate::{crd, embedded::Conditions, validation::Review};

/// A column of `kubectl get`.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `integer`, `string` or `date`.
    pub ty: &'static str,
    /// Where the value is.
    pub path: &'static str,
    /// Shown only with `-o wide`.
    pub wide: bool,
}

/// Where the scale sub-resource finds its numbers.
#[derive(Debug)]
pub struct Scale {
    /// The label selector, as a string, for the autoscaler.
    pub selector: &'static str,
}

/// A rule on the whole object, where the name is visible. Its message names the field: a CRD cannot point at metadata.
#[derive(Debug)]
pub struct ObjectRule {
    /// The rule, in CEL.
    pub rule: &'static str,
    /// The message when it does not hold, as an expression in CEL.
    pub message: &'static str,
}

/// A kind: its names, its CRD, and the validation of its objects.
#[derive(Debug)]
pub struct Kind {
    /// The API group.
    pub group: &'static str,
    /// The only version, stored and served.
    pub version: &'static str,
    /// The kind.
    pub name: &'static str,
    /// The resource, lower case and plural.
    pub plural: &'static str,
    /// The resource, lower case and singular.
    pub singular: &'static str,
    /// What people type.
    pub short_names: &'static [&'static str],
    /// Groups of kinds that `kubectl get` knows by one name.
    pub categories: &'static [&'static str],
    /// The scale sub-resource, for kinds that have one.
    pub scale: Option<Scale>,
    /// The columns of `kubectl get`.
    pub columns: &'static [Column],
    /// The longest name that an object may have, whatever its spec.
    pub longest_name: u32,
    /// What it is for, in a sentence.
    pub description: &'static str,
    /// Rules on the whole object.
    pub rules: &'static [ObjectRule],
    /// The schema of its spec.
    pub spec: fn() -> Value,
    /// The schema of its status.
    pub status: fn() -> Value,
    /// Checks the rules that CEL cannot express, on an object with the types of its schema.
    pub review: fn(&mut Review<'_>),
    /// [`Self::read_schema`], once.
    pub schema: LazyLock<Schema>,
}

impl Kind {
    /// `group/version`, as manifests have it.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The name of the CRD.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The CRD, as it is installed.
    pub fn crd(&self) -> Value {
        crd::build(self)
    }

    /// The compiled schema of the whole object.
    ///
    /// # Panics
    ///
    /// When the schema of the kind is one that cannot be read: a mistake in the kind's own code.
    pub fn read_schema(&self) -> Schema {
        Schema::new(&crd::root_schema(self)).expect("our own schemas should be readable")
    }

    /// The kind that a manifest names, if Segue has it.
    pub fn of(manifest: &Value) -> Result<&'static Self, Violation> {
        let text = |field: &str| manifest.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, name) = (text("apiVersion"), text("kind"));
        let found = crate::KINDS.iter().find(|kind| kind.name == name && kind.api_version() == api_version);
        found.copied().ok_or_else(|| {
            let known: Vec<String> =
                crate::KINDS.iter().map(|kind| format!("{} ({})", kind.name, kind.api_version())).collect();
            let value = Value::from(format!("{name} ({api_version})"));
            let allowed = format!("supported kinds: {}", known.join(", "));
            Violation::new("kind", schema::Cause::Unsupported, Some(&value), allowed)
        })
    }
}

/// An object whose status a controller writes.
pub trait Object {
    /// Its status.
    type Status: Status;

    /// Its status, if one was written.
    fn status(&self) -> Option<&Self::Status>;

    /// Gives it a status.
    fn set_status(&mut self, status: Self::Status);
}

/// What every status has.
pub trait Status: Clone + fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    /// The generation of the spec that the status is of.
    fn observed_generation(&self) -> i64;

    /// Sets the generation.
    fn set_observed_generation(&mut self, generation: i64);

    /// Its conditions.
    fn conditions(&self) -> &Conditions;

    /// Its conditions, to be changed.
    fn conditions_mut(&mut self) -> &mut Conditions;
}

/// Says that the status of an object is one, by its fields.
#[macro_export]
macro_rules! status {
    ($object:ident, $status:ident) => {
        impl $crate::Object for $object {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn set_status(&mut self, status: $status) {
                self.status = Some(status);
            }
        }

        impl $crate::Status for $status {
            fn observed_generation(&self) -> i64 {
                self.observed_generation
            }

            fn set_observed_generation(&mut self, generation: i64) {
                self.observed_generation = generation;
            }

            fn conditions(&self) -> &$crate::Conditions {
                &self.conditions
            }

            fn conditions_mut(&mut self) -> &mut $crate::Conditions {
                &mut self.conditions
            }
        }
    };
}

pub(crate) use status;

/// Declares the object of a kind: its type, and what Kubernetes clients need to know of it.
#[macro_export]
macro_rules! object {
    ($(#[$doc:meta])* $name:ident, $spec:ident, $status:ident, $group:literal, $version:literal, $plural:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize)]
        pub struct $name {
            /// Standard object metadata.
            #[serde(default)]
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What is; written by the controller alone.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($name), 5)?;
                object.serialize_field("apiVersion", concat!($group, "/", $version))?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                if let Some(status) = &self.status {
                    object.serialize_field("status", status)?;
                }
                object.end()
            }
        }

        impl ::k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = ::k8s_openapi::NamespaceResourceScope;
        }

        impl ::k8s_openapi::Metadata for $name {
            type Ty = ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use object;
