//! What a client sent with a request: the body, and who it is.
use bytes::Bytes;
use http::header;
use serde_json::Value;

use crate::{
    body, fields, object,
    protobuf::{self, NotRead},
    refusal::{Refusal, cause},
    server::Call,
};

pub(crate) const WRONG_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

pub(crate) fn media<'a>(call: &Call<'a>) -> &'a str {
    let value =
        call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// `kubectl create namespace` and the like send protobuf; `kubectl apply` and `kubectl create -f` do not.
fn unsupported(found: &str) -> Refusal {
    Refusal::unsupported_media(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml; this was {found}. The embedded API reads no protobuf: use kubectl apply -f or create -f"
    ))
}

fn from_protobuf(body: &Bytes) -> Result<Value, Refusal> {
    protobuf::read(body).map_err(|not_read| match not_read {
        NotRead::Kind(kind) => Refusal::unsupported_media(format!(
            "the embedded API reads {kind} as JSON or YAML only (found {:?}); write it to a file with --dry-run=client -o \
             yaml and apply that",
            protobuf::MEDIA
        )),
        NotRead::Broken(why) => Refusal::bad_request(format!("the body is not protobuf: {why}")),
    })
}

/// Reads a body: the value, and the fields that come twice.
pub(crate) fn sent(call: &Call<'_>, body: &Bytes) -> Result<(Value, Vec<String>), Refusal> {
    let yaml = match media(call) {
        "" | "application/json" => false,
        "application/yaml" => true,
        protobuf::MEDIA => return from_protobuf(body).map(|object| (object, Vec::new())),
        other => return Err(unsupported(other)),
    };
    let sent = body::read(body, yaml)?;
    Ok((sent.value, sent.duplicates))
}

/// Reads an object that was sent whole.
pub(crate) fn decode(call: &Call<'_>, object: &mut Value, duplicates: &[String]) -> Result<(), Refusal> {
    let unknown = call.resource.decode(object)?;
    strictness(call, unknown, duplicates)
}

/// What to do about fields that are unknown or come twice: refuse, warn or say nothing.
pub(crate) fn strictness(
    call: &Call<'_>,
    unknown: Vec<String>,
    duplicates: &[String],
) -> Result<(), Refusal> {
    let mut found = unknown;
    found.extend(duplicates.iter().map(|field| format!("duplicate field {field:?}")));
    match call.query.get("fieldValidation") {
        "" | "Warn" => {
            call.warn(found);
            Ok(())
        }
        "Ignore" => Ok(()),
        "Strict" if found.is_empty() => Ok(()),
        "Strict" => {
            let (kind, version) = (&call.resource.kind, &call.resource.version);
            let list = found.join(", ");
            Err(Refusal::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {list}"
            )))
        }
        other => {
            let allowed = "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
            let cause = cause(
                "FieldValueNotSupported",
                "fieldValidation",
                format!("Unsupported value: {other:?}: {allowed}"),
            );
            Err(Refusal::invalid("meta.k8s.io", "CreateOptions", "", &[cause]))
        }
    }
}

pub(crate) fn check_name(call: &Call<'_>, object: &Value) -> Result<(), Refusal> {
    let name = object::name(object);
    if !name.is_empty() && name != call.name {
        let text =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.name);
        return Err(Refusal::bad_request(text));
    }
    let namespace = object::namespace(object);
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(Refusal::bad_request(WRONG_NAMESPACE));
    }
    Ok(())
}

/// Who writes: as the request says, or the program that sent it.
pub(crate) fn manager(call: &Call<'_>) -> Result<String, Refusal> {
    let named = call.query.get("fieldManager");
    if named.len() > 128 {
        let why = format!("Too long: may not be more than 128 bytes, has {}", named.len());
        let cause = cause("FieldValueTooLong", "fieldManager", why);
        return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    let agent =
        call.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(fields::manager_name(named, agent))
}
