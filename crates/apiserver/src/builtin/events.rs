//! The two kinds of event are one: the same object under two sets of field names.
use serde_json::{Value, json};

use super::{
    cause::{Cause, each},
    names,
};

/// What core/v1 calls a field, and what events.k8s.io/v1 does.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event of events.k8s.io/v1 as one of core/v1.
pub fn to_core(event: &mut Value) {
    rename(event, "v1", |(core, events)| (events, core));
    fill(event, "core/v1.Event");
}

/// An event of core/v1 as one of events.k8s.io/v1.
pub fn to_events(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |names| names);
    fill(event, "events/v1.Event");
}

fn rename(
    event: &mut Value,
    version: &str,
    way: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Value::Object(map) = event else { return };
    map.insert("apiVersion".to_owned(), Value::from(version));
    for (from, to) in NAMES.iter().copied().map(way) {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// The two structs do not leave out the same zero values.
fn fill(event: &mut Value, of: &str) {
    let Value::Object(map) = event else { return };
    for field in super::structs::fields(of) {
        let value = map.remove(field.name).unwrap_or_else(|| field.ty.zero());
        if !field.omits(&value) {
            map.insert(field.name.to_owned(), value);
        }
    }
}

/// Text that has a longest length: field, most characters, and whether it must be there.
const TEXTS: &[(&str, usize, bool)] =
    &[("reportingInstance", 128, true), ("action", 128, true), ("reason", 128, true)];

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// What is wrong with an event under the names of core/v1; `controller` is what the request calls its reporter.
pub fn validate(event: &Value, controller: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (namespace, object) =
        (text(&event["metadata"], "namespace"), text(&event["involvedObject"], "namespace"));
    let timed = !event["eventTime"].is_null();
    let foreign = match (timed, object) {
        (false, "") => !matches!(namespace, "" | "default"),
        (true, "") => !matches!(namespace, "default" | "kube-system"),
        (false, object) => object != namespace,
        (true, _) => false,
    };
    if foreign {
        let says = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &json!(object), says));
    }
    if timed {
        causes.extend(reported(event, controller));
    }
    causes
}

/// An event with a time is of the new sort, which says who reports it.
fn reported(event: &Value, controller: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let reporter = text(event, "reportingComponent");
    if reporter.is_empty() {
        causes.push(Cause::required(controller, ""));
    }
    causes.extend(each(controller, reporter, names::qualified(reporter)));
    for (field, most, needed) in TEXTS.iter().copied().chain([("message", 1024, false)]) {
        let length = text(event, field).len();
        if length == 0 && needed {
            causes.push(Cause::required(field, ""));
        }
        if length > most {
            causes.push(Cause::invalid(field, &json!(""), &format!("can have at most {most} characters")));
        }
    }
    causes
}

/// What is wrong with an event that was sent as one of events.k8s.io. The refusal names the fields of core/v1.
pub fn validate_new(event: &Value) -> Vec<Cause> {
    let event = &as_core(event);
    let mut causes = validate(event, "reportingController");
    causes.extend(series(event));
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    let ty = text(event, "type");
    if !matches!(ty, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {ty}")));
    }
    let source =
        !text(&event["source"], "component").is_empty() || !text(&event["source"], "host").is_empty();
    let old = [
        ("firstTimestamp", !event["firstTimestamp"].is_null()),
        ("lastTimestamp", !event["lastTimestamp"].is_null()),
        ("count", event["count"].as_i64().unwrap_or_default() != 0),
        ("source", source),
    ];
    let old = old.into_iter().filter(|(_, set)| *set);
    causes.extend(old.map(|(field, _)| Cause::invalid(field, &json!(""), "needs to be unset")));
    causes
}

/// What is wrong with a change of such an event: only its series may go on.
pub fn validate_change(new: &Value, old: &Value) -> Vec<Cause> {
    const FIXED: &[&str] = &[
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    let (new, old) = (&as_core(new), &as_core(old));
    let mut causes = validate(new, "reportingController");
    if new["series"] != old["series"] {
        causes.extend(series(new));
    }
    let changed = FIXED.iter().filter(|field| new[**field] != old[**field]);
    let called =
        |field: &'static str| if field == "reportingComponent" { "reportingController" } else { field };
    causes.extend(changed.map(|field| Cause::immutable(called(field), &new[*field])));
    causes
}

fn as_core(event: &Value) -> Value {
    let mut event = event.clone();
    to_core(&mut event);
    event
}

fn series(event: &Value) -> Vec<Cause> {
    let Some(series) = event.get("series") else { return Vec::new() };
    let mut causes = Vec::new();
    if series["count"].as_i64().unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
    causes
}
