//! What keeps pods from serving.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use planner::{Time, roles::Blocking};

use crate::{
    labels,
    runtime::moment,
    units::{self, Member},
};

/// How long a scheduler may take to place a pod before it is reported missing.
const UNSEEN: Duration = Duration::from_secs(30);

/// The first pod that cannot serve, and what is known of why.
pub(crate) fn of<'a>(members: impl IntoIterator<Item = &'a Member>, now: Time) -> Option<Blocking> {
    let member = members.into_iter().find(|member| !units::can_serve(&member.pod))?;
    let why = why(&member.pod, member.created_at, now).chars().take(400).collect();
    Some(Blocking { pod: member.pod.name_any(), why })
}

/// Whether something is wrong with a pod that cannot serve. A pod that only takes its time, or waits for a node, is not
/// in trouble: nodes are made on demand, and models take minutes to load.
pub(crate) fn is_in_trouble(member: &Member, now: Time) -> bool {
    let pod = member.pod.as_ref();
    let begins = |it: &ContainerStatus| {
        let waiting = it.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("PodInitializing"))
    };
    let mut containers = units::containers(pod);
    !units::can_serve(pod)
        && (unseen(pod, member.created_at, now).is_some()
            || containers.any(|it| !begins(it) && trouble(it).is_some()))
}

/// Why a pod does not serve, for people; nothing if it does.
pub fn not_ready(pod: &Pod, now: Time) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is terminating".to_owned());
    }
    if !units::can_serve(pod) {
        let created_at = pod.metadata.creation_timestamp.as_ref().map(|time| moment(time.0));
        return Some(why(pod, created_at, now));
    }
    if units::is_true(units::condition(pod, "Ready")) {
        return None;
    }
    let gate = units::condition(pod, labels::IN_SERVICE).filter(|gate| gate.status != "True");
    let leaves = gate.is_some_and(|gate| units::is_leaving(gate.reason.as_deref()));
    let waits = if leaves {
        "it is out of service and finishes its requests"
    } else {
        "it is ready and waits for the other pods of its group"
    };
    Some(waits.to_owned())
}

fn why(pod: &Pod, created_at: Option<Time>, now: Time) -> String {
    if let Some(unseen) = unseen(pod, created_at, now) {
        return unseen;
    }
    let unscheduled = units::condition(pod, "PodScheduled").filter(|it| it.status == "False");
    if let Some(unscheduled) = unscheduled {
        let why = unscheduled.message.as_deref().or(unscheduled.reason.as_deref());
        return format!("it is not scheduled: {}", why.unwrap_or("no reason is given"));
    }
    // Initial containers are last, and hold all others back.
    let troubles: Vec<String> = units::containers(pod).filter_map(trouble).collect();
    let unready = || {
        let mut waiting = units::containers(pod).filter(|it| !it.ready).map(|it| it.name.as_str());
        waiting.next().map(|name| format!("container {name} is not ready"))
    };
    troubles.into_iter().next_back().or_else(unready).unwrap_or_else(|| "it has not started".to_owned())
}

/// Returns that no scheduler places a pod, if none has for so long that none will.
pub(crate) fn unseen(pod: &Pod, created_at: Option<Time>, now: Time) -> Option<String> {
    let made = created_at?;
    let spec = pod.spec.as_ref()?;
    let looked_at = spec.node_name.is_some() || pod.status.as_ref().is_some_and(|it| it.pod_ip.is_some());
    let is_new = looked_at || units::condition(pod, "PodScheduled").is_some() || now < made + UNSEEN;
    let name = spec.scheduler_name.as_deref().unwrap_or("default-scheduler");
    (!is_new).then(|| format!("scheduler {name} has not handled it; check that it runs"))
}

/// When it is known whether a scheduler places a pod.
pub(crate) fn known_at(member: &Member) -> Option<Time> {
    let made = member.created_at?;
    units::condition(&member.pod, "PodScheduled").is_none().then(|| made + UNSEEN)
}

fn trouble(container: &ContainerStatus) -> Option<String> {
    let name = &container.name;
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().filter(|reason| *reason != "ContainerCreating")?;
        let message = waiting.message.as_deref().unwrap_or_default();
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let exit = last.map(|ended| format!(", exit {}", ended.exit_code)).unwrap_or_default();
        return Some(
            format!("container {name} is waiting: {reason}{exit}: {message}")
                .trim_end_matches([' ', ':'])
                .to_owned(),
        );
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
    ended.map(|ended| format!("container {name} exited with code {}", ended.exit_code))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{pipeline::Inputs, runtime::Cache};

    fn pod(status: &Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"containers": [], "schedulerName": "volcano"},
            "status": status,
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn why_of(status: &Value, now: u64) -> Option<String> {
        let now = Duration::from_secs(now);
        let member = Inputs::at(&Cache::default(), now, |inputs| Member::observe(inputs, &pod(status)));
        of([&member], now).map(|blocking| blocking.why)
    }

    #[test]
    fn a_pod_that_could_serve_says_what_it_waits_for() {
        let gate = |reason: &str| {
            let gate = json!({"type": "segue.dev/in-service", "status": "False", "reason": reason});
            let pod = pod(&json!({"conditions": [{"type": "ContainersReady", "status": "True"}, gate]}));
            not_ready(&pod, Duration::from_secs(99)).unwrap()
        };
        assert_eq!(gate("Leaving"), "it is out of service and finishes its requests");
        assert_eq!(gate("Waits"), "it is ready and waits for the other pods of its group");
        let serves = ["ContainersReady", "Ready"].map(|ty| json!({"type": ty, "status": "True"}));
        assert_eq!(not_ready(&pod(&json!({"conditions": serves})), Duration::from_secs(99)), None);
    }

    #[test]
    fn a_scheduler_that_does_not_run_is_named() {
        let nothing = json!({"phase": "Pending"});
        assert_eq!(why_of(&nothing, 39).unwrap(), "it has not started", "it may still look");
        let why = why_of(&nothing, 40).unwrap();
        assert_eq!(why, "scheduler volcano has not handled it; check that it runs");
        let full = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes have a GPU"}]});
        assert_eq!(why_of(&full, 99).unwrap(), "it is not scheduled: 0/3 nodes have a GPU");
    }

    #[test]
    fn a_crash_loop_is_told_with_the_exit_code_of_its_last_crash() {
        let container = json!({
            "name": "main", "ready": false, "image": "", "imageID": "", "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
        });
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        let why = why_of(&json!({"conditions": scheduled, "containerStatuses": [container]}), 99).unwrap();
        assert_eq!(why, "container main is waiting: CrashLoopBackOff, exit 3: back-off 40s");
    }

    #[test]
    fn the_reason_of_a_waiting_container_is_shown_and_initial_ones_first() {
        let waits = |name: &str| {
            let why = json!({"reason": "ErrImagePull", "message": "no"});
            json!({"name": name, "ready": false, "image": "", "imageID": "", "restartCount": 0,
                "state": {"waiting": why}})
        };
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        let one = json!({"conditions": scheduled, "containerStatuses": [waits("main")]});
        assert_eq!(why_of(&one, 99).unwrap(), "container main is waiting: ErrImagePull: no");
        let both = json!({
            "conditions": scheduled, "containerStatuses": [waits("main")],
            "initContainerStatuses": [waits("load")],
        });
        assert_eq!(why_of(&both, 99).unwrap(), "container load is waiting: ErrImagePull: no");
        let serves = json!({"conditions": [{"type": "ContainersReady", "status": "True"}]});
        assert_eq!(why_of(&serves, 99), None);
    }
}
