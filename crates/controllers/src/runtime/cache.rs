//! The objects of every kind that is watched, and which requests a change of one of them leads to.
//!
//! Nothing here knows which kinds there are: controllers say what they watch ([`Watches`]), and the cache has a store
//! for each type that is watched.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::{self, Debug},
    sync::Arc,
};

use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Key, Request, Store};

/// A type whose objects can be watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Which objects of a type a controller needs.
pub struct Select<K> {
    /// A label that objects must have, as `key` or `key=value`: the API sends no others.
    label: Option<&'static str>,
    /// Which of those are kept.
    keeps: fn(&K) -> bool,
}

impl<K: Watched> Select<K> {
    /// Every object.
    pub fn all() -> Self {
        Self { label: None, keeps: |_| true }
    }

    /// Those with a label, given as `key` or `key=value`.
    pub fn labelled(label: &'static str) -> Self {
        Self { label: Some(label), ..Self::all() }
    }

    /// Those of which this is true; the API sends the others too.
    #[must_use]
    pub fn keeping(self, keeps: fn(&K) -> bool) -> Self {
        Self { keeps, ..self }
    }

    /// The label that the API selects by.
    pub(super) fn label(&self) -> Option<&'static str> {
        self.label
    }

    pub(super) fn matches(&self, object: &K) -> bool {
        let labelled = self.label.is_none_or(|label| {
            let (key, value) = label.split_once('=').map_or((label, None), |(key, value)| (key, Some(value)));
            object.labels().get(key).is_some_and(|found| value.is_none_or(|value| found == value))
        });
        labelled && (self.keeps)(object)
    }
}

/// The objects of a controller that are reconciled when an object of some type changes.
pub(super) type MapFn<K> = Box<dyn Fn(&K, &Cache) -> Vec<Key> + Send + Sync>;

/// Why a controller watches a type, and what a change of an object means to it.
pub(super) struct EventHandler<K> {
    pub(super) controller: &'static str,
    pub(super) select: Select<K>,
    pub(super) map: MapFn<K>,
}

/// The store of one type, and who is interested in it.
struct TypedStore<K> {
    store: Store<K>,
    interests: Arc<Vec<EventHandler<K>>>,
}

/// Whether a store was listed in all of these scopes.
type IsListed = fn(&Cache, &[String]) -> bool;

/// The objects that are watched, by type. A type without watches has no store.
#[derive(Default)]
pub struct Cache {
    kept: BTreeMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// Whether each store was listed in all of these scopes, by type: what is behind `Any` cannot be asked.
    is_listed: BTreeMap<TypeId, IsListed>,
}

impl Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("types", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Cache {
    fn kept<K: Watched>(&self) -> Option<&TypedStore<K>> {
        self.kept.get(&TypeId::of::<K>())?.downcast_ref()
    }

    fn store<K: Watched>(&self) -> Option<&Store<K>> {
        self.kept::<K>().map(|kept| &kept.store)
    }

    /// An object.
    pub fn get<K: Watched>(&self, key: &Key) -> Option<&Arc<K>> {
        self.store::<K>()?.get(key)
    }

    /// The objects that an object controls.
    pub fn owned_by<'a, K: Watched>(&'a self, uid: &str) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        let owned = self.store::<K>().map(|store| store.owned_by(uid));
        owned.into_iter().flatten()
    }

    /// The objects of a namespace.
    pub fn within<'a, K: Watched>(
        &'a self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        self.named(namespace, "")
    }

    /// The objects of a namespace whose names begin so.
    pub fn named<'a, K: Watched>(
        &'a self,
        namespace: &str,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        let named = self.store::<K>().map(|store| store.named(namespace, prefix));
        named.into_iter().flatten()
    }

    /// Every object of a type.
    pub fn all<K: Watched>(&self) -> impl Iterator<Item = &Arc<K>> {
        self.store::<K>().into_iter().flat_map(Store::all)
    }

    /// Whether the watch of a type has brought everything of a namespace up to a version: an object that was there then
    /// and is not cached is gone.
    pub(crate) fn has_seen<K: Watched>(&self, namespace: &str, version: u64) -> bool {
        self.store::<K>().is_some_and(|store| store.has_seen(namespace, version))
    }

    /// Whether the API has this kind.
    pub fn is_served<K: Watched>(&self) -> bool {
        self.store::<K>().is_some_and(Store::is_served)
    }

    /// Whether everything that is watched was listed: half of the objects would be decided upon as if the other half
    /// were gone.
    pub(super) fn is_listed(&self, scopes: &[String]) -> bool {
        self.is_listed.values().all(|is_listed| is_listed(self, scopes))
    }

    /// Who is interested in a type.
    pub(super) fn interests<K: Watched>(&self) -> Arc<Vec<EventHandler<K>>> {
        self.kept::<K>().map(|kept| Arc::clone(&kept.interests)).unwrap_or_default()
    }

    /// Keeps a type from now on.
    pub(super) fn keep<K: Watched>(&mut self, interest: EventHandler<K>) {
        let kept = self.kept.entry(TypeId::of::<K>()).or_insert_with(|| {
            Box::new(TypedStore::<K> { store: Store::default(), interests: Arc::default() })
        });
        let kept = kept.downcast_mut::<TypedStore<K>>();
        // There is no other reference yet: watches begin when every controller has said what it needs.
        if let Some(interests) = kept.and_then(|kept| Arc::get_mut(&mut kept.interests)) {
            interests.push(interest);
        }
        let is_listed = |cache: &Self, scopes: &[String]| {
            let everywhere = [String::new()];
            let scopes = if is_namespaced::<K>() { scopes } else { &everywhere };
            cache.store::<K>().is_none_or(|store| store.is_listed(scopes))
        };
        self.is_listed.insert(TypeId::of::<K>(), is_listed);
    }

    /// Applies an event. Returns the requests that it leads to, and whether the kind has appeared or vanished.
    pub(super) fn apply_event<K: Watched>(&mut self, event: CacheEvent<K>) -> Changes {
        let Some(kept) =
            self.kept.get_mut(&TypeId::of::<K>()).and_then(|kept| kept.downcast_mut::<TypedStore<K>>())
        else {
            return Changes::default();
        };
        let was_served = kept.store.is_served();
        let touched = take(&mut kept.store, event);
        let appeared = kept.store.is_served() != was_served;
        let interests = Arc::clone(&kept.interests);
        let mut requests = Vec::new();
        for object in &touched {
            for interest in interests.iter().filter(|interest| interest.select.matches(object)) {
                let keys = (interest.map)(object, self).into_iter();
                requests.extend(keys.map(|key| Request { controller: interest.controller, key }));
            }
        }
        Changes { requests, appeared }
    }
}

#[cfg(test)]
impl Cache {
    /// A cache with these objects and nothing else.
    pub(crate) fn with<K: Watched>(objects: impl IntoIterator<Item = K>) -> Self {
        Self::default().and(objects)
    }

    /// The same, with these objects too.
    pub(crate) fn and<K: Watched>(mut self, objects: impl IntoIterator<Item = K>) -> Self {
        self.keep::<K>(EventHandler {
            controller: "Test",
            select: Select::all(),
            map: Box::new(|_, _| Vec::new()),
        });
        for object in objects {
            self.apply_event(CacheEvent::Updated(object));
        }
        self
    }
}

/// What changes with an event.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) requests: Vec<Request>,
    /// The API has the kind from now on, or no longer: what can be done for any object may depend on that.
    pub(super) appeared: bool,
}

/// What an API says of a kind.
#[derive(Debug)]
pub(super) enum CacheEvent<K> {
    /// All that there was in a scope at a version.
    Listed(String, u64, Vec<K>),
    /// An object, by the watch.
    Updated(K),
    /// An object, as a write answered it.
    WriteResponse(K),
    /// An object that is gone.
    Deleted(K),
    /// The API does not have the kind in this scope.
    NoSuchKind(String),
}

/// Changes a store. Returns what changed, as it was and as it is.
fn take<K: Watched>(store: &mut Store<K>, event: CacheEvent<K>) -> Vec<Arc<K>> {
    let mut touched = Vec::new();
    match event {
        CacheEvent::Updated(object) => {
            let key = Key::of(&object);
            let before = store.get(&key).cloned();
            if store.put(object) {
                touched.extend(before.into_iter().chain(store.get(&key).cloned()));
            }
        }
        CacheEvent::WriteResponse(object) => {
            let key = Key::of(&object);
            let before = store.get(&key).cloned();
            if store.put_written(object) {
                touched.extend(before.into_iter().chain(store.get(&key).cloned()));
            }
        }
        CacheEvent::Deleted(object) => touched.extend(store.remove(&object)),
        CacheEvent::Listed(scope, version, objects) => {
            touched.extend(store.replace(&scope, version, objects));
            touched.extend(store.all().cloned());
        }
        CacheEvent::NoSuchKind(scope) => touched.extend(store.clear(&scope)),
    }
    touched
}

/// Whether objects of a type are in namespaces.
pub(super) fn is_namespaced<K: Watched>() -> bool {
    !std::any::type_name::<K::Scope>().ends_with("ClusterResourceScope")
}

/// The keys of the objects of a kind that control this one.
pub(crate) fn controllers_of(object: &impl Resource, kind: &api::Kind) -> Vec<Key> {
    let namespace = object.namespace().unwrap_or_default();
    let owners = object.owner_references().iter();
    let controllers = owners.filter(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.controller == Some(true) && owner.kind == kind.name && group == kind.group
    });
    controllers.map(|owner| Key::new(namespace.clone(), owner.name.clone())).collect()
}
