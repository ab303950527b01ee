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
