//! One run: a story, told to the controllers under a plan.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use apiserver::{InProcess, Server, store};
use controllers::{Calls, Clock, Protections, Settings, adopt, kind};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    checker::{Allowed, Checker},
    clusters::{ClusterChecker, Machine, Wanted},
    end::end_state,
    evictions::Evictions,
    fault::{Plan, Shared, Way},
    handover::{History, acknowledge},
    phases::Phases,
    workload::{Step, Subject, Workload},
};
use crate::{Kubelet, Pace, inherited::inherit, virtual_time};

/// What became of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The writes of the controllers.
    pub writes: u64,
    /// The promises that were broken.
    pub violations: Vec<String>,
    /// How often each fault was reached.
    pub reached: BTreeMap<String, u64>,
    /// Everything that there was at the end, without what differs from run to run.
    end: BTreeMap<String, Value>,
    created: BTreeMap<String, u64>,
    /// The digest of everything that the controllers wrote and saw, in its order: two runs with the same digest are
    /// the same run.
    pub digest: u64,
}

impl Outcome {
    /// What is not as it is without faults.
    pub(super) fn differs_from(&self, reference: &Self) -> Option<String> {
        if self.writes > 0 && self.created.values().sum::<u64>() > reference.created.values().sum::<u64>() + 4
        {
            let (made, should) =
                (self.created.values().sum::<u64>(), reference.created.values().sum::<u64>());
            return Some(format!("P2: {made} pods were made, {should} are without faults"));
        }
        let names: std::collections::BTreeSet<&String> =
            self.end.keys().chain(reference.end.keys()).collect();
        let differs = names.into_iter().find(|name| self.end.get(*name) != reference.end.get(*name))?;
        let text =
            |outcome: &Self| outcome.end.get(differs).map_or_else(|| "nothing".to_owned(), Value::to_string);
        Some(format!("P2: {differs} is {} and should be {}", text(self), text(reference)))
    }
}

/// How long a story may take to settle, in its own time.
const PATIENCE: Duration = Duration::from_mins(30);

/// How long nothing may happen before all is said to be done: longer than the controllers wait for an answer.
const QUIET: Duration = Duration::from_secs(45);

/// How long a check holds while the controllers write nothing.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Only what a story is about: controllers do without the others. Made once, because that takes longer than some runs.
fn definitions(subject: Subject) -> &'static [Value] {
    static SET: LazyLock<Vec<Value>> = LazyLock::new(|| vec![api::leaderworkerset::KIND.crd()]);
    static SERVING: LazyLock<Vec<Value>> = LazyLock::new(|| vec![api::modelserving::KIND.crd()]);
    static CLUSTER: LazyLock<Vec<Value>> = LazyLock::new(|| vec![api::raycluster::KIND.crd()]);
    static DEPLOYMENT: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let ours = [api::leaderworkerset::KIND.crd(), api::modeldeployment::KIND.crd()];
        ours.into_iter().chain(gateway::crds()).collect()
    });
    match subject {
        Subject::Set => &SET,
        Subject::Serving => &SERVING,
        Subject::Cluster => &CLUSTER,
        Subject::Deployment => &DEPLOYMENT,
    }
}

/// Runs a story under a plan.
pub fn run(workload: &Workload, plan: &Plan, seed: u64) -> Outcome {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(run_story(workload, plan, seed)),
        Err(error) => Outcome { violations: vec![format!("no runtime: {error}")], ..Outcome::default() },
    }
}

async fn run_story(workload: &Workload, plan: &Plan, seed: u64) -> Outcome {
    let mut run = match Run::begin(workload, plan, seed).await {
        Ok(run) => run,
        Err(error) => return Outcome { violations: vec![error], ..Outcome::default() },
    };
    for step in &workload.steps {
        if let Err(why) = run.step(step).await {
            run.violations.push(why);
            break;
        }
    }
    run.end().await
}

struct Run {
    server: Server,
    client: Client,
    shared: Arc<Shared>,
    checker: Checker,
    clusters: ClusterChecker,
    machine: Machine,
    evictions: Evictions,
    history: History,
    phases: Phases,
    subject: Subject,
    violations: Vec<String>,
    plan: Plan,
    /// `None` while the story prepares what existed before the leaders.
    leaders: Option<Leaders>,
    wanted: Option<Allowed>,
    kubelet: Kubelet,
    helpers: JoinSet<()>,
}

/// The controllers that run, and those that come after one that died.
struct Leaders {
    stop: watch::Sender<bool>,
    keeping: JoinHandle<()>,
}

impl Run {
    async fn begin(workload: &Workload, plan: &Plan, seed: u64) -> Result<Self, String> {
        let subject = workload.subject();
        let store = store::Store::memory(store::History::default());
        let server = Server::new(store, virtual_time::begin(seed), Vec::new());
        server.bootstrap().await.map_err(|refusal| refusal.message().to_owned())?;
        let client = Client::new(InProcess::new(server.clone()), "default");
        for definition in definitions(subject) {
            apply(&client, definition).await?;
        }
        if workload.says("/spec/schedulerName", "volcano") {
            apply(&client, &crate::pod_groups(true)).await?;
        }
        let checker = Checker::default();
        let mut helpers = JoinSet::new();
        helpers.spawn(server.clone().run_garbage_collector());
        let history = History::default();
        let (clusters, machine) = (ClusterChecker::default(), Machine::default());
        match subject {
            Subject::Deployment => {
                helpers.spawn(history.clone().follow(client.clone()));
                helpers.spawn(acknowledge(client.clone()));
            }
            Subject::Cluster => {
                helpers.spawn(clusters.clone().follow(client.clone()));
                helpers.spawn(machine.clone().follow(client.clone(), clusters.clone()));
            }
            Subject::Set | Subject::Serving => {
                helpers.spawn(checker.clone().follow(client.clone()));
            }
        }
        let evictions = Evictions::default();
        if workload.has("/spec/rolloutStrategy/evictionStrategy") {
            helpers.spawn(evictions.clone().follow::<Pod>(client.clone()));
            helpers.spawn(evictions.clone().follow::<PodDisruptionBudget>(client.clone()));
        }
        let pace = Pace {
            ready_after: |pod| {
                Duration::from_secs(1 + u64::from(pod.name_any().bytes().last().unwrap_or(0) % 3))
            },
            gone_after: Duration::from_secs(1),
            now: virtual_time::timestamp,
        };
        let kubelet = Kubelet::at_pace(client.clone(), pace);
        // Pods on a lost node report nothing more.
        kubelet.gone_if(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) != Some(LOST));
        let shared = Shared::new(plan.clone(), seed);
        let (violations, phases) = (Vec::new(), Phases::default());
        let run = Self {
            server,
            client,
            shared,
            checker,
            clusters,
            machine,
            evictions,
            history,
            phases,
            subject,
            violations,
            plan: plan.clone(),
            leaders: None,
            wanted: None,
            kubelet,
            helpers,
        };
        Ok(run.with_phases())
    }

    fn with_phases(mut self) -> Self {
        self.helpers.spawn(self.phases.clone().follow(self.api()));
        self
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        if self.leaders.is_none() && !matches!(step, Step::Inherit(_)) {
            self.leaders = Some(Leaders::begin(&self.server, &self.shared, &self.plan));
        }
        match step {
            Step::Apply(object) => {
                self.want(object);
                apply(&self.client, object).await
            }
            Step::Inherit(object) => {
                self.want(object);
                inherit(&self.client, "default", object).await.map_err(|error| error.to_string())
            }
            Step::Adopt => take_over(&self.client).await.map_err(|error| error.to_string()),
            Step::LoseNode(pod) => {
                let pod = self.harm(pod)?;
                lose_node(&self.client, &pod).await.map_err(|error| error.to_string())
            }
            Step::Settle => self.settle().await,
            Step::After(writes) => {
                let until = self.shared.writes() + writes;
                self.until("the controllers do so much", |run| run.shared.writes() >= until).await
            }
            Step::Begun => self.begun().await,
            Step::Restart(name) => {
                let name = self.harm(name)?;
                restart(&self.client, &name).await
            }
            Step::Wait(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            Step::OfCluster(befalls) => {
                let parts = (&self.client, &self.clusters, &self.kubelet);
                self.machine.befall(befalls, parts).await
            }
            Step::DeletePod(name) => {
                let name = &self.harm(name)?;
                let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
                pods.delete(name, &DeleteParams::default()).await.map(drop).map_err(|error| error.to_string())
            }
            Step::Delete => {
                self.checker.allow(Allowed::deleting());
                self.clusters.allow(Wanted::nothing());
                self.evictions.end();
                self.wanted = None;
                let (api, name) = (self.api(), self.name());
                api.delete(name, &DeleteParams::default()).await.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    fn want(&mut self, object: &Value) {
        let wanted = Allowed::by(object);
        let before = self.wanted.is_some().then(|| self.checker.allowed());
        self.checker.allow(before.map_or_else(|| wanted.clone(), |before| before.or(wanted.clone())));
        self.evictions.want(object);
        self.wanted = Some(wanted);
        if self.subject == Subject::Cluster {
            self.clusters.want(object);
        }
    }

    /// Something else than the controllers harms this pod. Returns its name.
    fn harm(&self, pod: &str) -> Result<String, String> {
        if self.subject == Subject::Cluster {
            return self.clusters.harm(pod);
        }
        self.checker.harm(pod);
        Ok(pod.to_owned())
    }

    /// What the story is about.
    fn api(&self) -> Api<DynamicObject> {
        let kind = match self.subject {
            Subject::Deployment => GroupVersionKind::gvk("segue.dev", "v1alpha1", "ModelDeployment"),
            Subject::Serving => {
                GroupVersionKind::gvk("workload.serving.volcano.sh", "v1alpha1", "ModelServing")
            }
            Subject::Cluster => GroupVersionKind::gvk("ray.io", "v1", "RayCluster"),
            Subject::Set => GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        };
        Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    fn name(&self) -> &'static str {
        if self.subject == Subject::Deployment { "chat" } else { "x" }
    }

    async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let deadline = virtual_time::now() + PATIENCE;
        while !done(self) {
            if virtual_time::now() > deadline {
                return Err(format!("L1: in vain: {what}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Time passes until the status speaks of the spec.
    async fn begun(&self) -> Result<(), String> {
        let deadline = virtual_time::now() + PATIENCE;
        while virtual_time::now() <= deadline {
            let object = self.api().get(self.name()).await.map_err(|error| error.to_string())?;
            if object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("L1: nobody begins with what is wanted".to_owned())
    }

    /// Time passes until the set is as wanted and nothing happens any more.
    async fn settle(&mut self) -> Result<(), String> {
        let deadline = virtual_time::now() + PATIENCE;
        let mut quiet_since = None;
        let (mut state, mut looked) = ((u64::MAX, false), Duration::ZERO);
        loop {
            // Without writes the state is not checked again: the check takes most of the time of a run.
            if state.0 != self.shared.writes() || virtual_time::now() >= looked + CHECK_INTERVAL {
                state = (self.shared.writes(), self.is_settled().await);
                looked = virtual_time::now();
            }
            match quiet_since {
                Some((since, before)) if before == state && state.1 => {
                    if virtual_time::now() > since + QUIET {
                        break;
                    }
                }
                _ => quiet_since = Some((virtual_time::now(), state)),
            }
            if virtual_time::now() > deadline {
                let set = self.api().get_opt(self.name()).await.ok().flatten();
                let status = set.map(|set| set.data["status"].clone()).unwrap_or_default();
                return Err(format!("L1: not settled after {PATIENCE:?}: {status}"));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if let Some(wanted) = self.wanted.clone() {
            self.checker.allow(wanted);
            self.clusters.settle();
            self.evictions.settle();
        }
        Ok(())
    }

    async fn is_settled(&self) -> bool {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let Ok(pods) = pods.list(&ListParams::default()).await else { return false };
        match self.api().get_opt(self.name()).await {
            Ok(None) => pods.items.is_empty(),
            Ok(Some(object)) => {
                let (spec, status) = (&object.data["spec"], &object.data["status"]);
                status["observedGeneration"].as_i64() == object.metadata.generation
                    && self.is_as_wanted(
                        spec,
                        status,
                        pods.items.iter().filter(|pod| stays(pod)).count() as u64,
                    )
            }
            Err(_) => false,
        }
    }

    fn is_as_wanted(&self, spec: &Value, status: &Value, pods: u64) -> bool {
        let replicas = spec["replicas"].as_u64().unwrap_or(1);
        let partition = &spec["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"];
        let updated = replicas.saturating_sub(partition.as_u64().unwrap_or_default());
        let is_updated = status["updatedReplicas"].as_u64().is_some_and(|it| it >= updated);
        match self.subject {
            Subject::Deployment => {
                status["phase"] == "Idle" && status["readyReplicas"] == replicas && pods == replicas
            }
            Subject::Serving => {
                let roles = spec["template"]["roles"].as_array().into_iter().flatten();
                let size = roles.map(|role| {
                    let number = |field: &str| role[field].as_u64().unwrap_or_default();
                    number("replicas") * (1 + number("workerReplicas"))
                });
                status["replicas"] == replicas
                    && status["availableReplicas"] == replicas
                    && is_updated
                    && pods == replicas * size.sum::<u64>()
            }
            Subject::Cluster => {
                let wanted = Wanted::by_spec(spec);
                let state = if wanted.is_suspended() { "suspended" } else { "ready" };
                status["state"] == state && pods == wanted.pods()
            }
            Subject::Set => {
                let size = spec["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
                status["replicas"] == replicas
                    && status["readyReplicas"] == replicas
                    && is_updated
                    && pods == replicas * size
            }
        }
    }

    /// Checks the end: a controller that starts now writes nothing.
    async fn end(mut self) -> Outcome {
        self.shared.heal();
        let before = self.shared.writes();
        if let Some(leaders) = self.leaders.take() {
            leaders.end().await;
        }
        if self.violations.is_empty() {
            let calm = Shared::new(Plan::default(), 0);
            let leaders = Leaders::begin(&self.server, &calm, &Plan::default());
            tokio::time::sleep(Duration::from_mins(2)).await;
            if calm.writes() > 0 {
                self.violations.push(format!("P1: {} writes where nothing changes", calm.writes()));
            }
            leaders.end().await;
        }
        self.violations.extend(self.checker.violations());
        self.violations.extend(self.clusters.violations());
        self.violations.extend(self.machine.violations());
        self.violations.extend(self.evictions.violations());
        self.violations.extend(self.history.violations());
        self.violations.extend(self.shared.violations());
        self.violations.dedup();
        let end = end_state(&self.client).await;
        self.helpers.shutdown().await;
        let mut created = self.checker.created();
        created.extend(self.clusters.created());
        let mut reached = self.shared.reached();
        reached.extend(self.phases.reached());
        let digest = self.shared.digest();
        Outcome { writes: before, violations: self.violations, reached, end, created, digest }
    }
}

impl Leaders {
    fn begin(server: &Server, shared: &Arc<Shared>, plan: &Plan) -> Self {
        let (stop, stopped) = watch::channel(false);
        let count = if plan.two_leaders { 2 } else { 1 };
        let protections = Protections { gate: !plan.without_gate, ..Protections::default() };
        let settings = Settings {
            embedded: true,
            clock: Clock::single(virtual_time::now),
            protections,
            ..Settings::default()
        };
        let keeping = tokio::spawn(keep(server.clone(), Arc::clone(shared), count, settings, stopped));
        Self { stop, keeping }
    }

    async fn end(&self) {
        self.stop.send_replace(true);
        while !self.keeping.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Keeps so many controllers running: where one died, another begins a little later, and knows nothing.
async fn keep(
    server: Server,
    shared: Arc<Shared>,
    count: usize,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) {
    let mut last = 0;
    let mut running: BTreeMap<u32, JoinHandle<()>> = BTreeMap::new();
    loop {
        while running.len() < count {
            last += 1;
            let way =
                Way { api: InProcess::new(server.clone()), shared: Arc::clone(&shared), incarnation: last };
            let client = Client::new(way, "default");
            let controllers =
                controllers::run(client, settings.clone(), Arc::new(Calls::default()), stop.clone());
            running.insert(last, tokio::spawn(controllers));
        }
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = shared.died.notified() => {}
        }
        running.retain(|incarnation, process| {
            let dead = shared.is_dead(*incarnation);
            if dead {
                process.abort();
            }
            !dead
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for process in running.values() {
        process.abort();
    }
}

async fn apply(client: &Client, object: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind, name) =
        (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = if kind == "CustomResourceDefinition" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::default_namespaced_with(client.clone(), &resource)
    };
    let parameters = PatchParams::apply("user").force();
    api.patch(&name, &parameters, &Patch::Apply(object)).await.map(drop).map_err(|error| error.to_string())
}

/// A person adopts what another operator made.
async fn take_over(client: &Client) -> Result<(), kube::Error> {
    for adoptable in kind::KINDS.into_iter().filter_map(|served| served.adoptable) {
        for found in adoptable(client.clone(), "default".to_owned()).await? {
            for step in found.steps.unwrap_or_default() {
                adopt::carry_out(client, "default", &step).await?;
            }
        }
    }
    Ok(())
}

/// The node of a pod that has the taint `out-of-service`.
const LOST: &str = "lost";

async fn lose_node(client: &Client, pod: &str) -> Result<(), kube::Error> {
    let node = json!({"metadata": {"name": LOST}, "spec": {
        "taints": [{"key": "node.kubernetes.io/out-of-service", "value": "off", "effect": "NoExecute"}],
    }});
    let node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": LOST},
    });
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let answer: Value = pods.create_subresource("binding", pod, &PostParams::default(), &binding).await?;
    drop(answer);
    Ok(())
}

async fn restart(client: &Client, name: &str) -> Result<(), String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut pod = pods.get(name).await.map_err(|error| error.to_string())?;
    let statuses = pod.status.as_mut().and_then(|status| status.container_statuses.as_mut());
    for status in statuses.into_iter().flatten() {
        status.restart_count += 1;
    }
    pods.replace_status(name, &PostParams::default(), &pod).await.map(drop).map_err(|error| error.to_string())
}

/// No kubelet removes a pod of a Ray cluster from a lost node: its successor has another name.
fn stays(pod: &Pod) -> bool {
    let is_lost = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(LOST);
    !is_lost || pod.metadata.deletion_timestamp.is_none()
}
