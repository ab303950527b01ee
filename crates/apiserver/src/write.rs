//! Create, update and patch: from what a client sent to what is stored.
use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    answer::{self, Body},
    builtin, crd,
    fields::{self, Manager, Operation, Reset},
    object,
    refusal::{Refusal, cause},
    resource::{Part, Resource, Rules},
    scale,
    sent::{WRONG_NAMESPACE, check_name, decode, manager, sent},
    server::{Call, Server},
    special,
    store::{Change, Draft, Entry, Key, Query, Refused},
    world,
};

/// How often a write is tried again that lost against another one, and did not say which object it was meant for.
pub(crate) const TRIES: usize = 5;

/// How often a name is made up that is taken.
const NAMES: usize = 8;

/// A name longer than this leaves no room for what is appended to it.
const LONGEST_PREFIX: usize = 58;

/// Why a write did not happen.
pub(crate) enum NotWritten {
    /// Somebody else was faster.
    Lost,
    Refused(Refusal),
}

impl From<Refusal> for NotWritten {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Who writes, and whether it is for show.
pub(crate) struct Writer<'a> {
    pub manager: &'a str,
    pub operation: Operation,
    pub dry_run: bool,
}

impl Server {
    pub(crate) async fn create(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, Refusal> {
        if call.part != Part::Main {
            return Err(Refusal::method_not_allowed());
        }
        let (mut object, duplicates) = sent(call, body)?;
        decode(call, &mut object, &duplicates)?;
        if call.resource.is_built_in("authorization.k8s.io", "SelfSubjectAccessReview") {
            return Ok(answer::json(StatusCode::CREATED, special::review(object).to_string()));
        }
        let manager = manager(call)?;
        let writer =
            Writer { manager: &manager, operation: Operation::Update, dry_run: call.query.dry_run()? };
        let bytes = self.store_new(call, object, &writer).await?;
        self.present(call, StatusCode::CREATED, &bytes)
    }

    pub(crate) async fn update(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, Refusal> {
        let (mut object, duplicates) = sent(call, body)?;
        let manager = manager(call)?;
        let writer =
            Writer { manager: &manager, operation: Operation::Update, dry_run: call.query.dry_run()? };
        if call.part != Part::Scale {
            decode(call, &mut object, &duplicates)?;
        }
        if object::name(&object).is_empty() {
            let why = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.name
            );
            return Err(Refusal::bad_request(why));
        }
        check_name(call, &object)?;
        for _ in 0..TRIES {
            let Some(entry) = self.get(&call.key()) else {
                return self.create_by_update(call, object, &writer).await;
            };
            let old = answer::value(&call.resource, &entry.bytes);
            let new = match call.part {
                Part::Scale => scale::apply(&call.resource, &old, &object)?,
                _ => object.clone(),
            };
            check_current(call, &old, &new)?;
            match self.replace(call, &entry, &old, new, &writer).await {
                Err(NotWritten::Lost) => {}
                Err(NotWritten::Refused(refusal)) => return Err(refusal),
                Ok(bytes) => return self.present(call, StatusCode::OK, &bytes),
            }
        }
        Err(Refusal::modified(call.resource.about(call.name)))
    }

    /// A few kinds can be created where they are put.
    async fn create_by_update(
        &self,
        call: &Call<'_>,
        mut object: Value,
        writer: &Writer<'_>,
    ) -> Result<Response<Body>, Refusal> {
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
        writer: &Writer<'_>,
    ) -> Result<Bytes, Refusal> {
        let resource = &call.resource;
        self.check_namespace(call, &mut object)?;
        check_kind_stays(resource, object::name(&object))?;
        if !matches!(object::meta(&object, "resourceVersion"), "" | "0") {
            return Err(Refusal::internal("resourceVersion should not be set on objects to be created"));
        }
        let prefix = object::meta(&object, "generateName").to_owned();
        let generated = object::name(&object).is_empty() && !prefix.is_empty();
        let now = world::seconds(self.world().now());
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
        meta.insert("uid".to_owned(), json!(world::uid(self.world())));
        resource.prepare_create(&mut object, &now);
        check_definition(resource, &object)?;
        self.give_addresses(resource, &mut object)?;
        for _ in 0..NAMES {
            if generated {
                let prefix = &prefix[..prefix.floor_char_boundary(LONGEST_PREFIX)];
                object::set_meta(&mut object, "name", format!("{prefix}{}", self.world().suffix()));
            }
            resource.canonicalize(&mut object);
            resource.judge(None, &object, Part::Main)?;
            self.admit(call, &object, None)?;
            match self.commit_new(call, &object, writer.dry_run).await? {
                Some(bytes) => return Ok(bytes),
                None if generated => {}
                None => break,
            }
        }
        let name = object::name(&object);
        let there = self.get(&call.key_of(name)).map(|entry| answer::value(resource, &entry.bytes));
        let leaving = there.is_some_and(|there| object::is_leaving(&there));
        Err(Refusal::already_exists(resource.about(name), leaving))
    }

    /// Nothing when the name is taken.
    async fn commit_new(
        &self,
        call: &Call<'_>,
        object: &Value,
        dry_run: bool,
    ) -> Result<Option<Bytes>, Refusal> {
        let stored = to_stored(&call.resource, object);
        let key = call.key_of(object::name(object));
        if dry_run {
            return Ok(self.get(&key).is_none().then(|| stored.to_string().into()));
        }
        match self.store().commit(Change::create(key, draft(&call.resource, &stored)?)).await {
            Ok(entry) => {
                self.after(&call.resource, None, Some(&stored)).await?;
                Ok(Some(entry.bytes.clone()))
            }
            Err(Refused::Changed { .. }) => Ok(None),
            Err(refused @ Refused::ReadOnly { .. }) => Err(Refusal::internal(refused.to_string())),
        }
    }

    /// Objects live in namespaces that exist and are not being deleted.
    fn check_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
        if !call.resource.namespaced {
            return Ok(());
        }
        if object::namespace(object).is_empty() {
            object::set_meta(object, "namespace", call.namespace);
        } else if object::namespace(object) != call.namespace {
            return Err(Refusal::bad_request(WRONG_NAMESPACE));
        }
        let key = Key::new("namespaces", "", call.namespace);
        let namespace =
            self.get(&key).map(|entry| serde_json::from_slice::<Value>(&entry.bytes).unwrap_or_default());
        let Some(namespace) = namespace else {
            let about = crate::refusal::About { group: "", plural: "namespaces", name: call.namespace };
            return Err(Refusal::not_found(about));
        };
        if object::is_leaving(&namespace) {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                call.namespace
            );
            let message = format!("namespace {} is being terminated", call.namespace);
            let cause = cause("NamespaceTerminating", "metadata.namespace", message);
            return Err(
                Refusal::forbidden(call.resource.about(object::name(object)), &why).with_cause(&cause)
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
        writer: &Writer<'_>,
    ) -> Result<Bytes, NotWritten> {
        let resource = &call.resource;
        let now = world::seconds(self.world().now());
        keep_system_fields(old, &mut new);
        if writer.operation == Operation::Update {
            new = owned(resource, Some(old), new, call.part, writer, &now);
        }
        // After that: nobody owns that an object is leaving.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            object::copy_meta(&mut new, old, field);
        }
        resource.prepare_update(old, &mut new, call.part);
        resource.judge(Some(old), &new, call.part)?;
        self.give_addresses(resource, &mut new)?;
        self.admit(call, &new, Some(old))?;
        // With the revision of the old one, so that nothing but the change counts.
        object::copy_meta(&mut new, old, "resourceVersion");
        let mut new = fields::keep_times(old, new);
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
        match self.store().commit(change).await {
            Ok(entry) => {
                self.after(resource, Some(old), Some(&stored)).await?;
                Ok(entry.bytes.clone())
            }
            Err(Refused::Changed { .. }) => Err(NotWritten::Lost),
            Err(refused @ Refused::ReadOnly { .. }) => Err(Refusal::internal(refused.to_string()).into()),
        }
    }

    /// A service has an address of its own, unless it wants none.
    fn give_addresses(&self, resource: &Resource, object: &mut Value) -> Result<(), Refusal> {
        if !resource.is_built_in("", "Service") {
            return Ok(());
        }
        let query = Query::default();
        let services = self.store().list("services", &query).map(|listing| listing.items).unwrap_or_default();
        let taken: Vec<&str> =
            services.iter().filter_map(|(_, entry)| entry.field("spec.clusterIP")).collect();
        let mut free = (1..=u16::MAX).map(address).filter(|address| !taken.contains(&address.as_str()));
        let mut ports = 30_000_i64..32_768;
        let lacking = builtin::allocate(object, &mut |need| match need {
            builtin::Need::ClusterIp => free.next().map(Value::from),
            builtin::Need::NodePort => ports.next().map(Value::from),
        });
        match lacking {
            None => Ok(()),
            Some(_) => Err(Refusal::internal("failed to allocate a serviceIP: range is full")),
        }
    }

    fn admit(&self, call: &Call<'_>, object: &Value, old: Option<&Value>) -> Result<(), Refusal> {
        for admission in self.admission() {
            call.warn(admission.admit(object, old)?);
        }
        Ok(())
    }
}

/// Records who owns what, after any write but an apply.
fn owned(
    resource: &Resource,
    old: Option<&Value>,
    new: Value,
    part: Part,
    writer: &Writer<'_>,
    now: &str,
) -> Value {
    // Who scales takes the number over from its owner; what nobody owns stays nobody's.
    if part == Part::Scale && !old.is_some_and(|old| scale::is_owned(resource, old)) {
        return new;
    }
    let api_version = resource.api_version();
    let manager = Manager { name: writer.manager, api_version: &api_version, subresource: part.name() };
    let mut owned = fields::update(resource.shape(), old, new, &manager, reset(resource, part), now);
    if part == Part::Scale {
        scale::disown_zero(resource, &mut owned);
    }
    owned
}

/// A definition that could not be served is refused.
fn check_definition(resource: &Resource, object: &Value) -> Result<(), Refusal> {
    if !resource.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") {
        return Ok(());
    }
    crd::resources(object)
        .map(drop)
        .map_err(|causes| Refusal::invalid(&resource.group, &resource.kind, object::name(object), &causes))
}

/// No object of a kind is made whose definition is being deleted: it would never be empty.
fn check_kind_stays(resource: &Resource, name: &str) -> Result<(), Refusal> {
    match &resource.rules {
        Rules::Custom(custom) if custom.leaving => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Refusal::forbidden(resource.about(name), why))
        }
        _ => Ok(()),
    }
}

/// The object must be the one that the client means.
pub(crate) fn check_current(call: &Call<'_>, old: &Value, new: &Value) -> Result<(), Refusal> {
    let about = call.resource.about(call.name);
    check_uid(call, object::uid(old), object::uid(new))?;
    match object::meta(new, "resourceVersion") {
        "" if call.part != Part::Scale && !call.resource.allows_unconditional_update() => {
            let why = "must be specified for an update";
            let cause =
                cause("FieldValueInvalid", "metadata.resourceVersion", format!("Invalid value: 0: {why}"));
            Err(Refusal::invalid(&call.resource.group, &call.resource.plural, call.name, &[cause]))
        }
        "" => Ok(()),
        revision if revision == object::meta(old, "resourceVersion") => Ok(()),
        _ => Err(Refusal::modified(about)),
    }
}

/// The addresses of services are on loopback, where a gateway of this machine can listen on them.
fn address(number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    format!("127.96.{high}.{low}")
}

fn check_uid(call: &Call<'_>, current: &str, wanted: &str) -> Result<(), Refusal> {
    if wanted.is_empty() || wanted == current {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID \
         in precondition: {wanted}, UID in object meta: {current}",
        call.resource.registry_key(call.namespace, call.name)
    );
    Err(Refusal::conflict(call.resource.about(call.name), &why))
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

/// What only the server sets, whatever a client sent.
fn keep_system_fields(old: &Value, new: &mut Value) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation"] {
        if new["metadata"].get(field).is_none_or(Value::is_null) || field == "generation" {
            object::copy_meta(new, old, field);
        }
    }
    object::remove_meta(new, "resourceVersion");
    object::remove_meta(new, "selfLink");
}

/// Nothing holds this object any more.
pub(crate) fn is_done(object: &Value) -> bool {
    let held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let namespace = object["kind"] == "Namespace" && object["apiVersion"] == "v1";
    object::is_leaving(object)
        && object::finalizers(object).is_empty()
        && !(namespace && held(&object["spec"]["finalizers"]))
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
}

/// From the version of a request to the one that is stored: of nearly all objects, the same.
pub(crate) fn to_stored<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    let mut object = Cow::Borrowed(object);
    if resource.group == "events.k8s.io" {
        builtin::event_to_core(object.to_mut());
    } else if resource.version != resource.stored_version {
        let stored = crate::resource::api_version(&resource.group, &resource.stored_version);
        object.to_mut()["apiVersion"] = json!(stored);
    }
    object
}

pub(crate) fn draft(resource: &Resource, stored: &Value) -> Result<Draft, Refusal> {
    let mut plain = Cow::Borrowed(stored);
    if plain["metadata"].get("resourceVersion").is_some() {
        object::remove_meta(plain.to_mut(), "resourceVersion");
    }
    let draft = Draft::new(&plain).map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(draft.with_fields(resource.fields(&plain)))
}
