//! What keeps pods from serving.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use planner::{Time, roles::Blocking};

use crate::{
    runtime::moment,
    unit::{self, Gate},
};

/// How long a scheduler may take to look at a pod before it is said that there is none.
const UNSEEN: Duration = Duration::from_secs(30);

/// The first pod that cannot serve, and what is known of why.
pub(crate) fn of(pods: &[Arc<Pod>], now: Time) -> Option<Blocking> {
    let pod = pods.iter().find(|pod| !unit::can_serve(pod))?;
    let why = why(pod, now).chars().take(400).collect();
    Some(Blocking { pod: pod.name_any(), why })
}

/// Whether something is wrong with a pod that cannot serve. One that only takes its time, or waits for a node, is not in
/// trouble: nodes are made on demand, and models take minutes to load.
pub(crate) fn is_in_trouble(pod: &Pod, now: Time) -> bool {
    let begins = |it: &ContainerStatus| {
        let waiting = it.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("PodInitializing"))
    };
    let mut containers = unit::containers(pod);
    !unit::can_serve(pod)
        && (unseen(pod, now).is_some() || containers.any(|it| !begins(it) && trouble(it).is_some()))
}

/// Why a pod does not serve, for people; nothing if it does.
pub fn not_ready(pod: &Pod, now: Time) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it was told to go, and ends".to_owned());
    }
    if !unit::can_serve(pod) {
        return Some(why(pod, now));
    }
    if unit::is_true(unit::condition(pod, "Ready")) {
        return None;
    }
    let leaves = Gate::of(Some(pod)).is_some_and(|gate| gate.is_leaving());
    let waits = if leaves {
        "it leaves service, and finishes its requests"
    } else {
        "it could serve, and waits for the pods that it serves with"
    };
    Some(waits.to_owned())
}

fn why(pod: &Pod, now: Time) -> String {
    if let Some(unseen) = unseen(pod, now) {
        return unseen;
    }
    let unscheduled = unit::condition(pod, "PodScheduled").filter(|it| it.status == "False");
    if let Some(unscheduled) = unscheduled {
        let why = unscheduled.message.as_deref().or(unscheduled.reason.as_deref());
        return format!("it has no place yet: {}", why.unwrap_or("nobody says why"));
    }
    // Initial containers are last, and hold all others back.
    let troubles: Vec<String> = unit::containers(pod).filter_map(trouble).collect();
    let unready = || {
        let mut waiting = unit::containers(pod).filter(|it| !it.ready).map(|it| it.name.as_str());
        waiting.next().map(|name| format!("container {name} is not ready"))
    };
    troubles.into_iter().next_back().or_else(unready).unwrap_or_else(|| "it has not started".to_owned())
}

/// Nobody has looked at a pod for so long that nobody will.
pub(crate) fn unseen(pod: &Pod, now: Time) -> Option<String> {
    let made = moment(pod.metadata.creation_timestamp.as_ref()?.0);
    let spec = pod.spec.as_ref()?;
    let looked_at = spec.node_name.is_some() || pod.status.as_ref().is_some_and(|it| it.pod_ip.is_some());
    let is_new = looked_at || unit::condition(pod, "PodScheduled").is_some() || now < made + UNSEEN;
    let name = spec.scheduler_name.as_deref().unwrap_or("default-scheduler");
    (!is_new).then(|| format!("no scheduler called {name} has looked at it; does one run here?"))
}

/// When it is known whether anybody looks at a pod.
pub(crate) fn known_at(pod: &Pod) -> Option<Time> {
    let made = moment(pod.metadata.creation_timestamp.as_ref()?.0);
    unit::condition(pod, "PodScheduled").is_none().then(|| made + UNSEEN)
}

fn trouble(container: &ContainerStatus) -> Option<String> {
    let name = &container.name;
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().filter(|reason| *reason != "ContainerCreating")?;
        let message = waiting.message.as_deref().unwrap_or_default();
        return Some(format!("container {name} waits: {reason} {message}").trim_end().to_owned());
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
    ended.map(|ended| format!("container {name} ended with code {}", ended.exit_code))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:10Z"},
            "spec": {"containers": [], "schedulerName": "volcano"},
            "status": status,
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn told(status: &Value, now: u64) -> Option<String> {
        of(&[pod(status)], Duration::from_secs(now)).map(|blocking| blocking.why)
    }

    #[test]
    fn a_pod_that_could_serve_says_what_it_waits_for() {
        let gate = |reason: &str| {
            let gate = json!({"type": "segue.dev/in-service", "status": "False", "reason": reason});
            let pod = pod(&json!({"conditions": [{"type": "ContainersReady", "status": "True"}, gate]}));
            not_ready(&pod, Duration::from_secs(99)).unwrap()
        };
        assert_eq!(gate("Leaving"), "it leaves service, and finishes its requests");
        assert_eq!(gate("Waits"), "it could serve, and waits for the pods that it serves with");
        let serves = ["ContainersReady", "Ready"].map(|ty| json!({"type": ty, "status": "True"}));
        assert_eq!(not_ready(&pod(&json!({"conditions": serves})), Duration::from_secs(99)), None);
    }

    #[test]
    fn a_scheduler_that_never_looks_is_named() {
        let nothing = json!({"phase": "Pending"});
        assert_eq!(told(&nothing, 39).unwrap(), "it has not started", "it may still look");
        let why = told(&nothing, 40).unwrap();
        assert_eq!(why, "no scheduler called volcano has looked at it; does one run here?");
        let full = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes have a GPU"}]});
        assert_eq!(told(&full, 99).unwrap(), "it has no place yet: 0/3 nodes have a GPU");
    }

    #[test]
    fn what_holds_a_container_back_is_told_and_initial_ones_first() {
        let waits = |name: &str| {
            let why = json!({"reason": "ErrImagePull", "message": "no"});
            json!({"name": name, "ready": false, "image": "", "imageID": "", "restartCount": 0,
                "state": {"waiting": why}})
        };
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        let one = json!({"conditions": scheduled, "containerStatuses": [waits("main")]});
        assert_eq!(told(&one, 99).unwrap(), "container main waits: ErrImagePull no");
        let both = json!({
            "conditions": scheduled, "containerStatuses": [waits("main")],
            "initContainerStatuses": [waits("load")],
        });
        assert_eq!(told(&both, 99).unwrap(), "container load waits: ErrImagePull no");
        let serves = json!({"conditions": [{"type": "ContainersReady", "status": "True"}]});
        assert_eq!(told(&serves, 99), None);
    }
}
