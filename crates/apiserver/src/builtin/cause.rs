//! `StatusCause`: one error of a `Status`, as an entry of `details.causes`.
use serde_json::Value;

/// One error: its reason, its field and its message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// `FieldValueInvalid` and its like.
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

impl Cause {
    fn new(reason: &'static str, what: &str, field: impl Into<String>, parts: &[&str]) -> Self {
        let mut message = what.to_owned();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            message += ": ";
            message += part;
        }
        Self { reason, field: field.into(), message }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", "Required value", field, &[detail])
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_text(field, &value.to_string(), detail)
    }

    /// The value as Go prints it, where that is not its JSON.
    pub fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", "Invalid value", field, &[value, detail])
    }

    pub fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new("FieldValueNotSupported", "Unsupported value", field, &[&value.to_string(), &detail])
    }

    pub fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self::new("FieldValueDuplicate", "Duplicate value", field, &[value])
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", "Forbidden", field, &[detail])
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", "Not found", field, &[&value.to_string()])
    }

    pub fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        Self::new("FieldValueTooLong", "Too long", field, &[&format!("may not be more than {bytes} bytes")])
    }

    pub fn too_many(field: impl Into<String>, actual: usize, most: usize) -> Self {
        let items = if most == 1 { "item" } else { "items" };
        let parts = [actual.to_string(), format!("must have at most {most} {items}")];
        Self::new("FieldValueTooMany", "Too many", field, &[&parts[0], &parts[1]])
    }
}

/// One cause per message about the same value.
pub fn each(field: &str, value: &str, sentences: Vec<String>) -> impl Iterator<Item = Cause> {
    sentences.into_iter().map(move |sentence| Cause::invalid(field, &Value::from(value), &sentence))
}
