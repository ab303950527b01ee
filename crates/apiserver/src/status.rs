//! Errors as a `Status` of Kubernetes, with the reasons and messages that clients match.
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

pub use crate::builtin::Cause;
use crate::{managed_fields::ApplyError, patch::PatchError};

/// A response that is not a success: a `Status` of Kubernetes.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
}

/// The group and plural name of what a request is about, as messages print it.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    /// `configmaps "x"`, `leaderworkersets.leaderworkerset.x-k8s.io "x"`.
    fn text(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{} {:?}", self.plural, self.group, self.name)
    }

    fn details(&self) -> Map<String, Value> {
        let entries = [("name", self.name), ("group", self.group), ("kind", self.plural)];
        entries.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), json!(v))).collect()
    }
}

impl StatusError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Map::new() }
    }

    fn about(mut self, about: &About<'_>) -> Self {
        self.details = about.details();
        self
    }

    pub fn not_found(about: About<'_>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} not found", about.text())).about(&about)
    }

    /// The path names no resource of this server.
    pub fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub fn already_exists(about: About<'_>, terminating: bool) -> Self {
        let terminating = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{terminating}{} already exists", about.text());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(&about)
    }

    pub fn conflict(about: About<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", about.text());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(&about)
    }

    /// The object has changed since the client read it.
    pub fn modified(about: About<'_>) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, why)
    }

    /// Server-side apply came to nothing.
    pub fn apply(error: &ApplyError) -> Self {
        match error {
            ApplyError::Conflicts(conflicts) => {
                let mut error = Self::new(StatusCode::CONFLICT, "Conflict", error.to_string());
                error.details.insert("causes".to_owned(), conflicts.causes().into());
                error
            }
            ApplyError::BadRequest(why) => Self::bad_request(why),
            ApplyError::Untyped { .. } | ApplyError::ManagedFields(_) => Self::bare(error.to_string()),
        }
    }

    /// A patch came to nothing.
    pub fn patch(error: &PatchError) -> Self {
        let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(code, error.reason(), error.message())
    }

    /// Kubernetes gives no reason for some errors.
    fn bare(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// What was sent cannot be stored; `kind` and `group` are those of the object.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|c| format!("{}: {}", c.field, c.message)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let texts = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{kind}{dot}{group} {name:?} is invalid: {texts}");
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.details = About { group, plural: kind, name }.details();
        error.details.insert("causes".to_owned(), causes.iter().map(cause_json).collect());
        error
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn forbidden(about: About<'_>, why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("{} is forbidden: {why}", about.text()))
            .about(&about)
    }

    /// Adds one machine-readable reason.
    #[must_use]
    pub fn with_cause(mut self, cause: &Cause) -> Self {
        self.details.insert("causes".to_owned(), json!([cause_json(cause)]));
        self
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// A patch that is well-formed and cannot be carried out.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// The history no longer reaches back so far.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A revision that this server has not reached yet.
    pub fn future(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        error.details.insert("causes".to_owned(), cause);
        error.details.insert("retryAfterSeconds".to_owned(), json!(1));
        error
    }

    pub fn timeout(seconds: u64) -> Self {
        let message = format!("the request was not finished within {seconds} seconds");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.details.insert("retryAfterSeconds".to_owned(), json!(retry_after));
        error
    }

    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// Part of Kubernetes, and not of this server.
    pub fn not_here(what: &str) -> Self {
        let message = format!("{what}: the embedded API does not serve this; a Kubernetes cluster does");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub fn code(&self) -> StatusCode {
        self.code
    }

    pub fn reason(&self) -> &'static str {
        self.reason
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    pub fn json(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        let shows_details = matches!(self.reason, "NotFound" | "Invalid" | "MethodNotAllowed");
        if !self.details.is_empty() || shows_details {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }

    pub fn bytes(&self) -> Bytes {
        Bytes::from(self.json().to_string())
    }
}

/// A cause with a reason and a message.
pub fn cause(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Cause {
    Cause { reason, field: field.into(), message: message.into() }
}

fn cause_json(cause: &Cause) -> Value {
    let mut json = json!({"reason": cause.reason, "message": cause.message});
    if !cause.field.is_empty() {
        json["field"] = json!(cause.field);
    }
    json
}
