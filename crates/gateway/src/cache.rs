//! The objects that routing depends on, as the API has them at one moment.
use std::{collections::BTreeMap, sync::Arc};

use kube::core::{DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;

/// The kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    GatewayClass,
    Gateway,
    HttpRoute,
    GrpcRoute,
    ReferenceGrant,
    Service,
    EndpointSlice,
    Namespace,
    Secret,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::ReferenceGrant,
        Self::Service,
        Self::EndpointSlice,
        Self::Namespace,
        Self::Secret,
    ];

    pub fn gvk(self) -> GroupVersionKind {
        let (group, version, kind) = match self {
            Self::GatewayClass => (crate::kinds::GROUP, "v1", "GatewayClass"),
            Self::Gateway => (crate::kinds::GROUP, "v1", "Gateway"),
            Self::HttpRoute => (crate::kinds::GROUP, "v1", "HTTPRoute"),
            Self::GrpcRoute => (crate::kinds::GROUP, "v1", "GRPCRoute"),
            // Served as v1 since 1.5; every installation has v1beta1.
            Self::ReferenceGrant => (crate::kinds::GROUP, "v1beta1", "ReferenceGrant"),
            Self::Service => ("", "v1", "Service"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice"),
            Self::Namespace => ("", "v1", "Namespace"),
            Self::Secret => ("", "v1", "Secret"),
        };
        GroupVersionKind::gvk(group, version, kind)
    }
}

/// Namespace and name; the former is empty for what is cluster-wide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name {
    pub namespace: String,
    pub name: String,
}

impl Name {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn of(object: &DynamicObject) -> Self {
        Self::new(
            object.metadata.namespace.as_deref().unwrap_or_default(),
            object.metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

pub type Objects = BTreeMap<Name, Arc<DynamicObject>>;

/// Every object that routing depends on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    kinds: BTreeMap<Kind, Objects>,
}

static EMPTY: Objects = BTreeMap::new();

impl Cache {
    pub fn all(&self, kind: Kind) -> &Objects {
        self.kinds.get(&kind).unwrap_or(&EMPTY)
    }

    pub fn get(&self, kind: Kind, name: &Name) -> Option<&Arc<DynamicObject>> {
        self.all(kind).get(name)
    }

    pub fn put(&mut self, kind: Kind, object: DynamicObject) {
        self.kinds.entry(kind).or_default().insert(Name::of(&object), Arc::new(object));
    }

    pub fn remove(&mut self, kind: Kind, name: &Name) {
        self.kinds.entry(kind).or_default().remove(name);
    }

    /// The same routes, with the Services and endpoints of another moment.
    #[must_use]
    pub fn with_endpoints_of(&self, other: &Self) -> Self {
        let mut cache = self.clone();
        for kind in [Kind::Service, Kind::EndpointSlice] {
            cache.replace(kind, other.all(kind).clone());
        }
        cache
    }

    /// Everything of a kind, at once: after a list there is no trace of what was before.
    pub fn replace(&mut self, kind: Kind, objects: Objects) {
        self.kinds.insert(kind, objects);
    }
}

/// The spec of an object; its defaults when it cannot be read, which the schema of its kind rules out.
pub fn spec<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    object.data.get("spec").and_then(|spec| T::deserialize(spec).ok()).unwrap_or_default()
}

/// An object whose fields are at the top.
pub fn fields<T: DeserializeOwned + Default>(object: &DynamicObject) -> T {
    T::deserialize(&object.data).unwrap_or_default()
}

pub fn generation(object: &DynamicObject) -> i64 {
    object.metadata.generation.unwrap_or(0)
}
