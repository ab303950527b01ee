//! Patches: four ways to say what should change, and one way to carry it out.
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::{
    environment,
    handlers::scale,
    handlers::write::{TRIES, WriteError, WriteOptions, check_current, reset},
    managed_fields::{self, Manager, Operation},
    object, patch,
    registry::resource::{Part, Resource, Rules},
    request::body,
    request::decode::{check_name, field_validation, manager, media_type},
    response::{self, Body},
    server::{Call, Server},
    status::{Cause, StatusError, cause},
};

impl Server {
    pub(crate) async fn patch(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
        let kind = PatchKind::of(call)?;
        let manager = manager(call)?;
        let dry_run = call.query.dry_run()?;
        kind.check_options(call)?;
        let sent = body::read(body, kind == PatchKind::Apply)?;
        let operation = if kind == PatchKind::Apply { Operation::Apply } else { Operation::Update };
        let writer = WriteOptions { manager: &manager, operation, dry_run };
        for _ in 0..TRIES {
            let Some(entry) = self.get(&call.key()) else {
                if kind == PatchKind::Apply && call.part == Part::Main {
                    return self.create_by_apply(call, sent.value, &writer).await;
                }
                return Err(call.not_found());
            };
            let old = response::value(&call.resource, &entry.bytes);
            let new = self.patched(call, kind, &old, &sent, &writer)?;
            check_current(call, &old, &new)?;
            match self.replace(call, &entry, &old, new, &writer).await {
                // A patch that names a revision is not tried again: `check_current` refuses it.
                Err(WriteError::Conflict) => {}
                Err(WriteError::Status(error)) => return Err(error),
                Ok(bytes) => return self.present(call, StatusCode::OK, &bytes),
            }
        }
        Err(StatusError::modified(call.resource.about(call.name)))
    }

    /// The object that a patch makes of the old one, read as if it had been sent whole.
    fn patched(
        &self,
        call: &Call<'_>,
        kind: PatchKind,
        old: &Value,
        sent: &body::Decoded,
        writer: &WriteOptions<'_>,
    ) -> Result<Value, StatusError> {
        let resource = &call.resource;
        if call.part == Part::Scale {
            let scale = kind.apply(&scale::of(resource, old)?, &sent.value, None)?;
            return scale::apply(resource, old, &scale);
        }
        let mut new = match kind {
            PatchKind::Apply => {
                let merged = self.merged(call, Some(old), &sent.value, writer)?;
                field_validation(call, unknown_in(call, &sent.value)?, &sent.duplicates)?;
                merged
            }
            kind => kind.apply(old, &sent.value, Some(resource))?,
        };
        if kind == PatchKind::Apply {
            resource.complete_applied(&mut new)?;
        } else {
            let shown = new.clone();
            let unreadable = |error: StatusError| kind.unreadable(call, &shown, &sent.value, &error);
            let mut unknown = resource.decode(&mut new).map_err(unreadable)?;
            if kind == PatchKind::Json {
                unknown.extend(patch::unknown_fields(&sent.value));
            }
            field_validation(call, unknown, &sent.duplicates).map_err(unreadable)?;
        }
        check_name(call, &new)?;
        Ok(new)
    }

    fn merged(
        &self,
        call: &Call<'_>,
        live: Option<&Value>,
        config: &Value,
        writer: &WriteOptions<'_>,
    ) -> Result<Value, StatusError> {
        let resource = &call.resource;
        let now = environment::seconds(self.environment().now());
        let api_version = resource.api_version();
        let manager =
            Manager { name: writer.manager, api_version: &api_version, subresource: call.part.name() };
        let force = call.query.flag("force");
        managed_fields::apply(
            resource.type_ref(),
            live,
            config,
            &manager,
            reset(resource, call.part),
            force,
            &now,
        )
        .map_err(|error| StatusError::apply(&error))
    }

    async fn create_by_apply(
        &self,
        call: &Call<'_>,
        mut config: Value,
        writer: &WriteOptions<'_>,
    ) -> Result<Response<Body>, StatusError> {
        check_name(call, &config)?;
        if object::meta(&config, "resourceVersion") == "0" {
            object::remove_meta(&mut config, "resourceVersion");
        }
        if !object::uid(&config).is_empty() {
            let why = "the UID in the precondition does not match: the object does not exist";
            return Err(StatusError::conflict(call.resource.about(call.name), why));
        }
        let resource = &call.resource;
        let mut object = self.merged(call, None, &config, writer)?;
        field_validation(call, unknown_in(call, &config)?, &[])?;
        object::set_meta(&mut object, "name", call.name);
        resource.complete_applied(&mut object)?;
        let bytes = self.store_new(call, object, writer).await?;
        self.present(call, StatusCode::CREATED, &bytes)
    }
}

/// The fields of an applied configuration that its kind does not know.
fn unknown_in(call: &Call<'_>, config: &Value) -> Result<Vec<String>, StatusError> {
    call.resource.decode(&mut config.clone())
}

/// The four ways to say what should change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    fn of(call: &Call<'_>) -> Result<Self, StatusError> {
        let custom = matches!(call.resource.rules, Rules::Custom(_));
        match media_type(call) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(StatusError::unsupported_media(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// A patch that makes of an object something else is to blame itself.
    fn unreadable(self, call: &Call<'_>, patched: &Value, patch: &Value, error: &StatusError) -> StatusError {
        let value = match self {
            Self::Strategic => patch::go_text(patch),
            _ => patched.to_string(),
        };
        let (kind, version) = (&call.resource.kind, &call.resource.version);
        let prefix = format!("{kind} in version {version:?} cannot be handled as a {kind}: ");
        let why = error.message().strip_prefix(&prefix).unwrap_or_else(|| error.message());
        StatusError::invalid("", "", "", &[Cause::invalid("patch", &Value::from(value), why)])
    }

    fn check_options(self, call: &Call<'_>) -> Result<(), StatusError> {
        let refuse = |reason, field: &str, message: &str| {
            let cause = cause(reason, field, message);
            Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]))
        };
        if self == Self::Apply && call.query.get("fieldManager").is_empty() {
            return refuse(
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch",
            );
        }
        if self != Self::Apply && call.query.has("force") {
            return refuse(
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
            );
        }
        Ok(())
    }

    fn apply(self, old: &Value, patch: &Value, resource: Option<&Resource>) -> Result<Value, StatusError> {
        let patched = match (self, resource) {
            (Self::Json, _) => patch::json(old, patch),
            (Self::Strategic, Some(resource)) => patch::strategic(old, patch, resource.type_ref()),
            _ => patch::merge(old, patch),
        };
        patched.map_err(|error| StatusError::patch(&error))
    }
}
