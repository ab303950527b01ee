//! Deletion: now, after a grace period, or when the last finalizer goes.
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    environment,
    handlers::get::Filter,
    handlers::write::{WriteError, draft},
    object,
    registry::resource::{Part, Resource, Rules},
    request::body,
    response::{self, Body},
    server::{Call, Server},
    status::{About, StatusError, cause},
    store::{Change, CommitError, Entry, Key, Query},
};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion.
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
    fn read(call: &Call<'_>, body: &Bytes) -> Result<Self, StatusError> {
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
                return Err(StatusError::invalid("meta.k8s.io", "DeleteOptions", "", &[cause]));
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
    /// The object is being deleted already.
    Nothing,
}

impl Server {
    pub(crate) async fn delete(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
        if call.part != Part::Main {
            return Err(StatusError::method_not_allowed());
        }
        let options = Options::read(call, body)?;
        let (gone, bytes) = self.delete_one(&call.resource, &call.key(), &options).await?;
        if gone && !response::deletes_with_object(&call.resource) {
            let object = response::value(&call.resource, &bytes);
            return Ok(response::json(StatusCode::OK, success(&call.resource, &object).to_string()));
        }
        self.present(call, StatusCode::OK, &bytes)
    }

    pub(crate) async fn delete_collection(
        &self,
        call: &Call<'_>,
        body: &Bytes,
    ) -> Result<Response<Body>, StatusError> {
        let options = Options::read(call, body)?;
        let filter = Filter::of(call)?;
        let storage = call.resource.storage();
        let query = Query { namespace: filter.namespace(), ..Query::default() };
        let listing =
            self.store().list(&storage, &query).map_err(|error| StatusError::internal(error.to_string()))?;
        let mut deleted = Vec::new();
        for (place, entry) in &listing.items {
            if filter.matches(&place.namespace, entry) {
                let key = Key::new(&storage, &place.namespace, &place.name);
                match self.delete_one(&call.resource, &key, &options).await {
                    // Gone in the meantime is as good.
                    Err(error) if error.code() == StatusCode::NOT_FOUND => {}
                    other => drop(other?),
                }
                deleted.push(Arc::clone(entry));
            }
        }
        let mut meta = json!({"resourceVersion": listing.revision.to_string()});
        if matches!(call.resource.rules, Rules::Custom(_)) {
            meta["continue"] = json!("");
        }
        let body =
            response::list(&call.resource, &deleted, &meta, call.representation, self.environment().now());
        Ok(response::json(StatusCode::OK, body))
    }

    /// Deletes one object; whether it is gone, and what it is now or was last.
    pub(crate) async fn delete_one(
        &self,
        resource: &Resource,
        key: &Key,
        options: &Options,
    ) -> Result<(bool, Bytes), StatusError> {
        let mut options = options.clone();
        let mut marked_by_us = None;
        loop {
            let name = &key.place.name;
            let Some(entry) = self.get(key) else {
                // Who runs the pod was faster: it is gone, and that is what was asked for.
                return marked_by_us
                    .map(|bytes| (true, bytes))
                    .ok_or_else(|| StatusError::not_found(resource.about(name)));
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
                // A pod gets its deletionTimestamp before it is removed, also without a grace period: two writes, two
                // events.
                Outcome::Remove if is_pod(resource) && !object::is_terminating(&old) => {
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
                Err(WriteError::Status(error)) => return Err(error),
                Err(WriteError::Conflict) => {}
            }
        }
    }

    fn outcome(&self, resource: &Resource, old: &Value, options: &Options) -> Outcome {
        let mut new = old.clone();
        let grace = grace(resource, old, options);
        let terminating = object::is_terminating(old);
        set_finalizers(&mut new, options.propagation);
        let namespace = resource.is_built_in("", "Namespace");
        let held = !object::finalizers(&new).is_empty()
            || (namespace && new["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
        if grace == 0 && !held {
            return Outcome::Remove;
        }
        let shorter = old["metadata"]["deletionGracePeriodSeconds"].as_i64().is_none_or(|old| grace < old);
        if !terminating || shorter {
            new = self.marked(&new, grace);
        }
        if namespace {
            new["status"]["phase"] = json!("Terminating");
        }
        if object::same(old, &new) { Outcome::Nothing } else { Outcome::Mark(new) }
    }

    /// An object that will go when its time is over.
    fn marked(&self, object: &Value, grace: i64) -> Value {
        let terminating = object::is_terminating(object);
        let mut marked = object.clone();
        let now = self.environment().now();
        let time = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        object::set_meta(&mut marked, "deletionTimestamp", environment::seconds(time));
        object::set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
        if let Some(generation) =
            object::generation(object).filter(|generation| *generation > 0 && !terminating)
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
    ) -> Result<Bytes, WriteError> {
        let change = Change::update(key.clone(), entry.revision, draft(resource, &new)?);
        match self.store().commit(change).await {
            Ok(entry) => {
                self.after_write(resource, Some(old), Some(&new)).await?;
                Ok(entry.bytes.clone())
            }
            Err(refused) => Err(not_written(refused)),
        }
    }

    /// Removes an object from the store.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: &Key,
        entry: &Entry,
    ) -> Result<(), WriteError> {
        let last: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
        let change = Change::delete(key.clone(), entry.revision, draft(resource, &last)?);
        match self.store().commit(change).await {
            Ok(_) => {
                self.after_write(resource, Some(&last), None).await?;
                Ok(())
            }
            Err(refused) => Err(not_written(refused)),
        }
    }
}

fn not_written(refused: CommitError) -> WriteError {
    match refused {
        CommitError::Conflict { .. } | CommitError::Clash { .. } => WriteError::Conflict,
        refused @ (CommitError::Full { .. } | CommitError::ReadOnly { .. }) => {
            WriteError::Status(StatusError::internal(refused.to_string()))
        }
    }
}

fn check_preconditions(resource: &Resource, old: &Value, options: &Options) -> Result<(), StatusError> {
    // The kind and not the plural, as upstream has it.
    let about = About { group: &resource.group, plural: &resource.kind, name: object::name(old) };
    let uid = object::uid(old);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(StatusError::conflict(about, &why));
    }
    let revision = object::meta(old, "resourceVersion");
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(StatusError::conflict(about, &why));
    }
    Ok(())
}

fn is_pod(resource: &Resource) -> bool {
    resource.is_built_in("", "Pod")
}

/// The grace period of the deletion: only pods that are bound to a node have one.
fn grace(resource: &Resource, old: &Value, options: &Options) -> i64 {
    let runs = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !is_pod(resource) || !runs {
        return 0;
    }
    let spec = old["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace.or(spec).unwrap_or(30).max(0)
}

/// Sets the finalizers that record the propagation policy.
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
