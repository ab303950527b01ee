//! Which waiting pods this node takes. A pure decision: the same pods and the same node, the same placements.
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::resources::{Resources, text};

/// A pod that has no node yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub namespace: String,
    pub name: String,
    pub created: Option<Timestamp>,
    pub asks: Resources,
    /// The names of its scheduling gates.
    pub gates: Vec<String>,
    pub selector: BTreeMap<String, String>,
}

/// The node: what it has and what is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub labels: BTreeMap<String, String>,
    pub capacity: Resources,
    pub taken: Resources,
}

/// What is to happen with a waiting pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Bind,
    /// Somebody must lift its gates first.
    Gated(String),
    /// Why it cannot be here now, with the numbers.
    Unschedulable(String),
}

/// Oldest first. A pod that does not fit holds nobody else up, as in kube-scheduler.
pub fn place(waiting: &[Waiting], room: &Room) -> Vec<(Waiting, Verdict)> {
    let mut queue: Vec<&Waiting> = waiting.iter().collect();
    queue.sort_by_key(|pod| (pod.created.is_none(), pod.created, &pod.namespace, &pod.name));
    let mut taken = room.taken.clone();
    let judged = queue.into_iter().map(|pod| {
        let verdict = judge(pod, room, &taken);
        if verdict == Verdict::Bind {
            taken.add(&pod.asks);
        }
        (pod.clone(), verdict)
    });
    judged.collect()
}

fn judge(pod: &Waiting, room: &Room, taken: &Resources) -> Verdict {
    if !pod.gates.is_empty() {
        let gates = pod.gates.join(", ");
        return Verdict::Gated(format!("Scheduling is blocked due to non-empty scheduling gates: {gates}"));
    }
    let mut reasons = mismatches(pod, room);
    reasons.extend(shortages(pod, room, taken));
    if reasons.is_empty() {
        return Verdict::Bind;
    }
    let reasons: Vec<_> = reasons.into_iter().map(|reason| format!("1 {reason}")).collect();
    Verdict::Unschedulable(format!("0/1 nodes are available: {}", reasons.join(", ")))
}

fn mismatches(pod: &Waiting, room: &Room) -> Vec<String> {
    let differing = pod.selector.iter().filter(|(key, value)| room.labels.get(*key) != Some(*value));
    let told = differing.map(|(key, value)| {
        let has = room.labels.get(key).map_or_else(|| "none".to_owned(), |has| format!("{has:?}"));
        format!("node(s) didn't match Pod's node selector: {key}={value:?} asked, the node has {has}")
    });
    told.collect()
}

fn shortages(pod: &Waiting, room: &Room, taken: &Resources) -> Vec<String> {
    let told = pod.asks.0.iter().filter_map(|(name, asked)| {
        let has = room.capacity.get(name);
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

    fn pod(name: &str, created: i64, gpus: &str) -> Waiting {
        Waiting {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            created: Timestamp::from_second(created).ok(),
            asks: Resources::of([("nvidia.com/gpu", gpus), ("pods", "1")]),
            gates: Vec::new(),
            selector: BTreeMap::new(),
        }
    }

    fn room(taken: &str) -> Room {
        Room {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            capacity: Resources::of([("nvidia.com/gpu", "8"), ("pods", "10")]),
            taken: Resources::of([("nvidia.com/gpu", taken)]),
        }
    }

    fn verdicts(pods: &[Waiting], room: &Room) -> Vec<(String, Verdict)> {
        place(pods, room).into_iter().map(|(pod, verdict)| (pod.name, verdict)).collect()
    }

    #[test]
    fn the_oldest_is_first_and_one_that_does_not_fit_holds_nobody_up() {
        let placed = verdicts(&[pod("c", 3, "1"), pod("b", 2, "6"), pod("a", 1, "4")], &room("2"));
        let short = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu: asked 6, free 2 of 8".to_owned();
        let wanted = [("a", Verdict::Bind), ("b", Verdict::Unschedulable(short)), ("c", Verdict::Bind)];
        assert_eq!(placed, wanted.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn pods_of_one_second_go_by_name() {
        let placed = verdicts(&[pod("b", 1, "8"), pod("a", 1, "8")], &room("0"));
        assert_eq!(placed[0], ("a".to_owned(), Verdict::Bind));
        assert!(matches!(placed[1].1, Verdict::Unschedulable(_)));
    }

    #[test]
    fn a_gated_pod_takes_nothing() {
        let gated = Waiting { gates: vec!["segue/gang".to_owned()], ..pod("a", 1, "8") };
        let placed = verdicts(&[gated, pod("b", 2, "8")], &room("0"));
        assert!(matches!(&placed[0].1, Verdict::Gated(why) if why.contains("segue/gang")));
        assert_eq!(placed[1].1, Verdict::Bind);
    }

    #[test]
    fn a_node_selector_must_match() {
        let there = Waiting { selector: [("zone".to_owned(), "a".to_owned())].into(), ..pod("a", 1, "0") };
        let elsewhere =
            Waiting { selector: [("zone".to_owned(), "b".to_owned())].into(), ..pod("b", 1, "0") };
        let placed = verdicts(&[there, elsewhere], &room("0"));
        assert_eq!(placed[0].1, Verdict::Bind);
        assert!(
            matches!(&placed[1].1, Verdict::Unschedulable(why) if why.contains("zone=\"b\" asked, the node has \"a\""))
        );
    }

    #[test]
    fn more_than_is_there_can_be_taken_and_says_so() {
        let placed = verdicts(&[pod("a", 1, "1")], &room("9"));
        assert!(
            matches!(&placed[0].1, Verdict::Unschedulable(why) if why.ends_with("asked 1, free -1 of 8"))
        );
    }
}
