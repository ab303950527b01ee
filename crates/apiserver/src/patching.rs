//! Patches: four ways to say what should change, and one way to carry it out.
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::{
    answer::{self, Body},
    body,
    fields::{self, Manager, Operation},
    object, patch,
    refusal::{Cause, Refusal, cause},
    resource::{Part, Resource, Rules},
    scale,
    sent::{check_name, manager, media, strictness},
    server::{Call, Server},
    world,
    write::{NotWritten, TRIES, Writer, check_current, reset},
};

impl Server {
    pub(crate) async fn patch(&self, call: &Call<'_>, body: &Bytes) -> Result<Response<Body>, Refusal> {
        let kind = PatchKind::of(call)?;
        let manager = manager(call)?;
        let dry_run = call.query.dry_run()?;
        kind.check_options(call)?;
        let sent = body::read(body, kind == PatchKind::Apply)?;
        let operation = if kind == PatchKind::Apply { Operation::Apply } else { Operation::Update };
        let writer = Writer { manager: &manager, operation, dry_run };
        for _ in 0..TRIES {
            let Some(entry) = self.get(&call.key()) else {
                if kind == PatchKind::Apply && call.part == Part::Main {
                    return self.create_by_apply(call, sent.value, &writer).await;
                }
                return Err(call.not_found());
            };
            let old = answer::value(&call.resource, &entry.bytes);
            let new = self.patched(call, kind, &old, &sent, &writer)?;
            check_current(call, &old, &new)?;
            match self.replace(call, &entry, &old, new, &writer).await {
                // A patch that names a revision is not tried again: `check_current` refuses it.
                Err(NotWritten::Lost) => {}
                Err(NotWritten::Refused(refusal)) => return Err(refusal),
                Ok(bytes) => return self.present(call, StatusCode::OK, &bytes),
            }
        }
        Err(Refusal::modified(call.resource.about(call.name)))
    }

    /// The object that a patch makes of the old one, read as if it had been sent whole.
    fn patched(
        &self,
        call: &Call<'_>,
        kind: PatchKind,
        old: &Value,
        sent: &body::Sent,
        writer: &Writer<'_>,
    ) -> Result<Value, Refusal> {
        let resource = &call.resource;
        if call.part == Part::Scale {
            let scale = kind.apply(&scale::of(resource, old)?, &sent.value, None)?;
            return scale::apply(resource, old, &scale);
        }
        let mut new = match kind {
            PatchKind::Apply => {
                let merged = self.merged(call, Some(old), &sent.value, writer)?;
                strictness(call, unknown_in(call, &sent.value)?, &sent.duplicates)?;
                merged
            }
            kind => kind.apply(old, &sent.value, Some(resource))?,
        };
        if kind == PatchKind::Apply {
            resource.complete_applied(&mut new)?;
        } else {
            let shown = new.clone();
            let unreadable = |refusal: Refusal| kind.unreadable(call, &shown, &sent.value, &refusal);
            let mut unknown = resource.decode(&mut new).map_err(unreadable)?;
            if kind == PatchKind::Json {
                unknown.extend(patch::unknown_fields(&sent.value));
            }
            strictness(call, unknown, &sent.duplicates).map_err(unreadable)?;
        }
        check_name(call, &new)?;
        Ok(new)
    }

    fn merged(
        &self,
        call: &Call<'_>,
        live: Option<&Value>,
        config: &Value,
        writer: &Writer<'_>,
    ) -> Result<Value, Refusal> {
        let resource = &call.resource;
        let now = world::seconds(self.world().now());
        let api_version = resource.api_version();
        let manager =
            Manager { name: writer.manager, api_version: &api_version, subresource: call.part.name() };
        let force = call.query.flag("force");
        fields::apply(resource.shape(), live, config, &manager, reset(resource, call.part), force, &now)
            .map_err(|error| Refusal::apply(&error))
    }

    async fn create_by_apply(
        &self,
        call: &Call<'_>,
        mut config: Value,
        writer: &Writer<'_>,
    ) -> Result<Response<Body>, Refusal> {
        check_name(call, &config)?;
        if object::meta(&config, "resourceVersion") == "0" {
            object::remove_meta(&mut config, "resourceVersion");
        }
        if !object::uid(&config).is_empty() {
            let why = "the UID in the precondition does not match: the object does not exist";
            return Err(Refusal::conflict(call.resource.about(call.name), why));
        }
        let resource = &call.resource;
        let mut object = self.merged(call, None, &config, writer)?;
        strictness(call, unknown_in(call, &config)?, &[])?;
        object::set_meta(&mut object, "name", call.name);
        resource.complete_applied(&mut object)?;
        let bytes = self.store_new(call, object, writer).await?;
        self.present(call, StatusCode::CREATED, &bytes)
    }
}

/// The fields of an applied configuration that its kind does not know.
fn unknown_in(call: &Call<'_>, config: &Value) -> Result<Vec<String>, Refusal> {
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
    fn of(call: &Call<'_>) -> Result<Self, Refusal> {
        let custom = matches!(call.resource.rules, Rules::Custom(_));
        match media(call) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Refusal::unsupported_media(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// A patch that makes of an object something else is to blame itself.
    fn unreadable(self, call: &Call<'_>, patched: &Value, patch: &Value, refusal: &Refusal) -> Refusal {
        let value = match self {
            Self::Strategic => patch::go_text(patch),
            _ => patched.to_string(),
        };
        let (kind, version) = (&call.resource.kind, &call.resource.version);
        let prefix = format!("{kind} in version {version:?} cannot be handled as a {kind}: ");
        let why = refusal.message().strip_prefix(&prefix).unwrap_or_else(|| refusal.message());
        Refusal::invalid("", "", "", &[Cause::invalid("patch", &Value::from(value), why)])
    }

    fn check_options(self, call: &Call<'_>) -> Result<(), Refusal> {
        let refuse = |reason, field: &str, message: &str| {
            let cause = cause(reason, field, message);
            Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", &[cause]))
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

    fn apply(self, old: &Value, patch: &Value, resource: Option<&Resource>) -> Result<Value, Refusal> {
        let patched = match (self, resource) {
            (Self::Json, _) => patch::json(old, patch),
            (Self::Strategic, Some(resource)) => patch::strategic(old, patch, resource.shape()),
            _ => patch::merge(old, patch),
        };
        patched.map_err(|error| Refusal::patch(&error))
    }
}
