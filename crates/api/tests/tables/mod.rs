//! The tables beside this file: a good manifest per kind, and what happens when it is changed.

// Several test binaries include this file, and not each uses all of it; clippy.toml allows unwrap and panic in tests, but
// does not know a helper of tests for one.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, fs, path::Path};

use api::Kind;
use serde::Deserialize;
use serde_json::Value;

/// Changes to a manifest: JSON pointer to value, null removes.
pub type Patch = BTreeMap<String, Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub base: Value,
    pub bad: Vec<Row>,
    pub good: Vec<Row>,
    #[serde(default)]
    pub updates: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    /// For updates: what the stored object is, as a change to the base.
    #[serde(default)]
    pub from: Patch,
    pub patch: Patch,
    /// The field that a refusal names; none where the row is accepted.
    pub field: Option<String>,
    /// What else the refusal contains.
    pub says: Option<String>,
    /// `webhook` where a CRD cannot refuse this.
    pub needs: Option<String>,
}

impl Row {
    pub fn needs_webhook(&self) -> bool {
        self.needs.as_deref() == Some("webhook")
    }

    /// Whether one of these sentences names the field and says what it should.
    pub fn is_answered_by<S: AsRef<str>>(&self, sentences: &[S]) -> bool {
        let field = self.field.as_deref().expect("a row that is refused should name a field");
        let says = self.says.as_deref().unwrap_or_default();
        sentences.iter().any(|s| s.as_ref().contains(field) && s.as_ref().contains(says))
    }
}

impl Table {
    pub fn of(kind: &Kind) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../api/tests/tables")
            .join(format!("{}.yaml", kind.singular));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// The base with these changes.
    pub fn manifest(&self, patch: &Patch) -> Value {
        Self::changed(&self.base, patch)
    }

    /// A manifest with these changes.
    pub fn changed(manifest: &Value, patch: &Patch) -> Value {
        let mut manifest = manifest.clone();
        for (pointer, value) in patch {
            change(&mut manifest, pointer, value);
        }
        manifest
    }
}

fn change(manifest: &mut Value, pointer: &str, value: &Value) {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer should begin with a slash");
    let last = last.replace("~1", "/").replace("~0", "~");
    let parent = manifest.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {pointer}"));
    match parent {
        Value::Object(object) if value.is_null() => drop(object.remove(&last)),
        Value::Object(object) => drop(object.insert(last, value.clone())),
        Value::Array(items) => items[last.parse::<usize>().expect("an index")] = value.clone(),
        other => panic!("{pointer} is in {other}"),
    }
}
