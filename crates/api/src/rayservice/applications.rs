use serde_json::Value;

use crate::yaml_fault;

/// The applications of a `serveConfigV2`, as Ray Serve takes them over HTTP; null where it is blank.
///
/// # Errors
///
/// Says what is wrong with a text that is no YAML, or no mapping.
pub fn applications(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    match serde_saphyr::from_str::<Value>(text) {
        Ok(config @ Value::Object(_)) => Ok(config),
        Ok(_) => Err("must be a YAML mapping with the list applications".to_owned()),
        Err(error) => Err(format!("must be YAML: {}", yaml_fault(&error))),
    }
}
