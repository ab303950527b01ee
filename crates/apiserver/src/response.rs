//! Responses: bodies, status codes, and objects and lists in the representation that the client asked for.
use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    registry::resource::{Resource, Rules},
    request::negotiation::Representation,
    status::StatusError,
    store::Entry,
    table,
};

/// The body of a response: complete, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// Ends a stream when the server stops, so that a watch does not delay the stop. `permit` is held until then.
pub fn until_stopped(body: Body, stop: watch::Receiver<bool>, permit: impl Send + 'static) -> Body {
    if body.is_end_stream() || body.size_hint().exact().is_some() {
        return body;
    }
    let frames = stream::unfold((body, stop, permit), |(mut body, mut stop, permit)| async move {
        let frame = tokio::select! {
            biased;
            () = async { drop(stop.wait_for(|stop| *stop).await) } => None,
            frame = body.frame() => frame,
        };
        frame.map(|frame| (frame, (body, stop, permit)))
    });
    StreamBody::new(frames).boxed_unsync()
}

pub fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = json(code, text);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

pub fn error(error: &StatusError) -> Response<Body> {
    let mut response = json(error.code(), error.bytes());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds what a client should know, as kubectl prints it.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// A stored object, converted to the version of the request.
pub fn value(resource: &Resource, bytes: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(bytes).unwrap_or_default();
    present(resource, &mut object);
    object
}

/// Converts an object from the storage version to the version of the request.
pub fn present(resource: &Resource, object: &mut Value) {
    if resource.group == "events.k8s.io" {
        crate::builtin::event_to_events(object);
    } else if resource.version != resource.stored_version {
        object["apiVersion"] = json!(resource.api_version());
    }
}

/// Whether the stored bytes need no conversion.
fn is_as_stored(resource: &Resource) -> bool {
    resource.group != "events.k8s.io" && resource.version == resource.stored_version
}

/// One object in a representation.
pub fn object(
    resource: &Resource,
    bytes: &Bytes,
    representation: Representation,
    now: jiff::Timestamp,
) -> Bytes {
    match representation {
        Representation::Json if is_as_stored(resource) => bytes.clone(),
        Representation::Json => value(resource, bytes).to_string().into(),
        Representation::Metadata { version } => metadata(&value(resource, bytes), version).to_string().into(),
        Representation::Table { version, include } => {
            let request = table::Request { include, version, now };
            table::single(&resource.columns, &value(resource, bytes), true, request).to_string().into()
        }
    }
}

fn metadata(object: &Value, version: table::Version) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object["metadata"],
    })
}

/// A list in a representation.
pub fn list(
    resource: &Resource,
    entries: &[Arc<Entry>],
    meta: &Value,
    representation: Representation,
    now: jiff::Timestamp,
) -> Bytes {
    let (kind, api_version, items) = match representation {
        Representation::Table { version, include } => {
            let objects: Vec<Value> = entries.iter().map(|entry| value(resource, &entry.bytes)).collect();
            let request = table::Request { include, version, now };
            let mut table = table::table(&resource.columns, &objects, meta, request);
            // Lists of custom kinds say that there is no more; their tables do not.
            if table["metadata"]["continue"] == "" {
                table["metadata"].as_object_mut().map(|meta| meta.remove("continue"));
            }
            return table.to_string().into();
        }
        Representation::Metadata { version } => {
            let items = entries.iter().map(|entry| metadata(&value(resource, &entry.bytes), version));
            let items: Vec<Bytes> = items.map(|item| item.to_string().into()).collect();
            ("PartialObjectMetadataList", version.api_version().to_owned(), items)
        }
        Representation::Json => {
            let items =
                entries.iter().map(|entry| object(resource, &entry.bytes, representation, now)).collect();
            (resource.list_kind.as_str(), resource.api_version(), items)
        }
    };
    let size: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut body = Vec::with_capacity(size + 256);
    let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta},"items":["#);
    body.extend_from_slice(head.as_bytes());
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item);
    }
    body.extend_from_slice(b"]}");
    body.into()
}

/// Whether deleting an object of this kind at once answers with the object, as for pods, or with a `Status`.
pub fn deletes_with_object(resource: &Resource) -> bool {
    matches!(resource.rules, Rules::BuiltIn(_))
        && matches!(
            resource.plural.as_str(),
            "pods" | "services" | "serviceaccounts" | "persistentvolumeclaims"
        )
}
