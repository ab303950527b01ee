//! What is stored, and where.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use bytes::Bytes;

/// A `group/plural`, such as `apps/deployments`; `/pods` for the core group.
pub type Resource = Arc<str>;

/// Where an object is within its resource. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Place {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// Ordered as the path `namespace/name`, which is how kube-apiserver sorts a list: `a-b/x` is before `a/x`.
impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        let path = |place: &Self| [place.namespace.as_bytes(), b"/"].concat();
        let (mine, theirs) = (self.namespace.as_bytes(), other.namespace.as_bytes());
        if mine.starts_with(theirs) || theirs.starts_with(mine) {
            return path(self).cmp(&path(other));
        }
        mine.cmp(theirs)
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The one address of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub resource: Resource,
    pub place: Place,
}

impl Key {
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.into(), place: Place::new(namespace, name) }
    }
}

/// An object as of one revision.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub revision: u64,
    /// The JSON object, with its `metadata.resourceVersion`.
    pub bytes: Bytes,
    pub labels: BTreeMap<String, String>,
    /// What field selectors may ask for, sorted.
    pub fields: Vec<(String, String)>,
}

impl Entry {
    pub fn field(&self, name: &str) -> Option<&str> {
        let at = self.fields.binary_search_by(|(field, _)| field.as_str().cmp(name)).ok()?;
        Some(&self.fields[at].1)
    }

    /// Roughly what it takes in memory, or in the log.
    pub(super) fn weight(&self) -> usize {
        let pairs = self.labels.iter().chain(self.fields.iter().map(|(field, value)| (field, value)));
        let text: usize = pairs.map(|(name, value)| name.len() + value.len() + 2 * STRING).sum();
        self.bytes.len() + text + ENTRY
    }
}

const STRING: usize = size_of::<String>();
const ENTRY: usize = size_of::<Entry>();

/// One write, as watchers see it.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    pub key: Key,
    /// The object after the write. Of a delete: the last object, with the revision of the delete.
    pub entry: Arc<Entry>,
    pub deleted: bool,
    /// The object before the write: a watch with a selector must tell what left the selection.
    pub before: Option<Arc<Entry>>,
}

impl Event {
    pub fn revision(&self) -> u64 {
        self.entry.revision
    }

    /// The object, unless it is gone.
    pub fn now(&self) -> Option<&Arc<Entry>> {
        (!self.deleted).then_some(&self.entry)
    }

    /// What keeping this event keeps alive, counting also what others may share: a bound must not be too low.
    pub(super) fn weight(&self) -> usize {
        let key = self.key.resource.len() + self.key.place.namespace.len() + self.key.place.name.len();
        let before = self.before.as_ref().map_or(0, |entry| entry.weight());
        size_of::<Self>() + key + self.entry.weight() + before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_as_paths() {
        let paths = [("", "a"), ("", "b"), ("a", "z"), ("a-b", "x"), ("a", "a"), ("ab", "c"), ("b", "a")];
        let mut places: Vec<Place> =
            paths.iter().map(|(namespace, name)| Place::new(namespace, name)).collect();
        let path = |place: &Place| format!("{}/{}", place.namespace, place.name);
        let mut expected: Vec<String> = places.iter().map(path).collect();
        expected.sort();
        places.sort();
        assert_eq!(places.iter().map(path).collect::<Vec<_>>(), expected);
    }
}
