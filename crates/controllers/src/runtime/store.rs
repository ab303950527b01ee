//! The objects of one kind, as the watch and our own writes tell them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kube::{Resource, ResourceExt};

/// The name of an object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace; empty for what has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of an object of this namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(object: &impl Resource) -> Self {
        Self::new(object.namespace().unwrap_or_default(), object.name_any())
    }

    /// The key of another object of the same namespace.
    #[must_use]
    pub fn beside(&self, name: impl Into<String>) -> Self {
        Self::new(self.namespace.clone(), name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The objects of one kind. What a write answered is put here at once, so that no decision is made on a view that is
/// older than our own last write; events that are older than what is known change nothing.
#[derive(Debug)]
pub struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// By the uid of the controller that owns them.
    owned: BTreeMap<String, BTreeSet<Key>>,
    /// The newest version that the watch of each scope has brought, and with it everything before. A scope is a
    /// namespace, or empty for the whole cluster; a scope that is in here was listed.
    seen: BTreeMap<String, u64>,
    /// The scopes in which the API does not have the kind.
    unknown: BTreeSet<String>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            owned: BTreeMap::new(),
            seen: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }
}

impl<K: Resource> Store<K> {
    /// An object.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// The objects that an object controls.
    pub fn owned_by<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        let keys = self.owned.get(uid);
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key))
    }

    /// The objects of a namespace whose names begin so.
    pub fn named<'a>(
        &'a self,
        namespace: &str,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        let first = Key::new(namespace, prefix);
        let so = first.clone();
        let begins = move |key: &Key| key.namespace == so.namespace && key.name.starts_with(&so.name);
        self.objects.range(first..).take_while(move |(key, _)| begins(key)).map(|(_, object)| object)
    }

    /// Every object.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Whether the kind was listed once in all of these scopes: before, nothing is known of what is missing.
    pub(super) fn is_listed(&self, scopes: &[String]) -> bool {
        scopes.iter().all(|scope| self.seen.contains_key(scope))
    }

    /// Whether the watch has brought everything of a namespace up to a version.
    pub(super) fn has_seen(&self, namespace: &str, version: u64) -> bool {
        let seen = self.seen.get(namespace).or_else(|| self.seen.get(""));
        seen.is_some_and(|seen| *seen >= version)
    }

    /// Whether the API has this kind.
    pub fn is_served(&self) -> bool {
        self.seen.keys().any(|scope| !self.unknown.contains(scope))
    }

    /// The scope whose watch brings this object.
    fn scope(&self, object: &K) -> String {
        object.namespace().filter(|namespace| self.seen.contains_key(namespace)).unwrap_or_default()
    }

    fn saw(&mut self, object: &K) {
        let scope = self.scope(object);
        let seen = self.seen.entry(scope).or_default();
        *seen = version(object).max(*seen);
    }

    /// Learns of an object from the answer to a write. An unknown object that the watch has passed was deleted
    /// meanwhile: it stays unknown.
    pub(super) fn put_written(&mut self, object: K) -> bool {
        let seen = self.seen.get(&self.scope(&object)).copied().unwrap_or_default();
        let passed = !self.objects.contains_key(&Key::of(&object)) && version(&object) <= seen;
        !passed && self.learn(object)
    }

    /// Learns of an object from the watch, unless a newer state of it is known. Returns whether it did.
    pub(super) fn put(&mut self, object: K) -> bool {
        self.saw(&object);
        self.learn(object)
    }

    fn learn(&mut self, object: K) -> bool {
        let key = Key::of(&object);
        if self.objects.get(&key).is_some_and(|known| version(known.as_ref()) >= version(&object)) {
            return false;
        }
        self.take(&key);
        if let Some(owner) = owner(&object) {
            self.owned.entry(owner).or_default().insert(key.clone());
        }
        self.objects.insert(key, Arc::new(object));
        true
    }

    /// Learns that an object is gone, unless a newer state of it is known. Returns what was known of it.
    pub(super) fn remove(&mut self, object: &K) -> Option<Arc<K>> {
        self.saw(object);
        let key = Key::of(object);
        let known = self.objects.get(&key)?;
        (version(known.as_ref()) <= version(object)).then(|| self.take(&key)).flatten()
    }

    /// Learns what there was in a scope at a version. What is not in it is gone, unless it is newer than the list: then
    /// a write of ours made it. Returns what is gone.
    pub(super) fn replace(&mut self, scope: &str, newest: u64, objects: Vec<K>) -> Vec<Arc<K>> {
        let listed: BTreeSet<Key> = objects.iter().map(Key::of).collect();
        let is_here = |key: &Key| scope.is_empty() || key.namespace == scope;
        let missing = |known: &Arc<K>| {
            let key = Key::of(known.as_ref());
            is_here(&key) && !listed.contains(&key)
        };
        let stays = |known: &Arc<K>| version(known.as_ref()) > newest;
        let gone: Vec<Key> = self
            .objects
            .values()
            .filter(|known| missing(known) && !stays(known))
            .map(|known| Key::of(known.as_ref()))
            .collect();
        let gone = gone.iter().filter_map(|key| self.take(key)).collect();
        for object in objects {
            self.learn(object);
        }
        let seen = self.seen.entry(scope.to_owned()).or_default();
        *seen = newest.max(*seen);
        self.unknown.remove(scope);
        gone
    }

    /// Learns that the API does not have the kind in a scope. Removes its objects there, and returns them.
    pub(super) fn clear(&mut self, scope: &str) -> Vec<Arc<K>> {
        let gone = self.replace(scope, u64::MAX, Vec::new());
        // A kind that comes back begins with versions of its own.
        self.seen.insert(scope.to_owned(), 0);
        self.unknown.insert(scope.to_owned());
        gone
    }

    fn take(&mut self, key: &Key) -> Option<Arc<K>> {
        let known = self.objects.remove(key)?;
        if let Some(uid) = owner(known.as_ref())
            && let Some(keys) = self.owned.get_mut(&uid)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.owned.remove(&uid);
            }
        }
        Some(known)
    }
}

/// The uid of the object that controls this one.
fn owner(object: &impl Resource) -> Option<String> {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Versions of one kind are numbers that grow: Kubernetes has promised so since 1.35, and it has been so ever since.
fn version(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::ConfigMap,
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    };

    use super::*;

    fn map(name: &str, version: u64, owner: Option<&str>) -> ConfigMap {
        let owners = owner.map(|uid| {
            vec![OwnerReference { uid: uid.to_owned(), controller: Some(true), ..OwnerReference::default() }]
        });
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            resource_version: Some(version.to_string()),
            owner_references: owners,
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    fn names(store: &Store<ConfigMap>) -> Vec<String> {
        store.all().map(|map| map.name_any()).collect()
    }

    #[test]
    fn an_old_event_does_not_undo_what_a_write_answered() {
        let mut store = Store::default();
        assert!(store.put(map("a", 7, Some("x"))));
        assert!(!store.put(map("a", 5, None)));
        assert!(store.remove(&map("a", 6, None)).is_none());
        assert_eq!(store.owned_by("x").count(), 1);
        assert!(store.remove(&map("a", 8, None)).is_some());
        assert_eq!((store.owned_by("x").count(), names(&store).len()), (0, 0));
    }

    #[test]
    fn a_late_answer_does_not_bring_a_deleted_object_back() {
        let mut store = Store::default();
        store.put(map("a", 3, None));
        store.remove(&map("a", 8, None));
        assert!(!store.put_written(map("a", 5, None)));
        assert!(store.put_written(map("a", 9, None)));
        assert_eq!(names(&store), ["a"]);
    }

    #[test]
    fn a_list_that_is_older_than_our_write_does_not_hide_it() {
        let mut store = Store::default();
        store.put(map("written", 9, None));
        store.put(map("gone", 3, None));
        let gone = store.replace("", 8, vec![map("listed", 7, None)]);
        assert_eq!(gone.len(), 1);
        assert_eq!(names(&store), ["listed", "written"]);
    }

    #[test]
    fn what_a_newer_list_does_not_have_is_gone_also_if_we_wrote_it_last() {
        let mut store = Store::default();
        store.put_written(map("deleted", 9, None));
        assert_eq!(store.replace("", 12, vec![map("listed", 2, None)]).len(), 1);
        assert_eq!(names(&store), ["listed"]);
        assert!(!store.put_written(map("deleted", 11, None)));
    }

    #[test]
    fn what_one_namespace_says_changes_nothing_in_another() {
        let there = |name: &str, version: u64| {
            let mut object = map(name, version, None);
            object.metadata.namespace = Some("other".to_owned());
            object
        };
        let scopes = ["ns".to_owned(), "other".to_owned()];
        let mut store = Store::default();
        store.replace("ns", 90, vec![map("a", 9, None)]);
        assert!(!store.is_listed(&scopes));
        store.replace("other", 50, vec![there("b", 8)]);
        assert!(store.is_listed(&scopes));
        store.put(map("a", 95, None));
        // The watch of the other namespace is not as far: it would have brought no deletion.
        assert!(store.put_written(there("c", 60)));
        assert!(!store.put_written(map("d", 60, None)), "deleted before 90");
        assert_eq!(store.replace("ns", 99, Vec::new()).len(), 1);
        assert_eq!(names(&store), ["b", "c"]);
    }

    #[test]
    fn a_namespace_ends_where_the_next_begins() {
        let mut store: Store<ConfigMap> = Store::default();
        for (namespace, name) in [("a", "x"), ("a", "y"), ("ab", "z")] {
            let mut object = map(name, 1, None);
            object.metadata.namespace = Some(namespace.to_owned());
            store.put(object);
        }
        assert_eq!(store.named("a", "").count(), 2);
        assert_eq!(store.named("", "").count(), 0);
    }
}
