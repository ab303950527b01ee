//! The validation of roles and role bindings.
use serde_json::{Value, json};

use super::{
    BuiltIn,
    cause::{Cause, each},
    names,
};

const GROUP: &str = "rbac.authorization.k8s.io";

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map_or(&[], Vec::as_slice)
}

pub fn role(kind: &BuiltIn, role: &Value) -> Vec<Cause> {
    let rules = list(role, "rules").iter().enumerate();
    rules.flat_map(|(i, rule)| validate_rule(rule, &format!("rules[{i}]"), kind.namespaced)).collect()
}

fn validate_rule(rule: &Value, field: &str, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let empty = |name: &str| list(rule, name).is_empty();
    let at = |name: &str| format!("{field}.{name}");
    if empty("verbs") {
        causes.push(Cause::required(at("verbs"), "verbs must contain at least one value"));
    }
    if !empty("nonResourceURLs") {
        if namespaced {
            let says = "namespaced rules cannot apply to non-resource URLs";
            causes.push(Cause::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], says));
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let says = "rules cannot apply to both regular resources and non-resource URLs";
            causes.push(Cause::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], says));
        }
        return causes;
    }
    if empty("apiGroups") {
        causes.push(Cause::required(at("apiGroups"), "resource rules must supply at least one api group"));
    }
    if empty("resources") {
        causes.push(Cause::required(at("resources"), "resource rules must supply at least one resource"));
    }
    causes
}

pub fn binding(kind: &BuiltIn, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let reference = &new["roleRef"];
    if let Some(old) = old
        && old["roleRef"] != *reference
    {
        // The Go struct has no JSON names.
        let printed = format!(
            r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
            reference["apiGroup"], reference["kind"], reference["name"]
        );
        causes.push(Cause::invalid_text("roleRef", &printed, "cannot change roleRef"));
    }
    if text(reference, "apiGroup") != GROUP {
        causes.push(Cause::unsupported("roleRef.apiGroup", &reference["apiGroup"], &[GROUP]));
    }
    let kinds: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(reference, "kind")) {
        causes.push(Cause::unsupported("roleRef.kind", &reference["kind"], kinds));
    }
    match text(reference, "name") {
        "" => causes.push(Cause::required("roleRef.name", "")),
        name => causes.extend(each("roleRef.name", name, names::path_segment(name))),
    }
    let subjects = list(new, "subjects").iter().enumerate();
    causes
        .extend(subjects.flat_map(|(i, subject)| validate_subject(subject, &format!("subjects[{i}]"), kind)));
    causes
}

fn validate_subject(subject: &Value, field: &str, kind: &BuiltIn) -> Vec<Cause> {
    let mut causes = Vec::new();
    let at = |name: &str| format!("{field}.{name}");
    let name = text(subject, "name");
    if name.is_empty() {
        causes.push(Cause::required(at("name"), ""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                causes.extend(each(&at("name"), name, names::subdomain(name)));
            }
            if !text(subject, "apiGroup").is_empty() {
                causes.push(Cause::unsupported(at("apiGroup"), &subject["apiGroup"], &[""]));
            }
            // A binding in a namespace means the accounts of that namespace.
            if !kind.namespaced && text(subject, "namespace").is_empty() {
                causes.push(Cause::required(at("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if text(subject, "apiGroup") != GROUP {
                causes.push(Cause::unsupported(at("apiGroup"), &subject["apiGroup"], &[GROUP]));
            }
        }
        other => {
            causes.push(Cause::unsupported(at("kind"), &json!(other), &["ServiceAccount", "User", "Group"]));
        }
    }
    causes
}
