//! The work that follows a write: CRDs are installed, dependents are deleted with their owners, namespaces are emptied.
//!
//! Every write adds work items for the objects that it may concern; [`Server::collect_garbage`] processes them, and its
//! writes add items again, so the cost follows what changed. The queue and the index of owners are rebuilt from the
//! store when a server starts.
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    environment,
    handlers::delete::{FOREGROUND, ORPHAN, Options, Propagation},
    handlers::write::draft,
    object::{self, Owner},
    registry::Registry,
    registry::crd,
    registry::resource::Resource,
    server::Server,
    status::StatusError,
    store::{Change, Key, Query},
};

/// The time to live of events, as on a cluster.
const EVENTS_LIVE: SignedDuration = SignedDuration::from_hours(1);

/// An entry of the queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum WorkItem {
    /// An object whose owners or finalizers may require a deletion.
    Object(Key),
    /// A namespace that may be terminating.
    Namespace(String),
    /// A CRD that may be terminating.
    Definition(String),
}

/// The state of the garbage collector.
#[derive(Debug, Default)]
pub(crate) struct Collector(Mutex<CollectorState>);

#[derive(Debug, Default)]
struct CollectorState {
    /// The dependents of an owner, by its uid.
    dependents: HashMap<String, BTreeSet<Key>>,
    queue: VecDeque<WorkItem>,
    queued: BTreeSet<WorkItem>,
}

impl CollectorState {
    fn push(&mut self, item: WorkItem) {
        if self.queued.insert(item.clone()) {
            self.queue.push_back(item);
        }
    }

    fn next(&mut self) -> Option<WorkItem> {
        let item = self.queue.pop_front()?;
        self.queued.remove(&item);
        Some(item)
    }

    /// Updates the index of owners.
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

impl Collector {
    fn state(&self) -> MutexGuard<'_, CollectorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dependents(&self, uid: &str) -> Vec<Key> {
        self.state().dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

impl Server {
    /// Queues the work that follows a write, and installs or removes the kind that a CRD defines.
    pub(crate) async fn after_write(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), StatusError> {
        let Some(object) = new.or(old) else { return Ok(()) };
        self.enqueue(resource, old, new);
        if resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.define(resource, object, new.is_some()).await?;
        }
        Ok(())
    }

    fn enqueue(&self, resource: &Resource, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let key = Key::new(&resource.storage(), object::namespace(object), object::name(object));
        let terminating = object::is_terminating(object);
        let mut known = self.collector().state();
        known.index(&key, old, new);
        if new.is_none() {
            for dependent in
                known.dependents.get(object::uid(object)).into_iter().flatten().cloned().collect::<Vec<_>>()
            {
                known.push(WorkItem::Object(dependent));
            }
            // An owner that waits for this object may be done.
            for owner in object::owners(object) {
                if let Some(key) = key_of_owner(&self.registry(), &owner, object::namespace(object)) {
                    known.push(WorkItem::Object(key));
                }
            }
            if !object::namespace(object).is_empty() {
                known.push(WorkItem::Namespace(object::namespace(object).to_owned()));
            }
            if !resource.group.is_empty() {
                known.push(WorkItem::Definition(format!("{}.{}", resource.plural, resource.group)));
            }
        } else if terminating || !object::owners(object).is_empty() {
            known.push(WorkItem::Object(key));
        }
        // An owner that waits for an object may be done when that object no longer holds it up.
        if let (Some(old), Some(new)) = (old, new) {
            let owners = object::owners(new);
            for owner in object::owners(old).iter().filter(|owner| !owners.contains(owner)) {
                if let Some(key) = key_of_owner(&self.registry(), owner, object::namespace(old)) {
                    known.push(WorkItem::Object(key));
                }
            }
        }
        if terminating && resource.is_built_in("", "Namespace") {
            known.push(WorkItem::Namespace(object::name(object).to_owned()));
        }
        if terminating && resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
            known.push(WorkItem::Definition(object::name(object).to_owned()));
        }
        drop(known);
        self.changed().notify_one();
    }

    /// Installs the kind of a CRD, or removes it.
    async fn define(&self, resource: &Resource, definition: &Value, there: bool) -> Result<(), StatusError> {
        if !there {
            return self.change_registry(|registry| Ok(registry.without(definition)));
        }
        let invalid = |causes: Vec<_>| {
            StatusError::invalid(&resource.group, &resource.kind, object::name(definition), &causes)
        };
        self.change_registry(|registry| registry.with(definition)).map_err(invalid)?;
        let status = crd::established(definition, &environment::seconds(self.environment().now()));
        let accepted = &definition["status"]["acceptedNames"];
        let wanted =
            object::finalizers(definition).contains(&crd::CLEANUP) || object::is_terminating(definition);
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
            // A concurrent write changed it: that write sets the status.
            drop(self.store().commit(change).await);
        }
        Ok(())
    }

    /// At start: installs the kinds of stored CRDs and queues every object once.
    pub(crate) fn install_stored_kinds(&self) {
        let crds = self.objects("apiextensions.k8s.io/customresourcedefinitions");
        for definition in &crds {
            // A stored CRD was validated when it was written; one that newer rules refuse is not served.
            drop(self.change_registry(|registry| registry.with(definition)));
        }
        for resource in self.registry().stored() {
            for object in self.objects(&resource.storage()) {
                self.enqueue(resource, None, Some(&object));
            }
        }
    }

    fn objects(&self, storage: &str) -> Vec<Value> {
        let listing = self.store().list(storage, &Query::default());
        let entries = listing.map(|listing| listing.items).unwrap_or_default();
        entries.iter().map(|(_, entry)| serde_json::from_slice(&entry.bytes).unwrap_or_default()).collect()
    }

    /// Processes the queue until it is empty. Returns the number of items.
    pub async fn collect_garbage(&self) -> usize {
        let mut done = 0;
        loop {
            let Some(item) = self.collector().state().next() else { return done };
            done += 1;
            // What cannot be done now is queued again by the write that makes it possible.
            drop(match item {
                WorkItem::Object(key) => self.process(&key).await,
                WorkItem::Namespace(name) => self.empty_namespace(&name).await,
                WorkItem::Definition(name) => self.empty_definition(&name).await,
            });
        }
    }

    /// Runs the garbage collector as long as the server lives: after every write; expired events once a minute.
    pub async fn run_garbage_collector(self) {
        let mut minute = tokio::time::interval(std::time::Duration::from_mins(1));
        loop {
            self.collect_garbage().await;
            tokio::select! {
                biased;
                () = self.changed().notified() => {}
                _ = minute.tick() => self.expire_events().await,
            }
        }
    }

    async fn process(&self, key: &Key) -> Result<(), StatusError> {
        let registry = self.registry();
        let Some(resource) = registry.stored().find(|resource| *resource.storage() == *key.resource) else {
            return Ok(());
        };
        let Some(entry) = self.get(key) else { return Ok(()) };
        let object: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if object::is_terminating(&object) {
            let finalizers = object::finalizers(&object);
            if finalizers.contains(&ORPHAN) {
                return self.orphan(resource, key, &object).await;
            }
            if finalizers.contains(&FOREGROUND) {
                return self.delete_dependents(resource, key, &object).await;
            }
            return Ok(());
        }
        self.attempt_to_delete(&registry, resource, key, &object).await
    }

    /// Deletes an object whose last owner is gone, or removes the references to owners that are gone.
    async fn attempt_to_delete(
        &self,
        registry: &Registry,
        resource: &Resource,
        key: &Key,
        object: &Value,
    ) -> Result<(), StatusError> {
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
        let dependents = self.collector().dependents(object::uid(object));
        let foreground = !waiting.is_empty() && !dependents.is_empty();
        if foreground && dependents.iter().any(|dependent| self.waits_for_dependents(dependent)) {
            // Owners that wait for each other in a cycle: the wait of this one is ended.
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
            Some(found)
                if object::is_terminating(&found) && object::finalizers(&found).contains(&FOREGROUND) =>
            {
                OwnerIs::Waiting
            }
            Some(_) => OwnerIs::There,
        }
    }

    fn waits_for_dependents(&self, key: &Key) -> bool {
        let Some(entry) = self.get(key) else { return false };
        let object: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        object::is_terminating(&object) && object::finalizers(&object).contains(&FOREGROUND)
    }

    async fn unblock_owners(&self, resource: &Resource, key: &Key) -> Result<(), StatusError> {
        self.rewrite(resource, key, |object| {
            for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                if owner["blockOwnerDeletion"] == true {
                    owner["blockOwnerDeletion"] = json!(false);
                }
            }
        })
        .await
    }

    async fn forget_owners(
        &self,
        resource: &Resource,
        key: &Key,
        uids: &[String],
    ) -> Result<(), StatusError> {
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

    /// Removes the owner reference from the dependents, then the finalizer `orphan` from the owner.
    async fn orphan(&self, resource: &Resource, key: &Key, object: &Value) -> Result<(), StatusError> {
        let registry = self.registry();
        let uid = object::uid(object).to_owned();
        for dependent in self.collector().dependents(&uid) {
            if let Some(of) = registry.stored().find(|resource| *resource.storage() == *dependent.resource) {
                self.forget_owners(of, &dependent, std::slice::from_ref(&uid)).await?;
            }
        }
        self.drop_finalizer(resource, key, ORPHAN).await
    }

    /// Deletes the dependents, and removes the finalizer of the owner when those that block it are gone.
    async fn delete_dependents(
        &self,
        resource: &Resource,
        key: &Key,
        object: &Value,
    ) -> Result<(), StatusError> {
        let uid = object::uid(object);
        let mut blocked = false;
        for dependent in self.collector().dependents(uid) {
            let Some(entry) = self.get(&dependent) else { continue };
            let value: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            blocked |= object::owners(&value).iter().any(|owner| owner.uid == uid && owner.blocks);
            if !object::is_terminating(&value) {
                self.collector().state().push(WorkItem::Object(dependent));
            }
        }
        if blocked { Ok(()) } else { self.drop_finalizer(resource, key, FOREGROUND).await }
    }

    async fn drop_finalizer(
        &self,
        resource: &Resource,
        key: &Key,
        finalizer: &str,
    ) -> Result<(), StatusError> {
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

    /// Changes an object as the server itself, and removes it when its last finalizer is gone.
    pub(crate) async fn rewrite(
        &self,
        resource: &Resource,
        key: &Key,
        change: impl Fn(&mut Value),
    ) -> Result<(), StatusError> {
        loop {
            let Some(entry) = self.get(key) else { return Ok(()) };
            let old: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            let mut new = old.clone();
            change(&mut new);
            if object::same(&old, &new) {
                return Ok(());
            }
            if crate::handlers::write::is_done(&new) {
                match self.remove(resource, key, &entry).await {
                    Ok(()) => return Ok(()),
                    Err(crate::handlers::write::WriteError::Status(error)) => return Err(error),
                    Err(crate::handlers::write::WriteError::Conflict) => continue,
                }
            }
            let change = Change::update(key.clone(), entry.revision, draft(resource, &new)?);
            match self.store().commit(change).await {
                Ok(_) => return self.after_rewrite(resource, &old, &new),
                Err(crate::store::CommitError::Conflict { .. }) => {}
                Err(refused) => return Err(StatusError::internal(refused.to_string())),
            }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "reads as the last step of a write")]
    fn after_rewrite(&self, resource: &Resource, old: &Value, new: &Value) -> Result<(), StatusError> {
        self.enqueue(resource, Some(old), Some(new));
        Ok(())
    }

    /// Deletes the objects of a terminating namespace, and removes its finalizer when none is left.
    async fn empty_namespace(&self, name: &str) -> Result<(), StatusError> {
        let registry = self.registry();
        let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(()) };
        let key = Key::new("namespaces", "", name);
        let Some(entry) = self.get(&key) else { return Ok(()) };
        let namespace: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if !object::is_terminating(&namespace) {
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

    /// Deletes the objects of a terminating CRD, and removes its finalizer when none is left.
    async fn empty_definition(&self, name: &str) -> Result<(), StatusError> {
        let registry = self.registry();
        let Some(definitions) = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return Ok(());
        };
        let key = Key::new(&definitions.storage(), "", name);
        let Some(entry) = self.get(&key) else { return Ok(()) };
        let definition: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        if !object::is_terminating(&definition) {
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

    /// Deletes all objects of a kind. Returns how many there were: their dependents are processed before the kind is
    /// removed, and finalizers may keep some for a while.
    async fn empty(&self, resource: &Resource, namespace: Option<&str>) -> Result<usize, StatusError> {
        let storage = resource.storage();
        let query = Query { namespace, ..Query::default() };
        let listing =
            self.store().list(&storage, &query).map_err(|error| StatusError::internal(error.to_string()))?;
        for (place, _) in &listing.items {
            let key = Key::new(&storage, &place.namespace, &place.name);
            let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
            match self.delete_one(resource, &key, &options).await {
                Ok(_) => {}
                Err(error) if error.code() == http::StatusCode::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listing.items.len())
    }

    async fn expire_events(&self) {
        let registry = self.registry();
        let Some(events) = registry.find("", "v1", "events") else { return };
        let oldest = self.environment().now().checked_sub(EVENTS_LIVE).unwrap_or(Timestamp::MIN);
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

/// The state of an owner.
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
        // A cluster-scoped object with a namespaced owner: the namespace of the owner is unknown.
        (true, "") => None,
        (true, namespace) => Some(Key::new(&resource.storage(), namespace, owner.name)),
        (false, _) => Some(Key::new(&resource.storage(), "", owner.name)),
    }
}
