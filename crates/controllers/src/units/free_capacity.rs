//! What nodes have free for pods that are still to be made, as the scheduler would count it.
//!
//! Counted are requests, taints, node selectors and the condition Ready. Affinity and spreading are not: what they forbid is
//! taken to fit, and the scheduler has the last word.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Node, Pod, PodSpec, Taint, Toleration},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kube::ResourceExt;
use planner::admission::{Amounts, FreeCapacity};
use schema::quantity::Quantity;

/// The number of pods, which nodes limit like a resource.
const PODS: &str = "pods";

/// The pods of one serving unit, as requests and by the nodes that they may run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shape(Vec<PodSpec>);

impl Shape {
    pub(crate) fn of(pods: impl IntoIterator<Item = PodSpec>) -> Self {
        Self(pods.into_iter().collect())
    }

    /// What each of its pods needs of a node, as [`of_nodes`] names it.
    pub(crate) fn amounts(&self) -> Vec<Amounts> {
        let needs = |(index, pod): (usize, &PodSpec)| {
            let mut amounts = requests(pod);
            amounts.insert(place(index), 1);
            amounts
        };
        self.0.iter().enumerate().map(needs).collect()
    }

    /// What all of its pods request together.
    pub(crate) fn requests(&self) -> Amounts {
        let mut total = Amounts::new();
        for pod in &self.0 {
            add(&mut total, &requests(pod));
        }
        total.remove(PODS);
        total
    }
}

/// That a pod of a unit may run on a node is a resource, of which such a node has plenty.
fn place(index: usize) -> String {
    format!("place of pod {index}")
}

/// What nodes have free for units of this shape, now and once the pods are gone that belong to the version before. Pods that
/// go anyway hold nothing. Nothing where no node says what it has: then it is not known.
pub(crate) fn of_nodes<'a>(
    shape: &Shape,
    nodes: impl Iterator<Item = &'a Node>,
    pods: impl Iterator<Item = &'a Pod>,
    belongs: impl Fn(&Pod) -> Belongs,
) -> Option<FreeCapacity> {
    let mut found: BTreeMap<String, (Amounts, Amounts)> = BTreeMap::new();
    for node in nodes {
        if let Some(amounts) = offered(shape, node) {
            found.insert(node.name_any(), (amounts.clone(), amounts));
        }
    }
    if found.is_empty() {
        return None;
    }
    for pod in pods.filter(|pod| holds_resources(pod)) {
        let Some(spec) = &pod.spec else { continue };
        let Some((now, later)) = spec.node_name.as_ref().and_then(|name| found.get_mut(name)) else {
            continue;
        };
        let held = requests(spec);
        match belongs(pod) {
            Belongs::Others => {
                subtract(now, &held);
                subtract(later, &held);
            }
            Belongs::Before => subtract(now, &held),
            Belongs::Going => {}
        }
    }
    let (now, later) = found.into_values().unzip();
    Some(FreeCapacity { now, later })
}

/// Whose resources a pod holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// They are not ours to give.
    Others,
    /// They are free once the version before is gone.
    Before,
    /// They are free before the rollout begins.
    Going,
}

/// Whether a pod has a node and has not ended.
pub(crate) fn holds_resources(pod: &Pod) -> bool {
    let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    is_placed && !matches!(ended, Some("Succeeded" | "Failed"))
}

/// What a node has for pods of this shape; nothing for one that does not say what it has.
fn offered(shape: &Shape, node: &Node) -> Option<Amounts> {
    let allocatable = node.status.as_ref()?.allocatable.as_ref().filter(|it| !it.is_empty())?;
    let mut amounts = thousandths(allocatable);
    amounts.entry(PODS.to_owned()).or_insert(u64::MAX / 2);
    for (index, pod) in shape.0.iter().enumerate() {
        if takes(node, pod) {
            amounts.insert(place(index), u64::MAX / 2);
        }
    }
    Some(amounts)
}

/// Whether the scheduler may put a pod of this spec on a node.
fn takes(node: &Node, pod: &PodSpec) -> bool {
    let spec = node.spec.as_ref();
    let is_open = spec.and_then(|spec| spec.unschedulable) != Some(true);
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.clone().all(|it| it.type_ != "Ready" || it.status == "True");
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_repelled = taints.any(|taint| repels(taint, pod.tolerations.as_deref().unwrap_or_default()));
    let labels = node.labels();
    let mut selector = pod.node_selector.iter().flatten();
    let is_selected = selector.all(|(key, value)| labels.get(key) == Some(value));
    is_open && is_ready && !is_repelled && is_selected
}

fn repels(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let tolerates = |it: &Toleration| {
        let operator = it.operator.as_deref().unwrap_or("Equal");
        let key = it.key.as_deref().unwrap_or_default();
        let same_value =
            it.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        it.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect)
            && (key.is_empty() && operator == "Exists" || key == taint.key)
            && (operator == "Exists" || same_value)
    };
    taint.effect != "PreferNoSchedule" && !tolerations.iter().any(tolerates)
}

/// What a pod holds of a node: what its containers request together, or one of the init containers before them.
fn requests(pod: &PodSpec) -> Amounts {
    let (mut running, mut most) = (Amounts::new(), Amounts::new());
    for container in pod.init_containers.iter().flatten() {
        let asked = asked(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &asked);
            raise(&mut most, &running);
        } else {
            let mut beside = running.clone();
            add(&mut beside, &asked);
            raise(&mut most, &beside);
        }
    }
    for container in &pod.containers {
        add(&mut running, &asked(container));
    }
    raise(&mut most, &running);
    add(&mut most, &pod.overhead.as_ref().map(thousandths).unwrap_or_default());
    most.insert(PODS.to_owned(), 1_000);
    most.retain(|_, amount| *amount > 0);
    most
}

/// What a container requests; its limits count where it requests nothing.
fn asked(container: &Container) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::new() };
    let mut asked = resources.limits.as_ref().map(thousandths).unwrap_or_default();
    asked.extend(resources.requests.as_ref().map(thousandths).unwrap_or_default());
    asked
}

/// Amounts in thousandths, so that a tenth of a core is a whole number.
fn thousandths(list: &BTreeMap<String, ApiQuantity>) -> Amounts {
    let read = |text: &str| u64::try_from(Quantity::parse(text).ok()?.millis()).ok();
    list.iter().filter_map(|(name, quantity)| Some((name.clone(), read(&quantity.0)?))).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let held = total.entry(name.clone()).or_default();
        *held = held.saturating_add(*amount);
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let known = most.entry(name.clone()).or_default();
        *known = (*known).max(*amount);
    }
}

fn subtract(free: &mut Amounts, held: &Amounts) {
    for (name, amount) in held {
        if let Some(left) = free.get_mut(name) {
            *left = left.saturating_sub(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use planner::{
        Budget,
        admission::{Admission, Demand, admit},
    };
    use serde_json::{Value, json};

    use super::*;

    fn node(patch: &Value) -> Node {
        let mut node = json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "status": {"allocatable": {"cpu": "4", "gpu.example/one": "4", "pods": "3"}},
        });
        for (part, value) in patch.as_object().unwrap() {
            node[part] = value.clone();
        }
        serde_json::from_value(node).unwrap()
    }

    fn spec(patch: &Value) -> PodSpec {
        let mut spec =
            json!({"containers": [{"name": "c", "resources": {"requests": {"gpu.example/one": 1}}}]});
        for (part, value) in patch.as_object().unwrap() {
            spec[part] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn pod(patch: &Value, phase: &str) -> Pod {
        let mut spec = spec(patch);
        spec.node_name = Some("n".to_owned());
        let mut pod: Pod = serde_json::from_value(json!({"status": {"phase": phase}})).unwrap();
        pod.spec = Some(spec);
        pod
    }

    /// How many such pods fit on a node beside others.
    fn fit(spec: PodSpec, node: &Node, others: &[Pod]) -> Option<u32> {
        let shape = Shape::of([spec]);
        let room = of_nodes(&shape, [node].into_iter(), others.iter(), |_| Belongs::Others)?;
        let budget = Budget { surge: 0, unavailable: 0 };
        let demand = Demand { unit: shape.amounts(), before: Vec::new(), replicas: 100, live: 0, budget };
        let Admission::Short { room, .. } = admit(&demand, &room) else { panic!("a hundred fit") };
        Some(room)
    }

    #[test]
    fn pods_fit_by_their_requests_and_their_number() {
        assert_eq!(fit(spec(&json!({})), &node(&json!({})), &[]), Some(3), "three pods at most");
        let two = json!({"containers": [{"name": "c", "resources": {"limits": {"gpu.example/one": 2}}}]});
        assert_eq!(fit(spec(&two), &node(&json!({})), &[]), Some(2));
        assert_eq!(fit(spec(&two), &node(&json!({})), &[pod(&json!({}), "Running")]), Some(1));
        assert_eq!(fit(spec(&two), &node(&json!({})), &[pod(&json!({}), "Succeeded")]), Some(2));
        let init = json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]});
        assert_eq!(fit(spec(&init), &node(&json!({})), &[]), Some(2), "an init container holds its share");
        let sidecar = json!({"initContainers": [
            {"name": "i", "restartPolicy": "Always", "resources": {"requests": {"gpu.example/one": 2}}}]});
        assert_eq!(fit(spec(&sidecar), &node(&json!({})), &[]), Some(1));
        let none = json!({"containers": [{"name": "c", "resources": {"requests": {"gpu.example/two": 1}}}]});
        assert_eq!(fit(spec(&none), &node(&json!({})), &[]), Some(0));
    }

    #[test]
    fn nodes_that_take_no_such_pod_have_no_room() {
        let fits = |pod: Value, it: Value| fit(spec(&pod), &node(&it), &[]);
        assert_eq!(fits(json!({"nodeSelector": {"zone": "b"}}), json!({})), Some(0));
        assert_eq!(fits(json!({"nodeSelector": {"zone": "a"}}), json!({})), Some(3));
        assert_eq!(fits(json!({}), json!({"spec": {"unschedulable": true}})), Some(0));
        let taints = json!({"spec": {"taints": [{"key": "gpu", "value": "x", "effect": "NoSchedule"}]}});
        assert_eq!(fits(json!({}), taints.clone()), Some(0));
        for toleration in [
            json!({"key": "gpu", "value": "x"}),
            json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}),
            json!({"operator": "Exists"}),
        ] {
            assert_eq!(fits(json!({"tolerations": [toleration]}), taints.clone()), Some(3));
        }
        let other = json!({"tolerations": [{"key": "gpu", "value": "y"}]});
        assert_eq!(fits(other, taints), Some(0));
        let silent = json!({"status": {"allocatable": {"gpu.example/one": "4"},
            "conditions": [{"type": "Ready", "status": "Unknown"}]}});
        assert_eq!(fits(json!({}), silent), Some(0));
        assert_eq!(fits(json!({}), json!({"status": {}})), None, "it does not say what it has");
    }

    #[test]
    fn what_the_version_before_holds_is_free_later() {
        let shape = Shape::of([spec(&json!({}))]);
        let pods = [pod(&json!({}), "Running"), pod(&json!({}), "Running")];
        let all = |belongs| {
            let node = node(&json!({}));
            let room = of_nodes(&shape, [&node].into_iter(), pods.iter(), |_| belongs).unwrap();
            (room.now[0]["gpu.example/one"], room.later[0]["gpu.example/one"])
        };
        assert_eq!(all(Belongs::Others), (2_000, 2_000));
        assert_eq!(all(Belongs::Before), (2_000, 4_000));
        assert_eq!(all(Belongs::Going), (4_000, 4_000));
    }
}
