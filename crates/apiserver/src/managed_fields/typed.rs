//! The meaning of a type for ownership: which values are atomic, and what identifies the elements of the others.
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::element::{Element, Scalar};
use super::text::Quoted;
use crate::type_schema::{ListType, Type, TypeRef, TypeSchema};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Typed<'a> {
    Known {
        type_ref: TypeRef<'a>,
        /// Unknown fields are kept here, because a schema above or here says so.
        preserves: bool,
        /// An object with an apiVersion, a kind and metadata, which a CRD need not spell out.
        object: bool,
    },
    /// Without a schema: the value tells. Maps are granular, lists are one value.
    Deduced,
    /// Without a schema, below a list that is one value.
    Opaque,
}

/// The form of a value, as far as its type or, where that leaves it open, the value tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Scalar,
    List,
    Map,
    /// A null where anything may be; it is taken for a map.
    Open,
}

impl<'a> Typed<'a> {
    /// The type of a whole object.
    pub(crate) fn object(type_ref: TypeRef<'a>) -> Self {
        Self::Known { type_ref, preserves: type_ref.preserves_unknown(), object: true }
    }

    fn below(self, type_ref: TypeRef<'a>) -> Self {
        let inherited = matches!(self, Self::Known { preserves: true, .. });
        Self::Known {
            type_ref,
            preserves: inherited || type_ref.preserves_unknown(),
            object: type_ref.embedded(),
        }
    }

    pub(crate) fn form(self, value: &Value) -> Representation {
        match (self.declared_form(), value) {
            (Representation::Open, Value::Null) => Representation::Open,
            (Representation::Open, Value::Array(_)) => Representation::List,
            (Representation::Open, Value::Object(_)) => Representation::Map,
            (Representation::Open, _) => Representation::Scalar,
            (declared, _) => declared,
        }
    }

    /// The form without a value.
    pub(crate) fn declared_form(self) -> Representation {
        let Self::Known { type_ref, .. } = self else { return Representation::Open };
        match type_ref.ty() {
            Type::Object => Representation::Map,
            Type::List => Representation::List,
            Type::Any | Type::IntOrString => Representation::Open,
            _ => Representation::Scalar,
        }
    }

    /// A map that has one owner.
    pub(crate) fn atomic_map(self) -> bool {
        match self {
            Self::Known { type_ref, .. } => type_ref.atomic(),
            Self::Deduced => false,
            Self::Opaque => true,
        }
    }

    /// A list that has one owner.
    pub(crate) fn atomic_list(self) -> bool {
        match self {
            Self::Known { type_ref, .. } => type_ref.list_type() == ListType::Atomic,
            Self::Deduced | Self::Opaque => true,
        }
    }

    /// The type of a field that the schema names.
    pub(crate) fn named(self, name: &str) -> Option<Self> {
        let Self::Known { type_ref, object, .. } = self else { return None };
        let named = type_ref.named(name);
        match name {
            "metadata" if object && !named.is_some_and(is_object_meta) => {
                Some(self.below(OBJECT_META.root()))
            }
            "apiVersion" | "kind" if object && named.is_none() => Some(Self::Deduced),
            _ => named.map(|type_ref| self.below(type_ref)),
        }
    }

    /// The type of the fields that the schema does not name; nothing where there may be none.
    pub(crate) fn rest(self) -> Option<Self> {
        match self {
            Self::Known { type_ref, preserves, .. } => match type_ref.rest() {
                Some(rest) => Some(self.below(rest)),
                None if preserves || type_ref.fields().next().is_none() => Some(Self::Deduced),
                None => None,
            },
            Self::Deduced => Some(Self::Deduced),
            Self::Opaque => Some(Self::Opaque),
        }
    }

    /// A map of which the schema says nothing.
    pub(crate) fn untyped_map(self) -> bool {
        match self {
            Self::Known { type_ref, .. } => type_ref.rest().is_none() && type_ref.fields().next().is_none(),
            Self::Deduced | Self::Opaque => true,
        }
    }

    /// The type of any field. One that should not be there is what its value is: an object that was stored before
    /// its schema changed still has owners.
    pub(crate) fn field(self, name: &str) -> Self {
        self.named(name).or_else(|| self.rest()).unwrap_or(Self::Deduced)
    }

    pub(crate) fn item(self) -> Self {
        match self {
            Self::Known { type_ref, .. } => type_ref.item().map_or(Self::Opaque, |item| self.below(item)),
            Self::Deduced | Self::Opaque => Self::Opaque,
        }
    }

    /// How an element of a list with keys or of a set is known.
    pub(crate) fn element(self, item: &Value) -> Result<Element, String> {
        let keys = match self {
            Self::Known { type_ref, .. } if type_ref.list_type() == ListType::Map => type_ref.list_keys(),
            _ => &[],
        };
        if keys.is_empty() { set_element(item) } else { self.keyed_element(keys, item) }
    }

    fn keyed_element(self, keys: &[String], item: &Value) -> Result<Element, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let found: Vec<_> = keys.iter().filter_map(|key| self.key(fields, key)).collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| Quoted(key).to_string()).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                keys.join(" ")
            ));
        }
        Ok(Element::key(found))
    }

    fn key(self, fields: &Map<String, Value>, key: &str) -> Option<(String, Value)> {
        let default = || match self.item().named(key) {
            Some(Typed::Known { type_ref, .. }) => type_ref.default(),
            _ => None,
        };
        fields.get(key).or_else(default).map(|value| (key.to_owned(), value.clone()))
    }

    /// How an element of a stored list is known: one without a key has none but its place.
    pub(crate) fn stored_element(self, index: usize, item: &Value) -> Element {
        self.element(item).unwrap_or_else(|_| Element::Index(i64::try_from(index).unwrap_or(i64::MAX)))
    }
}

fn set_element(item: &Value) -> Result<Element, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        scalar => Ok(Element::Value(Scalar(scalar.clone()))),
    }
}

/// A CRD may say no more of its metadata than what names are allowed.
fn is_object_meta(type_ref: TypeRef<'_>) -> bool {
    type_ref.named("uid").is_some()
}

/// What upstream compares a new object with. Built-in kinds are structs there: some of their fields are never absent,
/// so that no one owns their being there.
pub(crate) fn nothing(type_ref: TypeRef<'_>) -> Value {
    let builtin = type_ref.named("metadata").is_some_and(is_object_meta);
    if builtin { zero(type_ref) } else { Value::Object(Map::new()) }
}

fn zero(type_ref: TypeRef<'_>) -> Value {
    let empty = Value::Object(Map::new());
    let fields = type_ref.fields().filter_map(|(name, field)| match (field.ty(), field.default()) {
        (Type::Object, Some(default)) if *default == empty => Some((name.to_owned(), zero(field))),
        (_, Some(default)) if type_ref.required().iter().any(|n| n == name) => {
            Some((name.to_owned(), default.clone()))
        }
        (_, None) if type_ref.required().iter().any(|n| n == name) => Some((name.to_owned(), Value::Null)),
        _ => None,
    });
    Value::Object(fields.collect())
}

/// The metadata of every kind; a CRD says no more than that there is some.
static OBJECT_META: LazyLock<TypeSchema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let whole = json!({"type": "integer"});
    let time = json!({"type": "string", "format": "date-time"});
    let owner = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
        "apiVersion": text, "kind": text, "name": text, "uid": {"type": "string", "default": ""},
        "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
    }});
    let schema = json!({"type": "object", "properties": {
        "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text,
        "resourceVersion": text, "generation": whole, "creationTimestamp": time, "deletionTimestamp": time,
        "deletionGracePeriodSeconds": whole, "labels": texts, "annotations": texts,
        "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "ownerReferences": {"type": "array", "items": owner, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"]},
        "managedFields": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "atomic"},
    }});
    TypeSchema::new(&schema, &Map::new())
});
