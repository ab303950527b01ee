//! The validation of metadata, for all kinds.
use serde_json::Value;

use super::{
    NameRule,
    cause::{Cause, each},
    names,
};

const ANNOTATIONS: usize = 256 * 1024;
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// What is wrong with the metadata of a new object, whose name has been generated where it had to be.
pub fn validate_meta(name: NameRule, object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = named(metadata, name);
    causes.extend(validate_meta_update(object));
    causes
}

/// What is wrong with the metadata of an object that was there before, its name and the rest that must not change
/// apart.
pub fn validate_meta_update(object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = labels(&metadata["labels"], "metadata.labels");
    causes.extend(annotations(&metadata["annotations"]));
    causes.extend(owners(&metadata["ownerReferences"]));
    causes.extend(finalizers(&metadata["finalizers"]));
    causes
}

fn named(metadata: &Value, rule: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, prefix) = (text(metadata, "name"), text(metadata, "generateName"));
    if !prefix.is_empty() {
        causes.extend(each("metadata.generateName", prefix, names::prefix(rule, prefix)));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(each("metadata.name", name, names::of(rule, name)));
    }
    causes
}

/// What is wrong with a map of labels.
pub fn labels(labels: &Value, field: &str) -> Vec<Cause> {
    let judge = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        let keys = each(field, key, names::qualified(key));
        keys.chain(each(field, value, names::label_value(value))).collect::<Vec<_>>()
    };
    labels.as_object().into_iter().flatten().flat_map(judge).collect()
}

fn annotations(annotations: &Value) -> Vec<Cause> {
    let field = "metadata.annotations";
    let entries = || annotations.as_object().into_iter().flatten();
    // Case does not matter here, unlike in labels.
    let keys = entries().flat_map(|(key, _)| each(field, key, names::qualified(&key.to_lowercase())));
    let mut causes: Vec<Cause> = keys.collect();
    let size: usize =
        entries().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > ANNOTATIONS {
        causes.push(Cause::too_long(field, ANNOTATIONS));
    }
    causes
}

fn owners(references: &Value) -> Vec<Cause> {
    let field = "metadata.ownerReferences";
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for reference in references.as_array().into_iter().flatten() {
        causes.extend(owner(reference, field));
        if reference["controller"] != Value::Bool(true) {
            continue;
        }
        let name = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
        match &controller {
            None => controller = Some(name),
            Some(first) => {
                let says = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let all: Vec<String> = references.as_array().into_iter().flatten().map(printed).collect();
                causes.push(Cause::invalid_text(field, &format!("[{}]", all.join(",")), &says));
            }
        }
    }
    causes
}

fn owner(reference: &Value, field: &str) -> Vec<Cause> {
    let needs = [
        ("apiVersion", "version must not be empty"),
        ("kind", "must not be empty"),
        ("name", "must not be empty"),
        ("uid", "must not be empty"),
    ];
    let missing = needs.into_iter().filter(|(name, _)| text(reference, name).is_empty());
    let mut causes: Vec<Cause> = missing
        .map(|(name, says)| Cause::invalid(format!("{field}.{name}"), &Value::from(""), says))
        .collect();
    if text(reference, "apiVersion") == "v1" && text(reference, "kind") == "Event" {
        let says = "/v1, Kind=Event is disallowed from being an owner";
        causes.push(Cause::invalid_text(field, &printed(reference), says));
    }
    causes
}

/// A reference with its fields in the order of the Go struct.
fn printed(reference: &Value) -> String {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = order.into_iter().filter_map(|name| Some(format!("\"{name}\":{}", reference.get(name)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn finalizers(finalizers: &Value) -> Vec<Cause> {
    let field = "metadata.finalizers";
    let list: Vec<&str> = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut causes: Vec<Cause> =
        list.iter().flat_map(|name| each(field, name, names::qualified(name))).collect();
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let says = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(field, finalizers, says));
    }
    causes
}

/// The finalizers of one word that Kubernetes does not know; most built-in kinds refuse them, custom resources do not.
pub fn bare_finalizers(object: &Value) -> Vec<Cause> {
    let list = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    list.enumerate().filter_map(|(i, name)| bare(name, &format!("metadata.finalizers[{i}]"))).collect()
}

/// A finalizer of one word must be one that Kubernetes knows.
pub fn bare(name: &str, field: &str) -> Option<Cause> {
    let says = "name is neither a standard finalizer name nor is it fully qualified";
    let known = name.contains('/') || STANDARD_FINALIZERS.contains(&name);
    (!known).then(|| Cause::invalid(field, &Value::from(name), says))
}
