//! Create, update and patch: from what a client sent to what is stored.
use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    addresses::Claims,
    builtin, environment,
    handlers::scale,
    handlers::subresources,
    managed_fields::{self, Manager, Operation, Reset},
    object,
    registry::crd,
    registry::resource::{Part, Resource, Rules},
    request::decode::{WRONG_NAMESPACE, check_name, decode_body, decode_object, manager},
    response::{self, Body},
    server::{Call, Server},
    status::{StatusError, cause},
    store::{Change, CommitError, Draft, Entry, Key},
};

/// How often a write without a resourceVersion is retried after a conflict.
pub(crate) const TRIES: usize = 5;

/// How many generated names are tried before a create fails because all are taken.
const NAMES: usize = 8;

/// A name longer than this leaves no room for what is appended to it.
const LONGEST_PREFIX: usize = 58;

/// Why a write failed.
pub(crate) enum WriteError {
    /// Another write changed the object first.
    Conflict,
    Status(StatusError),
}

impl From<StatusError> for WriteError {
    fn from(error: StatusError) -> Self {
        Self::Status(error)
    }
}

/// The field manager of a write, its operation, and whether it is a dry run.
pub(crate) struct WriteOptions<'a> {
    pub manager: &'a str,
    pub operation: Operation,
    pub dry_run: bool,
}

impl Server {
    pub(crate) async fn create(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
        if call.part != Part::Main {
            return Err(StatusError::method_not_allowed());
        }
        let (mut object, duplicates) = decode_body(call, body)?;
        decode_object(call, &mut object, &duplicates)?;
        if call.resource.is_built_in("authorization.k8s.io", "SelfSubjectAccessReview") {
            return Ok(response::json(StatusCode::CREATED, subresources::access_review(object).to_string()));
        }
        let manager = manager(call)?;
        let writer =
            WriteOptions { manager: &manager, operation: Operation::Update, dry_run: call.query.dry_run()? };
        let bytes = self.store_new(call, object, &writer).await?;
        self.present(call, StatusCode::CREATED, &bytes)
    }

    pub(crate) async fn update(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
        let (mut object, duplicates) = decode_body(call, body)?;
        let manager = manager(call)?;
        let writer =
            WriteOptions { manager: &manager, operation: Operation::Update, dry_run: call.query.dry_run()? };
        if call.part != Part::Scale {
            decode_object(call, &mut object, &duplicates)?;
        }
        if object::name(&object).is_empty() {
            let why = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.name
            );
            return Err(StatusError::bad_request(why));
        }
        check_name(call, &object)?;
        for _ in 0..TRIES {
            let Some(entry) = self.get(&call.key()) else {
                return self.create_by_update(call, object, &writer).await;
            };
            let old = response::value(&call.resource, &entry.bytes);
            let new = match call.part {
                Part::Scale => scale::apply(&call.resource, &old, &object)?,
                _ => object.clone(),
            };
            check_current(call, &old, &new)?;
            match self.replace(call, &entry, &old, new, &writer).await {
                Err(WriteError::Conflict) => {}
                Err(WriteError::Status(error)) => return Err(error),
                Ok(bytes) => return self.present(call, StatusCode::OK, &bytes),
            }
        }
        Err(StatusError::modified(call.resource.about(call.name)))
    }

    /// A few kinds can be created where they are put.
    async fn create_by_update(
        &self,
        call: &Call<'_>,
        mut object: Value,
        writer: &WriteOptions<'_>,
    ) -> Result<Response<Body>, StatusError> {
        if call.part != Part::Main || !call.resource.creates_on_update() {
            return Err(call.not_found());
        }
        check_uid(call, "", object::uid(&object))?;
        object::remove_meta(&mut object, "resourceVersion");
        let bytes = self.store_new(call, object, writer).await?;
        self.present(call, StatusCode::CREATED, &bytes)
    }

    /// Stores an object that does not exist yet.
    pub(crate) async fn store_new(
        &self,
        call: &Call<'_>,
        mut object: Value,
        writer: &WriteOptions<'_>,
    ) -> Result<Bytes, StatusError> {
        let resource = &call.resource;
        self.check_namespace(call, &mut object)?;
        check_kind_stays(resource, object::name(&object))?;
        if !matches!(object::meta(&object, "resourceVersion"), "" | "0") {
            return Err(StatusError::internal("resourceVersion should not be set on objects to be created"));
        }
        let prefix = object::meta(&object, "generateName").to_owned();
        let generated = object::name(&object).is_empty() && !prefix.is_empty();
        let now = environment::seconds(self.environment().now());
        if writer.operation == Operation::Update {
            object = owned(resource, None, object, call.part, writer, &now);
        }
        let meta = object::meta_mut(&mut object);
        for field in
            ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"]
        {
            meta.remove(field);
        }
        meta.insert("creationTimestamp".to_owned(), json!(now));
        meta.insert("uid".to_owned(), json!(environment::uid(self.environment())));
        resource.prepare_create(&mut object, &now);
        check_definition(resource, &object)?;
        for _ in 0..NAMES {
            if generated {
                let prefix = &prefix[..prefix.floor_char_boundary(LONGEST_PREFIX)];
                object::set_meta(&mut object, "name", format!("{prefix}{}", self.environment().suffix()));
            }
            resource.canonicalize(&mut object);
            resource.validate(None, &object, Part::Main)?;
            match self.commit_new(call, &object, writer.dry_run).await? {
                Some(bytes) => return Ok(bytes),
                None if generated => {}
                None => break,
            }
        }
        let name = object::name(&object);
        let there = self.get(&call.key_of(name)).map(|entry| response::value(resource, &entry.bytes));
        let terminating = there.is_some_and(|there| object::is_terminating(&there));
        Err(StatusError::already_exists(resource.about(name), terminating))
    }

    /// Returns `None` when the name is taken.
    async fn commit_new(
        &self,
        call: &Call<'_>,
        object: &Value,
        dry_run: bool,
    ) -> Result<Option<Bytes>, StatusError> {
        let resource = &call.resource;
        loop {
            let mut object = Cow::Borrowed(object);
            let claims = if resource.is_built_in("", "Service") {
                self.give_addresses(resource, None, object.to_mut())?
            } else {
                Claims::default()
            };
            self.admit(call, &object, None)?;
            let stored = to_stored(resource, &object);
            let key = call.key_of(object::name(&object));
            if dry_run {
                return Ok(self.get(&key).is_none().then(|| stored.to_string().into()));
            }
            let change = claims.guard(Change::create(key, draft(resource, &stored)?));
            match self.store().commit(change).await {
                Ok(entry) => {
                    self.after_write(resource, None, Some(&stored)).await?;
                    return Ok(Some(entry.bytes.clone()));
                }
                Err(CommitError::Conflict { .. }) => return Ok(None),
                // Another Service was given the address first, which the next round sees.
                Err(CommitError::Clash { .. }) => {}
                Err(refused @ (CommitError::Full { .. } | CommitError::ReadOnly { .. })) => {
                    return Err(StatusError::internal(refused.to_string()));
                }
            }
        }
    }

    /// Objects live in namespaces that exist and are not being deleted.
    fn check_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), StatusError> {
        if !call.resource.namespaced {
            return Ok(());
        }
        if object::namespace(object).is_empty() {
            object::set_meta(object, "namespace", call.namespace);
        } else if object::namespace(object) != call.namespace {
            return Err(StatusError::bad_request(WRONG_NAMESPACE));
        }
        let key = Key::new("namespaces", "", call.namespace);
        let namespace =
            self.get(&key).map(|entry| serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default());
        let Some(namespace) = namespace else {
            let about = crate::status::About { group: "", plural: "namespaces", name: call.namespace };
            return Err(StatusError::not_found(about));
        };
        if object::is_terminating(&namespace) {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                call.namespace
            );
            let message = format!("namespace {} is being terminated", call.namespace);
            let cause = cause("NamespaceTerminating", "metadata.namespace", message);
            return Err(
                StatusError::forbidden(call.resource.about(object::name(object)), &why).with_cause(&cause)
            );
        }
        Ok(())
    }

    /// Stores a new version of an object that exists.
    pub(crate) async fn replace(
        &self,
        call: &Call<'_>,
        entry: &Arc<Entry>,
        old: &Value,
        mut new: Value,
        writer: &WriteOptions<'_>,
    ) -> Result<Bytes, WriteError> {
        let resource = &call.resource;
        let now = environment::seconds(self.environment().now());
        keep_system_fields(old, &mut new);
        if writer.operation == Operation::Update {
            new = owned(resource, Some(old), new, call.part, writer, &now);
        }
        // After the field manager: no manager owns `deletionTimestamp`.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            object::copy_meta(&mut new, old, field);
        }
        resource.prepare_update(old, &mut new, call.part);
        resource.validate(Some(old), &new, call.part)?;
        let claims = self.give_addresses(resource, Some(old), &mut new)?;
        self.admit(call, &new, Some(old))?;
        // With the revision of the old one, so that nothing but the change counts.
        object::copy_meta(&mut new, old, "resourceVersion");
        let mut new = managed_fields::keep_times(old, new);
        object::remove_meta(&mut new, "resourceVersion");
        if object::same(old, &new) {
            return Ok(entry.bytes.clone());
        }
        let stored = to_stored(resource, &new);
        if writer.dry_run {
            let mut shown = stored.into_owned();
            object::copy_meta(&mut shown, old, "resourceVersion");
            return Ok(shown.to_string().into());
        }
        let key = call.key();
        if is_done(&new) {
            // The last finalizer went: the object goes with the same write.
            self.remove(resource, &key, entry).await?;
            object::copy_meta(&mut new, old, "resourceVersion");
            return Ok(to_stored(resource, &new).to_string().into());
        }
        let change = Change::update(key, entry.revision, draft(resource, &stored)?);
        match self.store().commit(claims.guard(change)).await {
            Ok(entry) => {
                self.after_write(resource, Some(old), Some(&stored)).await?;
                Ok(entry.bytes.clone())
            }
            Err(CommitError::Conflict { .. } | CommitError::Clash { .. }) => Err(WriteError::Conflict),
            Err(refused @ (CommitError::Full { .. } | CommitError::ReadOnly { .. })) => {
                Err(StatusError::internal(refused.to_string()).into())
            }
        }
    }

    fn admit(&self, call: &Call<'_>, object: &Value, old: Option<&Value>) -> Result<(), StatusError> {
        for admission in self.admission() {
            call.warn(admission.admit(object, old)?);
        }
        Ok(())
    }
}

/// Updates `managedFields` after a create, update or patch.
fn owned(
    resource: &Resource,
    old: Option<&Value>,
    new: Value,
    part: Part,
    writer: &WriteOptions<'_>,
    now: &str,
) -> Value {
    // A write of the scale takes the ownership of `replicas` over, where a manager owns it.
    if part == Part::Scale && !old.is_some_and(|old| scale::is_owned(resource, old)) {
        return new;
    }
    let api_version = resource.api_version();
    let manager = Manager { name: writer.manager, api_version: &api_version, subresource: part.name() };
    let mut owned =
        managed_fields::update(resource.type_ref(), old, new, &manager, reset(resource, part), now);
    if part == Part::Scale {
        scale::disown_zero(resource, &mut owned);
    }
    owned
}

/// A definition that could not be served is refused.
fn check_definition(resource: &Resource, object: &Value) -> Result<(), StatusError> {
    if !resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
        return Ok(());
    }
    crd::resources(object).map(drop).map_err(|causes| {
        StatusError::invalid(&resource.group, &resource.kind, object::name(object), &causes)
    })
}

/// Refuses to create an object of a kind whose definition is being deleted: the definition would never be empty.
fn check_kind_stays(resource: &Resource, name: &str) -> Result<(), StatusError> {
    match &resource.rules {
        Rules::Custom(custom) if custom.terminating => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(StatusError::forbidden(resource.about(name), why))
        }
        _ => Ok(()),
    }
}

/// Checks the preconditions of a write: the uid and resourceVersion that the client sent.
pub(crate) fn check_current(call: &Call<'_>, old: &Value, new: &Value) -> Result<(), StatusError> {
    let about = call.resource.about(call.name);
    check_uid(call, object::uid(old), object::uid(new))?;
    match object::meta(new, "resourceVersion") {
        "" if call.part != Part::Scale && !call.resource.allows_unconditional_update() => {
            let why = "must be specified for an update";
            let cause =
                cause("FieldValueInvalid", "metadata.resourceVersion", format!("Invalid value: 0: {why}"));
            Err(StatusError::invalid(&call.resource.group, &call.resource.plural, call.name, &[cause]))
        }
        "" => Ok(()),
        revision if revision == object::meta(old, "resourceVersion") => Ok(()),
        _ => Err(StatusError::modified(about)),
    }
}

fn check_uid(call: &Call<'_>, current: &str, wanted: &str) -> Result<(), StatusError> {
    if wanted.is_empty() || wanted == current {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID \
         in precondition: {wanted}, UID in object meta: {current}",
        call.resource.registry_key(call.namespace, call.name)
    );
    Err(StatusError::conflict(call.resource.about(call.name), &why))
}

pub(crate) fn reset(resource: &Resource, part: Part) -> Reset {
    match part {
        Part::Status if resource.is_built_in("", "Pod") => Reset::SpecAndOwners,
        Part::Status if matches!(resource.rules, Rules::BuiltIn(_)) => Reset::Spec,
        Part::Status => Reset::MetadataAndSpec,
        _ if resource.has_part(Part::Status) => Reset::Status,
        _ => Reset::Nothing,
    }
}

/// Restores the fields that only the server sets.
fn keep_system_fields(old: &Value, new: &mut Value) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation"] {
        if new["metadata"].get(field).is_none_or(Value::is_null) || field == "generation" {
            object::copy_meta(new, old, field);
        }
    }
    object::remove_meta(new, "resourceVersion");
    object::remove_meta(new, "selfLink");
}

/// Returns whether the object is being deleted and has no finalizers left.
pub(crate) fn is_done(object: &Value) -> bool {
    let held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let namespace = object["kind"] == "Namespace" && object["apiVersion"] == "v1";
    object::is_terminating(object)
        && object::finalizers(object).is_empty()
        && !(namespace && held(&object["spec"]["finalizers"]))
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
}

/// Converts an object from the version of the request to the storage version. Most objects need no conversion.
pub(crate) fn to_stored<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    let mut object = Cow::Borrowed(object);
    if resource.group == "events.k8s.io" {
        builtin::event_to_core(object.to_mut());
    } else if resource.version != resource.stored_version {
        let stored = crate::registry::resource::api_version(&resource.group, &resource.stored_version);
        object.to_mut()["apiVersion"] = json!(stored);
    }
    object
}

pub(crate) fn draft(resource: &Resource, stored: &Value) -> Result<Draft, StatusError> {
    let mut plain = Cow::Borrowed(stored);
    if plain["metadata"].get("resourceVersion").is_some() {
        object::remove_meta(plain.to_mut(), "resourceVersion");
    }
    let draft = Draft::new(&plain).map_err(|error| StatusError::internal(error.to_string()))?;
    Ok(draft.with_fields(resource.fields(&plain)))
}
