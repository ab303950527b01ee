//! The waits and conditions in the status of an object.

use controllers::kind::Served;
use jiff::Timestamp;
use serde_json::Value;

use super::answer::{BlockedPod, Condition, Wait};

/// The most waits, pods and events that are printed.
pub(super) const MOST: usize = 8;

/// Returns the conditions that stop an object, and those that note something about it.
pub(super) fn notable_conditions(served: &Served, object: &Value, of: Option<&str>) -> Vec<Condition> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let told = all.filter(|it| it["status"] == "True").filter_map(|it| {
        let ty = text(&it["type"])?;
        let stalls = served.stalls(&ty);
        (stalls || served.notes(&ty)).then(|| Condition {
            ty,
            of: of.map(str::to_owned),
            message: text(&it["message"]).unwrap_or_default(),
            since: time(&it["lastTransitionTime"]),
            generation: it["observedGeneration"].as_i64(),
            stalls,
        })
    });
    told.collect()
}

/// Returns the waits of the groups of an object, and of their role replicas.
pub(super) fn groups(served: &Served, object: &Value, before: &str, pods: &[BlockedPod]) -> Vec<Wait> {
    let all = object["status"]["groups"].as_array().into_iter().flatten();
    let waits = all.flat_map(|it| {
        let name = format!("{before}group {}", it["index"]);
        let replicas = it["replicas"].as_array().into_iter().flatten().filter_map(|replica| {
            let role = text(&replica["role"])?;
            wait(&format!("{name}, {role}-{}: ", replica["index"]), &replica["waitingFor"])
        });
        let replicas: Vec<Wait> = replicas.collect();
        group(served, object, it, &name, pods).into_iter().chain(replicas)
    });
    waits.take(MOST).collect()
}

fn group(served: &Served, object: &Value, group: &Value, name: &str, pods: &[BlockedPod]) -> Option<Wait> {
    let mut wait = wait(&format!("{name}: "), &group["waitingFor"])?;
    let mut why = None;
    if let Some(step) = (served.progress.step)(object, group) {
        wait.what = format!("{name}, {}", step.what);
        wait.pod = step.pod.or(wait.pod);
        why = step.why;
    }
    if let Some(pod) = &wait.pod {
        // The pod is newer than the status.
        let known = pods.iter().find(|it| it.name == *pod);
        let why = known.map(|it| it.why.clone()).or(why);
        wait.since = known.and_then(|it| it.since).or(wait.since);
        wait.what_for = why.map(|why| format!("pod {pod}: {why}"));
    }
    Some(wait)
}

/// Reads a wait of a status.
pub(super) fn wait(before: &str, wait: &Value) -> Option<Wait> {
    Some(Wait {
        what: format!("{before}{}", text(&wait["subject"])?),
        what_for: None,
        pod: text(&wait["pod"]),
        since: time(&wait["since"]),
        until: time(&wait["deadline"]),
        then: text(&wait["onExpiry"]),
        reason: text(&wait["reason"]),
    })
}

pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
