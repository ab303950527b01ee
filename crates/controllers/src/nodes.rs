//! Nodes that are lost, and with them the word of their pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use planner::Time;

use crate::runtime::{Key, World, moment};

/// How long a pod may be overdue on a node that does not report before it is given up: the node may only be slow.
const OVERDUE: Duration = Duration::from_secs(30);

/// When a pod is given up though its node never confirmed that it is gone; nothing for one that is alive or whose node
/// reports. A pod that is not told to go is not given up: whether it runs, nobody knows, and Kubernetes tells it to go
/// when it has waited long enough.
pub(crate) fn given_up_at(pod: &Pod, world: &World) -> Option<Time> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    let node = world.nodes.get(&Key::new("", name));
    if node.is_some_and(|node| is_out_of_service(node)) {
        // A person has said that it is off.
        return Some(Time::ZERO);
    }
    let until = moment(pod.metadata.deletion_timestamp.as_ref()?.0);
    let reports = node.is_some_and(|node| reports(node));
    (!reports).then(|| until + OVERDUE)
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

    fn node(ready: &str, taint: Option<&str>) -> World {
        let taints: Vec<Value> = taint.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
        let node = json!({
            "metadata": {"name": "n", "resourceVersion": "1"},
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        World::with([serde_json::from_value::<Node>(node).unwrap()])
    }

    fn pod(deleted_until: Option<&str>) -> Pod {
        let metadata = json!({"name": "p", "namespace": "ns", "deletionTimestamp": deleted_until});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}}))
            .unwrap()
    }

    const UNTIL: &str = "1970-01-01T00:01:00Z";

    #[test]
    fn only_a_pod_that_is_told_to_go_is_given_up_and_only_where_nobody_reports() {
        let at = |pod: &Pod, world: &World| given_up_at(pod, world).map(|time| time.as_secs());
        assert_eq!(at(&pod(None), &node("Unknown", None)), None);
        assert_eq!(at(&pod(Some(UNTIL)), &node("True", None)), None);
        assert_eq!(at(&pod(Some(UNTIL)), &node("Unknown", None)), Some(90));
        assert_eq!(at(&pod(Some(UNTIL)), &World::default()), Some(90), "the node is gone");
    }

    #[test]
    fn a_node_that_a_person_declared_off_is_lost_at_once() {
        let off = node("Unknown", Some("node.kubernetes.io/out-of-service"));
        assert_eq!(given_up_at(&pod(None), &off), Some(Time::ZERO));
        assert_eq!(given_up_at(&pod(None), &node("Unknown", Some("another"))), None);
    }
}
