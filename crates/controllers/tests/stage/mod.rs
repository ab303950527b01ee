//! What the controllers are put on: an embedded API, a kubelet that runs nothing, and a look at what came of it.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod trace;
pub mod warnings;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use apiserver::{
    InProcess, Server,
    store::{History, Store},
};
use controllers::{
    Calls, Clock, Metrics, Outside, Settings,
    adopt::{self, Step},
    kind,
};
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
    client::Body,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use testbed::{Kubelet, Pace, virtual_time};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tower::service_fn;

/// An embedded API of its own, with its collector at work. Its time begins anew, and is that of everything on this thread.
pub async fn embedded_api() -> Client {
    let server = Server::new(Store::memory(History::default()), virtual_time::begin(1), Vec::new());
    server.bootstrap().await.unwrap();
    tokio::spawn(server.clone().run_garbage_collector());
    Client::new(InProcess::new(server), "default")
}

/// Controllers that tell the time of the test.
pub fn settings() -> Settings {
    Settings { embedded: true, clock: Clock::single(virtual_time::now), ..Settings::default() }
}

/// A kubelet that tells the time of the test.
pub fn kubelet(client: &Client) -> Kubelet {
    Kubelet::at_pace(client.clone(), Pace { now: virtual_time::timestamp, ..Pace::default() })
}

pub struct Stage {
    pub client: Client,
    pub kubelet: Kubelet,
    pub running: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    outside: Arc<dyn Outside>,
    settings: Settings,
}

impl Stage {
    pub async fn start() -> Self {
        Self::at_time(virtual_time::now).await
    }

    /// One on which time is what this says.
    pub async fn at_time(clock: fn() -> Duration) -> Self {
        Self::with(Arc::new(Calls::default()), Settings { clock: Clock::single(clock), ..settings() }).await
    }

    pub async fn with(outside: Arc<dyn Outside>, settings: Settings) -> Self {
        let client = embedded_api().await;
        let kubelet = kubelet(&client);
        let mut stage = Self { client, kubelet, running: None, outside, settings };
        for crd in api::KINDS.iter().map(|kind| kind.crd()).chain(gateway::crds()) {
            stage.apply(&crd).await;
        }
        stage.run();
        stage
    }

    /// Starts the controllers.
    pub fn run(&mut self) {
        self.run_with(self.client.clone());
    }

    fn run_with(&mut self, client: Client) {
        let (stop, stopped) = watch::channel(false);
        let running = controllers::run(client, self.settings.clone(), Arc::clone(&self.outside), stopped);
        self.running = Some((stop, tokio::spawn(running)));
    }

    /// Starts the controllers anew, on an API that refuses them these requests (method, path and query) as long as the
    /// returned switch is on.
    pub async fn refuse(
        &mut self,
        refused: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
    ) -> Arc<AtomicBool> {
        self.kill().await;
        let (inner, switch) = (self.client.clone(), Arc::new(AtomicBool::new(true)));
        let is_on = Arc::clone(&switch);
        let refusing = service_fn(move |request: Request<Body>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let says_no = is_on.load(SeqCst) && refused(request.method(), &path);
            let inner = inner.clone();
            async move {
                if !says_no {
                    return inner.send(request).await;
                }
                let status = serde_json::json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid",
                    "message": "not this one",
                });
                let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
                Ok(answer)
            }
        });
        self.run_with(Client::new(refusing, "default"));
        switch
    }

    /// Starts a gateway that takes routes up.
    pub async fn route(&self) {
        let class = serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "segue"},
            "spec": {"controllerName": gateway::Settings::default().controller},
        });
        self.apply(&class).await;
        let client = self.client.clone();
        tokio::spawn(async move {
            gateway::Gateway::new(gateway::Settings::default()).run(client, std::future::pending()).await;
        });
    }

    /// What is left to do to adopt the one object of a kind.
    pub async fn adoption(&self, kind: &str) -> Vec<Step> {
        let adoptable = kind::named(kind).unwrap().adoptable.unwrap();
        let found = adoptable(self.client.clone(), "default".to_owned()).await.unwrap();
        found.into_iter().next().unwrap().steps.unwrap()
    }

    /// Carries a step of an adoption out.
    pub async fn adopt(&self, step: &Step) {
        adopt::carry_out(&self.client, "default", step).await.unwrap();
    }

    /// Ends the controllers wherever they are.
    pub async fn kill(&mut self) {
        if let Some((_, running)) = self.running.take() {
            running.abort();
            drop(running.await);
        }
    }

    pub async fn apply(&self, object: &Value) {
        let api = self.api(object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        if let Err(error) = api.patch(name, &parameters, &Patch::Apply(object)).await {
            panic!("{name}: {error}");
        }
    }

    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if matches!(kind, "CustomResourceDefinition" | "GatewayClass" | "Node") {
            return Api::all_with(self.client.clone(), &resource);
        }
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    fn of_kind(&self, kind: &str) -> Api<DynamicObject> {
        let version = match kind {
            "LeaderWorkerSet" => "leaderworkerset.x-k8s.io/v1",
            "ModelServing" => "workload.serving.volcano.sh/v1alpha1",
            "ModelDeployment" => "segue.dev/v1alpha1",
            "RayCluster" | "RayService" => "ray.io/v1",
            "HTTPRoute" | "GRPCRoute" | "Gateway" => "gateway.networking.k8s.io/v1",
            "Role" | "RoleBinding" => "rbac.authorization.k8s.io/v1",
            "ControllerRevision" => "apps/v1",
            "Event" => "events.k8s.io/v1",
            "Note" => "test.segue.dev/v1",
            "PodDisruptionBudget" => "policy/v1",
            "PodGroup" => "scheduling.volcano.sh/v1beta1",
            _ => "v1",
        };
        self.api(&serde_json::json!({"apiVersion": version, "kind": kind}))
    }

    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let object = self.of_kind(kind).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(object).unwrap())
    }

    pub async fn list(&self, kind: &str) -> Vec<DynamicObject> {
        self.of_kind(kind).list(&ListParams::default()).await.unwrap().items
    }

    /// The names of the objects of a kind.
    pub async fn names(&self, kind: &str) -> Vec<String> {
        self.list(kind).await.iter().map(ResourceExt::name_any).collect()
    }

    /// Which objects of a kind there are.
    pub async fn uids(&self, kind: &str) -> BTreeMap<String, String> {
        self.list(kind).await.into_iter().map(|it| (it.name_any(), it.uid().unwrap())).collect()
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.of_kind(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The status of an object, if it speaks of the spec as it is.
    pub async fn observed(&self, kind: &str, name: &str) -> Option<Value> {
        let object = self.get(kind, name).await?;
        let status = object["status"].clone();
        (status["observedGeneration"] == object["metadata"]["generation"]).then_some(status)
    }

    pub async fn all_pods(&self, set: &str) -> Vec<Pod> {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let label = format!("leaderworkerset.sigs.k8s.io/name={set}");
        api.list(&ListParams::default().labels(&label)).await.unwrap().items
    }

    /// The names of the pods of a set.
    pub async fn pods(&self, set: &str) -> Vec<String> {
        self.all_pods(set).await.iter().map(ResourceExt::name_any).collect()
    }

    /// Follows the pods from now on.
    pub fn trace(&self) -> trace::Trace {
        trace::Trace::begin(self.client.clone())
    }

    /// A container of this pod has restarted once more.
    pub async fn fail(&self, pod: &str) {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut pod = api.get(pod).await.unwrap();
        let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        statuses[0].restart_count += 1;
        api.replace_status(&pod.name_any(), &kube::api::PostParams::default(), &pod).await.unwrap();
    }

    /// How often passes of a controller have failed so.
    pub fn failures(&self, controller: &str, category: &str) -> u64 {
        self.counted(&format!(
            "segue_reconcile_errors_total{{controller=\"{controller}\",category=\"{category}\"}} "
        ))
    }

    /// How often objects of a kind were written so.
    pub fn writes(&self, verb: &str, kind: &str) -> u64 {
        self.counted(&format!("segue_api_writes_total{{verb=\"{verb}\",kind=\"{kind}\"}} "))
    }

    /// The metrics of the controllers, also of those that are started anew.
    pub fn metrics(&self) -> Metrics {
        self.settings.metrics.clone()
    }

    fn counted(&self, name: &str) -> u64 {
        counted(&self.settings.metrics, name)
    }

    /// The newest version of anything.
    pub async fn revision(&self) -> u64 {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let list = api.list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }

    /// Returns when nothing was written for 300 ms. Time is virtual: it passes only while no task can run, so what is not
    /// written by then waits for a timer.
    pub async fn quiet(&self) {
        let mut before = self.revision().await;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = self.revision().await;
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// The names of the pods, sets, Services and revisions that were written after a version.
    pub async fn changed_since(&self, version: u64) -> Vec<String> {
        let kinds = [
            ("v1", "Pod"),
            ("v1", "Service"),
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
            ("apps/v1", "ControllerRevision"),
            ("discovery.k8s.io/v1", "EndpointSlice"),
            ("workload.serving.volcano.sh/v1alpha1", "ModelServing"),
            ("segue.dev/v1alpha1", "ModelDeployment"),
            ("gateway.networking.k8s.io/v1", "HTTPRoute"),
            ("ray.io/v1", "RayService"),
            ("ray.io/v1", "RayCluster"),
        ];
        let mut changed = Vec::new();
        for (version_of, kind) in kinds {
            let api = self.api(&serde_json::json!({"apiVersion": version_of, "kind": kind}));
            for object in api.list(&ListParams::default()).await.unwrap() {
                let at: u64 = object.resource_version().unwrap().parse().unwrap();
                if at > version {
                    changed.push(format!("{} {kind}", object.name_any()));
                }
            }
        }
        changed
    }

    pub async fn condition(&self, set: &str, ty: &str) -> String {
        let object = self.get("LeaderWorkerSet", set).await.unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == ty);
        found.map_or_else(|| "absent".to_owned(), |it| it["status"].as_str().unwrap().to_owned())
    }

    pub async fn scale(&self, set: &str) -> Value {
        serde_json::to_value(self.of_kind("LeaderWorkerSet").get_scale(set).await.unwrap()).unwrap()
    }

    pub async fn scale_to(&self, set: &str, replicas: u32) {
        let patch = Patch::Merge(serde_json::json!({"spec": {"replicas": replicas}}));
        self.of_kind("LeaderWorkerSet").patch_scale(set, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Every state of the objects of a kind from now on, until it is asked for them.
    pub async fn record(&self, kind: &str) -> Record {
        let api = self.of_kind(kind);
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let (stop, mut stopped) = oneshot::channel();
        let recording = tokio::spawn(async move {
            let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            let mut seen = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    Some(event) = events.next() => match event.unwrap() {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            seen.push(serde_json::to_value(object).unwrap());
                        }
                        _ => {}
                    },
                    _ = &mut stopped => return seen,
                }
            }
        });
        Record { stop, recording }
    }

    /// A condition of a set, once it is true.
    pub async fn true_condition(&self, set: &str, ty: &str) -> Option<Value> {
        let object = self.get("LeaderWorkerSet", set).await?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == ty && condition["status"] == "True")
    }

    /// Reads again and again until there is an answer.
    pub async fn eventually<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        mut look: impl FnMut() -> F,
    ) -> T {
        let deadline = tokio::time::Instant::now() + Duration::from_mins(10);
        loop {
            if let Some(answer) = look().await {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// How many passes of a controller have ended.
pub fn passes(metrics: &Metrics, controller: &str) -> u64 {
    counted(metrics, &format!("segue_reconcile_duration_seconds_count{{controller=\"{controller}\"}} "))
}

fn counted(metrics: &Metrics, name: &str) -> u64 {
    let text = metrics.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |count| count.parse().unwrap())
}

pub struct Record {
    stop: oneshot::Sender<()>,
    recording: JoinHandle<Vec<Value>>,
}

impl Record {
    pub async fn end(self) -> Vec<Value> {
        self.stop.send(()).unwrap();
        self.recording.await.unwrap()
    }
}

/// The status of a set once so many groups are ready, all of the newest template and none beyond them.
pub fn updated_groups<'a>(
    stage: &'a Stage,
    name: &'a str,
    groups: u64,
) -> impl FnMut() -> std::pin::Pin<Box<dyn Future<Output = Option<Value>> + Send + 'a>> {
    move || {
        Box::pin(async move {
            let status = stage.observed("LeaderWorkerSet", name).await?;
            let is = |field: &str| status[field].as_u64() == Some(groups);
            let all = is("replicas") && is("readyReplicas") && is("updatedReplicas");
            (all && status["currentRevision"] == status["updateRevision"]).then_some(status)
        })
    }
}

/// The status of a set once so many groups are ready.
pub fn ready_groups<'a>(
    stage: &'a Stage,
    name: &'a str,
    ready: u64,
) -> impl FnMut() -> std::pin::Pin<Box<dyn Future<Output = Option<Value>> + Send + 'a>> {
    move || {
        Box::pin(async move {
            let set = stage.get("LeaderWorkerSet", name).await?;
            (set["status"]["readyReplicas"].as_u64() == Some(ready)).then(|| set["status"].clone())
        })
    }
}
