//! An object that waits for its revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};
use thiserror::Error;

use super::Entry;

const RESOURCE_VERSION: &str = "resourceVersion";

/// The bytes of an object with a hole where its revision goes: the commit that knows the revision copies them once and
/// serialises nothing.
#[derive(Clone, Debug)]
pub struct Draft {
    bytes: Vec<u8>,
    /// Between the quotes of `"resourceVersion":""`.
    hole: usize,
    labels: BTreeMap<String, String>,
    fields: Vec<(String, String)>,
}

/// The caller handed in what cannot become an object.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotADraft {
    #[error("an object must be a JSON object")]
    NotAnObject,
    #[error("an object must have metadata")]
    NoMetadata,
    #[error("metadata.resourceVersion is the store's to set")]
    HasRevision,
}

impl Draft {
    pub fn new(object: &Value) -> Result<Self, NotADraft> {
        let object = object.as_object().ok_or(NotADraft::NotAnObject)?;
        let metadata = object.get("metadata").and_then(Value::as_object).ok_or(NotADraft::NoMetadata)?;
        if metadata.contains_key(RESOURCE_VERSION) {
            return Err(NotADraft::HasRevision);
        }
        let mut writer = Writer::default();
        let mut hole = 0;
        writer.object(object, |writer, name, value| {
            if name == "metadata" {
                hole = writer.metadata(metadata);
            } else {
                writer.value(value);
            }
        });
        Ok(Self { bytes: writer.bytes, hole, labels: labels(metadata), fields: Vec::new() })
    }

    /// What field selectors may ask this object for.
    #[must_use]
    pub fn with_fields(mut self, mut fields: Vec<(String, String)>) -> Self {
        fields.sort();
        self.fields = fields;
        self
    }

    /// Whether writing this would change nothing but the revision. Such a write must not happen: controllers that
    /// write what is already there would wake each other for ever.
    pub fn changes_nothing(&self, entry: &Entry) -> bool {
        let (head, tail) = self.bytes.split_at(self.hole);
        entry.bytes.len() == self.bytes.len() + entry.revision.to_string().len()
            && entry.bytes.starts_with(head)
            && entry.bytes.ends_with(tail)
            && entry.labels == self.labels
            && entry.fields == self.fields
    }

    pub(super) fn finish(self, revision: u64) -> Entry {
        let digits = revision.to_string();
        let (head, tail) = self.bytes.split_at(self.hole);
        let mut bytes = Vec::with_capacity(self.bytes.len() + digits.len());
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(digits.as_bytes());
        bytes.extend_from_slice(tail);
        Entry { revision, bytes: Bytes::from(bytes), labels: self.labels, fields: self.fields }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

fn labels(metadata: &Map<String, Value>) -> BTreeMap<String, String> {
    let labels = metadata.get("labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// Writes the two outer levels by hand, because only then is the place of the hole exact.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn object(&mut self, members: &Map<String, Value>, mut member: impl FnMut(&mut Self, &str, &Value)) {
        self.bytes.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.bytes.push(b',');
            }
            self.name(name);
            member(self, name, value);
        }
        self.bytes.push(b'}');
    }

    /// Answers where the hole is. The hole is where the name sorts, so that the bytes stay canonical.
    fn metadata(&mut self, metadata: &Map<String, Value>) -> usize {
        self.bytes.push(b'{');
        let (before, after): (Vec<_>, Vec<_>) =
            metadata.iter().partition(|(name, _)| name.as_str() < RESOURCE_VERSION);
        for (name, value) in before {
            self.name(name);
            self.value(value);
            self.bytes.push(b',');
        }
        self.name(RESOURCE_VERSION);
        self.bytes.push(b'"');
        let hole = self.bytes.len();
        self.bytes.push(b'"');
        for (name, value) in after {
            self.bytes.push(b',');
            self.name(name);
            self.value(value);
        }
        self.bytes.push(b'}');
        hole
    }

    fn name(&mut self, name: &str) {
        serde_json::to_writer(&mut self.bytes, name).expect("should serialise: a string into memory");
        self.bytes.push(b':');
    }

    fn value(&mut self, value: &Value) {
        serde_json::to_writer(&mut self.bytes, value).expect("should serialise: a value into memory");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_revision_is_the_only_difference() {
        for metadata in
            [json!({}), json!({"name": "a"}), json!({"uid": "u"}), json!({"name": "\"a\"", "uid": "u"})]
        {
            let object =
                json!({"apiVersion": "v1", "kind": "Pod\n", "metadata": metadata, "spec": {"a": [1, null]}});
            let entry = Draft::new(&object).unwrap().finish(42);
            let mut expected = object;
            expected["metadata"]["resourceVersion"] = json!("42");
            assert_eq!(entry.bytes, serde_json::to_vec(&expected).unwrap());
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert_eq!(Draft::new(&json!([])).err(), Some(NotADraft::NotAnObject));
        assert_eq!(Draft::new(&json!({"metadata": 1})).err(), Some(NotADraft::NoMetadata));
        let revised = json!({"metadata": {"resourceVersion": "1"}});
        assert_eq!(Draft::new(&revised).err(), Some(NotADraft::HasRevision));
    }

    #[test]
    fn a_write_of_the_same_changes_nothing() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": 1});
        let draft = Draft::new(&object).unwrap();
        let entry = draft.clone().finish(7);
        assert_eq!(entry.labels["x"], "y");
        assert!(draft.changes_nothing(&entry));
        let other = Draft::new(&json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": 2})).unwrap();
        assert!(!other.changes_nothing(&entry));
    }
}
