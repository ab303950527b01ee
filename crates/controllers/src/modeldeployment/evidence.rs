//! What the pods of a version say of why they do not serve.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod};
use kube::ResourceExt;
use planner::Time;

use crate::{
    runtime::moment,
    status::{blocking, wait::cut},
    units,
};

/// The longest evidence that is kept of a pod, in characters.
const LONGEST: usize = 600;

/// The last lines of what a container wrote are told up to so many characters.
const LAST_LINES: usize = 300;

/// What is wrong with the pods of a version, by the pod that is worst off: the reason of the scheduler, or how a container
/// ended and what it wrote last. Nothing where pods only take their time.
pub(super) fn trouble(pods: &[Arc<Pod>], now: Time) -> Option<String> {
    told(pods, |pod| of_scheduler(pod, now).or_else(|| of_containers(pod)))
}

/// What the pods of a version lack that are not ready though nothing is known to be wrong with them.
pub(super) fn unready(pods: &[Arc<Pod>], now: Time) -> Option<String> {
    told(pods, |pod| of_probe(pod).or_else(|| blocking::not_ready(pod, now)))
}

/// What is said of the pod that restarted most often, of those of which something is said.
fn told(pods: &[Arc<Pod>], say: impl Fn(&Pod) -> Option<String>) -> Option<String> {
    let unready = pods.iter().filter(|pod| !units::can_serve(pod));
    let mut said: Vec<_> =
        unready.filter_map(|pod| Some((Reverse(units::restarts(pod)), pod.name_any(), say(pod)?))).collect();
    said.sort();
    let others = said.len().saturating_sub(1);
    let (_, name, what) = said.into_iter().next()?;
    let more = if others > 0 { format!("; {others} more do not serve") } else { String::new() };
    Some(format!("pod {name}: {}{more}", cut(&what, LONGEST)))
}

fn of_scheduler(pod: &Pod, now: Time) -> Option<String> {
    let unscheduled = units::condition(pod, "PodScheduled").filter(|it| it.status == "False");
    let told = unscheduled.and_then(|it| it.message.as_deref().or(it.reason.as_deref()));
    let created_at = pod.metadata.creation_timestamp.as_ref().map(|time| moment(time.0));
    told.map(|why| format!("not scheduled: {why}")).or_else(|| blocking::unseen(pod, created_at, now))
}

/// Init containers are told first: they hold all others back.
fn of_containers(pod: &Pod) -> Option<String> {
    let mut told: Vec<String> = units::containers(pod).filter_map(of_container).collect();
    told.pop()
}

fn of_container(container: &ContainerStatus) -> Option<String> {
    let name = &container.name;
    let states = [container.state.as_ref(), container.last_state.as_ref()];
    let ended = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    if let Some(ended) = ended.filter(|_| !container.ready).find(|it| it.exit_code != 0) {
        let restarts = match container.restart_count {
            0 => String::new(),
            1 => ", restarted once".to_owned(),
            count => format!(", restarted {count} times"),
        };
        return Some(format!("container {name} {}{restarts}{}", ending(ended), last_lines(ended)));
    }
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let begins = |reason: &&str| !matches!(*reason, "ContainerCreating" | "PodInitializing");
    let reason = waiting.reason.as_deref().filter(begins)?;
    let message = waiting.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("container {name} does not start, {reason}{message}"))
}

fn ending(ended: &ContainerStateTerminated) -> String {
    match (ended.reason.as_deref(), ended.signal) {
        (Some(reason), _) if reason != "Error" => {
            format!("ended with exit code {} ({reason})", ended.exit_code)
        }
        (_, Some(signal)) if signal > 0 => {
            format!("ended with exit code {} (signal {signal})", ended.exit_code)
        }
        _ => format!("ended with exit code {}", ended.exit_code),
    }
}

/// The end of what a container wrote: there an error stands.
fn last_lines(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().unwrap_or_default().trim();
    let skipped = message.chars().count().saturating_sub(LAST_LINES);
    let end: String = message.chars().skip(skipped).collect();
    let lines: Vec<&str> = end.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { String::new() } else { format!(": {}", lines.join(" | ")) }
}

/// The readiness probe of a container that runs and is not ready.
fn of_probe(pod: &Pod) -> Option<String> {
    let waits = units::containers(pod)
        .find(|it| !it.ready && it.state.as_ref().is_some_and(|state| state.running.is_some()))?;
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let probe = containers.find(|it| it.name == waits.name).and_then(probe)?;
    Some(format!(
        "container {} runs and is not ready: its readiness probe ({probe}) does not succeed",
        waits.name
    ))
}

fn probe(container: &Container) -> Option<String> {
    let probe = container.readiness_probe.as_ref()?;
    if let Some(http) = &probe.http_get {
        return Some(format!("GET {}", http.path.as_deref().unwrap_or("/")));
    }
    let command = probe.exec.as_ref().and_then(|exec| exec.command.as_ref()).map(|it| it.join(" "));
    let other = if probe.tcp_socket.is_some() { "TCP" } else { "gRPC" };
    Some(command.unwrap_or_else(|| other.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: &Value) -> Arc<Pod> {
        let spec = json!({"nodeName": "n", "containers": [
            {"name": "c", "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}}}]});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
                .unwrap(),
        )
    }

    fn container(restarts: u32, state: &Value, last: &Value) -> Value {
        json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": restarts, "state": state, "lastState": last}]})
    }

    #[test]
    fn the_exit_code_and_the_last_lines_of_the_worst_pod_are_told() {
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ended = |text: &str| json!({"terminated": {"exitCode": 3, "reason": "Error", "message": text}});
        let once = pod("a", &container(1, &waits, &ended("x")));
        let often = pod("b", &container(4, &waits, &ended("loading\nno such model\n")));
        assert_eq!(
            trouble(&[once, often], Duration::ZERO).unwrap(),
            "pod b: container c ended with exit code 3, restarted 4 times: loading | no such model; 1 more do not serve"
        );
        let long = pod("a", &container(0, &ended(&format!("{}END", "x".repeat(5_000))), &Value::Null));
        let told = trouble(&[long], Duration::ZERO).unwrap();
        assert!(told.ends_with("END") && told.len() < 400, "{told}");
    }

    #[test]
    fn a_pod_that_only_takes_its_time_is_no_trouble_and_names_its_probe() {
        let runs = pod("a", &container(0, &json!({"running": {}}), &Value::Null));
        assert_eq!(trouble(&[Arc::clone(&runs)], Duration::ZERO), None);
        assert_eq!(
            unready(&[runs], Duration::ZERO).unwrap(),
            "pod a: container c runs and is not ready: its readiness probe (GET /ready) does not succeed"
        );
        let starts = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(trouble(&[pod("a", &container(0, &starts, &Value::Null))], Duration::ZERO), None);
    }

    #[test]
    fn the_scheduler_and_the_registry_are_quoted() {
        let full = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes have 8 nvidia.com/gpu free"}]});
        assert_eq!(
            trouble(&[pod("a", &full)], Duration::ZERO).unwrap(),
            "pod a: not scheduled: 0/3 nodes have 8 nvidia.com/gpu free"
        );
        let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        assert_eq!(
            trouble(&[pod("a", &container(0, &pull, &Value::Null))], Duration::ZERO).unwrap(),
            "pod a: container c does not start, ImagePullBackOff: no such image"
        );
    }
}
