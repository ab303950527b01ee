//! The object that a configuration makes of a stored one, before anything is taken away.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::element::Element;
use super::typed::{Representation, Typed};

/// What `config` says, and what it does not speak of from `live`. Nothing is left of maps and lists whose every part
/// is nothing.
pub(crate) fn merge(typed: Typed<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let form = typed.form(config.or(live)?);
    match form {
        Representation::Scalar => leaf(live, config),
        Representation::List => merge_lists(typed, live, config),
        Representation::Map | Representation::Open => merge_maps(typed, live, config),
    }
}

fn leaf(live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    config.or(live).cloned()
}

fn merge_maps(typed: Typed<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let maps = [live, config].map(|v| v.and_then(Value::as_object));
    if typed.atomic_map() || maps.iter().all(|map| map.is_none_or(Map::is_empty)) {
        return leaf(live, config);
    }
    let names: BTreeSet<&String> = maps.iter().flatten().flat_map(|map| map.keys()).collect();
    let merged: Map<String, Value> = names
        .into_iter()
        .filter_map(|name| {
            let [live, config] = maps.map(|map| map.and_then(|map| map.get(name)));
            Some((name.clone(), merge(typed.field(name), live, config)?))
        })
        .collect();
    (!merged.is_empty()).then_some(Value::Object(merged))
}

fn merge_lists(typed: Typed<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let [old, new] = [live, config].map(|v| v.and_then(Value::as_array).map_or(&[][..], Vec::as_slice));
    if typed.atomic_list() || (old.is_empty() && new.is_empty()) {
        return leaf(live, config);
    }
    let merged = Zip::new(typed, old, new).run();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// Two lists with keys become one: the elements of both are in the order of the configuration, those that only the
/// stored list has stay where they are among them.
struct Zip<'a, 'v> {
    item: Typed<'a>,
    old: Vec<(Element, &'v Value)>,
    new: Vec<(Element, &'v Value)>,
    old_values: BTreeMap<Element, &'v Value>,
    new_values: BTreeMap<Element, &'v Value>,
    /// The elements of both that are not reached yet, in the order of the configuration.
    shared: VecDeque<Element>,
    merged: BTreeSet<Element>,
    out: Vec<Value>,
}

impl<'a, 'v> Zip<'a, 'v> {
    fn new(typed: Typed<'a>, old: &'v [Value], new: &'v [Value]) -> Self {
        let known = |items: &'v [Value]| -> Vec<(Element, &'v Value)> {
            items.iter().enumerate().map(|(i, item)| (typed.stored_element(i, item), item)).collect()
        };
        let (old, new) = (known(old), known(new));
        let mut old_values = BTreeMap::new();
        for (element, item) in &old {
            // Stored elements that share a key are replaced, not merged into.
            old_values.entry(element.clone()).and_modify(|v| *v = &Value::Null).or_insert(*item);
        }
        let new_values = new.iter().cloned().collect();
        let shared = new.iter().map(|(e, _)| e).filter(|e| old_values.contains_key(*e)).cloned().collect();
        let item = typed.item();
        Self { item, old, new, old_values, new_values, shared, merged: BTreeSet::new(), out: Vec::new() }
    }

    fn run(mut self) -> Vec<Value> {
        let (mut o, mut n) = (0, 0);
        while o < self.old.len() || n < self.new.len() {
            let next_old = self.old.get(o).cloned();
            let next_new = self.new.get(n).cloned();
            if let (Some((old, _)), Some((new, _))) = (&next_old, &next_new) {
                if old == new {
                    self.take(new);
                    self.shared.pop_front();
                    (o, n) = (o + 1, n + 1);
                    continue;
                }
                if self.new_values.contains_key(old) && self.shared.front().is_some_and(|next| next != old) {
                    o += 1;
                    continue;
                }
            }
            if let Some((old, item)) = next_old {
                if !self.new_values.contains_key(&old) {
                    self.out.extend(merge(self.item, Some(item), None));
                    o += 1;
                    continue;
                }
                if self.merged.contains(&old) {
                    o += 1;
                }
            }
            if let Some((new, _)) = next_new {
                self.take(&new);
                n += 1;
                if self.shared.front() == Some(&new) {
                    self.shared.pop_front();
                }
            }
        }
        self.out
    }

    fn take(&mut self, element: &Element) {
        self.merged.insert(element.clone());
        let old = self.old_values.get(element).copied();
        let new = self.new_values.get(element).copied();
        self.out.extend(merge(self.item, old, new));
    }
}
