//! What evictions could take, judged on every event: whichever pods are chosen, no more units go than may be missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::checker::{group, is, is_going, number, role, unit};

/// What must stay of a ModelServing.
#[derive(Clone, Debug, Default)]
struct Minimums {
    /// Of whole groups.
    groups: usize,
    /// Of each role of a group.
    roles: BTreeMap<String, usize>,
    /// The replicas of each role, and the pods of each of them.
    sizes: BTreeMap<String, (usize, usize)>,
}

impl Minimums {
    fn by(object: &Value) -> Self {
        let strategy = &object["spec"]["rolloutStrategy"]["evictionStrategy"];
        let roles = object["spec"]["template"]["roles"].as_array().into_iter().flatten();
        let size = |role: &Value| {
            let name = role["name"].as_str().unwrap_or_default().to_owned();
            (name, (number(&role["replicas"]), 1 + number(&role["workerReplicas"])))
        };
        let least = strategy["roleMinAvailable"].as_object().into_iter().flatten();
        Self {
            groups: number(&strategy["minAvailable"]),
            roles: least.map(|(role, least)| (role.clone(), number(least))).collect(),
            sizes: roles.map(size).collect(),
        }
    }

    /// What could go though it must stay.
    fn broken(&self, pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Option<String> {
        let groups: BTreeSet<&str> = pods.iter().map(group).collect();
        for group in groups.iter().filter(|_| !self.roles.is_empty()) {
            for (role, least) in &self.roles {
                let of_role = |pod: &&Pod| self::group(pod) == *group && self::role(pod) == role;
                let pods: Vec<&Pod> = pods.iter().filter(of_role).collect();
                let ready = self.ready(&pods, role);
                if let Some(lost) = too_many(&pods, budgets, ready, *least) {
                    return Some(format!("{role} of {group}: {lost}"));
                }
            }
        }
        let is_whole = |group: &&&str| {
            let of_group = |pod: &&Pod| self::group(pod) == **group;
            let pods: Vec<&Pod> = pods.iter().filter(of_group).collect();
            self.sizes.iter().all(|(role, (wanted, _))| self.ready(&pods, role) >= *wanted)
        };
        let ready = groups.iter().filter(is_whole).count();
        let all: Vec<&Pod> = pods.iter().collect();
        let lost = too_many(&all, budgets, ready, self.groups).filter(|_| self.groups > 0);
        lost.map(|lost| format!("groups: {lost}"))
    }

    /// The replicas of a role of which no pod is missing.
    fn ready(&self, pods: &[&Pod], role: &str) -> usize {
        let size = self.sizes.get(role).map_or(1, |(_, size)| *size);
        let mut units: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| self::role(pod) == role && is_healthy(pod)) {
            *units.entry(unit(pod)).or_default() += 1;
        }
        units.values().filter(|pods| **pods >= size).count()
    }
}

/// As the eviction API counts.
fn is_healthy(pod: &Pod) -> bool {
    is(pod, "Ready") && !is_going(pod)
}

/// Evictions may choose a pod of another unit each time.
fn too_many(pods: &[&Pod], budgets: &[PodDisruptionBudget], ready: usize, least: usize) -> Option<String> {
    let first = pods.iter().find(|pod| is_healthy(pod))?;
    let mut covering = budgets.iter().filter(|budget| covers(budget, first));
    let may = match (covering.next(), covering.next()) {
        (None, _) => usize::MAX,
        (Some(_), Some(_)) => return Some("two budgets cover a pod: it can never be evicted".to_owned()),
        (Some(budget), None) => {
            let healthy = pods.iter().filter(|pod| covers(budget, pod) && is_healthy(pod)).count();
            let stay = match budget.spec.as_ref().and_then(|spec| spec.min_available.clone()) {
                Some(IntOrString::Int(stay)) => usize::try_from(stay).unwrap_or_default(),
                _ => 0,
            };
            healthy.saturating_sub(stay)
        }
    };
    (may.min(ready) > ready.saturating_sub(least))
        .then(|| format!("{may} pods may be evicted, {ready} units are whole, {least} must stay"))
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    labels.is_some_and(|labels| labels.iter().all(|(name, value)| pod.labels().get(name) == Some(value)))
}

/// What is promised, and what was wrong. While one spec gives way to another, either will do.
#[derive(Clone, Default)]
pub(super) struct Evictions(Arc<Mutex<(Vec<Minimums>, Vec<String>)>>);

impl Evictions {
    fn with<T>(&self, read: impl FnOnce(&mut (Vec<Minimums>, Vec<String>)) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn want(&self, object: &Value) {
        self.with(|(promised, _)| promised.push(Minimums::by(object)));
    }

    /// Only what was wanted last counts from now on.
    pub(super) fn settle(&self) {
        self.with(|(promised, _)| drop(promised.drain(..promised.len().saturating_sub(1))));
    }

    /// Nothing is promised any more.
    pub(super) fn end(&self) {
        self.with(|(promised, _)| promised.clear());
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.with(|(_, violations)| violations.clone())
    }

    /// Checks whenever an object of this kind changes, for ever.
    pub(super) async fn follow<K>(self, client: Client)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(client.clone());
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { continue };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(it) | WatchEvent::Modified(it) | WatchEvent::Deleted(it) = event {
                    version = it.resource_version().unwrap_or_default();
                    self.check(&client).await;
                }
            }
        }
    }

    async fn check(&self, client: &Client) {
        let pods: Api<Pod> = Api::all(client.clone());
        let budgets: Api<PodDisruptionBudget> = Api::all(client.clone());
        let all = ListParams::default();
        let (Ok(pods), Ok(budgets)) = (pods.list(&all).await, budgets.list(&all).await) else { return };
        // Two answers of different times say nothing; another event follows.
        if pods.metadata.resource_version != budgets.metadata.resource_version {
            return;
        }
        self.with(|(promised, violations)| {
            let broken: Vec<String> =
                promised.iter().filter_map(|it| it.broken(&pods.items, &budgets.items)).collect();
            if let Some(first) = broken.first().filter(|_| broken.len() == promised.len()) {
                violations.push(format!("C1: {first}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two replicas of two pods, of which one replica must stay.
    fn minimums() -> Minimums {
        Minimums::by(&json!({"spec": {
            "template": {"roles": [{"name": "decode", "replicas": 2, "workerReplicas": 1}]},
            "rolloutStrategy": {"evictionStrategy": {"protectionLevel": "Role", "roleMinAvailable": {"decode": 1}}},
        }}))
    }

    fn pod(replica: u32, index: u32, ready: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": format!("x-0-decode-{replica}-{index}"), "labels": {
                "modelserving.volcano.sh/group-name": "x-0", "modelserving.volcano.sh/role": "decode",
                "modelserving.volcano.sh/role-id": format!("decode-{replica}"),
            }},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
        .unwrap()
    }

    fn budget(stay: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({"spec": {"minAvailable": stay,
            "selector": {"matchLabels": {"modelserving.volcano.sh/role": "decode"}}}}))
        .unwrap()
    }

    #[test]
    fn one_pod_of_each_replica_is_too_many() {
        let all = [pod(0, 0, true), pod(0, 1, true), pod(1, 0, true), pod(1, 1, true)];
        let judged =
            |pods: &[Pod], budgets: &[PodDisruptionBudget]| minimums().broken(pods, budgets).is_some();
        assert!(!judged(&all, &[budget(3)]));
        assert!(judged(&all, &[budget(2)]));
        assert!(judged(&all, &[]), "nothing protects them");
        assert!(judged(&all, &[budget(3), budget(3)]), "nobody could evict them");
        let hurt = [pod(0, 0, true), pod(0, 1, false), pod(1, 0, true), pod(1, 1, true)];
        assert!(!judged(&hurt, &[budget(3)]));
        assert!(judged(&hurt, &[budget(2)]));
    }
}
