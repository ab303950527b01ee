//! What differs between any two runs, given names that do not.
use std::collections::HashMap;

use serde_json::{Map, Value};

/// Objects that only a cluster with its controllers has.
const NOT_OURS: [&str; 1] = ["kube-root-ca.crt"];

/// The names given so far on one side.
#[derive(Debug, Default)]
pub struct Mask {
    uids: HashMap<String, String>,
}

impl Mask {
    /// An answer without what is accidental.
    pub fn mask(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.object(fields)),
            Value::Array(items) => {
                let ours = items.iter().filter(|item| {
                    !NOT_OURS.iter().any(|name| {
                        item["metadata"]["name"] == *name || item["object"]["metadata"]["name"] == *name
                    })
                });
                ours.map(|item| self.mask(item)).collect()
            }
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut masked = Map::new();
        // First the uids and generated names, so that texts that mention them can be masked too.
        if let Some(Value::String(uid)) = fields.get("uid") {
            let next = format!("uid-{}", self.uids.len());
            self.uids.entry(uid.clone()).or_insert(next);
        }
        for (key, value) in fields {
            let value = match (key.as_str(), value) {
                ("resourceVersion", Value::String(_)) => Value::from("revision"),
                // What an apply took away from a custom object, in the answer alone.
                ("labels" | "annotations", Value::Null) => continue,
                ("continue", Value::String(token)) if !token.is_empty() => Value::from("continue"),
                ("managedFields" | "causes", Value::Array(_)) => self.sorted(value),
                // Sentences about columns are everybody's own.
                ("description", Value::String(_)) if fields.contains_key("priority") => continue,
                ("cells", Value::Array(cells)) => {
                    cells.iter().map(|cell| mask_age(self.mask(cell))).collect()
                }
                // A scale is written without one.
                ("time", Value::String(_)) if fields.contains_key("fieldsV1") => continue,
                ("message", Value::String(text)) => Value::from(self.message(text)),
                ("clusterIP", Value::String(ip)) if ip != "None" && !ip.is_empty() => Value::from("address"),
                ("clusterIPs", Value::Array(_)) => Value::from("addresses"),
                (_, Value::String(text)) if is_time(text) => Value::from("time"),
                _ => self.mask(value),
            };
            masked.insert(key.clone(), value);
        }
        masked
    }

    /// Owners are sorted by time, among other things; causes come in the order of a Go map, and
    /// twice when two parts of the server look at the same field.
    fn sorted(&mut self, value: &Value) -> Value {
        let mut masked = self.mask(value);
        if let Some(entries) = masked.as_array_mut() {
            entries.sort_by_key(Value::to_string);
            entries.dedup();
        }
        masked
    }

    /// Lists of reasons are compared as causes; which field of several is named first is up to a Go map.
    fn message(&self, text: &str) -> String {
        let cuts = [
            "is invalid: [",
            "Apply failed with",
            "failed to create typed patch object",
            "pod updates may not change",
        ];
        let text = self.text(text);
        match cuts.iter().find_map(|cut| text.find(cut).map(|at| at + cut.len())) {
            Some(at) => text[..at].to_owned(),
            None => text,
        }
    }

    fn text(&self, text: &str) -> String {
        let mut text = mask_names(text);
        // The whole object, in the order of Go's fields.
        let begin =
            text.split_once("Invalid value: \"{").or_else(|| text.split_once("Invalid value: \"map["));
        if let Some((before, rest)) = begin {
            let after = rest.rsplit_once("\": ").map_or("", |(_, after)| after);
            text = format!("{before}Invalid value: object: {after}");
        }
        text = text.replace("Key: /registry/", "Key: /");
        for (known, name) in &self.uids {
            if text.contains(known.as_str()) {
                text = text.replace(known.as_str(), name);
            }
        }
        mask_revisions(&text)
    }
}

/// Generated names end in five characters that differ.
fn mask_names(text: &str) -> String {
    let mut parts = text.split("made-");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let generated =
            part.len() >= 5 && part.bytes().take(5).all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        masked += "made-";
        masked += if generated { &part[5..] } else { part };
    }
    masked
}

/// Messages name revisions after these words.
fn mask_revisions(text: &str) -> String {
    let mut text = text.to_owned();
    for before in ["in the precondition (", "in record (", "resource version: ", "current: "] {
        if let Some(at) = text.find(before).map(|at| at + before.len()) {
            let digits = text[at..].chars().take_while(char::is_ascii_digit).count();
            if digits > 0 {
                text.replace_range(at..at + digits, "revision");
            }
        }
    }
    text
}

/// `5s`, `2m10s`: how long ago something was made.
fn mask_age(cell: Value) -> Value {
    match cell.as_str() {
        Some(text)
            if text.ends_with('s')
                && text[..text.len() - 1].bytes().all(|b| b.is_ascii_digit() || b == b'm') =>
        {
            Value::from("age")
        }
        Some(text) if text.parse::<std::net::Ipv4Addr>().is_ok() => Value::from("address"),
        _ => cell,
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.len() <= 30
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && text.ends_with('Z')
}
