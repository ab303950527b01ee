//! Validating admission in process: the rules of the kinds, without a webhook.
use serde_json::Value;

use crate::status::StatusError;

/// Validating admission: called before an object is stored.
pub trait Admission: std::fmt::Debug + Send + Sync + 'static {
    /// Returns warnings, or the error that refuses the object. `old` is the stored object of an update.
    fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Vec<String>, StatusError>;
}
