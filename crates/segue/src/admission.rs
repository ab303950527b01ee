//! Admission of the kinds that Segue serves: the same verdict in the embedded API and in the webhook of the operator.

use apiserver::{Admission, Cause, StatusError};
use serde_json::Value;

/// Judges objects of our kinds with the rules that a schema cannot hold.
#[derive(Debug)]
pub(crate) struct KindAdmission;

impl Admission for KindAdmission {
    fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Vec<String>, StatusError> {
        let Ok(kind) = api::Kind::of(object) else { return Ok(Vec::new()) };
        let verdict = api::validate(object, old);
        if verdict.accepted() {
            let ignored = controllers::kind::named(kind.name).map(|served| (served.not_acted_on)(object));
            let ignored = ignored.into_iter().flatten().map(|what| format!("not acted on: {what}"));
            return Ok(verdict.warnings.into_iter().chain(ignored).collect());
        }
        let causes: Vec<Cause> = verdict
            .violations
            .iter()
            .map(|violation| Cause {
                reason: "FieldValueInvalid",
                field: violation.field.clone(),
                message: without_field(violation),
            })
            .collect();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(StatusError::invalid(kind.group, kind.name, name, &causes))
    }
}

/// The sentence of a violation; its field is told apart.
fn without_field(violation: &api::Violation) -> String {
    let text = violation.to_string();
    text.strip_prefix(&format!("{}: ", violation.field)).unwrap_or(&text).to_owned()
}
