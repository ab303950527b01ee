//! A node without processes: it says of every pod that it runs, and whether it is ready.
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    runtime::{
        WatchStreamExt,
        watcher::{Config, watcher},
    },
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};

type Opinion = Box<dyn Fn(&Pod) -> bool + Send + Sync>;

/// How long things take, and what time it is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From a pod's creation until it is ready.
    pub ready_after: fn(&Pod) -> Duration,
    /// From a pod's deletion until it is gone.
    pub gone_after: Duration,
    /// The time that conditions carry.
    pub now: fn() -> Timestamp,
}

impl Default for Pace {
    fn default() -> Self {
        Self { ready_after: |_| Duration::ZERO, gone_after: Duration::ZERO, now: wall_clock }
    }
}

/// A kubelet that runs nothing. Every pod is Running at once, has an address of its own, and is ready when the test says
/// so and its readiness gates do; a pod that is deleted goes when the test lets it.
///
/// # Guarantees
/// It ends when it is dropped.
pub struct Kubelet {
    opinions: Arc<Opinions>,
    working: JoinHandle<()>,
}

struct Opinions {
    pace: Pace,
    ready: Mutex<Opinion>,
    goes: Mutex<Opinion>,
    changed: Notify,
    addresses: AtomicU32,
}

impl fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelet").finish_non_exhaustive()
    }
}

impl Kubelet {
    /// Writes the status of all pods. By default a pod is ready, and gone after its deletion, at once.
    pub fn start(client: Client) -> Self {
        Self::at_pace(client, Pace::default())
    }

    /// The same, where things take their time.
    pub fn at_pace(client: Client, pace: Pace) -> Self {
        let opinions = Arc::new(Opinions {
            pace,
            ready: Mutex::new(Box::new(|_| true)),
            goes: Mutex::new(Box::new(|_| true)),
            changed: Notify::new(),
            addresses: AtomicU32::new(1),
        });
        let working = tokio::spawn(work(client, Arc::clone(&opinions)));
        Self { opinions, working }
    }

    /// From now on those pods are ready of which this says so.
    pub fn ready_if(&self, ready: impl Fn(&Pod) -> bool + Send + Sync + 'static) {
        *self.opinions.ready.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(ready);
        self.opinions.changed.notify_one();
    }

    /// From now on those pods that are deleted go of which this says so.
    pub fn gone_if(&self, goes: impl Fn(&Pod) -> bool + Send + Sync + 'static) {
        *self.opinions.goes.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(goes);
        self.opinions.changed.notify_one();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.working.abort();
    }
}

async fn work(client: Client, opinions: Arc<Opinions>) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut events = pin!(watcher(pods.clone(), Config::default()).default_backoff().touched_objects());
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => if let Ok(pod) = event { tend(&client, &pod, &opinions).await },
            () = opinions.changed.notified() => {
                let all = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
                for pod in all {
                    tend(&client, &pod, &opinions).await;
                }
            }
            else => return,
        }
    }
}

/// What a kubelet would do for this pod. What is refused has changed meanwhile, and comes again.
async fn tend(client: &Client, pod: &Pod, opinions: &Arc<Opinions>) {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let says = |opinion: &Mutex<Opinion>| opinion.lock().unwrap_or_else(PoisonError::into_inner)(pod);
    if pod.metadata.deletion_timestamp.is_some() {
        if says(&opinions.goes) && has_passed(pod, opinions.pace.gone_after, opinions) {
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            drop(api.delete(&pod.name_any(), &now).await);
        }
        return;
    }
    let ready = says(&opinions.ready) && has_passed(pod, (opinions.pace.ready_after)(pod), opinions);
    let status = status(pod, ready, opinions);
    let Some(mut status) = status else { return };
    status["metadata"]["uid"] = json!(pod.uid());
    drop(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await);
}

/// Whether so much time has passed since a pod was made, or since it was told to go. If not, the pod is processed again at that time.
fn has_passed(pod: &Pod, time: Duration, opinions: &Arc<Opinions>) -> bool {
    if time.is_zero() {
        return true;
    }
    let meta = &pod.metadata;
    let grace = Duration::from_secs(
        meta.deletion_grace_period_seconds.and_then(|it| it.try_into().ok()).unwrap_or(0),
    );
    let told = meta.deletion_timestamp.as_ref().and_then(|until| until.0.checked_sub(grace).ok());
    let since = told.or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0)).unwrap_or_default();
    let passed = (opinions.pace.now)().duration_since(since);
    let left = time.saturating_sub(Duration::try_from(passed).unwrap_or_default());
    if left.is_zero() {
        return true;
    }
    let opinions = Arc::clone(opinions);
    tokio::spawn(async move {
        tokio::time::sleep(left).await;
        opinions.changed.notify_one();
    });
    false
}

/// What is to be said of a pod, if that is anything new.
fn status(pod: &Pod, ready: bool, opinions: &Opinions) -> Option<Value> {
    let is = |ty: &str| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
    };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Failed" | "Succeeded")) {
        // A pod that has ended stays so.
        return None;
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let served = ready && gates.clone().all(|gate| is(&gate.condition_type));
    let running = phase == Some("Running");
    if running && is("ContainersReady") == ready && is("Ready") == served {
        return None;
    }
    let condition = |ty: &str, so: bool| {
        let status = if so { "True" } else { "False" };
        let known = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        let same = known.clone().find(|it| it.type_ == ty && it.status == status);
        let since = same
            .and_then(|it| it.last_transition_time.clone())
            .unwrap_or_else(|| Time((opinions.pace.now)()));
        json!({"type": ty, "status": status, "lastTransitionTime": since})
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name,
            "image": container.image.clone().unwrap_or_default(),
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": {"running": {"startedAt": Time((opinions.pace.now)())}},
        })
    });
    let conditions =
        [("PodScheduled", true), ("Initialized", true), ("ContainersReady", ready), ("Ready", served)];
    let mut status = json!({"status": {
        "phase": "Running",
        "conditions": conditions.map(|(ty, so)| condition(ty, so)),
    }});
    if !running {
        let number = opinions.addresses.fetch_add(1, Relaxed);
        let address = format!("10.{}.{}.{}", number / 62500, number / 250 % 250, number % 250 + 1);
        status["status"]["podIP"] = address.clone().into();
        status["status"]["podIPs"] = json!([{"ip": address}]);
        status["status"]["containerStatuses"] = containers.collect();
    } else if let Some(known) = pod.status.as_ref().and_then(|status| status.container_statuses.clone()) {
        let told = known.into_iter().map(|it| json!(ContainerStatus { ready, ..it }));
        status["status"]["containerStatuses"] = told.collect();
        // What else is said of containers meanwhile is not overwritten.
        status["metadata"]["resourceVersion"] = json!(pod.resource_version());
    }
    Some(status)
}

#[allow(clippy::disallowed_methods, reason = "conditions carry the time of their last transition")]
fn wall_clock() -> Timestamp {
    Timestamp::now()
}
