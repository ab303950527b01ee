//! The status of a pod, from the statuses of its containers. Pure.
use std::{collections::BTreeMap, net::Ipv4Addr};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use crate::{
    container::status::{RuntimeStatus, Terminated},
    network::address::HOST,
    pod::phase::{Containers, Policy, phase},
};

pub(crate) type RuntimeStatuses = BTreeMap<String, RuntimeStatus>;

/// The inputs of a pod's status.
#[derive(Debug, Clone)]
pub(crate) struct StatusInput<'a> {
    pub statuses: &'a RuntimeStatuses,
    pub address: Ipv4Addr,
    /// The reason and message of a rejected pod.
    pub rejected: Option<(&'a str, &'a str)>,
    /// The pod is being deleted and no container runs.
    pub ending: bool,
    pub now: Timestamp,
}

/// The condition types that the agent writes. All others belong to other writers.
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const INITIALIZED: &str = "Initialized";
const SCHEDULED: &str = "PodScheduled";
const READY_TO_START: &str = "PodReadyToStartContainers";

/// Whether a condition is True, and otherwise its reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConditionState {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionState {
    fn yes() -> Self {
        Self { holds: true, reason: None, message: None }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason: Some(reason), message: Some(message) }
    }
}

/// The part of the status that the agent owns, as a strategic merge patch: conditions merge by their type.
pub(crate) fn status(pod: &Pod, input: &StatusInput<'_>) -> Value {
    let Some(spec) = &pod.spec else { return json!({}) };
    let old = pod.status.clone().unwrap_or_default();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let policy = Policy::read(spec.restart_policy.as_deref());
    let (init_statuses, main_statuses) =
        (known(init, input.statuses), known(&spec.containers, input.statuses));
    let phase = if input.rejected.is_some() {
        "Failed"
    } else {
        phase(&Containers { init: &init_statuses, main: &main_statuses, policy, ending: input.ending })
    };
    let last_termination = matches!(phase, "Failed" | "Succeeded");
    let containers_ready = containers_ready(&spec.containers, &main_statuses, phase);
    let states = [
        (
            READY_TO_START,
            if last_termination {
                ConditionState { holds: false, ..ConditionState::yes() }
            } else {
                ConditionState::yes()
            },
        ),
        (INITIALIZED, initialized(init, &init_statuses)),
        (READY, ready(pod, &old, &containers_ready, phase)),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, ConditionState::yes()),
    ];
    let conditions = states.map(|(kind, state)| condition(pod, &old, kind, &state, input.now));
    let address = input.address.to_string();
    json!({
        "phase": phase,
        "reason": input.rejected.map(|(reason, _)| reason),
        "message": input.rejected.map(|(_, message)| message),
        "startTime": old.start_time.clone().unwrap_or(Time(input.now)),
        "hostIP": HOST.to_string(),
        "hostIPs": [{"ip": HOST.to_string()}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "initContainerStatuses": (!init.is_empty()).then(|| to_api(init, &init_statuses)),
        "containerStatuses": to_api(&spec.containers, &main_statuses),
        "conditions": conditions,
    })
}

fn known(containers: &[Container], known: &RuntimeStatuses) -> Vec<RuntimeStatus> {
    containers.iter().map(|container| known.get(&container.name).cloned().unwrap_or_default()).collect()
}

fn to_api(containers: &[Container], statuses: &[RuntimeStatus]) -> Vec<ContainerStatus> {
    containers.iter().zip(statuses).map(|(container, status)| status.to_api(container)).collect()
}

fn names<'a>(containers: impl Iterator<Item = &'a Container>) -> String {
    containers.map(|container| container.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn initialized(init: &[Container], statuses: &[RuntimeStatus]) -> ConditionState {
    let pending = init
        .iter()
        .zip(statuses)
        .filter(|(_, status)| !status.last_termination().is_some_and(Terminated::succeeded));
    let pending = names(pending.map(|(container, _)| container));
    if pending.is_empty() {
        return ConditionState::yes();
    }
    ConditionState::no("ContainersNotInitialized", format!("containers with incomplete status: [{pending}]"))
}

fn containers_ready(containers: &[Container], statuses: &[RuntimeStatus], phase: &str) -> ConditionState {
    match phase {
        "Succeeded" => return ConditionState { reason: Some("PodCompleted"), holds: false, message: None },
        "Failed" => return ConditionState { reason: Some("PodFailed"), holds: false, message: None },
        _ => {}
    }
    let unready = names(containers.iter().zip(statuses).filter(|(_, status)| !status.ready).map(|(c, _)| c));
    if unready.is_empty() {
        return ConditionState::yes();
    }
    ConditionState::no("ContainersNotReady", format!("containers with unready status: [{unready}]"))
}

/// All containers are ready and every readiness gate holds.
fn ready(pod: &Pod, old: &PodStatus, containers: &ConditionState, phase: &str) -> ConditionState {
    if !containers.holds || phase != "Running" {
        return ConditionState { holds: false, ..containers.clone() };
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let conditions = old.conditions.as_deref().unwrap_or_default();
    let closed =
        gates.filter(|gate| !conditions.iter().any(|c| c.type_ == gate.condition_type && c.status == "True"));
    let closed: Vec<_> = closed.map(|gate| format!("{:?}", gate.condition_type)).collect();
    if closed.is_empty() {
        return ConditionState::yes();
    }
    let message = format!("the status of pod readiness gates {} is not \"True\"", closed.join(", "));
    ConditionState::no("ReadinessGatesNotReady", message)
}

/// A condition as a patch. Explicit nulls remove the reason and message of the last state.
fn condition(pod: &Pod, old: &PodStatus, kind: &str, state: &ConditionState, now: Timestamp) -> Value {
    let status = if state.holds { "True" } else { "False" };
    let before = old.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let same = before.filter(|before| before.status == status);
    let since =
        same.and_then(|before: &PodCondition| before.last_transition_time.clone()).unwrap_or(Time(now));
    json!({
        "type": kind,
        "status": status,
        "reason": state.reason,
        "message": state.message,
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
    let state = ConditionState { holds: false, reason: None, message: Some(message.to_owned()) };
    let mut condition = condition(pod, &old, SCHEDULED, &state, now);
    condition["reason"] = json!(reason);
    json!({"conditions": [condition]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::status::State;

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
        let statuses =
            [("c".to_owned(), RuntimeStatus { state, ready, started: true, ..RuntimeStatus::default() })]
                .into();
        let address = Ipv4Addr::new(127, 64, 0, 1);
        status(pod, &StatusInput { statuses: &statuses, address, rejected: None, ending: false, now })
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
