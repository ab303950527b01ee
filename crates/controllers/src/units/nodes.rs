//! Nodes that are lost, and with them the word of their pods.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use planner::Time;

use crate::runtime::{Cache, Key, Times, controllers_of};

/// How long a pod may be overdue on a node that does not report before it is given up: the node may only be slow.
const OVERDUE: Duration = Duration::from_secs(30);

/// When a pod is given up though its node never confirmed that it is gone; nothing for a pod that is alive or whose
/// node reports. A pod that is not being deleted is not given up: it may run, and Kubernetes deletes it when its node
/// has been silent long enough.
pub(crate) fn given_up_at(pod: &Pod, cache: &Cache, times: &Times) -> Option<Time> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    let node = cache.get::<Node>(&Key::new("", name));
    if node.is_some_and(|node| is_out_of_service(node)) {
        // A person has said that it is off.
        return Some(Time::ZERO);
    }
    let deadline = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = Duration::from_secs(
        pod.metadata.deletion_grace_period_seconds.and_then(|it| it.try_into().ok()).unwrap_or_default(),
    );
    // The deletion was requested in the past; its deadline may be in the future, as after a step of the clock.
    let told = times.moment(deadline.checked_sub(grace).unwrap_or(deadline));
    let reports = node.is_some_and(|node| reports(node));
    (!reports).then(|| told + grace + OVERDUE)
}

/// The objects of a kind that have pods on a node.
pub(crate) fn owners(node: &Node, cache: &Cache, kind: &api::Kind) -> Vec<Key> {
    let is_here = |pod: &&Arc<Pod>| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node.metadata.name.as_deref()
    };
    let pods = cache.all::<Pod>().filter(is_here);
    pods.flat_map(|pod| controllers_of(pod.as_ref(), kind)).collect::<BTreeSet<_>>().into_iter().collect()
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.clone().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

fn reports(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(ready: &str, taint: Option<&str>) -> Cache {
        let taints: Vec<Value> = taint.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
        let node = json!({
            "metadata": {"name": "n", "resourceVersion": "1"},
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Cache::with([serde_json::from_value::<Node>(node).unwrap()])
    }

    fn pod(deleted_until: Option<&str>) -> Pod {
        let metadata = json!({"name": "p", "namespace": "ns", "deletionTimestamp": deleted_until});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}}))
            .unwrap()
    }

    const UNTIL: &str = "1970-01-01T00:01:00Z";

    #[test]
    fn only_a_deleted_pod_is_given_up_and_only_where_its_node_does_not_report() {
        let at =
            |pod: &Pod, cache: &Cache| given_up_at(pod, cache, &Times::default()).map(|time| time.as_secs());
        assert_eq!(at(&pod(None), &node("Unknown", None)), None);
        assert_eq!(at(&pod(Some(UNTIL)), &node("True", None)), None);
        assert_eq!(at(&pod(Some(UNTIL)), &node("Unknown", None)), Some(90));
        assert_eq!(at(&pod(Some(UNTIL)), &Cache::default()), Some(90), "the node is gone");
    }

    #[test]
    fn a_node_that_a_person_declared_off_is_lost_at_once() {
        let off = node("Unknown", Some("node.kubernetes.io/out-of-service"));
        assert_eq!(given_up_at(&pod(None), &off, &Times::default()), Some(Time::ZERO));
        let another = node("Unknown", Some("another"));
        assert_eq!(given_up_at(&pod(None), &another, &Times::default()), None);
    }
}
