//! One thing that is wrong with a value, in the words that an apiserver would use.

use std::fmt;

use kube_cel::ValidationError;
use serde_json::Value;

/// Why a value was refused; the names that an apiserver prints after the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A field that must be there is not.
    Required,
    /// The value is out of bounds or breaks a rule.
    Invalid,
    /// The value is of another type.
    Type,
    /// A text has too many characters.
    TooLong,
    /// A list or a map has too many entries.
    TooMany,
    /// The value is not one of the listed ones.
    Unsupported,
    /// Two entries of a list have the same key.
    Duplicate,
    /// A field that may not be set here is.
    Forbidden,
    /// A field that the schema does not have.
    Unknown,
}

impl Cause {
    /// With one of these, rules are not worth running: they could not rely on what they read.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(self, Self::Required | Self::Type | Self::Unsupported | Self::TooLong | Self::TooMany)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "Required value",
            Self::Invalid | Self::Type => "Invalid value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Unsupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::Unknown => "Unknown field",
        })
    }
}

/// One thing that is wrong: where, what stands there, and what would be right.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The field, as in `spec.template.roles[0].name`.
    pub field: String,
    /// Why the value was refused.
    pub cause: Cause,
    /// What stands there; `None` when nothing does or when it is too large to print.
    pub value: Option<Value>,
    /// What is allowed.
    pub allowed: String,
}

impl Violation {
    /// A violation of `cause` at `field`, which holds `value`; `allowed` says what would be right.
    pub fn new(
        field: impl Into<String>,
        cause: Cause,
        value: Option<&Value>,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            cause,
            value: value.filter(|v| !is_large(v)).cloned(),
            allowed: allowed.into(),
        }
    }

    pub(crate) fn of_rule(error: ValidationError, object: &Value) -> Self {
        let value = lookup(object, &error.field_path);
        let cause = match error.reason.as_deref() {
            Some("FieldValueRequired") => Cause::Required,
            Some("FieldValueForbidden") => Cause::Forbidden,
            Some("FieldValueDuplicate") => Cause::Duplicate,
            _ => Cause::Invalid,
        };
        Self::new(error.field_path, cause, value, error.message)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.cause)?;
        if let (Some(value), false) =
            (&self.value, matches!(self.cause, Cause::Required | Cause::Forbidden | Cause::TooLong))
        {
            write!(f, ": {value}")?;
        }
        if self.allowed.is_empty() { Ok(()) } else { write!(f, ": {}", self.allowed) }
    }
}

/// Objects and lists are named by their field; printing them whole would bury the sentence.
fn is_large(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

/// The value at a path such as `spec.roles[0].name`, if there is one.
fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(object, |value, part| {
        let (name, indexes) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        let value = if name.is_empty() { value } else { value.get(name)? };
        indexes
            .split('[')
            .filter(|index| !index.is_empty())
            .try_fold(value, |value, index| value.get(index.trim_end_matches(']').parse::<usize>().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_finds_its_value() {
        let object = json!({"spec": {"roles": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(lookup(&object, "spec.roles[1].name"), Some(&json!("b")));
        assert_eq!(lookup(&object, "spec.roles[2].name"), None);
        assert_eq!(lookup(&object, ""), Some(&object));
    }

    #[test]
    fn a_sentence_names_field_value_and_what_is_allowed() {
        let violation = Violation::new("spec.size", Cause::Invalid, Some(&json!(0)), "must be at least 1");
        assert_eq!(violation.to_string(), "spec.size: Invalid value: 0: must be at least 1");
        let violation = Violation::new("spec.size", Cause::Required, None, "");
        assert_eq!(violation.to_string(), "spec.size: Required value");
    }
}
