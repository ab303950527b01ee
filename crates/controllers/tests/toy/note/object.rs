//! What a note is.

use std::sync::LazyLock;

use api::{Conditions, Kind};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteSpec {
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoteStatus {
    #[serde(default)]
    pub observed_generation: i64,
    #[serde(default)]
    pub kept: Option<String>,
    #[serde(default)]
    pub answered: Option<String>,
    #[serde(default)]
    pub conditions: Conditions,
}

api::object! {
    /// A text that is kept.
    Note, NoteSpec, NoteStatus,
    "test.segue.dev", "v1", "notes"
}

api::status!(Note, NoteStatus);

/// The kind.
pub static KIND: Kind = Kind {
    group: "test.segue.dev",
    version: "v1",
    name: "Note",
    plural: "notes",
    singular: "note",
    short_names: &[],
    categories: &[],
    scale: None,
    columns: &[],
    longest_name: 63,
    description: "A text that is kept.",
    rules: &[],
    spec: || {
        json!({
            "type": "object",
            "properties": {"text": {"type": "string"}},
            // What it is made of, and how it is rolled out, as other kinds have it.
            "x-kubernetes-preserve-unknown-fields": true,
        })
    },
    status: || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    review: |_| (),
    schema: LazyLock::new(|| KIND.read_schema()),
};
