//! The promises of a Ray cluster, judged on every event of a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::campaign::checker::{follow_pods, is, is_going, label, number};

/// What is wanted of a cluster. While one spec gives way to another, the more lenient of both counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::campaign) struct Wanted {
    groups: BTreeMap<String, Group>,
    /// The image of the pods, where another one makes all pods anew.
    recreates: Option<String>,
    tolerant: bool,
    suspended: bool,
    /// Any pod may go.
    all_may_go: bool,
}

/// Replicas of a group, and the pods of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    least: usize,
    most: usize,
    hosts: usize,
}

impl Wanted {
    pub(in crate::campaign) fn by_spec(spec: &Value) -> Self {
        let group = |group: &Value| {
            let bound =
                |field: &str, none: usize| group[field].as_u64().map_or(none, |_| number(&group[field]));
            let replicas = number(&group["replicas"]).max(bound("minReplicas", 0));
            let replicas = replicas.min(bound("maxReplicas", usize::MAX));
            let name = group["groupName"].as_str().unwrap_or_default().to_owned();
            (name, Group { least: replicas, most: replicas, hosts: bound("numOfHosts", 1) })
        };
        let groups = spec["workerGroupSpecs"].as_array().into_iter().flatten().map(group).collect();
        let image = &spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"];
        let suspended = spec["suspend"] == true;
        Self {
            groups,
            recreates: (spec["upgradeStrategy"]["type"] == "Recreate").then(|| image.to_string()),
            tolerant: spec["gcsFaultToleranceOptions"].is_object(),
            suspended,
            all_may_go: suspended,
        }
    }

    /// The cluster is deleted.
    pub(in crate::campaign) fn nothing() -> Self {
        Self { all_may_go: true, ..Self::default() }
    }

    pub(in crate::campaign) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// The number of pods of a cluster that is as it is wanted.
    pub(in crate::campaign) fn pods(&self) -> u64 {
        let workers: usize = self.groups.values().map(|group| group.least * group.hosts).sum();
        if self.suspended { 0 } else { 1 + workers as u64 }
    }

    fn or(mut self, other: Self) -> Self {
        for (name, group) in &mut self.groups {
            let there = other.groups.get(name).copied().unwrap_or_default();
            group.least = group.least.min(there.least);
            group.most = group.most.max(there.most);
        }
        for (name, group) in other.groups {
            self.groups.entry(name).or_insert(Group { least: 0, ..group });
        }
        let recreated = self.recreates.is_some() && self.recreates != other.recreates;
        Self {
            all_may_go: self.all_may_go || other.all_may_go || recreated,
            tolerant: self.tolerant && other.tolerant,
            ..self
        }
    }
}

/// The observed pods, and the violations.
#[derive(Clone, Default)]
pub(in crate::campaign) struct ClusterChecker(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    allowed: Wanted,
    wanted: Option<Wanted>,
    pods: BTreeMap<String, Pod>,
    /// Pods, by uid, that something else than the controllers harmed.
    harmed: BTreeSet<String>,
    /// Pods, by uid, that are replaced within the budget.
    marked: BTreeSet<String>,
    created: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl ClusterChecker {
    fn with<T>(&self, read: impl FnOnce(&mut Seen) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A person asks for this.
    pub(in crate::campaign) fn want(&self, object: &Value) {
        let wanted = Wanted::by_spec(&object["spec"]);
        self.with(|seen| {
            seen.allowed = match seen.wanted {
                None => wanted.clone(),
                Some(_) => seen.allowed.clone().or(wanted.clone()),
            };
            seen.wanted = Some(wanted);
        });
    }

    pub(in crate::campaign) fn allow(&self, wanted: Wanted) {
        self.with(|seen| {
            seen.allowed = wanted;
            seen.wanted = None;
        });
    }

    /// The cluster is as wanted.
    pub(in crate::campaign) fn settle(&self) {
        self.with(|seen| {
            if let Some(wanted) = seen.wanted.clone() {
                seen.allowed = wanted;
            }
        });
    }

    /// Something else than the controllers harms this pod, and with it its replica. Returns its name.
    pub(in crate::campaign) fn harm(&self, pod: &str) -> Result<String, String> {
        self.with(|seen| {
            let harmed = seen.named(pod)?;
            let harmed_with_it = seen.pods.values().filter(|other| {
                let of_lost_head = node_type(&harmed) == "head" && !seen.allowed.tolerant;
                place(other) == place(&harmed) || of_lost_head
            });
            let uids: Vec<String> = harmed_with_it.filter_map(ResourceExt::uid).collect();
            seen.harmed.extend(uids);
            Ok(harmed.name_any())
        })
    }

    pub(super) fn harm_uid(&self, pod: &Pod) {
        self.with(|seen| seen.harmed.extend(pod.uid()));
    }

    pub(super) fn is_harmed(&self, pod: &Pod) -> bool {
        self.with(|seen| pod.uid().is_some_and(|uid| seen.harmed.contains(&uid)))
    }

    /// Another client marks this pod. Returns its name.
    pub(super) fn mark(&self, pod: &str) -> Result<String, String> {
        self.with(|seen| {
            let marked = seen.named(pod)?;
            seen.marked.extend(marked.uid());
            Ok(marked.name_any())
        })
    }

    /// The uids of a pod, or of all `workers`.
    pub(super) fn uids(&self, pods: &str) -> BTreeSet<String> {
        self.with(|seen| {
            let one = seen.named(pods).ok().and_then(|pod| pod.uid());
            let of_worker = |pod: &&Pod| pods == "workers" && node_type(pod) == "worker";
            seen.pods.values().filter(of_worker).filter_map(ResourceExt::uid).chain(one).collect()
        })
    }

    pub(in crate::campaign) fn violations(&self) -> Vec<String> {
        self.with(|seen| seen.violations.clone())
    }

    /// How often each pod was made.
    pub(in crate::campaign) fn created(&self) -> BTreeMap<String, u64> {
        self.with(|seen| seen.created.clone())
    }

    /// Follows all pods for ever.
    pub(in crate::campaign) async fn follow(self, client: Client) {
        let note = |pod: &Pod, is_gone: bool| {
            self.with(|seen| if is_gone { seen.gone(pod) } else { seen.here(pod) });
        };
        follow_pods(client, note).await;
    }
}

pub(super) fn node_type(pod: &Pod) -> &str {
    label(pod, "ray.io/node-type")
}

fn group(pod: &Pod) -> &str {
    label(pod, "ray.io/group")
}

fn replica(pod: &Pod) -> &str {
    label(pod, "ray.io/worker-group-replica-index")
}

/// The head, or a replica of a group.
fn place(pod: &Pod) -> (&str, &str, &str) {
    (node_type(pod), group(pod), replica(pod))
}

fn on_lost_node(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("lost")
}

fn variable<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut variables = pod.spec.as_ref()?.containers.first()?.env.iter().flatten();
    variables.find(|it| it.name == name)?.value.as_deref()
}

impl Seen {
    /// The pod that a story calls so.
    fn named(&self, name: &str) -> Result<Pod, String> {
        let is = |pod: &&Pod| match name.strip_prefix('w') {
            Some(index) => node_type(pod) == "worker" && replica(pod) == index,
            None => node_type(pod) == name,
        };
        let mut pods = self.pods.values().filter(|pod| !is_going(pod));
        pods.find(is).cloned().ok_or_else(|| format!("the story has no pod {name}"))
    }

    fn here(&mut self, pod: &Pod) {
        let name = pod.name_any();
        let before = self.pods.get(&name).filter(|before| before.uid() == pod.uid()).cloned();
        self.pods.insert(name, pod.clone());
        match before {
            None => self.came(pod),
            Some(before) if is_going(pod) && !is_going(&before) => self.left(pod),
            Some(_) => {}
        }
    }

    fn gone(&mut self, pod: &Pod) {
        let before = self.pods.remove(&pod.name_any());
        // One that is deleted without grace was never seen going.
        if before.is_some_and(|before| before.uid() == pod.uid() && !is_going(&before)) {
            self.left(pod);
        }
    }

    fn came(&mut self, pod: &Pod) {
        let name = pod.name_any();
        *self.created.entry(name.clone()).or_default() += 1;
        let there = || self.pods.values().filter(|it| !on_lost_node(it));
        match node_type(pod) {
            "head" => {
                let heads = there().filter(|it| node_type(it) == "head").count();
                if heads > 1 {
                    self.violations.push(format!("C2: {name} makes {heads} heads"));
                }
            }
            "worker" => {
                let workers = there().filter(|it| group(it) == group(pod)).count();
                let most = self.allowed.groups.get(group(pod)).map_or(usize::MAX, |it| it.most * it.hosts);
                if workers > most {
                    let group = group(pod);
                    self.violations.push(format!(
                        "C2: {name} makes {workers} pods of group {group}, {most} are allowed"
                    ));
                }
            }
            "redis-cleanup" => {
                if let Some(other) = there().find(|it| node_type(it) != "redis-cleanup") {
                    let other = other.name_any();
                    self.violations.push(format!("P9: {name} cleans Redis up while {other} is there"));
                }
            }
            _ => {}
        }
        let owner = pod.owner_references().first().map(|owner| owner.uid.as_str());
        let storage = variable(pod, "RAY_external_storage_namespace");
        if self.wanted.as_ref().is_some_and(|wanted| wanted.tolerant) && storage != owner {
            self.violations.push(format!(
                "H4: {name} has the storage namespace {storage:?}, and not the uid of its cluster"
            ));
        }
    }

    /// A pod is deleted, and not by itself.
    fn left(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        if self.allowed.all_may_go || self.harmed.contains(&uid) {
            return;
        }
        let name = pod.name_any();
        match node_type(pod) {
            "head" => self.violations.push(format!("H1: {name} was deleted, and nothing was wrong with it")),
            "worker" if self.marked.contains(&uid) => self.evicted(pod),
            "worker" => {
                let least = self.allowed.groups.get(group(pod)).map_or(0, |it| it.least * it.hosts);
                let of_group =
                    || self.pods.values().filter(|it| group(it) == group(pod) && it.uid() != pod.uid());
                let stay = of_group().filter(|it| !is_going(it)).count();
                let harmed = |it: &&Pod| {
                    it.uid().is_some_and(|uid| self.harmed.contains(&uid) || self.marked.contains(&uid))
                };
                let away = of_group().filter(|it| is_going(it)).filter(harmed).count();
                if stay + away < least {
                    self.violations.push(format!(
                        "C1: {name} was deleted and leaves {stay} of its group, {least} are wanted"
                    ));
                }
            }
            _ => {}
        }
    }

    /// A marked pod is replaced: nine tenths of its group, and all others where it is small, are ready then.
    fn evicted(&mut self, pod: &Pod) {
        let Some(wanted) = self.allowed.groups.get(group(pod)).copied() else { return };
        let of_group = self.pods.values().filter(|it| group(it) == group(pod) && it.uid() != pod.uid());
        let ready = of_group.filter(|it| is(it, "Ready") && !is_going(it)).count();
        let pods = wanted.least * wanted.hosts;
        let budget = (pods / 10).max(1);
        if ready + budget < pods {
            let name = pod.name_any();
            self.violations.push(format!(
                "C1: {name} was evicted and leaves {ready} ready pods of {pods}, the budget is {budget}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A settled cluster of three workers.
    fn settled() -> ClusterChecker {
        let checker = ClusterChecker::default();
        checker.want(&json!({"spec": {
            "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
            "headGroupSpec": {"template": {"spec": {"containers": [{"image": "one"}]}}},
            "workerGroupSpecs": [{"groupName": "g", "replicas": 3}],
        }}));
        checker.with(|seen| {
            seen.here(&pod("head", "", false));
            for index in ["0", "1", "2"] {
                seen.here(&pod("worker", index, false));
            }
        });
        checker
    }

    fn pod(ty: &str, index: &str, is_going: bool) -> Pod {
        let group = if ty == "worker" { "g" } else { "headgroup" };
        let going = is_going.then_some("2026-01-01T00:00:00Z");
        let storage = json!({"name": "RAY_external_storage_namespace", "value": "cluster"});
        let pod = json!({
            "metadata": {
                "name": format!("x-{ty}-{index}"), "uid": format!("{ty}-{index}"), "deletionTimestamp": going,
                "labels": {
                    "ray.io/node-type": ty, "ray.io/group": group, "ray.io/worker-group-replica-index": index,
                },
                "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "x", "uid": "cluster"}],
            },
            "spec": {"containers": [{"name": "c", "env": [storage]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn found(checker: &ClusterChecker) -> Vec<String> {
        checker.violations().iter().map(|it| it[..2].to_owned()).collect()
    }

    #[test]
    fn what_nothing_is_wrong_with_stays() {
        for (ty, index, promise) in [("head", "", "H1"), ("worker", "1", "C1")] {
            let checker = settled();
            checker.with(|seen| seen.here(&pod(ty, index, true)));
            assert_eq!(found(&checker), [promise], "a {ty}");
            let checker = settled();
            checker.harm_uid(&pod(ty, index, false));
            checker.with(|seen| seen.here(&pod(ty, index, true)));
            assert_eq!(found(&checker), Vec::<String>::new(), "a {ty} that was harmed");
        }
    }

    #[test]
    fn marked_workers_go_one_after_the_other() {
        let checker = settled();
        checker.mark("w0").unwrap();
        checker.mark("w2").unwrap();
        checker.with(|seen| seen.here(&pod("worker", "0", true)));
        assert_eq!(found(&checker), Vec::<String>::new());
        checker.with(|seen| seen.here(&pod("worker", "2", true)));
        assert_eq!(found(&checker), ["C1"]);
    }

    #[test]
    fn one_pod_too_many_and_a_cleanup_too_early_are_seen() {
        let checker = settled();
        checker.with(|seen| seen.here(&pod("worker", "3", false)));
        checker.with(|seen| seen.here(&pod("redis-cleanup", "", false)));
        assert_eq!(found(&checker), ["C2", "P9"]);
    }
}
