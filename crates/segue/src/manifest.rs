//! Manifests from files.

use std::{fs, io};

use serde_json::Value;

use crate::output::Error;

/// Every manifest in a YAML or JSON file, or in standard input for `-`. A `List` is what it lists.
pub(crate) fn read(file: &str) -> Result<Vec<Value>, Error> {
    Ok(read_numbered(file)?.into_iter().map(|(_, manifest)| manifest).collect())
}

/// The same, each with the number of its document, from 1.
pub(crate) fn read_numbered(file: &str) -> Result<Vec<(usize, Value)>, Error> {
    let (named, text) = match file {
        "-" => ("standard input", io::read_to_string(io::stdin())),
        _ => (file, fs::read_to_string(file)),
    };
    let failed = |source| Error::Read { file: named.to_owned(), source };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text.map_err(failed)?)
        .map_err(|error| Error::Yaml { file: named.to_owned(), message: api::yaml_fault(&error) })?;
    let numbered = (1..).zip(documents).filter(|(_, document)| !document.is_null());
    let unlisted =
        numbered.flat_map(|(number, document)| unlist(document).into_iter().map(move |m| (number, m)));
    let manifests: Vec<_> = unlisted.collect();
    if manifests.is_empty() { Err(Error::Empty { file: named.to_owned() }) } else { Ok(manifests) }
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
