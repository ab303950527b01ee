//! Upgrades on a `segue up` that is killed in the middle of them, and one that never becomes ready.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use testbed::{eventually, free_port};

use self::support::up::Up;

const LIMIT: Duration = Duration::from_mins(2);

/// A service on a `segue up` of its own. Its port is in every command line of its servers, and nobody else's.
struct Chat {
    up: Up,
    port: u16,
    client: Client,
}

/// Where a version says that it is ready.
enum Ready {
    Soon,
    Never,
}

impl Chat {
    async fn start() -> Self {
        let up = Up::start();
        let port = free_port();
        let client = up.client().await;
        Self { up, port, client }
    }

    /// Applies a version, as a person does.
    fn apply(&self, version: &str, ready: &Ready) {
        let path = match ready {
            Ready::Soon => "/ready",
            Ready::Never => "/never",
        };
        let manifest = json!({
            "apiVersion": "segue.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "chat"},
            "spec": {
                "replicas": 4,
                "version": version,
                "workload": {"type": "Pod", "pod": {"spec": {"containers": [{
                    "name": "model",
                    "image": "segue",
                    "command": [env!("CARGO_BIN_EXE_segue"), "model-server"],
                    "args": [format!("--version={version}"), "--load-seconds=1", format!("--port={}", self.port)],
                    "ports": [{"name": "http", "containerPort": self.port}],
                    "readinessProbe": {"httpGet": {"path": path, "port": self.port}, "periodSeconds": 1},
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }]}}},
                "traffic": {
                    "ports": [{"name": "http", "port": self.port}],
                    "gateway": {"className": "segue"},
                    "settleSeconds": 1,
                },
                "strategy": {"type": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 0}},
            },
        });
        let file = self.up.file("chat.json", &manifest.to_string());
        self.up.says(&["apply", "-f", &file]);
    }

    async fn kill_and_restart(&mut self) {
        self.up.kill_and_restart();
        // It listens elsewhere now.
        self.client = self.up.client().await;
    }

    async fn list(&self, group: &str, kind: &str) -> Vec<Value> {
        let version = if group == "segue.dev" { "v1alpha1" } else { "v1" };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &kind);
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    async fn pods(&self) -> Vec<Value> {
        self.list("", "Pod").await
    }

    async fn sets(&self) -> Vec<Value> {
        self.list("leaderworkerset.x-k8s.io", "LeaderWorkerSet").await
    }

    /// The weights of the route, by the version that they are for.
    async fn weights(&self) -> BTreeMap<String, u64> {
        let routes = self.list("gateway.networking.k8s.io", "HTTPRoute").await;
        let backends = routes.first().map(|route| route["spec"]["rules"][0]["backendRefs"].clone());
        let service = |set: &Value| {
            let name = set["metadata"]["annotations"]["segue.dev/version-name"].as_str().unwrap().to_owned();
            (format!("{}-serving", set["metadata"]["name"].as_str().unwrap()), name)
        };
        let versions: BTreeMap<String, String> = self.sets().await.iter().map(service).collect();
        let weight = |backend: &Value| {
            let service = backend["name"].as_str().unwrap();
            (versions.get(service).cloned().unwrap_or_default(), backend["weight"].as_u64().unwrap())
        };
        backends.iter().flat_map(|backends| backends.as_array().unwrap()).map(weight).collect()
    }

    async fn status(&self) -> Value {
        self.list("segue.dev", "ModelDeployment").await[0]["status"].clone()
    }

    /// Waits until a version carries everything and nothing is left to do, and says how that came about.
    async fn serves(&self, version: &str) -> Value {
        let what = format!("{version} in service");
        let served = eventually(&what, LIMIT, async || {
            let chat = self.list("segue.dev", "ModelDeployment").await[0].clone();
            let status = &chat["status"];
            let is_over = status["observedGeneration"] == chat["metadata"]["generation"]
                && status["phase"] == "Idle"
                && status["currentVersion"] == version
                && status["readyReplicas"] == 4
                && status["versions"].as_array().is_some_and(|versions| versions.len() == 1);
            is_over.then(|| status.clone())
        });
        match served.await {
            Ok(status) => status,
            Err(late) => panic!("{late}: {:#}", self.status().await),
        }
    }

    /// The uids of the pods of a version.
    async fn uids(&self, version: &str) -> Vec<String> {
        let of_version = |pod: &Value| pod.to_string().contains(&format!("--version={version}"));
        let pods = self.pods().await;
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
        pods.iter().filter(|pod| of_version(pod)).map(uid).collect()
    }

    /// The servers that run on this machine, by version.
    fn servers(&self) -> Vec<String> {
        let all = support::processes_with(&format!("--port={}", self.port));
        // Each is started by a shim, which names its command too.
        let mut servers: Vec<String> = all.into_iter().filter(|line| !line.contains("__pod-shim")).collect();
        servers.sort();
        servers
    }

    /// Who answers users.
    async fn answers(&self) -> String {
        let gateways = self.list("gateway.networking.k8s.io", "Gateway").await;
        let address = gateways[0]["status"]["addresses"][0]["value"].as_str().unwrap();
        let mut connection = TcpStream::connect((address, self.port)).unwrap();
        let request = "GET /v1/completions HTTP/1.1\r\nHost: chat\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }

    /// Nothing doubled, nothing left over, of a service that went over to this version.
    async fn assert_whole(&self, version: &str, status: &Value) {
        let sets = self.sets().await;
        assert_eq!(sets.len(), 1, "{sets:#?}");
        assert_eq!(sets[0]["metadata"]["annotations"]["segue.dev/version-name"], version);
        assert_eq!(self.pods().await.len(), 4);
        assert_eq!(self.uids(version).await.len(), 4);
        let hash = &sets[0]["metadata"]["labels"]["segue.dev/version"];
        let of_this = |record: &&Value| record["to"] == *hash;
        let records: Vec<&Value> = status["history"].as_array().unwrap().iter().filter(of_this).collect();
        assert_eq!(records.len(), 1, "{records:#?}");
        assert_eq!(records[0]["outcome"], "Promoted");
        assert_eq!(
            (&records[0]["id"], &status["rollout"]["outcome"]),
            (&status["rollout"]["id"], &json!("Promoted"))
        );
        let servers = self.servers();
        assert_eq!(servers.len(), 4, "{servers:#?}");
        assert!(servers.iter().all(|line| line.contains(&format!("--version={version} "))), "{servers:#?}");
        assert!(self.answers().await.contains(version));
    }

    fn end(mut self) {
        assert_eq!(self.up.interrupt().code(), Some(0));
        let left = support::processes_with(self.up.directory.path().to_str().unwrap());
        assert!(left.is_empty() && self.servers().is_empty(), "{left:#?}");
    }
}

/// Goes from v1 to v2, and is killed as soon as `moment` has come.
async fn killed_when(what: &str, moment: impl AsyncFn(&Chat) -> bool) {
    let mut chat = Chat::start().await;
    chat.apply("v1", &Ready::Soon);
    chat.serves("v1").await;
    chat.apply("v2", &Ready::Soon);
    eventually(what, LIMIT, async || moment(&chat).await.then_some(())).await.unwrap();
    chat.kill_and_restart().await;
    assert!(chat.status().await["rollout"]["outcome"].is_null(), "it was over before it was killed");
    let status = chat.serves("v2").await;
    chat.assert_whole("v2", &status).await;
    chat.end();
}

#[tokio::test]
async fn killed_when_the_first_new_pod_exists_the_upgrade_goes_on() {
    killed_when("a pod of v2", async |chat| !chat.uids("v2").await.is_empty()).await;
}

#[tokio::test]
async fn killed_when_traffic_has_moved_for_the_first_time_the_upgrade_goes_on() {
    killed_when("traffic for v2", async |chat| chat.weights().await.contains_key("v2")).await;
}

#[tokio::test]
async fn killed_when_the_old_version_shrinks_the_upgrade_goes_on() {
    let shrank = |set: &Value| {
        set["metadata"]["annotations"]["segue.dev/version-name"] == "v1"
            && set["spec"]["replicas"].as_u64().unwrap() < 4
    };
    killed_when("a smaller v1", async |chat| chat.sets().await.iter().any(shrank)).await;
}

#[tokio::test]
async fn a_version_that_never_becomes_ready_takes_nothing_and_goes_when_the_old_one_is_asked_for() {
    let chat = Chat::start().await;
    chat.apply("v1", &Ready::Soon);
    chat.serves("v1").await;
    let before = chat.uids("v1").await;
    chat.apply("v2", &Ready::Never);
    // Its server runs and has loaded, and was asked whether it is ready.
    let unready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        pod.to_string().contains("--version=v2")
            && pod["status"]["phase"] == "Running"
            && conditions.iter().any(|it| it["type"] == "ContainersReady" && it["status"] == "False")
    };
    eventually("a wait for v2", LIMIT, async || {
        let status = chat.status().await;
        let waits = status["phase"] == "Waiting" && status["targetVersion"] == "v2";
        (waits && chat.pods().await.iter().any(unready)).then_some(())
    })
    .await
    .unwrap();
    for _ in 0..8 {
        assert!(chat.answers().await.contains("v1"));
    }
    assert_eq!(chat.weights().await.into_keys().collect::<Vec<_>>(), ["v1"]);
    assert_eq!(chat.uids("v1").await, before);
    let tried = chat.status().await;
    assert_eq!((&tried["health"], &tried["currentVersion"]), (&json!("Healthy"), &json!("v1")));

    chat.apply("v1", &Ready::Soon);
    let status = chat.serves("v1").await;
    let last = &status["history"][0];
    let rolled_back = (&tried["rollout"]["id"], &json!("RolledBack"));
    assert_eq!((&last["id"], &last["outcome"]), rolled_back, "{status:#}");
    assert_eq!(chat.uids("v1").await, before, "pods of v1 were touched");
    assert_eq!((chat.pods().await.len(), chat.sets().await.len()), (4, 1));
    assert_eq!(chat.servers().len(), 4);
    assert!(chat.answers().await.contains("v1"));
    chat.end();
}
