//! Field sets of whole values.
use std::collections::BTreeSet;

use serde_json::Value;

use super::element::Element;
use super::set::{Node, Set};
use super::typed::{Representation, Typed};

/// Every field of an object.
pub(crate) fn fields(typed: Typed<'_>, value: &Value) -> Set {
    collect(typed, value).below
}

fn collect(typed: Typed<'_>, value: &Value) -> Node {
    match typed.form(value) {
        Representation::Scalar => Node::MEMBER,
        Representation::List if typed.atomic_list() => Node::MEMBER,
        Representation::List => Node { member: false, below: items(typed, value) },
        Representation::Map | Representation::Open if typed.atomic_map() => Node::MEMBER,
        Representation::Map | Representation::Open => Node { member: false, below: map_fields(typed, value) },
    }
}

fn map_fields(typed: Typed<'_>, value: &Value) -> Set {
    let mut out = Set::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let mut node = collect(typed.field(name), value);
        // What a schema names is there by its fields; a key of a map and an emptiness have to be said.
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        node.member |= empty || typed.named(name).is_none();
        out.put(Element::field(name), node);
    }
    out
}

fn items(typed: Typed<'_>, value: &Value) -> Set {
    let mut out = Set::default();
    let mut seen = BTreeSet::new();
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        let element = typed.stored_element(i, item);
        // Elements that share a key have one owner, all together.
        let node = if seen.insert(element.clone()) { collect(typed.item(), item) } else { Node::default() };
        out.put(element, Node { member: true, ..node });
    }
    out
}

/// The set with every named field a member that has a member below it: what is removed with its last field.
pub(crate) fn with_named(typed: Option<Typed<'_>>, set: &Set) -> Set {
    let map = typed.filter(|t| matches!(t.declared_form(), Representation::Map | Representation::Open));
    let list = typed.filter(|t| matches!(t.declared_form(), Representation::List | Representation::Open));
    let mut out = Set::default();
    for (element, node) in set.iter() {
        let (named, below) = match element {
            Element::Field(name) => {
                let named = map.and_then(|t| t.named(name));
                (named.is_some(), named.or_else(|| map.and_then(Typed::rest)))
            }
            Element::Key(_) => (false, list.map(Typed::item)),
            Element::Value(_) | Element::Index(_) => (false, None),
        };
        let member = node.member || (named && !node.below.is_empty());
        out.put(element.clone(), Node { member, below: with_named(below, &node.below) });
    }
    out
}

/// Fits a set that was written under another schema: what has become one value is owned as one.
pub(crate) fn fit(typed: Typed<'_>, set: &mut Set) {
    for (element, node) in set.iter_mut() {
        if let Some(below) = type_below(typed, element) {
            fit_node(below, node);
        }
    }
}

fn type_below<'a>(typed: Typed<'a>, element: &Element) -> Option<Typed<'a>> {
    match (typed.declared_form(), element) {
        (Representation::Map | Representation::Open, Element::Field(name)) => {
            typed.named(name).or_else(|| typed.rest())
        }
        (Representation::Map | Representation::Open, _) => typed.rest(),
        (Representation::List, _) => Some(typed.item()),
        (Representation::Scalar, _) => None,
    }
}

fn fit_node(typed: Typed<'_>, node: &mut Node) {
    let one_value = match typed.declared_form() {
        Representation::Scalar => false,
        Representation::List => typed.atomic_list(),
        // Without a schema there is nothing that could have changed.
        Representation::Map | Representation::Open if typed.untyped_map() => return,
        Representation::Map | Representation::Open => typed.atomic_map() && !node.below.is_empty(),
    };
    if one_value {
        *node = Node::MEMBER;
    } else {
        fit(typed, &mut node.below);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::type_schema::TypeSchema;

    /// Facts of upstream's reconciliation: what has become atomic is owned as a whole, what has become granular is left
    /// as it is.
    #[test]
    fn a_set_fits_the_schema_that_is() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "map": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string"}},
            "granular": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}});
        let type_schema = TypeSchema::new(&schema, &Map::new());
        let written = json!({"f:spec": {
            "f:map": {"f:a": {}}, "f:list": {"v:\"a\"": {}}, "f:granular": {}, "f:free": {"f:a": {}}, "f:gone": {"f:a": {}},
        }});
        let mut set = Set::parse(&written).unwrap();
        fit(Typed::object(type_schema.root()), &mut set);
        let fitted = json!({"f:spec": {
            "f:map": {}, "f:list": {}, "f:granular": {}, "f:free": {"f:a": {}}, "f:gone": {"f:a": {}},
        }});
        assert_eq!(set.print(), fitted);
    }
}
