//! Manifests from files.

use std::{fs, io};

use serde_json::Value;

use crate::output::Error;

/// Every manifest in a YAML or JSON file, or in standard input for `-`. A `List` is what it lists.
pub(crate) fn read(file: &str) -> Result<Vec<Value>, Error> {
    let failed = |source| Error::Read { file: file.to_owned(), source };
    let text = if file == "-" { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text.map_err(failed)?)
        .map_err(|error| Error::Yaml { file: file.to_owned(), message: error.to_string() })?;
    let manifests: Vec<Value> = documents.into_iter().filter(|d| !d.is_null()).flat_map(unlist).collect();
    if manifests.is_empty() { Err(Error::Empty { file: file.to_owned() }) } else { Ok(manifests) }
}

fn unlist(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut list) if list.get("kind").and_then(Value::as_str) == Some("List") => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        other => vec![other],
    }
}

/// What to call a manifest: its kind and its name.
pub(crate) fn title(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
}
