//! Deletion: now, after a grace period, or when the last finalizer goes.
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    answer::{self, Body},
    body, object,
    read::Filter,
    refusal::{About, Refusal, cause},
    resource::{Part, Resource, Rules},
    server::{Call, Server},
    store::{Change, Entry, Key, Query, Refused},
    world,
    write::{NotWritten, draft},
};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// What happens to the objects that a deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How something is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub propagation: Option<Propagation>,
    pub grace: Option<i64>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    pub dry_run: bool,
}

impl Options {
    /// From the body, or from the query when there is none.
    fn read(call: &Call<'_>, body: &Bytes) -> Result<Self, Refusal> {
        let sent = if body.is_empty() { Value::Null } else { body::read(body, true)?.value };
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let or_query = |field: &str| {
            let query = call.query.get(field);
            text(&sent[field]).or_else(|| (!query.is_empty()).then(|| query.to_owned()))
        };
        let propagation = match or_query("propagationPolicy").as_deref() {
            None => match sent["orphanDependents"].as_bool() {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            },
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                );
                let cause = cause("FieldValueNotSupported", "propagationPolicy", message);
                return Err(Refusal::invalid("meta.k8s.io", "DeleteOptions", "", &[cause]));
            }
        };
        let grace = match &sent["gracePeriodSeconds"] {
            Value::Null => {
                call.query.number("gracePeriodSeconds")?.map(|n| i64::try_from(n).unwrap_or(i64::MAX))
            }
            value => value.as_i64(),
        };
        let dry_run =
            sent["dryRun"].as_array().is_some_and(|runs| !runs.is_empty()) || call.query.dry_run()?;
        Ok(Self {
            propagation,
            grace,
            uid: text(&sent["preconditions"]["uid"]),
            revision: text(&sent["preconditions"]["resourceVersion"]),
            dry_run,
        })
    }
}

/// What deleting an object does to it.
enum Outcome {
    Remove,
    Mark(Value),
    /// It is leaving already.
    Nothing,
}

impl Server {
    pub(crate) async fn delete(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, Refusal> {
        if call.part != Part::Main {
            return Err(Refusal::method_not_allowed());
        }
        let options = Options::read(call, body)?;
        let (gone, bytes) = self.delete_one(&call.resource, &call.key(), &options).await?;
        if gone && !answer::deletes_with_object(&call.resource) {
            let object = answer::value(&call.resource, &bytes);
            return Ok(answer::json(StatusCode::OK, success(&call.resource, &object).to_string()));
        }
        self.present(call, StatusCode::OK, &bytes)
    }

    pub(crate) async fn delete_collection(
        &self,
        call: &Call<'_>,
        body: &Bytes,
    ) -> Result<Response<Body>, Refusal> {
        let options = Options::read(call, body)?;
        let filter = Filter::of(call)?;
        let storage = call.resource.storage();
        let query = Query { namespace: filter.namespace(), ..Query::default() };
        let listing =
            self.store().list(&storage, &query).map_err(|error| Refusal::internal(error.to_string()))?;
        let mut deleted = Vec::new();
        for (place, entry) in &listing.items {
            if filter.matches(&place.namespace, entry) {
                let key = Key::new(&storage, &place.namespace, &place.name);
                match self.delete_one(&call.resource, &key, &options).await {
                    // Gone in the meantime is as good.
                    Err(refusal) if refusal.code() == StatusCode::NOT_FOUND => {}
                    other => drop(other?),
                }
                deleted.push(Arc::clone(entry));
            }
        }
        let mut meta = json!({"resourceVersion": listing.revision.to_string()});
        if matches!(call.resource.rules, Rules::Custom(_)) {
            meta["continue"] = json!("");
        }
        let body = answer::list(&call.resource, &deleted, &meta, call.form, self.world().now());
        Ok(answer::json(StatusCode::OK, body))
    }

    /// Deletes one object; whether it is gone, and what it is now or was last.
    pub(crate) async fn delete_one(
        &self,
        resource: &Resource,
        key: &Key,
        options: &Options,
    ) -> Result<(bool, Bytes), Refusal> {
        let mut options = options.clone();
        let mut marked_by_us = None;
        loop {
            let name = &key.place.name;
            let Some(entry) = self.get(key) else {
                // Who runs the pod was faster: it is gone, and that is what was asked for.
                return marked_by_us
                    .map(|bytes| (true, bytes))
                    .ok_or_else(|| Refusal::not_found(resource.about(name)));
            };
            let old: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            check_preconditions(resource, &old, &options)?;
            let written = match self.outcome(resource, &old, &options) {
                Outcome::Nothing => return Ok((false, entry.bytes.clone())),
                Outcome::Remove if options.dry_run && is_pod(resource) => {
                    return Ok((true, self.marked(&old, 0).to_string().into()));
                }
                Outcome::Remove if options.dry_run => return Ok((true, entry.bytes.clone())),
                Outcome::Mark(new) if options.dry_run => return Ok((false, new.to_string().into())),
                // A pod is told to end before it is removed, even when it has no time to: two writes, and two events.
                Outcome::Remove if is_pod(resource) && !object::is_leaving(&old) => {
                    let marked = self.marked(&old, 0);
                    match self.mark(resource, key, &entry, &old, marked).await {
                        Ok(bytes) => {
                            marked_by_us = Some(bytes);
                            // It held for the first write, which made a revision of its own.
                            options.revision = None;
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
                Outcome::Remove => {
                    self.remove(resource, key, &entry).await.map(|()| (true, entry.bytes.clone()))
                }
                Outcome::Mark(new) => {
                    self.mark(resource, key, &entry, &old, new).await.map(|bytes| (false, bytes))
                }
            };
            match written {
                Ok(done) => return Ok(done),
                Err(NotWritten::Refused(refusal)) => return Err(refusal),
                Err(NotWritten::Lost) => {}
            }
        }
    }

    fn outcome(&self, resource: &Resource, old: &Value, options: &Options) -> Outcome {
        let mut new = old.clone();
        let grace = grace(resource, old, options);
        let leaving = object::is_leaving(old);
        set_finalizers(&mut new, options.propagation);
        let namespace = resource.is_built_in("", "Namespace");
        let held = !object::finalizers(&new).is_empty()
            || (namespace && new["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
        if grace == 0 && !held {
            return Outcome::Remove;
        }
        let shorter = old["metadata"]["deletionGracePeriodSeconds"].as_i64().is_none_or(|old| grace < old);
        if !leaving || shorter {
            new = self.marked(&new, grace);
        }
        if namespace {
            new["status"]["phase"] = json!("Terminating");
        }
        if object::same(old, &new) { Outcome::Nothing } else { Outcome::Mark(new) }
    }

    /// An object that will go when its time is over.
    fn marked(&self, object: &Value, grace: i64) -> Value {
        let leaving = object::is_leaving(object);
        let mut marked = object.clone();
        let now = self.world().now();
        let time = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        object::set_meta(&mut marked, "deletionTimestamp", world::seconds(time));
        object::set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
        if let Some(generation) = object::generation(object).filter(|generation| *generation > 0 && !leaving)
        {
            object::set_meta(&mut marked, "generation", generation + 1);
        }
        marked
    }

    async fn mark(
        &self,
        resource: &Resource,
        key: &Key,
        entry: &Entry,
        old: &Value,
        new: Value,
    ) -> Result<Bytes, NotWritten> {
        let change = Change::update(key.clone(), entry.revision, draft(resource, &new)?);
        match self.store().commit(change).await {
            Ok(entry) => {
                self.after(resource, Some(old), Some(&new)).await?;
                Ok(entry.bytes.clone())
            }
            Err(refused) => Err(not_written(refused)),
        }
    }

    /// Takes an object out of the store.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: &Key,
        entry: &Entry,
    ) -> Result<(), NotWritten> {
        let last: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        let change = Change::delete(key.clone(), entry.revision, draft(resource, &last)?);
        match self.store().commit(change).await {
            Ok(_) => {
                self.after(resource, Some(&last), None).await?;
                Ok(())
            }
            Err(refused) => Err(not_written(refused)),
        }
    }
}

fn not_written(refused: Refused) -> NotWritten {
    match refused {
        Refused::Changed { .. } => NotWritten::Lost,
        refused @ Refused::ReadOnly { .. } => NotWritten::Refused(Refusal::internal(refused.to_string())),
    }
}

fn check_preconditions(resource: &Resource, old: &Value, options: &Options) -> Result<(), Refusal> {
    // The kind and not the plural, as upstream has it.
    let about = About { group: &resource.group, plural: &resource.kind, name: object::name(old) };
    let uid = object::uid(old);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(Refusal::conflict(about, &why));
    }
    let revision = object::meta(old, "resourceVersion");
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(Refusal::conflict(about, &why));
    }
    Ok(())
}

fn is_pod(resource: &Resource) -> bool {
    resource.is_built_in("", "Pod")
}

/// Pods that run somewhere are given time to end.
fn grace(resource: &Resource, old: &Value, options: &Options) -> i64 {
    let runs = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !is_pod(resource) || !runs {
        return 0;
    }
    let spec = old["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace.or(spec).unwrap_or(30).max(0)
}

/// How an owner's dependents are treated is kept in its finalizers.
fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(json!(FOREGROUND)),
        Propagation::Orphan => finalizers.push(json!(ORPHAN)),
    }
    if finalizers.is_empty() {
        object::remove_meta(object, "finalizers");
    } else {
        object::set_meta(object, "finalizers", finalizers);
    }
}

fn success(resource: &Resource, object: &Value) -> Value {
    let mut details =
        json!({"name": object::name(object), "kind": resource.plural, "uid": object::uid(object)});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
