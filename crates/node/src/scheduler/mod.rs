//! The scheduler: which pending pods are bound to this node. Pure: the same pods and node give the same decisions.
pub(crate) mod cache;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::resources::{Resources, text};

/// A pod that has no node yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPod {
    pub namespace: String,
    pub name: String,
    pub created: Option<Timestamp>,
    pub asks: Resources,
    /// The names of its scheduling gates.
    pub gates: Vec<String>,
    pub selector: BTreeMap<String, String>,
}

/// The node's labels, allocatable resources and allocated resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    pub labels: BTreeMap<String, String>,
    pub capacity: Resources,
    pub taken: Resources,
}

/// The decision about a pending pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Bind,
    /// The pod has scheduling gates: the message.
    Gated(String),
    /// The pod does not fit now: the message, with the numbers.
    Unschedulable(String),
}

/// Decides about the pending pods, oldest first. A pod that does not fit does not block younger ones, as in
/// kube-scheduler.
pub fn schedule(waiting: &[PendingPod], node: &NodeInfo) -> Vec<(PendingPod, Decision)> {
    let mut queue: Vec<&PendingPod> = waiting.iter().collect();
    queue.sort_by_key(|pod| (pod.created.is_none(), pod.created, &pod.namespace, &pod.name));
    let mut taken = node.taken.clone();
    let judged = queue.into_iter().map(|pod| {
        let verdict = judge(pod, node, &taken);
        if verdict == Decision::Bind {
            taken.add(&pod.asks);
        }
        (pod.clone(), verdict)
    });
    judged.collect()
}

fn judge(pod: &PendingPod, node: &NodeInfo, taken: &Resources) -> Decision {
    if !pod.gates.is_empty() {
        let gates = pod.gates.join(", ");
        return Decision::Gated(format!("Scheduling is blocked due to non-empty scheduling gates: {gates}"));
    }
    let mut reasons = mismatches(pod, node);
    reasons.extend(insufficient(pod, node, taken));
    if reasons.is_empty() {
        return Decision::Bind;
    }
    let reasons: Vec<_> = reasons.into_iter().map(|reason| format!("1 {reason}")).collect();
    Decision::Unschedulable(format!("0/1 nodes are available: {}", reasons.join(", ")))
}

fn mismatches(pod: &PendingPod, node: &NodeInfo) -> Vec<String> {
    let differing = pod.selector.iter().filter(|(key, value)| node.labels.get(*key) != Some(*value));
    let told = differing.map(|(key, value)| {
        let has = node.labels.get(key).map_or_else(|| "none".to_owned(), |has| format!("{has:?}"));
        format!("node(s) didn't match Pod's node selector: {key}={value:?} asked, the node has {has}")
    });
    told.collect()
}

fn insufficient(pod: &PendingPod, node: &NodeInfo, taken: &Resources) -> Vec<String> {
    let told = pod.asks.0.iter().filter_map(|(name, asked)| {
        let has = node.capacity.get(name);
        let free = has.minus(taken.get(name));
        let short = !asked.is_zero() && *asked > free;
        short.then(|| {
            let [asked, free, has] = [*asked, free, has].map(|amount| text(name, amount));
            format!("Insufficient {name}: asked {asked}, free {free} of {has}")
        })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, created: i64, gpus: &str) -> PendingPod {
        PendingPod {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            created: Timestamp::from_second(created).ok(),
            asks: Resources::of([("nvidia.com/gpu", gpus), ("pods", "1")]),
            gates: Vec::new(),
            selector: BTreeMap::new(),
        }
    }

    fn node(taken: &str) -> NodeInfo {
        NodeInfo {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            capacity: Resources::of([("nvidia.com/gpu", "8"), ("pods", "10")]),
            taken: Resources::of([("nvidia.com/gpu", taken)]),
        }
    }

    fn verdicts(pods: &[PendingPod], node: &NodeInfo) -> Vec<(String, Decision)> {
        schedule(pods, node).into_iter().map(|(pod, verdict)| (pod.name, verdict)).collect()
    }

    #[test]
    fn the_oldest_is_first_and_one_that_does_not_fit_holds_nobody_up() {
        let decided = verdicts(&[pod("c", 3, "1"), pod("b", 2, "6"), pod("a", 1, "4")], &node("2"));
        let short = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu: asked 6, free 2 of 8".to_owned();
        let wanted = [("a", Decision::Bind), ("b", Decision::Unschedulable(short)), ("c", Decision::Bind)];
        assert_eq!(decided, wanted.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn pods_of_one_second_go_by_name() {
        let decided = verdicts(&[pod("b", 1, "8"), pod("a", 1, "8")], &node("0"));
        assert_eq!(decided[0], ("a".to_owned(), Decision::Bind));
        assert!(matches!(decided[1].1, Decision::Unschedulable(_)));
    }

    #[test]
    fn a_gated_pod_takes_nothing() {
        let gated = PendingPod { gates: vec!["segue/gang".to_owned()], ..pod("a", 1, "8") };
        let decided = verdicts(&[gated, pod("b", 2, "8")], &node("0"));
        assert!(matches!(&decided[0].1, Decision::Gated(why) if why.contains("segue/gang")));
        assert_eq!(decided[1].1, Decision::Bind);
    }

    #[test]
    fn a_node_selector_must_match() {
        let there = PendingPod { selector: [("zone".to_owned(), "a".to_owned())].into(), ..pod("a", 1, "0") };
        let elsewhere =
            PendingPod { selector: [("zone".to_owned(), "b".to_owned())].into(), ..pod("b", 1, "0") };
        let decided = verdicts(&[there, elsewhere], &node("0"));
        assert_eq!(decided[0].1, Decision::Bind);
        assert!(
            matches!(&decided[1].1, Decision::Unschedulable(why) if why.contains("zone=\"b\" asked, the node has \"a\""))
        );
    }

    #[test]
    fn more_than_is_there_can_be_taken_and_says_so() {
        let decided = verdicts(&[pod("a", 1, "1")], &node("9"));
        assert!(
            matches!(&decided[0].1, Decision::Unschedulable(why) if why.ends_with("asked 1, free -1 of 8"))
        );
    }
}
