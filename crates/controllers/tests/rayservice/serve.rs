//! A Ray Serve that is scripted: it takes configs, starts replicas after a while, and reports what runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use controllers::{Answer, Call, DataPlane, Expects, Key, ObjectId, Outside};
use serde_json::{Value, json};
use testbed::virtual_time;
use tokio::sync::{broadcast, watch};

/// How long Serve takes to answer.
const LATENCY: Duration = Duration::from_millis(50);

/// The Serve of every cluster.
pub struct Serve {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    answers: broadcast::Sender<ObjectId>,
}

#[derive(Default)]
struct State {
    clusters: BTreeMap<String, Serving>,
    /// Every config that was taken, with the cluster.
    puts: Vec<(String, Value)>,
    told: BTreeMap<(ObjectId, String), String>,
    heard: BTreeMap<ObjectId, BTreeMap<String, Answer>>,
    start: Duration,
    /// Clusters whose dashboard does not answer.
    mute: BTreeSet<String>,
    /// Pods without a healthy proxy.
    without_proxy: BTreeSet<String>,
    /// Clusters that fail the readiness check, and how often each cluster was asked.
    unready: BTreeSet<String>,
    checks: BTreeMap<String, u64>,
    /// The ready pods of each cluster, where a RayCluster controller makes them.
    pods: Option<BTreeMap<String, Pods>>,
}

/// The ready pods of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    pub head: Option<String>,
    pub workers: Vec<String>,
}

/// The Serve of one cluster.
#[derive(Default)]
struct Serving {
    config: Value,
    /// When the replicas of the last config run.
    ready_at: Duration,
    /// What ran before.
    before: BTreeMap<String, u64>,
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").finish_non_exhaustive()
    }
}

impl Serve {
    /// A Serve whose replicas run so long after they were asked for.
    pub fn start(start: Duration) -> Arc<Self> {
        let state = State { start, ..State::default() };
        let (changes, answers) = (watch::channel(0).0, broadcast::channel(64).0);
        Arc::new(Self { state: Mutex::new(state), changes, answers })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Every config that a cluster took.
    pub fn puts(&self, cluster: &str) -> Vec<Value> {
        self.state().puts.iter().filter(|(name, _)| name == cluster).map(|(_, body)| body.clone()).collect()
    }

    /// The capacities that a cluster was told, without repeats; 100 where none was named.
    pub fn capacities(&self, cluster: &str) -> Vec<u64> {
        let told = |body: &Value| body["target_capacity"].as_u64().unwrap_or(100);
        let mut all: Vec<u64> = self.puts(cluster).iter().map(told).collect();
        all.dedup();
        all
    }

    /// The capacity that a cluster has and the share of its replicas that run, in percent.
    pub fn granted(&self, cluster: &str) -> (u64, u64) {
        let state = self.state();
        let Some(serving) = state.clusters.get(cluster) else { return (0, 0) };
        let capacity = serving.config["target_capacity"].as_u64().unwrap_or(100);
        let workers = state.workers(cluster);
        let running = |(name, count): (String, u64)| serving.running(&name, count).min(workers);
        let all: u64 = serving.wanted_at(100).into_iter().map(|(_, count)| count).sum();
        let runs: u64 = serving.wanted().into_iter().map(running).sum();
        (capacity, runs * 100 / all.max(1))
    }

    /// The dashboard of this cluster answers no more, or again.
    pub fn mute(&self, cluster: &str, is_mute: bool) {
        let mute = &mut self.state().mute;
        if is_mute {
            mute.insert(cluster.to_owned())
        } else {
            mute.remove(cluster)
        };
    }

    /// This cluster fails the readiness check, or no more.
    pub fn fail_check(&self, cluster: &str, fails: bool) {
        let unready = &mut self.state().unready;
        if fails {
            unready.insert(cluster.to_owned())
        } else {
            unready.remove(cluster)
        };
    }

    /// How often a cluster was asked whether it is ready.
    pub fn checks(&self, cluster: &str) -> u64 {
        self.state().checks.get(cluster).copied().unwrap_or_default()
    }

    /// The proxy of this pod fails.
    pub fn lose_proxy(&self, pod: &str) {
        self.state().without_proxy.insert(pod.to_owned());
    }

    /// These are the ready pods of all clusters: a replica runs on a worker of its own.
    pub fn see(&self, pods: BTreeMap<String, Pods>) {
        self.state().pods = Some(pods);
    }

    /// How many replicas the Serve of a cluster aims for.
    pub fn aims_for(&self, cluster: &str) -> u64 {
        let state = self.state();
        let wanted = state.clusters.get(cluster).map(Serving::wanted).unwrap_or_default();
        wanted.into_iter().map(|(_, count)| count).sum()
    }

    /// Serve of this cluster forgets what it was told.
    pub fn lose(&self, cluster: &str) {
        self.state().clusters.remove(cluster);
    }

    /// From now on replicas take so long to start.
    pub fn take(&self, start: Duration) {
        self.state().start = start;
    }

    fn answer(&self, call: &Call) -> Result<Value, String> {
        let cluster = call.target.split('/').next().unwrap().to_owned();
        let mut state = self.state();
        if state.mute.contains(&cluster) {
            return Err("the dashboard does not answer".to_owned());
        }
        if call.target.ends_with("/check") {
            assert!(call.url.ends_with(":8000/ready") && call.expects == Expects::Success, "{call:?}");
            *state.checks.entry(cluster.clone()).or_default() += 1;
            let fails = state.unready.contains(&cluster);
            return if fails {
                Err("it answered 503 Service Unavailable: warming".to_owned())
            } else {
                Ok(Value::Null)
            };
        }
        if call.method == "GET" {
            let Some(serving) = state.clusters.get(&cluster) else { return Ok(json!({"applications": {}})) };
            return Ok(serving.report(&state.proxies(&cluster), state.workers(&cluster)));
        }
        let body = call.body.clone().unwrap();
        let ready_at = virtual_time::now() + state.start;
        state.puts.push((cluster.clone(), body.clone()));
        let serving = state.clusters.entry(cluster).or_default();
        let running = |(name, count): (String, u64)| (name.clone(), serving.running(&name, count));
        let before = serving.wanted().into_iter().map(running).collect();
        *serving = Serving { config: body, ready_at, before };
        Ok(Value::Null)
    }
}

impl State {
    /// How many workers of a cluster can run a replica.
    fn workers(&self, cluster: &str) -> u64 {
        let pods = self.pods.as_ref();
        pods.map_or(u64::MAX, |pods| pods.get(cluster).map_or(0, |pods| pods.workers.len() as u64))
    }

    /// The state of the proxy of every pod of a cluster.
    fn proxies(&self, cluster: &str) -> Value {
        let pods = match &self.pods {
            None => ["head", "worker"].map(|role| format!("{cluster}-{role}")).into(),
            Some(pods) => {
                let pods = pods.get(cluster).cloned().unwrap_or_default();
                pods.head.into_iter().chain(pods.workers).collect::<Vec<_>>()
            }
        };
        let proxy = |pod: String| {
            let status = if self.without_proxy.contains(&pod) { "UNHEALTHY" } else { "HEALTHY" };
            (pod.clone(), json!({"node_instance_id": pod, "status": status}))
        };
        Value::Object(pods.into_iter().map(proxy).collect())
    }
}

impl Serving {
    fn is_broken(&self) -> bool {
        self.config["applications"][0]["import_path"] == "broken"
    }

    fn wanted(&self) -> Vec<(String, u64)> {
        self.wanted_at(self.config["target_capacity"].as_u64().unwrap_or(100))
    }

    /// What Serve makes of a capacity: it rounds half up, with at least one replica unless there is to be none.
    fn wanted_at(&self, capacity: u64) -> Vec<(String, u64)> {
        let deployments = self.config["applications"][0]["deployments"].as_array().into_iter().flatten();
        let wanted = |deployment: &Value| {
            let all = deployment["num_replicas"].as_u64().unwrap_or(1);
            let rounded = (all * capacity * 2 + 100) / 200;
            let count = if capacity == 0 { 0 } else { rounded.max(1) };
            (deployment["name"].as_str().unwrap().to_owned(), count)
        };
        deployments.map(wanted).collect()
    }

    fn running(&self, name: &str, wanted: u64) -> u64 {
        if self.is_broken() {
            return 0;
        }
        let before = self.before.get(name).copied().unwrap_or_default();
        if virtual_time::now() >= self.ready_at { wanted } else { before.min(wanted) }
    }

    fn report(&self, proxies: &Value, workers: u64) -> Value {
        let deployment = |(name, target): (String, u64)| {
            let running = self.running(&name, target).min(workers);
            let replicas: Vec<Value> = (0..running).map(|_| json!({"state": "RUNNING"})).collect();
            let details = json!({"status": "HEALTHY", "target_num_replicas": target, "replicas": replicas});
            (name, details)
        };
        let deployments: serde_json::Map<String, Value> = self.wanted().into_iter().map(deployment).collect();
        // The state of an application says nothing of its replicas: that is what the gates are for.
        let (status, message) =
            if self.is_broken() { ("DEPLOY_FAILED", "no module named broken") } else { ("RUNNING", "") };
        let name = self.config["applications"][0]["name"].as_str().unwrap_or_default();
        json!({
            "target_capacity": self.config["target_capacity"],
            "proxies": proxies,
            "applications": {name: {"status": status, "message": message, "deployments": deployments}},
        })
    }
}

/// What the controllers see of it.
#[derive(Clone, Debug)]
pub struct Window(pub Arc<Serve>);

impl Outside for Window {
    fn data_plane(&self) -> Option<DataPlane> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn tell(&self, object: &ObjectId, calls: &[Call]) {
        for call in calls {
            let place = (object.clone(), call.target.clone());
            if self.0.state().told.insert(place, call.id.clone()).as_ref() == Some(&call.id) {
                continue;
            }
            let (serve, object, call) = (Arc::clone(&self.0), object.clone(), call.clone());
            tokio::spawn(async move {
                tokio::time::sleep(LATENCY).await;
                let result = serve.answer(&call);
                let answer = Answer {
                    target: call.target.clone(),
                    id: call.id.clone(),
                    at: virtual_time::now(),
                    result,
                };
                serve.state().heard.entry(object.clone()).or_default().insert(call.target, answer);
                drop(serve.answers.send(object));
            });
        }
    }

    fn forget(&self, controller: &'static str, key: &Key) {
        let is_other = |id: &ObjectId| (id.controller, &id.key) != (controller, key);
        let mut state = self.0.state();
        state.told.retain(|(id, _), _| is_other(id));
        state.heard.retain(|id, _| is_other(id));
    }

    fn heard(&self, object: &ObjectId) -> Vec<Answer> {
        self.0.state().heard.get(object).into_iter().flat_map(|all| all.values().cloned()).collect()
    }

    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        Some(self.0.answers.subscribe())
    }
}
