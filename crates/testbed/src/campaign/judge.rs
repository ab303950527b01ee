//! The promises, judged on every event of a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use serde_json::Value;

/// What a set allows. While one spec gives way to another, the more lenient of both counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    floor: usize,
    ceiling: usize,
    leader_first: bool,
    deleting: bool,
}

impl Allowed {
    pub(super) fn by(set: &Value) -> Self {
        let spec = &set["spec"];
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default();
        let rolling = &spec["rolloutStrategy"]["rollingUpdateConfiguration"];
        let replicas = number(&spec["replicas"]);
        Self {
            floor: replicas.saturating_sub(number(&rolling["maxUnavailable"])),
            ceiling: replicas + number(&rolling["maxSurge"]),
            leader_first: spec["startupPolicy"] == "LeaderReady",
            deleting: false,
        }
    }

    pub(super) fn deleting() -> Self {
        Self { floor: 0, ceiling: usize::MAX, leader_first: false, deleting: true }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self {
            floor: self.floor.min(other.floor),
            ceiling: self.ceiling.max(other.ceiling),
            leader_first: self.leader_first && other.leader_first,
            deleting: self.deleting || other.deleting,
        }
    }
}

/// What was seen of the pods, and what was wrong with it.
#[derive(Clone, Default)]
pub(super) struct Judge(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    allowed: Allowed,
    /// Pods that somebody else than the controllers deleted or broke.
    harmed: BTreeSet<String>,
    pods: BTreeMap<String, Pod>,
    leaders_once_ready: BTreeSet<String>,
    created: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl Judge {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn allow(&self, allowed: Allowed) {
        self.with(|seen| seen.allowed = allowed);
    }

    pub(super) fn allowed(&self) -> Allowed {
        self.with(|seen| seen.allowed)
    }

    /// Somebody else harms this pod: what follows is not the controllers' choice.
    pub(super) fn harm(&self, pod: &str) {
        self.with(|seen| seen.harmed.insert(pod.to_owned()));
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.with(|seen| seen.violations.clone())
    }

    /// How often each pod was made.
    pub(super) fn created(&self) -> BTreeMap<String, u64> {
        self.with(|seen| seen.created.clone())
    }

    /// Follows all pods for ever.
    pub(super) async fn follow(self, client: Client) {
        let api: Api<Pod> = Api::all(client);
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let pod = match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        self.with(|seen| seen.here(&pod));
                        pod
                    }
                    WatchEvent::Deleted(pod) => {
                        self.with(|seen| drop(seen.pods.remove(&pod.name_any())));
                        pod
                    }
                    _ => continue,
                };
                version = pod.resource_version().unwrap_or_default();
            }
        }
    }
}

const GROUP: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
const INCARNATION: &str = "segue.dev/incarnation";
const GATE: &str = "segue.dev/in-service";

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map(String::as_str).unwrap_or_default()
}

fn incarnation(pod: &Pod) -> u32 {
    pod.annotations().get(INCARNATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn is(pod: &Pod, ty: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

impl Seen {
    fn here(&mut self, pod: &Pod) {
        let name = pod.name_any();
        let before = self.pods.get(&name).filter(|before| before.uid() == pod.uid()).cloned();
        if label(pod, WORKER) == "0" && is(pod, "ContainersReady") {
            self.leaders_once_ready.insert(pod.uid().unwrap_or_default());
        }
        self.pods.insert(name.clone(), pod.clone());
        match before {
            None => self.created(pod),
            Some(before) => self.changed(&before, pod),
        }
        self.mixed();
    }

    fn groups(&self) -> BTreeSet<&str> {
        self.pods.values().map(|pod| label(pod, GROUP)).collect()
    }

    fn serving(&self) -> usize {
        let serves =
            |pod: &&Pod| label(pod, WORKER) == "0" && is(pod, "Ready") && is(pod, GATE) && !is_going(pod);
        self.pods.values().filter(serves).count()
    }

    fn created(&mut self, pod: &Pod) {
        *self.created.entry(pod.name_any()).or_default() += 1;
        let groups = self.groups().len();
        if groups > self.allowed.ceiling {
            let ceiling = self.allowed.ceiling;
            self.violations
                .push(format!("C2: {} makes {groups} groups, {ceiling} are allowed", pod.name_any()));
        }
        if self.allowed.leader_first && label(pod, WORKER) != "0" {
            let leader = self
                .pods
                .values()
                .find(|it| label(it, GROUP) == label(pod, GROUP) && label(it, WORKER) == "0");
            let waited = leader.is_some_and(|leader| {
                self.leaders_once_ready.contains(&leader.uid().unwrap_or_default())
                    || incarnation(leader) > incarnation(pod)
            });
            if !waited {
                self.violations.push(format!("C8: {} was made before its leader was ready", pod.name_any()));
            }
        }
    }

    fn changed(&mut self, before: &Pod, pod: &Pod) {
        let name = pod.name_any();
        let harmed = self.harmed.contains(&name) || self.allowed.deleting;
        if is_going(pod) && !is_going(before) && is(before, GATE) && !harmed {
            self.violations.push(format!("I2: {name} was deleted while it was in service"));
        }
        let leaves = is(before, GATE) && !is(pod, GATE) && is(before, "ContainersReady");
        let (serving, floor) = (self.serving(), self.allowed.floor);
        if leaves && !harmed && serving < floor && !self.is_harmed_group(pod) {
            self.violations
                .push(format!("C1: {name} was taken out and leaves {serving}, the floor is {floor}"));
        }
    }

    /// Whether a pod of its group was harmed: then the group restarts as one.
    fn is_harmed_group(&self, pod: &Pod) -> bool {
        let of_group =
            |name: &String| self.pods.get(name).is_none_or(|it| label(it, GROUP) == label(pod, GROUP));
        self.harmed.iter().any(of_group)
    }

    fn mixed(&mut self) {
        for leader in self.pods.values().filter(|pod| label(pod, WORKER) == "0" && is(pod, "Ready")) {
            let mixed = |pod: &&Pod| {
                label(pod, GROUP) == label(leader, GROUP) && label(pod, REVISION) != label(leader, REVISION)
            };
            if let Some(other) = self.pods.values().find(mixed) {
                self.violations.push(format!(
                    "C6: {} is ready beside {}",
                    leader.name_any(),
                    other.name_any()
                ));
            }
        }
    }
}
