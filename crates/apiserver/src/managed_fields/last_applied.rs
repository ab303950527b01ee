//! The annotation in which `kubectl apply` without `--server-side` keeps what it applied last.
use serde_json::Value;

use super::collect::fields;
use super::compare::Comparison;
use super::conflict::Conflicts;
use super::ownership::Write;
use super::set::Set;
use super::text;
use super::validate::validate;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager for which the annotation counts; another name opts out.
pub(crate) const MANAGER: &str = "kubectl";

/// The size that all annotations of an object may have together.
const ANNOTATIONS_SIZE: usize = 256 * 1024;

/// The conflicts that remain: kubectl does not conflict with itself over what the annotation says it applied. Nothing
/// if there is no such annotation to trust.
pub(crate) fn remaining(write: &Write<'_>, live: &Value, conflicts: &Conflicts) -> Option<Conflicts> {
    let allowed = applied_fields(write, live)?;
    Some(Conflicts(conflicts.iter().filter(|c| !allowed.has(&c.path)).cloned().collect()))
}

fn applied_fields(write: &Write<'_>, live: &Value) -> Option<Set> {
    let config: Value = serde_json::from_str(annotation(live)?).ok()?;
    if config.get("apiVersion").and_then(Value::as_str) != Some(write.api_version) {
        return None;
    }
    validate(write.typed, live).ok()?;
    validate(write.typed, &config).ok()?;
    let change = Comparison::new(write.typed, &config, live);
    // What has been changed since is someone else's.
    Some(fields(write.typed, &config).difference(&change.written()).difference(&change.removed))
}

fn annotation(object: &Value) -> Option<&str> {
    let value = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!value.is_empty()).then_some(value)
}

/// Brings the annotation up to date, where there is one, for those who go back to applying without the server.
pub(crate) fn refresh(mut object: Value, config: &Value) -> Value {
    if annotation(&object).is_none() {
        return object;
    }
    let text = annotation_of(config);
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
        let size = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum::<usize>();
        if size > ANNOTATIONS_SIZE {
            annotations.remove(ANNOTATION);
        }
    }
    object
}

fn annotation_of(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match metadata.get_mut("annotations").map(Value::as_object_mut) {
            Some(Some(annotations)) => {
                annotations.remove(ANNOTATION);
            }
            _ => {
                metadata.remove("annotations");
            }
        }
    }
    let mut text = String::new();
    text::json(&config, &mut text);
    text.push('\n');
    text
}
