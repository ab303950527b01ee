//! A set of fields, as a tree.
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{Element, Unreadable};

/// The fields below a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set(BTreeMap<Element, Node>);

/// A field: whether it is itself in the set, and what below it is. Never neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) member: bool,
    pub(crate) below: Set,
}

impl Node {
    pub(crate) const MEMBER: Self = Self { member: true, below: Set(BTreeMap::new()) };

    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    fn union(mut self, other: Self) -> Self {
        self.member |= other.member;
        self.below = self.below.union(other.below);
        self
    }
}

impl Set {
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, element: &Element) -> Option<&Node> {
        self.0.get(element)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Element, &Node)> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Element, &mut Node)> {
        self.0.iter_mut()
    }

    /// Puts a whole field; an empty one is left out.
    pub(crate) fn put(&mut self, element: Element, node: Node) {
        if !node.is_empty() {
            self.0.insert(element, node);
        }
    }

    /// The path alone becomes a member, not what leads to it.
    pub(crate) fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut path = path.into_iter().peekable();
        let mut at = self;
        while let Some(element) = path.next() {
            let node = at.0.entry(element).or_default();
            if path.peek().is_none() {
                node.member = true;
                return;
            }
            at = &mut node.below;
        }
    }

    pub(crate) fn has(&self, path: &[Element]) -> bool {
        let Some((last, above)) = path.split_last() else { return false };
        let below = above.iter().try_fold(self, |set, element| set.get(element).map(|node| &node.below));
        below.and_then(|set| set.get(last)).is_some_and(|node| node.member)
    }

    pub(crate) fn union(mut self, other: Self) -> Self {
        for (element, node) in other.0 {
            let own = self.0.remove(&element).unwrap_or_default();
            self.0.insert(element, own.union(node));
        }
        self
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, node) in &self.0 {
            if let Some(theirs) = other.get(element) {
                let below = node.below.intersection(&theirs.below);
                out.put(element.clone(), Node { member: node.member && theirs.member, below });
            }
        }
        out
    }

    /// What is in this set and not in the other; a field stays when only one above or below it goes.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// The same, but what goes takes along all that is below it.
    pub(crate) fn difference_with_below(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, below_too: bool) -> Self {
        let mut out = Self::default();
        for (element, node) in &self.0 {
            match other.get(element) {
                None => out.put(element.clone(), node.clone()),
                Some(theirs) if theirs.member && below_too => {}
                Some(theirs) => {
                    let below = node.below.without(&theirs.below, below_too);
                    out.put(element.clone(), Node { member: node.member && !theirs.member, below });
                }
            }
        }
        out
    }

    /// Every member; those of one level before those below it, which is the order of conflicts in a message.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let mut out = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
        for (element, _) in self.0.iter().filter(|(_, node)| node.member) {
            out.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, node) in &self.0 {
            prefix.push(element.clone());
            node.below.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    /// As `fieldsV1`.
    pub(crate) fn print(&self) -> Value {
        let fields = self.0.iter().map(|(element, node)| {
            let mut below = node.below.print();
            if node.member
                && !node.below.is_empty()
                && let Some(fields) = below.as_object_mut()
            {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.print(), below)
        });
        Value::Object(fields.collect())
    }

    /// Reads `fieldsV1`.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        Some(Node::parse(value)?.below)
    }
}

impl Node {
    /// A field with nothing below it is a member, one with something is if it says so.
    fn parse(value: &Value) -> Option<Self> {
        let mut node = Self::default();
        for (key, value) in value.as_object()? {
            if key == "." {
                node.member = true;
                continue;
            }
            match Element::parse(key) {
                Ok(element) => node.below.put(element, Self::parse(value)?),
                Err(Unreadable::Unknown) => {}
                Err(Unreadable::Malformed) => return None,
            }
        }
        node.member |= node.below.is_empty();
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::managed_fields::element::Scalar;

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(|n| json!(n)),
            any::<String>().prop_map(|s| json!(s)),
            any::<bool>().prop_map(|b| json!(b)),
            Just(json!(1.5)),
            Just(json!(null)),
        ]
    }

    fn element() -> impl Strategy<Value = Element> {
        prop_oneof![
            any::<String>().prop_map(Element::Field),
            prop::collection::btree_map(any::<String>(), scalar(), 1..3).prop_map(Element::key),
            scalar().prop_map(|v| Element::Value(Scalar(v))),
            any::<i64>().prop_map(Element::Index),
        ]
    }

    fn set() -> impl Strategy<Value = Set> {
        prop::collection::vec(prop::collection::vec(element(), 1..4), 0..6).prop_map(|paths| {
            let mut set = Set::default();
            for path in paths {
                set.insert(path);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(set in set()) {
            prop_assert_eq!(Set::parse(&set.print()), Some(set));
        }

        #[test]
        fn a_set_is_what_is_shared_and_what_is_not(a in set(), b in set()) {
            let both = a.clone().union(b.clone());
            prop_assert_eq!(both.difference(&a).union(a.clone()), both.clone());
            prop_assert_eq!(both.intersection(&b), b.clone());
            prop_assert_eq!(a.difference(&b).intersection(&b), Set::default());
            prop_assert!(both.paths().iter().all(|path| a.has(path) || b.has(path)));
        }
    }

    #[test]
    fn elements_are_written_as_upstream_writes_them() {
        let printed = |key: Value| Element::key(key.as_object().unwrap().clone()).print();
        assert_eq!(
            printed(json!({"protocol": "TCP", "containerPort": 80})),
            r#"k:{"containerPort":80,"protocol":"TCP"}"#
        );
        assert_eq!(printed(json!({"name": "a<b>"})), r#"k:{"name":"a\u003cb\u003e"}"#);
        assert_eq!(Element::Value(Scalar(json!("a"))).print(), r#"v:"a""#);
        assert_eq!(Element::Index(3).print(), "i:3");
    }

    #[test]
    fn what_later_versions_write_is_passed_over_and_nonsense_is_not() {
        assert_eq!(Set::parse(&json!({"f:a": {}, "z:new": {}})), Set::parse(&json!({"f:a": {}})));
        for nonsense in ["", "f", "name", "k:1", "k:{", "i:x", "v:"] {
            assert_eq!(Set::parse(&json!({nonsense: {}})), None, "{nonsense}");
        }
        assert_eq!(Set::parse(&json!({"f:a": 1})), None);
    }

    /// Numbers read from `fieldsV1` are the numbers of the object, whichever way either wrote them.
    #[test]
    fn a_number_is_one_element() {
        assert_eq!(Element::parse(r#"k:{"port":80}"#), Element::parse(r#"k:{"port":80.0}"#));
        assert_eq!(Element::parse("v:80.0").map(|e| e.print()), Ok("v:80".to_owned()));
    }
}
