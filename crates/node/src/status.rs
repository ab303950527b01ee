//! A pod's status from what the agent knows. Pure.
use std::{collections::BTreeMap, net::Ipv4Addr};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use crate::{
    address::HOST,
    phase::{Containers, Policy, phase},
    view::{Ended, View},
};

pub(crate) type Views = BTreeMap<String, View>;

/// What the agent knows of a pod on this node.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub views: &'a Views,
    pub address: Ipv4Addr,
    /// Why the pod will never run here: a reason and a message.
    pub refused: Option<(&'a str, &'a str)>,
    /// No container will be started again.
    pub ending: bool,
    pub now: Timestamp,
}

/// The conditions that the agent writes; all others belong to somebody else.
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const INITIALIZED: &str = "Initialized";
const SCHEDULED: &str = "PodScheduled";
const READY_TO_START: &str = "PodReadyToStartContainers";

/// Whether a condition holds, and otherwise why not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Judgement {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Judgement {
    fn yes() -> Self {
        Self { holds: true, reason: None, message: None }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason: Some(reason), message: Some(message) }
    }
}

/// The part of the status that the agent owns, as a strategic merge patch: conditions merge by their type.
pub(crate) fn status(pod: &Pod, facts: &Facts<'_>) -> Value {
    let Some(spec) = &pod.spec else { return json!({}) };
    let old = pod.status.clone().unwrap_or_default();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let policy = Policy::read(spec.restart_policy.as_deref());
    let (init_views, main_views) = (views(init, facts.views), views(&spec.containers, facts.views));
    let phase = if facts.refused.is_some() {
        "Failed"
    } else {
        phase(&Containers { init: &init_views, main: &main_views, policy, ending: facts.ending })
    };
    let over = matches!(phase, "Failed" | "Succeeded");
    let containers_ready = containers_ready(&spec.containers, &main_views, phase);
    let judgements = [
        (
            READY_TO_START,
            if over { Judgement { holds: false, ..Judgement::yes() } } else { Judgement::yes() },
        ),
        (INITIALIZED, initialized(init, &init_views)),
        (READY, ready(pod, &old, &containers_ready, phase)),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, Judgement::yes()),
    ];
    let conditions = judgements.map(|(kind, judgement)| condition(pod, &old, kind, &judgement, facts.now));
    let address = facts.address.to_string();
    json!({
        "phase": phase,
        "reason": facts.refused.map(|(reason, _)| reason),
        "message": facts.refused.map(|(_, message)| message),
        "startTime": old.start_time.clone().unwrap_or(Time(facts.now)),
        "hostIP": HOST.to_string(),
        "hostIPs": [{"ip": HOST.to_string()}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "initContainerStatuses": (!init.is_empty()).then(|| statuses(init, &init_views)),
        "containerStatuses": statuses(&spec.containers, &main_views),
        "conditions": conditions,
    })
}

fn views(containers: &[Container], known: &Views) -> Vec<View> {
    containers.iter().map(|container| known.get(&container.name).cloned().unwrap_or_default()).collect()
}

fn statuses(containers: &[Container], views: &[View]) -> Vec<ContainerStatus> {
    containers.iter().zip(views).map(|(container, view)| view.status(container)).collect()
}

fn names<'a>(containers: impl Iterator<Item = &'a Container>) -> String {
    containers.map(|container| container.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn initialized(init: &[Container], views: &[View]) -> Judgement {
    let pending = init.iter().zip(views).filter(|(_, view)| !view.over().is_some_and(Ended::succeeded));
    let pending = names(pending.map(|(container, _)| container));
    if pending.is_empty() {
        return Judgement::yes();
    }
    Judgement::no("ContainersNotInitialized", format!("containers with incomplete status: [{pending}]"))
}

fn containers_ready(containers: &[Container], views: &[View], phase: &str) -> Judgement {
    match phase {
        "Succeeded" => return Judgement { reason: Some("PodCompleted"), holds: false, message: None },
        "Failed" => return Judgement { reason: Some("PodFailed"), holds: false, message: None },
        _ => {}
    }
    let unready = names(containers.iter().zip(views).filter(|(_, view)| !view.ready).map(|(c, _)| c));
    if unready.is_empty() {
        return Judgement::yes();
    }
    Judgement::no("ContainersNotReady", format!("containers with unready status: [{unready}]"))
}

/// All containers are ready and every readiness gate holds.
fn ready(pod: &Pod, old: &PodStatus, containers: &Judgement, phase: &str) -> Judgement {
    if !containers.holds || phase != "Running" {
        return Judgement { holds: false, ..containers.clone() };
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let conditions = old.conditions.as_deref().unwrap_or_default();
    let closed =
        gates.filter(|gate| !conditions.iter().any(|c| c.type_ == gate.condition_type && c.status == "True"));
    let closed: Vec<_> = closed.map(|gate| format!("{:?}", gate.condition_type)).collect();
    if closed.is_empty() {
        return Judgement::yes();
    }
    let message = format!("the status of pod readiness gates {} is not \"True\"", closed.join(", "));
    Judgement::no("ReadinessGatesNotReady", message)
}

/// Explicit nulls take away what the condition said before.
fn condition(pod: &Pod, old: &PodStatus, kind: &str, judgement: &Judgement, now: Timestamp) -> Value {
    let status = if judgement.holds { "True" } else { "False" };
    let before = old.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let same = before.filter(|before| before.status == status);
    let since =
        same.and_then(|before: &PodCondition| before.last_transition_time.clone()).unwrap_or(Time(now));
    json!({
        "type": kind,
        "status": status,
        "reason": judgement.reason,
        "message": judgement.message,
        "lastTransitionTime": since,
        "observedGeneration": pod.metadata.generation,
    })
}

/// Whether a patch would change anything.
pub(crate) fn differs(patch: &Value, old: Option<&PodStatus>) -> bool {
    let old = serde_json::to_value(old).unwrap_or_default();
    !covers(&old, patch)
}

/// A null in the patch is an absence; lists of named things are compared by their name, others by position.
fn covers(old: &Value, patch: &Value) -> bool {
    match (old, patch) {
        (old, Value::Null) => old.is_null(),
        (Value::Object(old), Value::Object(patch)) => {
            patch.iter().all(|(key, value)| match (key.as_str(), value) {
                ("conditions", Value::Array(conditions)) => {
                    let have = old.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                    conditions.iter().all(|wanted| {
                        have.iter().any(|has| has["type"] == wanted["type"] && covers(has, wanted))
                    })
                }
                // A list is replaced as a whole; what is absent in it must be absent there too.
                ("containerStatuses" | "initContainerStatuses", _) => {
                    old.get(key).unwrap_or(&Value::Null) == value
                }
                _ => covers(old.get(key).unwrap_or(&Value::Null), value),
            })
        }
        (Value::Array(old), Value::Array(patch)) => {
            old.len() == patch.len() && old.iter().zip(patch).all(|(old, patch)| covers(old, patch))
        }
        (old, patch) => old == patch,
    }
}

/// The condition of a pod that has no node.
pub(crate) fn unscheduled(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    let old = pod.status.clone().unwrap_or_default();
    let judgement = Judgement { holds: false, reason: None, message: Some(message.to_owned()) };
    let mut condition = condition(pod, &old, SCHEDULED, &judgement, now);
    condition["reason"] = json!(reason);
    json!({"conditions": [condition]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::State;

    fn pod(old: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c"}], "readinessGates": [{"conditionType": "segue/in"}]},
            "status": old,
        }))
        .unwrap()
    }

    fn written(pod: &Pod, ready: bool, second: i64) -> Value {
        let now = Timestamp::from_second(second).unwrap();
        let state = State::Running { since: Timestamp::UNIX_EPOCH };
        let views = [("c".to_owned(), View { state, ready, started: true, ..View::default() })].into();
        let address = Ipv4Addr::new(127, 64, 0, 1);
        status(pod, &Facts { views: &views, address, refused: None, ending: false, now })
    }

    fn of<'a>(status: &'a Value, kind: &str) -> &'a Value {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap()
    }

    #[test]
    fn a_pod_is_ready_when_its_containers_are_and_its_gates_hold() {
        let closed = written(&pod(&json!({})), true, 0);
        assert_eq!(of(&closed, READY)["reason"], "ReadinessGatesNotReady");
        assert_eq!(of(&closed, CONTAINERS_READY)["status"], "True");
        let gate = json!({"conditions": [{"type": "segue/in", "status": "True"}]});
        let open = pod(&gate);
        assert_eq!(of(&written(&open, true, 0), READY)["status"], "True");
        assert_eq!(of(&written(&open, false, 0), READY)["message"], "containers with unready status: [c]");
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let first = written(&pod(&json!({})), false, 10);
        let again = written(&pod(&first), false, 20);
        assert_eq!(again, first);
        let ready = written(&pod(&first), true, 30);
        assert_eq!(of(&ready, CONTAINERS_READY)["lastTransitionTime"], "1970-01-01T00:00:30Z");
        assert_eq!(of(&ready, INITIALIZED)["lastTransitionTime"], "1970-01-01T00:00:10Z");
    }

    #[test]
    fn what_is_there_is_not_written_again() {
        let first = written(&pod(&json!({})), false, 10);
        let mut stored = pod(&first);
        let foreign = json!([{"type": "segue/in", "status": "False"}]);
        let mut status = serde_json::to_value(&stored.status).unwrap();
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.extend(foreign.as_array().unwrap().iter().cloned());
        stored.status = serde_json::from_value(status).unwrap();
        assert!(!differs(&written(&stored, false, 20), stored.status.as_ref()));
        assert!(differs(&written(&stored, true, 20), stored.status.as_ref()));
    }
}
