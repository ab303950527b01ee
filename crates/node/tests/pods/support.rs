//! A node over an embedded API, and programs for its containers.
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use apiserver::{InProcess, Server, environment::SystemEnvironment, store::Store};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Namespace, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use node::{Backoff, Logs, Node, NodeError, Resources, Settings, Shim};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::eventually;
use tokio::{sync::watch, task::JoinHandle};

pub const SOON: Duration = Duration::from_secs(30);

pub struct Bed {
    pub client: Client,
    pub directory: TempDir,
    pub agent: Agent,
}

/// A running agent. Dropping it is the end of the process: nothing is told.
pub struct Agent {
    pub logs: Arc<dyn Logs>,
    pub stop: watch::Sender<bool>,
    pub task: JoinHandle<Result<(), NodeError>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn settings(directory: &Path) -> Settings {
    Settings {
        capacity: Resources::of([("cpu", "4"), ("memory", "8Gi"), ("nvidia.com/gpu", "8"), ("pods", "50")]),
        shim: Shim { program: PathBuf::from(env!("CARGO_BIN_EXE_pod-shim")) },
        backoff: Backoff { first: Duration::from_millis(50), longest: Duration::from_mins(1) },
        ..Settings::new("here", directory.join("node"))
    }
}

pub async fn api(store: Store) -> InProcess {
    let server = Server::new(store, Arc::new(SystemEnvironment), Vec::new());
    tokio::spawn(server.clone().run_garbage_collector());
    let api = InProcess::new(server);
    let namespace = PatchParams::apply("test");
    let default = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let namespaces: Api<Namespace> = Api::all(Client::new(api.clone(), "default"));
    namespaces.patch("default", &namespace, &Patch::Apply(default)).await.unwrap();
    api
}

pub async fn serve(store: Store) -> Client {
    Client::new(api(store).await, "default")
}

pub fn start(client: &Client, settings: Settings) -> Agent {
    let node = Node::new(client.clone(), settings);
    let logs = node.logs();
    let (stop, stopped) = watch::channel(false);
    Agent { logs, stop, task: tokio::spawn(node.run(stopped)) }
}

impl Bed {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let client = serve(Store::memory(apiserver::store::History::default())).await;
        let mut settings = settings(directory.path());
        change(&mut settings);
        let agent = start(&client, settings);
        Self { client, directory, agent }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create(&self, name: &str, spec: Value) -> Pod {
        create(&self.client, name, spec).await
    }

    pub async fn delete(&self, name: &str) {
        // The embedded API marks a pod and then removes it; when the agent removes it in between, it answers 404.
        match self.pods().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap()),
        }
    }

    pub async fn see<T>(&self, name: &str, what: &str, seen: impl Fn(&Pod) -> Option<T>) -> T {
        see(&self.client, name, what, seen).await
    }

    pub async fn gone(&self, name: &str) {
        let what = format!("{name} gone");
        eventually(&what, SOON, async || self.pods().get_opt(name).await.unwrap().is_none().then_some(()))
            .await
            .unwrap();
    }

    pub async fn file(&self, name: &str) -> String {
        file(Path::new(&self.path(name))).await
    }

    pub async fn event(&self, pod: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let fields = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        eventually(&format!("event {reason} of {pod}"), SOON, async || {
            let all = events.list(&fields).await.unwrap();
            all.items.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
        .unwrap()
    }
}

pub async fn create(client: &Client, name: &str, spec: Value) -> Pod {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

/// Waits until something can be seen of a pod; says what it was otherwise.
pub async fn see<T>(client: &Client, name: &str, what: &str, seen: impl Fn(&Pod) -> Option<T>) -> T {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let what = format!("{name} {what}");
    let found = eventually(&what, SOON, async || {
        let pod = pods.get_opt(name).await.unwrap()?;
        seen(&pod)
    });
    match found.await {
        Ok(found) => found,
        Err(error) => {
            let pod = pods.get_opt(name).await.unwrap();
            panic!("{error}: {}", serde_json::to_string_pretty(&pod.map(|pod| pod.status)).unwrap())
        }
    }
}

/// Waits for a file with something in it.
pub async fn file(path: &Path) -> String {
    eventually(&path.display().to_string(), SOON, async || {
        fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
    })
    .await
    .unwrap()
}

/// A container that runs a shell script. Its dollars are the shell's and not Kubernetes'.
pub fn shell(script: &str) -> Value {
    json!({"name": "c", "image": "none", "command": ["sh", "-c", script.replace('$', "$$")]})
}

/// A container that serves HTTP on its pod's address: 200 while the file `ready` is there, and 503 otherwise.
pub fn server(ready: &str) -> Value {
    let program = std::env::current_exe().unwrap();
    json!({
        "name": "c",
        "image": "none",
        "command": [program, "--exact", "support::serves_http_when_it_is_told_to", "--nocapture"],
        "env": [{"name": "SERVE_WHILE", "value": ready}],
        "ports": [{"name": "http", "containerPort": 8080}],
    })
}

/// Not a test but a container: this program again.
#[test]
fn serves_http_when_it_is_told_to() {
    let (Ok(ready), Ok(address)) = (std::env::var("SERVE_WHILE"), std::env::var("POD_IP")) else { return };
    let listener = TcpListener::bind((address.as_str(), 8080)).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let lines: Vec<String> =
            reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let well =
            lines.iter().any(|line| line.eq_ignore_ascii_case("x-probe: yes")) && Path::new(&ready).exists();
        let answer = if well { "200 OK" } else { "503 Service Unavailable" };
        let _ = write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
}

pub fn phase(wanted: &str) -> impl Fn(&Pod) -> Option<Pod> {
    move |pod| {
        let phase = pod.status.as_ref()?.phase.as_deref()?;
        (phase == wanted).then(|| pod.clone())
    }
}

pub fn condition(pod: &Pod, kind: &str) -> Option<(String, String, String)> {
    let condition = pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some((condition.status.clone(), text(&condition.reason), text(&condition.message)))
}

pub fn is(kind: &'static str, wanted: &'static str) -> impl Fn(&Pod) -> Option<Pod> {
    move |pod| (condition(pod, kind)?.0 == wanted).then(|| pod.clone())
}

pub fn container(pod: &Pod) -> Option<ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned()
}

pub fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

/// Whether a process is there and not only waiting for its parent.
pub fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

pub async fn dead(pids: &str) {
    for pid in pids.split_whitespace() {
        let what = format!("process {pid} gone");
        eventually(&what, SOON, async || (!is_alive(pid)).then_some(())).await.unwrap();
    }
}
