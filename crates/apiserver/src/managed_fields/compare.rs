//! What changed between two objects, field by field.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::{Element, Scalar};
use super::set::Set;
use super::typed::{Representation, Typed};

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    pub(crate) fn new(typed: Typed<'_>, old: &Value, new: &Value) -> Self {
        let mut walk = Walk { path: Vec::new(), found: Self::default() };
        walk.compare(typed, Some(old), Some(new));
        walk.found
    }

    /// Leaves out the fields of a set and all below them.
    pub(crate) fn without(self, fields: &Set) -> Self {
        Self {
            added: self.added.difference_with_below(fields),
            modified: self.modified.difference_with_below(fields),
            removed: self.removed.difference_with_below(fields),
        }
    }

    /// Has a value that it did not have.
    pub(crate) fn written(&self) -> Set {
        self.added.clone().union(self.modified.clone())
    }
}

struct Walk {
    path: Vec<Element>,
    found: Comparison,
}

/// The values of one place, before and after.
#[derive(Clone, Copy)]
struct Pair<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

impl<'v> Pair<'v> {
    fn maps(self) -> [Option<&'v Map<String, Value>>; 2] {
        [self.old, self.new].map(|v| v.and_then(Value::as_object))
    }

    fn lists(self) -> [&'v [Value]; 2] {
        [self.old, self.new].map(|v| v.and_then(Value::as_array).map_or(&[][..], Vec::as_slice))
    }
}

impl Walk {
    fn compare(&mut self, typed: Typed<'_>, old: Option<&Value>, new: Option<&Value>) {
        let pair = Pair { old, new };
        let forms = (old.map(|v| typed.form(v)), new.map(|v| typed.form(v)));
        let leaf = match forms {
            (None, None) => return,
            (Some(form), None) | (None, Some(form)) => self.visit(typed, form, pair),
            (Some(before), Some(after)) => {
                // A value that has changed its form has gone as the one and come as the other.
                if before != after {
                    self.visit(typed, before, pair);
                }
                self.visit(typed, after, pair)
            }
        };
        if !leaf {
            self.appeared_or_went(pair);
        }
    }

    /// Whether the value is one, and so has been dealt with.
    fn visit(&mut self, typed: Typed<'_>, form: Representation, pair: Pair<'_>) -> bool {
        let leaf = match form {
            Representation::Scalar => true,
            Representation::List => {
                let [old, new] = pair.lists();
                typed.atomic_list() || (old.is_empty() && new.is_empty())
            }
            Representation::Map | Representation::Open => {
                let [old, new] = pair.maps();
                typed.atomic_map() || (old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty))
            }
        };
        match form {
            _ if leaf => self.leaf(pair),
            Representation::List => self.lists(typed, pair),
            _ => self.maps(typed, pair),
        }
        leaf
    }

    fn leaf(&mut self, pair: Pair<'_>) {
        if let (Some(old), Some(new)) = (pair.old, pair.new) {
            if !equal(old, new) {
                self.found.modified.insert(self.path.iter().cloned());
            }
        } else {
            self.appeared_or_went(pair);
        }
    }

    fn appeared_or_went(&mut self, pair: Pair<'_>) {
        match (pair.old, pair.new) {
            (None, Some(_)) => self.found.added.insert(self.path.iter().cloned()),
            (Some(_), None) => self.found.removed.insert(self.path.iter().cloned()),
            _ => {}
        }
    }

    fn maps(&mut self, typed: Typed<'_>, pair: Pair<'_>) {
        let [old, new] = pair.maps();
        let names: BTreeSet<&String> = [old, new].into_iter().flatten().flat_map(|map| map.keys()).collect();
        for name in names {
            let (old, new) = (old.and_then(|m| m.get(name)), new.and_then(|m| m.get(name)));
            self.below(Element::field(name), typed.field(name), old, new);
        }
    }

    fn below(&mut self, element: Element, typed: Typed<'_>, old: Option<&Value>, new: Option<&Value>) {
        self.path.push(element);
        self.compare(typed, old, new);
        self.path.pop();
    }

    fn lists(&mut self, typed: Typed<'_>, pair: Pair<'_>) {
        let [old, new] = pair.lists();
        let (old, new) = (by_element(typed, old), by_element(typed, new));
        let elements: BTreeSet<&Element> = old.keys().chain(new.keys()).collect();
        for element in elements {
            let old = old.get(element).map_or(&[][..], Vec::as_slice);
            let new = new.get(element).map_or(&[][..], Vec::as_slice);
            self.items(typed.item(), element, old, new);
        }
    }

    /// The elements of one key. Several of them are one value.
    fn items(&mut self, typed: Typed<'_>, element: &Element, old: &[&Value], new: &[&Value]) {
        let here = || self.path.iter().chain([element]).cloned().collect::<Vec<_>>();
        match (old, new) {
            ([] | [_], [] | [_]) => {
                self.below(element.clone(), typed, old.first().copied(), new.first().copied());
            }
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || old.iter().zip(new).any(|(a, b)| !equal(a, b)) {
                    let here = here();
                    self.found.modified.insert(here);
                }
            }
            ([_, _, ..], _) => {
                let here = here();
                if let Some(new) = new.first() {
                    self.below(element.clone(), typed, None, Some(new));
                }
                self.found.removed.insert(here);
            }
            (_, [_, _, ..]) => {
                let here = here();
                if let Some(old) = old.first() {
                    self.below(element.clone(), typed, Some(old), None);
                }
                self.found.added.insert(here);
            }
        }
    }
}

fn by_element<'v>(typed: Typed<'_>, items: &'v [Value]) -> BTreeMap<Element, Vec<&'v Value>> {
    let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (i, item) in items.iter().enumerate() {
        out.entry(typed.stored_element(i, item)).or_default().push(item);
    }
    out
}

/// Equality of values: a number is the same whichever way it is written.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => Scalar(a.clone()) == Scalar(b.clone()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}
