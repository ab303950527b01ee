//! The row of a pod: what its containers are at, in one word.
use jiff::Timestamp;
use serde_json::{Value, json};

use super::built_in::{age, list, name, or_none, text};
use super::duration::since;

/// The condition of a row whose pod has ended.
pub(super) fn completed(object: &Value) -> Option<Value> {
    if object.get("kind").is_some_and(|kind| kind != "Pod") || object.pointer("/spec/containers").is_none() {
        return None;
    }
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

pub(super) fn print(pod: &Value, now: Timestamp) -> Vec<Value> {
    let tally = Tally::of(pod);
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts != 0 => format!("{} ({} ago)", tally.restarts, since(last, now)),
        _ => tally.restarts.to_string(),
    };
    vec![
        name(pod),
        format!("{}/{}", tally.ready, tally.containers).into(),
        tally.status.into(),
        restarts.into(),
        age(pod, now),
        or_none(text(pod, "/status/podIPs/0/ip")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        readiness_gates(pod),
    ]
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    let open =
        gates.iter().filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True")).count();
    if gates.is_empty() { "<none>".into() } else { format!("{open}/{}", gates.len()).into() }
}

/// The status of the first condition of a type.
fn condition<'a>(pod: &'a Value, ty: &str) -> Option<&'a str> {
    let mut conditions = list(pod, "/status/conditions").iter();
    conditions.find(|condition| text(condition, "/type") == ty).map(|condition| text(condition, "/status"))
}

/// What the statuses of the containers add up to.
struct Tally<'a> {
    status: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    /// When a container last ended before it was started again.
    last_restart: Option<&'a str>,
}

impl<'a> Tally<'a> {
    fn of(pod: &'a Value) -> Self {
        let init = list(pod, "/spec/initContainers");
        let sidecars = init.iter().filter(|container| is_sidecar(container)).count();
        let mut tally = Self {
            status: base_status(pod),
            ready: 0,
            containers: list(pod, "/spec/containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let initializing = tally.count_init(pod, init);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            tally.restart_with_sidecars(pod, init);
            tally.count_containers(pod);
        }
        if let Some(ending) = ending(pod) {
            tally.status = ending.into();
        }
        tally
    }

    /// Whether an init container is still at work; its state is then that of the pod.
    fn count_init(&mut self, pod: &'a Value, init: &[Value]) -> bool {
        for (n, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.add_restarts(status);
            let terminated = status.pointer("/state/terminated");
            let waiting = text(status, "/state/waiting/reason");
            if terminated.is_some_and(|end| end["exitCode"] == 0) {
                continue;
            }
            if sidecar_status(status, init) && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.status = match terminated {
                Some(end) => format!("Init:{}", end_reason(end)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{n}/{}", init.len()),
            };
            return true;
        }
        false
    }

    /// Once initialized, only the restarts of what keeps running count.
    fn restart_with_sidecars(&mut self, pod: &'a Value, init: &[Value]) {
        (self.restarts, self.last_restart) = (0, None);
        for status in list(pod, "/status/initContainerStatuses") {
            if sidecar_status(status, init) {
                self.add_restarts(status);
            }
        }
    }

    fn count_containers(&mut self, pod: &'a Value) {
        let (mut running, mut failure) = (false, None);
        // From the last to the first: what the first container says is shown.
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.add_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting.into();
            } else if let Some(end) = status.pointer("/state/terminated") {
                self.status = end_reason(end);
                if end["exitCode"] != 0 {
                    failure = Some(self.status.clone());
                }
            } else if status["ready"] == true && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            self.status = match failure {
                _ if running && condition(pod, "Ready") == Some("True") => "Running".into(),
                Some(failure) => failure,
                None if running => "NotReady".into(),
                None => "Completed".into(),
            };
        }
    }

    fn add_restarts(&mut self, status: &'a Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or_default();
        let ended = text(status, "/lastState/terminated/finishedAt");
        // Times of one form and zone: later ones sort later.
        if !ended.is_empty() {
            self.last_restart = self.last_restart.max(Some(ended));
        }
    }
}

fn base_status(pod: &Value) -> String {
    let gated = |condition: &Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    };
    if list(pod, "/status/conditions").iter().any(gated) {
        return "SchedulingGated".into();
    }
    let reason = text(pod, "/status/reason");
    if reason.is_empty() { text(pod, "/status/phase").into() } else { reason.into() }
}

/// What a pod that is being deleted says, whatever its containers do.
fn ending(pod: &Value) -> Option<&'static str> {
    pod.pointer("/metadata/deletionTimestamp")?;
    if text(pod, "/status/reason") == "NodeLost" {
        return Some("Unknown");
    }
    (!matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")).then_some("Terminating")
}

fn end_reason(end: &Value) -> String {
    let reason = text(end, "/reason");
    match end["signal"].as_i64().unwrap_or_default() {
        _ if !reason.is_empty() => reason.into(),
        0 => format!("ExitCode:{}", end["exitCode"]),
        signal => format!("Signal:{signal}"),
    }
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn sidecar_status(status: &Value, init: &[Value]) -> bool {
    init.iter().any(|container| container["name"] == status["name"] && is_sidecar(container))
}
