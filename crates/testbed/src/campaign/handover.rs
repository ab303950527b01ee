//! The promises of a deployment, judged on its whole history in the order of the API.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

/// Everything that happened, by the version at which it did.
#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<BTreeMap<u64, Event>>>);

#[derive(Clone)]
struct Event {
    kind: &'static str,
    gone: bool,
    object: DynamicObject,
}

const KINDS: [(&str, &str, &str); 4] = [
    ("", "v1", "Pod"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("gateway.networking.k8s.io", "v1", "HTTPRoute"),
    ("segue.dev", "v1alpha1", "ModelDeployment"),
];

impl History {
    /// Writes everything down for ever.
    pub(super) async fn follow(self, client: Client) {
        let mut following = tokio::task::JoinSet::new();
        for (group, version, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            following.spawn(self.clone().follow_kind(api, kind));
        }
        while following.join_next().await.is_some() {}
    }

    async fn follow_kind(self, api: Api<DynamicObject>, kind: &'static str) {
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
                // Not installed in this story.
                return;
            };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (gone, object) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (false, object),
                    WatchEvent::Deleted(object) => (true, object),
                    _ => continue,
                };
                version = object.resource_version().unwrap_or_default();
                let at = version.parse().unwrap_or_default();
                self.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(at, Event { kind, gone, object });
            }
        }
    }

    /// The promises that were broken.
    pub(super) fn violations(&self) -> Vec<String> {
        let mut state = State::default();
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for event in events.values() {
            state.learn(event);
        }
        state.violations
    }
}

/// What holds at one moment.
#[derive(Default)]
struct State {
    pods: BTreeMap<String, DynamicObject>,
    weights: BTreeMap<String, u64>,
    /// The version that has each number.
    numbers: BTreeMap<String, String>,
    /// The most lenient of what was asked for while it was not settled.
    floor: usize,
    ceiling: usize,
    spec: (usize, usize),
    violations: Vec<String>,
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default()
}

fn version_of(pod: &DynamicObject) -> &str {
    pod.labels().get("segue.dev/version").map(String::as_str).unwrap_or_default()
}

fn is(pod: &DynamicObject, ty: &str) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == ty && condition["status"] == "True")
}

fn serves(pod: &DynamicObject) -> bool {
    is(pod, "Ready") && is(pod, "segue.dev/in-service") && pod.metadata.deletion_timestamp.is_none()
}

impl State {
    fn learn(&mut self, event: &Event) {
        match event.kind {
            "Pod" => self.pod(event),
            "HTTPRoute" => self.route(event),
            "LeaderWorkerSet" => self.version(event),
            _ => self.deployment(event),
        }
    }

    fn version(&mut self, event: &Event) {
        let hash = version_of(&event.object).to_owned();
        let Some(number) = event.object.annotations().get("segue.dev/revision").cloned() else { return };
        let first = self.numbers.entry(number.clone()).or_insert_with(|| hash.clone());
        if *first != hash {
            self.violations.push(format!("V1: version {hash} has the number {number}, which {first} had"));
        }
    }

    fn deployment(&mut self, event: &Event) {
        let spec = &event.object.data["spec"];
        let replicas = number(&spec["replicas"]);
        let strategy = &spec["strategy"];
        let unavailable = number(&strategy["rolling"]["maxUnavailable"]);
        // A blue-green has both versions as a whole; every other story allows one more.
        let more = if strategy["type"] == "BlueGreen" { replicas } else { 1 };
        let now = (replicas.saturating_sub(unavailable), replicas + more);
        let settled = event.object.data["status"]["phase"] == "Idle"
            && event.object.data["status"]["observedGeneration"].as_i64() == event.object.metadata.generation;
        if event.gone || event.object.metadata.deletion_timestamp.is_some() {
            (self.floor, self.ceiling) = (0, usize::MAX);
        } else if settled || self.spec == (0, 0) {
            (self.floor, self.ceiling) = now;
        } else {
            (self.floor, self.ceiling) = (self.floor.min(now.0), self.ceiling.max(now.1));
        }
        self.spec = now;
    }

    fn ready(&self, version: &str) -> usize {
        self.pods.values().filter(|pod| version_of(pod) == version && serves(pod)).count()
    }

    /// Whether the ready units of a version carry its weight.
    fn carries(&self, version: &str) -> bool {
        let total: u64 = self.weights.values().sum();
        let weight = self.weights.get(version).copied().unwrap_or_default();
        let ready = self.ready(version) as u64;
        ready * total >= weight * self.floor.max(1) as u64
    }

    fn route(&mut self, event: &Event) {
        let backends =
            event.object.data["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
        let weights: BTreeMap<String, u64> = backends
            .iter()
            .filter_map(|backend| {
                let name = backend["name"].as_str()?.strip_prefix("chat-")?.strip_suffix("-serving")?;
                Some((name.to_owned(), backend["weight"].as_u64().unwrap_or(1)))
            })
            .collect();
        if weights == self.weights {
            return;
        }
        let share = |weights: &BTreeMap<String, u64>, version: &str| {
            let total = weights.values().sum::<u64>().max(1);
            weights.get(version).copied().unwrap_or_default() * 1_000_000 / total
        };
        let before = std::mem::replace(&mut self.weights, weights);
        let raised: Vec<String> = self
            .weights
            .keys()
            .filter(|version| share(&self.weights, version) > share(&before, version))
            .cloned()
            .collect();
        for version in raised {
            if !self.carries(&version) && !before.is_empty() {
                let (ready, floor) = (self.ready(&version), self.floor);
                self.violations.push(format!(
                    "T3: the route says {:?} while {ready} units of {version} are ready, {floor} carry everything",
                    self.weights
                ));
            }
        }
    }

    fn pod(&mut self, event: &Event) {
        let name = event.object.name_any();
        if event.gone {
            self.pods.remove(&name);
            return;
        }
        let before = self.pods.insert(name.clone(), event.object.clone());
        let before = before.filter(|before| before.metadata.uid == event.object.metadata.uid);
        let Some(before) = before else {
            let units: BTreeSet<&String> = self.pods.keys().collect();
            if units.len() > self.ceiling {
                let (units, ceiling) = (units.len(), self.ceiling);
                self.violations.push(format!("C2: {name} makes {units} units, {ceiling} are allowed"));
            }
            return;
        };
        // Taken out by choice: it could serve on.
        if serves(&before)
            && !is(&event.object, "segue.dev/in-service")
            && is(&event.object, "ContainersReady")
        {
            let serving = self.pods.values().filter(|pod| serves(pod)).count();
            if serving < self.floor {
                let floor = self.floor;
                self.violations.push(format!("C1: {name} leaves {serving} that serve, the floor is {floor}"));
            }
            let version = version_of(&event.object).to_owned();
            if self.weights.contains_key(&version) && !self.carries(&version) {
                self.violations.push(format!(
                    "T4: {name} leaves {} units of {version} with the weights {:?}",
                    self.ready(&version),
                    self.weights
                ));
            }
        }
        if serves(&before) && event.object.metadata.deletion_timestamp.is_some() && self.ceiling != usize::MAX
        {
            self.violations.push(format!("I2: {name} was deleted while it was in service"));
        }
    }
}

/// A gateway of others: takes every route up a little later, and says so.
pub(super) async fn acknowledge(client: Client) {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"));
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut version = "0".to_owned();
    loop {
        let Ok(events) = all.watch(&WatchParams::default(), &version).await else { return };
        let mut events = events.boxed();
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(route) | WatchEvent::Modified(route)) = event else { continue };
            version = route.resource_version().unwrap_or_default();
            let generation = route.metadata.generation;
            let said = &route.data["status"]["parents"][0]["conditions"][0]["observedGeneration"];
            if said.as_i64() == generation {
                continue;
            }
            let (client, resource) = (client.clone(), resource.clone());
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                let namespace = route.namespace().unwrap_or_default();
                let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
                let condition = |ty: &str| {
                    serde_json::json!({
                        "type": ty, "status": "True", "reason": ty, "message": "", "observedGeneration": generation,
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    })
                };
                let status = serde_json::json!({"status": {"parents": [{
                    "parentRef": route.data["spec"]["parentRefs"][0],
                    "controllerName": "example.com/gateway",
                    "conditions": [condition("Accepted"), condition("ResolvedRefs")],
                }]}});
                let patch = kube::api::Patch::Merge(status);
                drop(api.patch_status(&route.name_any(), &kube::api::PatchParams::default(), &patch).await);
            });
        }
    }
}
