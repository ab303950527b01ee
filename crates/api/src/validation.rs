//! Is this manifest acceptable, and if not, what would be?

use schema::{Cause, Schema, Violation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kind::Kind;

/// What validation found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Reasons to refuse the object; none means that it is accepted.
    pub violations: Vec<Violation>,
    /// What its author should know although it is accepted.
    pub warnings: Vec<String>,
    /// The fields among these warnings that are kept and have no effect, each with what happens instead.
    pub ignored: Vec<String>,
    /// The fields among these warnings that the kind does not have.
    pub unknown: Vec<String>,
}

impl Verdict {
    /// Whether the object is accepted.
    pub fn accepted(&self) -> bool {
        self.violations.is_empty()
    }

    /// The verdict of a strict write: a field that the kind does not have is refused, and not dropped with a warning.
    #[must_use]
    pub fn strict(mut self) -> Self {
        let unknown = std::mem::take(&mut self.unknown);
        self.warnings.retain(|warning| !unknown.iter().any(|field| *warning == dropped(field)));
        let refused = |field| Violation::new(field, Cause::Unknown, None, "correct its name, or remove it");
        self.violations.extend(unknown.into_iter().map(refused));
        self
    }
}

/// An object of the right shape under review, and what the review finds.
#[derive(Debug)]
pub struct Review<'a> {
    pub(crate) object: &'a Value,
    pub(crate) old: Option<&'a Value>,
    pub(crate) verdict: Verdict,
}

impl Review<'_> {
    /// The object as its type. A value that has the shape of its schema and still does not fit its type (a number that
    /// no `i32` holds, say) is refused here, with the words of the parser.
    pub(crate) fn typed<T: DeserializeOwned>(&mut self) -> Option<T> {
        match T::deserialize(self.object) {
            Ok(typed) => Some(typed),
            Err(error) => {
                self.refuse("spec", Cause::Invalid, None, error.to_string());
                None
            }
        }
    }

    pub(crate) fn refuse(
        &mut self,
        field: &str,
        cause: Cause,
        value: Option<&Value>,
        allowed: impl Into<String>,
    ) {
        self.verdict.violations.push(Violation::new(field, cause, value, allowed));
    }

    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.verdict.warnings.push(text.into());
    }

    /// Warns that a field has no effect. Its author should not find that out later.
    pub(crate) fn ignore(&mut self, field: &str, instead: &str) {
        self.warn(format!("{field} is kept but not acted on: {instead}"));
        self.verdict.ignored.push(format!("{field}: {instead}"));
    }

    /// Annotations that give a time must give one. What was there before is let be.
    pub(crate) fn times(&mut self, names: &[&str]) {
        for name in names {
            let Some(text) = self.annotation(name).filter(|text| text.parse::<u32>().is_err()) else {
                continue;
            };
            let before = self.old.and_then(|old| old["metadata"]["annotations"][*name].as_str());
            let (is_old, text) = (before == Some(text), json!(text));
            let (field, problem) =
                (format!("metadata.annotations.{name}"), "must be a whole number of seconds, such as \"30\"");
            if is_old {
                self.warn(format!("{field} is {text}: {problem}; it is ignored"));
            } else {
                self.refuse(&field, Cause::Invalid, Some(&text), problem);
            }
        }
    }

    /// An annotation of the object, if it is set.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.object.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }
}

impl Kind {
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }
}

/// The object with everything filled in that its author left to us.
///
/// Fails for a manifest of a kind that is not ours.
pub fn defaulted(object: &Value) -> Result<Value, Violation> {
    let mut object = object.clone();
    Kind::of(&object)?.schema().default(&mut object);
    Ok(object)
}

/// Judges a manifest as admission would: schema, CEL rules, and what CEL cannot see.
///
/// `old` is the stored object when this is an update. Every JSON value gets a verdict.
pub fn validate(object: &Value, old: Option<&Value>) -> Verdict {
    let (kind, object) = match (Kind::of(object), defaulted(object)) {
        (Ok(kind), Ok(object)) => (kind, object),
        (Err(violation), _) | (_, Err(violation)) => {
            return Verdict { violations: vec![violation], ..Verdict::default() };
        }
    };
    let old = old.and_then(|old| defaulted(old).ok());
    let mut review = Review { object: &object, old: old.as_ref(), verdict: Verdict::default() };
    review_metadata(&mut review);
    review.verdict.violations.extend(kind.schema().violations(&object, old.as_ref()));
    let unknown: Vec<String> =
        unknown_metadata(&object).chain(kind.schema().unknown_fields(&object)).collect();
    for field in unknown {
        review.warn(dropped(&field));
        review.verdict.unknown.push(field);
    }
    if review.verdict.accepted() {
        (kind.review)(&mut review);
    }
    review.verdict
}

/// The fields of the metadata of every object.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Metadata is in no schema: an API server knows it by itself.
fn unknown_metadata(object: &Value) -> impl Iterator<Item = String> {
    let fields = object["metadata"].as_object().into_iter().flatten();
    let unknown = fields.filter(|(field, _)| !METADATA.contains(&field.as_str()));
    unknown.map(|(field, _)| format!("metadata.{field}"))
}

fn dropped(field: &str) -> String {
    format!("unknown field \"{field}\": it would be dropped")
}

/// What an apiserver asks of every object's metadata, as far as a manifest can get it wrong.
fn review_metadata(review: &mut Review<'_>) {
    let Some(metadata) = review.object.get("metadata").and_then(Value::as_object) else {
        return review.refuse("metadata", Cause::Required, None, "an object needs a name");
    };
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() && text("generateName").is_empty() {
        review.refuse("metadata.name", Cause::Required, None, "name or generateName is required");
    }
    for map in ["labels", "annotations"] {
        for (key, value) in metadata.get(map).and_then(Value::as_object).into_iter().flatten() {
            if !value.is_string() {
                let field = format!("metadata.{map}.{key}");
                review.refuse(&field, Cause::Invalid, Some(value), "must be a string; put it in quotes");
            }
        }
    }
}
