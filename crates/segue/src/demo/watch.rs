//! The service and its pods, watched in the API.

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use api::modeldeployment::{ModelDeployment, ModelDeploymentStatus, Outcome, Phase};
use futures_util::StreamExt;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet};

use super::manifest::REPLICAS;

/// The service as it was last observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub(super) status: ModelDeploymentStatus,
    /// Every pod that exists, those that are ending included: each holds its resources.
    pub(super) pods: BTreeSet<String>,
    /// The most pods that there ever were at once.
    pub(super) peak: usize,
}

impl Observed {
    fn pods_are(&mut self, pods: BTreeSet<String>) {
        self.peak = self.peak.max(pods.len());
        self.pods = pods;
    }
}

/// The watches. They end when this is dropped.
#[derive(Debug)]
pub(super) struct ServiceWatch {
    known: watch::Receiver<Observed>,
    _watches: JoinSet<()>,
}

impl ServiceWatch {
    pub(super) fn follow(client: &Client) -> Self {
        let (known, seen) = watch::channel(Observed::default());
        let known = Arc::new(known);
        let mut watches = JoinSet::new();
        watches.spawn(follow_deployment(Api::default_namespaced(client.clone()), Arc::clone(&known)));
        let pod = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        watches.spawn(follow_pods(Api::default_namespaced_with(client.clone(), &pod), known));
        Self { known: seen, _watches: watches }
    }

    pub(super) fn known(&self) -> Observed {
        self.known.borrow().clone()
    }

    /// Returns once something changed since it was last asked for.
    pub(super) async fn changed(&mut self) {
        if self.known.changed().await.is_err() {
            // Nobody is left to tell of a change.
            std::future::pending::<()>().await;
        }
    }
}

/// Passes every event to `take`, for ever: a watch that breaks is started again.
async fn follow<K>(api: Api<K>, mut take: impl FnMut(Event<K>))
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        if let Ok(event) = event {
            take(event);
        }
    }
}

async fn follow_deployment(api: Api<ModelDeployment>, known: Arc<watch::Sender<Observed>>) {
    follow(api, |event| {
        if let Event::Apply(object) | Event::InitApply(object) = event {
            known.send_modify(|known| known.status = object.status.unwrap_or_default());
        }
    })
    .await;
}

async fn follow_pods(api: Api<DynamicObject>, known: Arc<watch::Sender<Observed>>) {
    let mut pods = BTreeSet::new();
    follow(api, |event| {
        // A list counts when it is complete.
        let listing = matches!(event, Event::Init | Event::InitApply(_));
        match event {
            Event::Init => pods.clear(),
            Event::InitDone => {}
            Event::InitApply(pod) | Event::Apply(pod) => {
                pods.insert(pod.name_any());
            }
            Event::Delete(pod) => {
                pods.remove(&pod.name_any());
            }
        }
        if !listing {
            known.send_modify(|known| known.pods_are(pods.clone()));
        }
    })
    .await;
}

/// Whether every replica of a generation serves and nothing is left to do.
pub(super) fn serves(status: &ModelDeploymentStatus, generation: i64) -> bool {
    let confirmed: Vec<i32> = status.versions.iter().filter_map(|version| version.traffic.applied).collect();
    status.observed_generation >= generation
        && status.phase == Some(Phase::Idle)
        && usize::try_from(status.ready_replicas) == Ok(REPLICAS)
        // Where nothing is confirmed, nothing is told either.
        && (confirmed.is_empty() || confirmed.iter().sum::<i32>() == 100)
}

/// How the rollout of a generation ended, once it did. `before` is the version that users had.
pub(super) fn ended(status: &ModelDeploymentStatus, generation: i64, before: &str) -> Option<Outcome> {
    if status.observed_generation < generation || status.phase != Some(Phase::Idle) {
        return None;
    }
    let moved = status.current_version.as_deref().is_some_and(|current| current != before);
    let of_rollout = status.rollout.as_ref().and_then(|rollout| rollout.outcome);
    let outcome = of_rollout.or_else(|| status.history.first().map(|record| record.outcome))?;
    // What brought the version before is promoted too.
    (moved || outcome != Outcome::Promoted).then_some(outcome)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A rollout to v2, and more to say of it.
    pub(in super::super) fn rollout(field: &str, value: &Value) -> Value {
        let began = "2026-01-01T00:00:00Z";
        let mut rollout = json!({"id": "a", "strategy": "Rolling", "to": "v2", "step": 1,
            "startedAt": began, "stepSince": "2026-01-01T00:00:00.000000Z", "progressedAt": "2026-01-01T00:00:00.000000Z"});
        rollout[field] = value.clone();
        rollout
    }

    fn status(changes: &Value) -> ModelDeploymentStatus {
        let mut status = json!({"observedGeneration": 2, "phase": "Idle", "currentVersion": "v2", "readyReplicas": 4,
            "rollout": rollout("outcome", &json!("Promoted"))});
        for (key, value) in changes.as_object().unwrap() {
            status[key] = value.clone();
        }
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_end_of_a_rollout_is_not_taken_for_that_of_the_one_before() {
        let outcome = |changes: Value| ended(&status(&changes), 2, "v1");
        assert_eq!(outcome(json!({})), Some(Outcome::Promoted));
        assert_eq!(outcome(json!({"observedGeneration": 1})), None, "it was not looked at yet");
        assert_eq!(outcome(json!({"phase": "Rolling"})), None);
        assert_eq!(outcome(json!({"currentVersion": "v1"})), None, "that was v1's own");
        let back = rollout("outcome", &json!("RolledBack"));
        assert_eq!(outcome(json!({"currentVersion": "v1", "rollout": back})), Some(Outcome::RolledBack));
        let record = json!({"id": "a", "to": "v2", "outcome": "Promoted", "reason": "r", "actor": "a",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"});
        assert_eq!(outcome(json!({"rollout": null, "history": [record]})), Some(Outcome::Promoted));
    }

    #[test]
    fn a_service_serves_when_all_replicas_are_ready_and_confirmed() {
        let serves = |changes: Value| serves(&status(&changes), 2);
        let version = |applied: i32| {
            json!([{"name": "v1", "revision": 1, "capacity": {"asked": 4, "granted": 4, "ready": 4},
                "traffic": {"desired": 100, "applied": applied}, "replicas": 4, "readyReplicas": 4}])
        };
        assert!(serves(json!({})), "nothing to confirm");
        assert!(serves(json!({"versions": version(100)})));
        assert!(!serves(json!({"versions": version(75)})));
        assert!(!serves(json!({"versions": version(0)})));
        assert!(!serves(json!({"readyReplicas": 3})));
        assert!(!serves(json!({"observedGeneration": 1})));
    }

    #[test]
    fn the_peak_is_the_most_that_ever_was() {
        let pods = |count: usize| (0..count).map(|pod| pod.to_string()).collect();
        let mut known = Observed::default();
        for count in [4, 5, 3] {
            known.pods_are(pods(count));
        }
        assert_eq!((known.pods.len(), known.peak), (3, 5));
    }
}
