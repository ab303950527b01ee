//! Decodes the object and the field manager of a write, and applies `fieldValidation`.
use bytes::Bytes;
use http::header;
use serde_json::Value;

use crate::{
    managed_fields, object,
    request::body,
    request::protobuf::{self, DecodeError},
    server::Call,
    status::{StatusError, cause},
};

pub(crate) const WRONG_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

pub(crate) fn media_type<'a>(call: &Call<'a>) -> &'a str {
    let value =
        call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// `kubectl create namespace` and the like send protobuf; `kubectl apply` and `kubectl create -f` do not.
fn unsupported(found: &str) -> StatusError {
    StatusError::unsupported_media(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml; this was {found}. The embedded API reads no protobuf: use kubectl apply -f or create -f"
    ))
}

fn from_protobuf(body: &Bytes) -> Result<Value, StatusError> {
    protobuf::read(body).map_err(|not_read| match not_read {
        DecodeError::UnsupportedKind(kind) => StatusError::unsupported_media(format!(
            "the embedded API reads {kind} as JSON or YAML only (found {:?}); write it to a file with --dry-run=client -o \
             yaml and apply that",
            protobuf::MEDIA
        )),
        DecodeError::Malformed(why) => StatusError::bad_request(format!("the body is not protobuf: {why}")),
    })
}

/// Reads a body: the value, and the fields that come twice.
pub(crate) fn decode_body(call: &Call<'_>, body: &Bytes) -> Result<(Value, Vec<String>), StatusError> {
    let yaml = match media_type(call) {
        "" | "application/json" => false,
        "application/yaml" => true,
        protobuf::MEDIA => return from_protobuf(body).map(|object| (object, Vec::new())),
        other => return Err(unsupported(other)),
    };
    let sent = body::read(body, yaml)?;
    Ok((sent.value, sent.duplicates))
}

/// Reads an object that was sent whole.
pub(crate) fn decode_object(
    call: &Call<'_>,
    object: &mut Value,
    duplicates: &[String],
) -> Result<(), StatusError> {
    let unknown = call.resource.decode(object)?;
    field_validation(call, unknown, duplicates)
}

/// Refuses, warns of or ignores unknown and duplicate fields, as the parameter `fieldValidation` says.
pub(crate) fn field_validation(
    call: &Call<'_>,
    unknown: Vec<String>,
    duplicates: &[String],
) -> Result<(), StatusError> {
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
            Err(StatusError::bad_request(format!(
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
            Err(StatusError::invalid("meta.k8s.io", "CreateOptions", "", &[cause]))
        }
    }
}

pub(crate) fn check_name(call: &Call<'_>, object: &Value) -> Result<(), StatusError> {
    let name = object::name(object);
    if !name.is_empty() && name != call.name {
        let text =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.name);
        return Err(StatusError::bad_request(text));
    }
    let namespace = object::namespace(object);
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(StatusError::bad_request(WRONG_NAMESPACE));
    }
    Ok(())
}

/// The field manager: the parameter `fieldManager`, or else the program in the user agent.
pub(crate) fn manager(call: &Call<'_>) -> Result<String, StatusError> {
    let named = call.query.get("fieldManager");
    if named.len() > 128 {
        let why = format!("Too long: may not be more than 128 bytes, has {}", named.len());
        let cause = cause("FieldValueTooLong", "fieldManager", why);
        return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    let agent =
        call.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(managed_fields::manager_name(named, agent))
}
