//! What there is to say about a kind besides its fields.

use std::sync::LazyLock;

use schema::{Schema, Violation};
use serde_json::Value;

use crate::{crd, validation::Review};

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
pub(crate) struct ObjectRule {
    pub(crate) rule: &'static str,
    pub(crate) message: &'static str,
}

/// A kind: its names, and how to make its CRD and judge its objects.
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
    /// What `kubectl get` shows: is it well, and what is it doing.
    pub columns: &'static [Column],
    /// The longest name that an object may have, whatever its spec.
    pub(crate) longest_name: u32,
    pub(crate) description: &'static str,
    pub(crate) rules: &'static [ObjectRule],
    pub(crate) spec: fn() -> Value,
    pub(crate) status: fn() -> Value,
    /// What CEL cannot see, judged on an object of the right shape.
    pub(crate) review: fn(&mut Review<'_>),
    pub(crate) schema: LazyLock<Schema>,
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

    /// The kind that a manifest names, if it is one of ours.
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

/// Declares the object of a kind: its type, and what Kubernetes clients need to know of it.
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
