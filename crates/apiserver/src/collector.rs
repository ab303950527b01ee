//! What happens after a write: kinds are installed, owned objects follow their owners, namespaces are emptied.
//!
//! Cost follows what changed. Every write leaves notes of what it may have to do with; [`Server::collect`] works them
//! off, and what it does leaves notes again. The notes and the index of owners are made anew from the store when a
//! server starts, so losing them loses nothing.
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    crd,
    delete::{FOREGROUND, ORPHAN, Options, Propagation},
    object::{self, Owner},
    refusal::Refusal,
    registry::Registry,
    resource::Resource,
    server::Server,
    store::{Change, Key, Query},
    world,
    write::draft,
};

/// Events are kept for an hour, as on a cluster.
const EVENTS_LIVE: SignedDuration = SignedDuration::from_hours(1);

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Note {
    /// An object whose owners or finalizers may ask for something.
    Object(Key),
    /// A namespace that may have to be emptied.
    Namespace(String),
    /// A definition whose objects may have to go.
    Definition(String),
}

/// What the collector knows.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the uid of the owner.
    dependents: HashMap<String, BTreeSet<Key>>,
    queue: VecDeque<Note>,
    queued: BTreeSet<Note>,
}

impl Known {
    fn note(&mut self, note: Note) {
        if self.queued.insert(note.clone()) {
            self.queue.push_back(note);
        }
    }

    fn next(&mut self) -> Option<Note> {
        let note = self.queue.pop_front()?;
        self.queued.remove(&note);
        Some(note)
    }

    /// Keeps the index of owners as the objects are.
    fn index(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        for owner in old.map(object::owners).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(owner.uid) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(owner.uid);
                }
            }
        }
        for owner in new.map(object::owners).unwrap_or_default() {
            self.dependents.entry(owner.uid.to_owned()).or_default().insert(key.clone());
        }
    }
}

impl Notes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dependents(&self, uid: &str) -> Vec<Key> {
        self.known().dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

impl Server {
    /// Takes note of a write, and installs or removes the kind that it defines.
    pub(crate) async fn after(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Refusal> {
        let Some(object) = new.or(old) else { return Ok(()) };
        self.take_note(resource, old, new);
        if resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.define(resource, object, new.is_some()).await?;
        }
        Ok(())
    }

    fn take_note(&self, resource: &Resource, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let key = Key::new(&resource.storage(), object::namespace(object), object::name(object));
        let leaving = object::is_leaving(object);
        let mut known = self.notes().known();
        known.index(&key, old, new);
        if new.is_none() {
            for dependent in
                known.dependents.get(object::uid(object)).into_iter().flatten().cloned().collect::<Vec<_>>()
            {
                known.note(Note::Object(dependent));
            }
            // An owner that waits for this object may be done.
            for owner in object::owners(object) {
                if let Some(key) = key_of_owner(&self.registry(), &owner, object::namespace(object)) {
                    known.note(Note::Object(key));
                }
            }
            if !object::namespace(object).is_empty() {
                known.note(Note::Namespace(object::namespace(object).to_owned()));
            }
            if !resource.group.is_empty() {
                known.note(Note::Definition(format!("{}.{}", resource.plural, resource.group)));
            }
        } else if leaving || !object::owners(object).is_empty() {
            known.note(Note::Object(key));
        }
        // An owner that waits for an object may be done when that object no longer holds it up.
        if let (Some(old), Some(new)) = (old, new) {
            let owners = object::owners(new);
            for owner in object::owners(old).iter().filter(|owner| !owners.contains(owner)) {
                if let Some(key) = key_of_owner(&self.registry(), owner, object::namespace(old)) {
                    known.note(Note::Object(key));
                }
            }
        }
        if leaving && resource.is_built_in("", "Namespace") {
            known.note(Note::Namespace(object::name(object).to_owned()));
        }
        if leaving && resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
            known.note(Note::Definition(object::name(object).to_owned()));
        }
        drop(known);
        self.changed().notify_one();
    }

    /// Serves what a definition says, or stops.
    async fn define(&self, resource: &Resource, definition: &Value, there: bool) -> Result<(), Refusal> {
        if !there {
            return self.change_registry(|registry| Ok(registry.without(definition)));
        }
        let invalid = |causes: Vec<_>| {
            Refusal::invalid(&resource.group, &resource.kind, object::name(definition), &causes)
        };
        self.change_registry(|registry| registry.with(definition)).map_err(invalid)?;
        let status = crd::established(definition, &world::seconds(self.world().now()));
        let accepted = &definition["status"]["acceptedNames"];
        let wanted = object::finalizers(definition).contains(&crd::CLEANUP) || object::is_leaving(definition);
        if wanted && accepted == &status["acceptedNames"] {
            return Ok(());
        }
        let mut new = definition.clone();
        new["status"] = status;
        let mut finalizers = new["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !wanted {
            finalizers.push(json!(crd::CLEANUP));
        }
        object::set_meta(&mut new, "finalizers", finalizers);
        let key = Key::new(&resource.storage(), "", object::name(definition));
        if let Some(entry) = self.get(&key) {
            let change = Change::update(key, entry.revision, draft(resource, &new)?);
            // Somebody else changed it: then that write establishes it.
            drop(self.store().commit(change).await);
        }
        Ok(())
    }

    /// At start: serves the kinds that are stored, and looks at everything once.
    pub(crate) fn install_stored_kinds(&self) {
        let crds = self.objects("apiextensions.k8s.io/customresourcedefinitions");
        for definition in &crds {
            // What is stored was judged when it came; a definition that a newer rule refuses is not served.
            drop(self.change_registry(|registry| registry.with(definition)));
        }
        for resource in self.registry().stored() {
            for object in self.objects(&resource.storage()) {
                self.take_note(resource, None, Some(&object));
            }
        }
    }

    fn objects(&self, storage: &str) -> Vec<Value> {
        let listing = self.store().list(storage, &Query::default());
        let entries = listing.map(|listing| listing.items).unwrap_or_default();
        entries.iter().map(|(_, entry)| serde_json::from_slice(&entry.bytes).unwrap_or_default()).collect()
    }

    /// Works until nothing is left to do. Returns how much it did.
    pub async fn collect(&self) -> usize {
        let mut done = 0;
        loop {
            let Some(note) = self.notes().known().next() else { return done };
            done += 1;
            // What cannot be done now is noted again by the write that makes it possible.
            drop(match note {
                Note::Object(key) => self.look_at(&key).await,
                Note::Namespace(name) => self.empty_namespace(&name).await,
                Note::Definition(name) => self.empty_definition(&name).await,
            });
        }
    }

    /// Collects as long as the server lives: after every write, and old events every minute.
    pub async fn keep_collecting(self) {
        let mut minute = tokio::time::interval(std::time::Duration::from_mins(1));
        loop {
            self.collect().await;
            tokio::select! {
                () = self.changed().notified() => {}
                _ = minute.tick() => self.forget_events().await,
            }
        }
    }

    async fn look_at(&self, key: &Key) -> Result<(), Refusal> {
        let registry = self.registry();
        let Some(resource) = registry.stored().find(|resource| *resource.storage() == *key.resource) else {
            return Ok(());
        };
        let Some(entry) = self.get(key) else { return Ok(()) };
        let object: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if object::is_leaving(&object) {
            let finalizers = object::finalizers(&object);
            if finalizers.contains(&ORPHAN) {
                return self.orphan(resource, key, &object).await;
            }
            if finalizers.contains(&FOREGROUND) {
                return self.delete_dependents(resource, key, &object).await;
            }
            return Ok(());
        }
        self.follow_owners(&registry, resource, key, &object).await
    }

    /// An object whose last owner is gone goes too; one that has others forgets the missing.
    async fn follow_owners(
        &self,
        registry: &Registry,
        resource: &Resource,
        key: &Key,
        object: &Value,
    ) -> Result<(), Refusal> {
        let owners = object::owners(object);
        let (mut solid, mut gone, mut waiting) = (0, Vec::new(), Vec::new());
        for owner in &owners {
            match self.state_of(registry, owner, object::namespace(object)) {
                OwnerIs::There => solid += 1,
                OwnerIs::Gone => gone.push(owner.uid.to_owned()),
                OwnerIs::Waiting => waiting.push(owner.uid.to_owned()),
            }
        }
        if gone.is_empty() && waiting.is_empty() {
            return Ok(());
        }
        if solid > 0 {
            gone.extend(waiting);
            return self.forget_owners(resource, key, &gone).await;
        }
        let dependents = self.notes().dependents(object::uid(object));
        let foreground = !waiting.is_empty() && !dependents.is_empty();
        if foreground && dependents.iter().any(|dependent| self.waits_for_dependents(dependent)) {
            // A circle of owners that wait for each other: somebody must let go.
            self.unblock_owners(resource, key).await?;
        }
        let options = Options {
            // Its own finalizers may ask for something else; they stay.
            propagation: foreground.then_some(Propagation::Foreground),
            uid: Some(object::uid(object).to_owned()),
            ..Options::default()
        };
        self.delete_one(resource, key, &options).await.map(|_| ())
    }

    fn state_of(&self, registry: &Registry, owner: &Owner<'_>, namespace: &str) -> OwnerIs {
        let Some(key) = key_of_owner(registry, owner, namespace) else {
            // Of a kind or in a place that is not known: nothing can be said about it.
            return OwnerIs::There;
        };
        let found =
            self.get(&key).map(|entry| serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default());
        match found.filter(|found| object::uid(found) == owner.uid) {
            None => OwnerIs::Gone,
            Some(found) if object::is_leaving(&found) && object::finalizers(&found).contains(&FOREGROUND) => {
                OwnerIs::Waiting
            }
            Some(_) => OwnerIs::There,
        }
    }

    fn waits_for_dependents(&self, key: &Key) -> bool {
        let Some(entry) = self.get(key) else { return false };
        let object: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        object::is_leaving(&object) && object::finalizers(&object).contains(&FOREGROUND)
    }

    async fn unblock_owners(&self, resource: &Resource, key: &Key) -> Result<(), Refusal> {
        self.rewrite(resource, key, |object| {
            for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                if owner["blockOwnerDeletion"] == true {
                    owner["blockOwnerDeletion"] = json!(false);
                }
            }
        })
        .await
    }

    async fn forget_owners(&self, resource: &Resource, key: &Key, uids: &[String]) -> Result<(), Refusal> {
        self.rewrite(resource, key, |object| {
            let mut owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
            if owners.is_empty() {
                object::remove_meta(object, "ownerReferences");
            } else {
                object::set_meta(object, "ownerReferences", owners);
            }
        })
        .await
    }

    /// The dependents stay: they forget their owner, then the owner may go.
    async fn orphan(&self, resource: &Resource, key: &Key, object: &Value) -> Result<(), Refusal> {
        let registry = self.registry();
        let uid = object::uid(object).to_owned();
        for dependent in self.notes().dependents(&uid) {
            if let Some(of) = registry.stored().find(|resource| *resource.storage() == *dependent.resource) {
                self.forget_owners(of, &dependent, std::slice::from_ref(&uid)).await?;
            }
        }
        self.drop_finalizer(resource, key, ORPHAN).await
    }

    /// The owner goes when those that it must wait for are gone.
    async fn delete_dependents(&self, resource: &Resource, key: &Key, object: &Value) -> Result<(), Refusal> {
        let uid = object::uid(object);
        let mut blocked = false;
        for dependent in self.notes().dependents(uid) {
            let Some(entry) = self.get(&dependent) else { continue };
            let value: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            blocked |= object::owners(&value).iter().any(|owner| owner.uid == uid && owner.blocks);
            if !object::is_leaving(&value) {
                self.notes().known().note(Note::Object(dependent));
            }
        }
        if blocked { Ok(()) } else { self.drop_finalizer(resource, key, FOREGROUND).await }
    }

    async fn drop_finalizer(&self, resource: &Resource, key: &Key, finalizer: &str) -> Result<(), Refusal> {
        self.rewrite(resource, key, |object| {
            let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            finalizers.retain(|found| found != finalizer);
            if finalizers.is_empty() {
                object::remove_meta(object, "finalizers");
            } else {
                object::set_meta(object, "finalizers", finalizers);
            }
        })
        .await
    }

    /// Changes an object as the server itself; removes it when nothing holds it any more.
    pub(crate) async fn rewrite(
        &self,
        resource: &Resource,
        key: &Key,
        change: impl Fn(&mut Value),
    ) -> Result<(), Refusal> {
        loop {
            let Some(entry) = self.get(key) else { return Ok(()) };
            let old: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            let mut new = old.clone();
            change(&mut new);
            if object::same(&old, &new) {
                return Ok(());
            }
            if crate::write::is_done(&new) {
                match self.remove(resource, key, &entry).await {
                    Ok(()) => return Ok(()),
                    Err(crate::write::NotWritten::Refused(refusal)) => return Err(refusal),
                    Err(crate::write::NotWritten::Lost) => continue,
                }
            }
            let change = Change::update(key.clone(), entry.revision, draft(resource, &new)?);
            match self.store().commit(change).await {
                Ok(_) => return self.after_rewrite(resource, &old, &new),
                Err(crate::store::Refused::Changed { .. }) => {}
                Err(refused) => return Err(Refusal::internal(refused.to_string())),
            }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "reads as the last step of a write")]
    fn after_rewrite(&self, resource: &Resource, old: &Value, new: &Value) -> Result<(), Refusal> {
        self.take_note(resource, Some(old), Some(new));
        Ok(())
    }

    /// Deletes what is in a namespace that is leaving, and lets it go when nothing is left.
    async fn empty_namespace(&self, name: &str) -> Result<(), Refusal> {
        let registry = self.registry();
        let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(()) };
        let key = Key::new("namespaces", "", name);
        let Some(entry) = self.get(&key) else { return Ok(()) };
        let namespace: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if !object::is_leaving(&namespace) {
            return Ok(());
        }
        let mut left = 0;
        for resource in registry.stored().filter(|resource| resource.namespaced) {
            left += self.empty(resource, Some(name)).await?;
        }
        if left > 0 {
            return Ok(());
        }
        self.rewrite(namespaces, &key, |namespace| {
            if let Some(spec) = namespace["spec"].as_object_mut() {
                spec.remove("finalizers");
            }
        })
        .await
    }

    /// The same for the objects of a definition.
    async fn empty_definition(&self, name: &str) -> Result<(), Refusal> {
        let registry = self.registry();
        let Some(definitions) = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return Ok(());
        };
        let key = Key::new(&definitions.storage(), "", name);
        let Some(entry) = self.get(&key) else { return Ok(()) };
        let definition: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if !object::is_leaving(&definition) {
            return Ok(());
        }
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let resource =
            registry.stored().find(|resource| resource.plural == plural && resource.group == group);
        if let Some(resource) = resource
            && self.empty(resource, None).await? > 0
        {
            return Ok(());
        }
        self.drop_finalizer(definitions, &key, crd::CLEANUP).await
    }

    /// Deletes everything of a kind; how much is held by something else.
    async fn empty(&self, resource: &Resource, namespace: Option<&str>) -> Result<usize, Refusal> {
        let storage = resource.storage();
        let query = Query { namespace, ..Query::default() };
        let listing =
            self.store().list(&storage, &query).map_err(|error| Refusal::internal(error.to_string()))?;
        let mut left = 0;
        for (place, _) in &listing.items {
            let key = Key::new(&storage, &place.namespace, &place.name);
            let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
            match self.delete_one(resource, &key, &options).await {
                Ok((true, _)) => {}
                Ok((false, _)) => left += 1,
                Err(refusal) if refusal.code() == http::StatusCode::NOT_FOUND => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(left)
    }

    async fn forget_events(&self) {
        let registry = self.registry();
        let Some(events) = registry.find("", "v1", "events") else { return };
        let oldest = self.world().now().checked_sub(EVENTS_LIVE).unwrap_or(Timestamp::MIN);
        for event in self.objects("events") {
            let times = [
                &event["series"]["lastObservedTime"],
                &event["lastTimestamp"],
                &event["metadata"]["creationTimestamp"],
            ];
            let seen = times.iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max();
            if seen.is_some_and(|seen| seen < oldest) {
                let key = Key::new("events", object::namespace(&event), object::name(&event));
                // Gone already is as good.
                drop(self.delete_one(events, &key, &Options::default()).await);
            }
        }
    }
}

/// What has become of an owner.
enum OwnerIs {
    There,
    Gone,
    /// It is being deleted, and its dependents first.
    Waiting,
}

/// Where an owner is, if that can be known.
fn key_of_owner(registry: &Registry, owner: &Owner<'_>, namespace: &str) -> Option<Key> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", owner.api_version));
    let resource = registry.of_kind(group, version, owner.kind)?;
    match (resource.namespaced, namespace) {
        // Owned by something in a namespace without being in one: nobody can say which is meant.
        (true, "") => None,
        (true, namespace) => Some(Key::new(&resource.storage(), namespace, owner.name)),
        (false, _) => Some(Key::new(&resource.storage(), "", owner.name)),
    }
}
