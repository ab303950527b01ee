//! What a pod template must have, whichever kind carries it.

use schema::Cause;
use serde_json::{Value, json};

use crate::{embedded::PodTemplate, validation::Review};

/// Refuses pods that no kubelet could run, or that every API server would refuse when the pod is created.
pub(crate) fn review(review: &mut Review<'_>, field: &str, template: &PodTemplate) {
    let spec = &template.json()["spec"];
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        review.refuse(&format!("{field}.spec.containers"), Cause::Required, None, "at least one container");
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            review_container(review, &format!("{field}.spec.{list}[{index}]"), container);
        }
    }
    if let Err(error) = template.typed() {
        review.refuse(field, Cause::Invalid, None, error.to_string());
    }
}

fn review_container(review: &mut Review<'_>, field: &str, container: &Value) {
    let name = container["name"].as_str().unwrap_or_default();
    if !is_dns_label(name) {
        let allowed = "must be 1 to 63 lower case letters, digits and \"-\"";
        review.refuse(&format!("{field}.name"), Cause::Invalid, Some(&json!(name)), allowed);
    }
    let image = container["image"].as_str().unwrap_or_default();
    if image.trim().is_empty() || image.contains(char::is_whitespace) {
        let allowed = "must name an image, without spaces";
        review.refuse(&format!("{field}.image"), Cause::Invalid, Some(&json!(image)), allowed);
    }
}

/// A DNS label as RFC 1123 has it.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(|c| inner(c) || c == '-')
        && text.starts_with(inner)
        && text.ends_with(inner)
}
