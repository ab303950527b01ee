//! Whether an applied configuration fits its type. Only as much as ownership needs; the schema is checked later.
use std::collections::BTreeSet;

use serde_json::Value;

use super::element::Element;
use super::text::{Plain, Source, type_name};
use super::typed::{Representation, Typed};
use crate::type_schema::Type;

/// What was found, and what is not worth finding.
struct Found {
    problems: Vec<String>,
    /// An update may leave a list with the same entry twice; only an applied configuration may not.
    allow_duplicates: bool,
}

/// What does not fit of an applied configuration, in upstream's words.
pub(crate) fn validate(typed: Typed<'_>, value: &Value) -> Result<(), String> {
    let mut found = Found { problems: Vec::new(), allow_duplicates: false };
    check(typed, value, "", &mut found);
    match found.problems.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Whether the fields of an object that was written in another way can be told apart.
pub(crate) fn fits(typed: Typed<'_>, value: &Value) -> bool {
    let mut found = Found { problems: Vec::new(), allow_duplicates: true };
    check(typed, value, "", &mut found);
    found.problems.is_empty()
}

fn check(typed: Typed<'_>, value: &Value, path: &str, found: &mut Found) {
    let problem = match (typed.form(value), value) {
        (_, Value::Null) => None,
        (Representation::Scalar, _) => scalar_problem(typed, value),
        (Representation::List, Value::Array(items)) => return check_items(typed, items, path, found),
        (Representation::List, _) => Some(format!("expected list, got &{{{}}}", Plain(value))),
        (_, Value::Object(_)) => return check_fields(typed, value, path, found),
        (_, _) => Some(format!("expected map, got &{{{}}}", Plain(value))),
    };
    found.problems.extend(problem.map(|problem| at(path, &problem)));
}

fn at(path: &str, problem: &str) -> String {
    if path.is_empty() { problem.to_owned() } else { format!("{path}: {problem}") }
}

fn scalar_problem(typed: Typed<'_>, value: &Value) -> Option<String> {
    let Typed::Known { type_ref, .. } = typed else { return None };
    match type_ref.ty() {
        Type::Integer | Type::Number if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", type_name(value)))
        }
        Type::String | Type::Bytes if !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", Source(value)))
        }
        Type::Boolean if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", Plain(value))),
        _ if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got &{{{}}}", Plain(value)))
        }
        _ => None,
    }
}

fn check_items(typed: Typed<'_>, items: &[Value], path: &str, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = if typed.atomic_list() {
            typed.stored_element(i, &Value::Null)
        } else {
            match typed.element(item) {
                Ok(element) => element,
                // An element that has no key hides those after it.
                Err(problem) => return found.problems.push(at(path, &format!("element {i}: {problem}"))),
            }
        };
        if !seen.insert(element.clone()) && !found.allow_duplicates {
            found.problems.push(at(path, &format!("duplicate entries for key {element}")));
        }
        check(typed.item(), item, &format!("{path}{element}"), found);
    }
}

fn check_fields(typed: Typed<'_>, value: &Value, path: &str, found: &mut Found) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}{}", Element::field(name));
        match typed.named(name).or_else(|| typed.rest()) {
            Some(below) => check(below, value, &path, found),
            None => return found.problems.push(at(&path, "field not declared in schema")),
        }
    }
}
