//! RayClusters of real Ray that lose their head, with and without GCS fault tolerance by a real Redis. Needs Ray, Redis and
//! root, because every pod has a network of its own; see CONTRIBUTING.md.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use testbed::eventually;
use tokio::sync::Mutex;

use self::support::{pod, up::Up};

/// Ray takes its time, and all of it where the machine has other things to do.
const LIMIT: Duration = Duration::from_mins(3);

/// One cluster at a time: the machine is small.
static TURN: Mutex<()> = Mutex::const_new(());

/// Makes a detached actor, which counts, on a worker: the head has no CPU.
const MAKE: &str = r#"
import ray
ray.init(namespace="test")
@ray.remote(num_cpus=0.5, max_restarts=0)
class Counter:
    def __init__(self): self.count = 0
    def add(self): self.count += 1; return self.count
counter = Counter.options(name="counter", lifetime="detached").remote()
print("COUNT", ray.get(counter.add.remote()))
"#;

/// Asks the actor, from a process that did not make it.
const ASK: &str = r#"
import ray
ray.init(namespace="test")
try: counter = ray.get_actor("counter")
except ValueError: print("COUNT lost")
else: print("COUNT", ray.get(counter.add.remote()))
"#;

/// A Serve application whose answers name the replica and its process.
const APP: &str = r#"
import os
from ray import serve
@serve.deployment(num_replicas=2, max_replicas_per_node=1, ray_actor_options={"num_cpus": 0.5})
class Echo:
    def __call__(self, request): return f"{os.environ['HOSTNAME']} {os.getpid()}"
app = Echo.bind()
"#;

/// A cluster from the example, in a `segue up` of its own.
struct Ray {
    up: Up,
}

type Pods = BTreeMap<String, Value>;

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap()
}

fn ip(pod: &Value) -> IpAddr {
    pod::address(pod).parse().unwrap()
}

fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}

/// Sends a request and returns the code and the body of the answer.
fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

fn json_of(address: SocketAddr, method: &str, path: &str, body: &Value) -> Option<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (code, text) = http(address, method, path, &body).ok()?;
    (code == 200).then(|| serde_json::from_str(&text).unwrap_or_default())
}

impl Ray {
    /// A `segue up` without a cluster.
    fn start() -> Self {
        let up = Up::start_with(&["--pod-networks"]);
        for (file, code) in [("make.py", MAKE), ("ask.py", ASK), ("echo_app.py", APP)] {
            up.file(file, code);
        }
        Self { up }
    }

    /// Runs a command of a document.
    fn run(&self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "segue", "{command}");
        self.up.says(&words[1..]);
    }

    fn pods(&self) -> Pods {
        let list: Value = serde_json::from_str(&self.up.says(&["get", "pods", "-o", "json"])).unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        let of_ray = pods.filter(|pod| pod["metadata"]["labels"]["ray.io/cluster"] == "ha");
        of_ray.map(|pod| (name(pod).to_owned(), pod.clone())).collect()
    }

    async fn see<T>(&self, what: &str, probe: impl Fn(&Pods) -> Option<T>) -> T {
        let seen = eventually(what, LIMIT, async || probe(&self.pods())).await;
        seen.unwrap_or_else(|late| {
            let said = ["pods", "events"].map(|kind| self.up.says(&["get", kind]));
            panic!("{late}: {}", said.join("\n"))
        })
    }

    /// Waits for a head and two workers, all Ready, and returns them.
    async fn whole(&self, what: &str, head_is: impl Fn(&Value) -> bool) -> (Value, Vec<Value>) {
        self.see(what, |pods| {
            let ready = pods.values().filter(|pod| pod::is_ready(pod)).cloned();
            let (heads, workers): (Vec<Value>, Vec<Value>) =
                ready.partition(|pod| pod["metadata"]["labels"]["ray.io/node-type"] == "head");
            let head = heads.into_iter().find(|head| head_is(head))?;
            (pods.len() == 3 && workers.len() == 2).then_some((head, workers))
        })
        .await
    }

    /// The head as it is, not necessarily ready.
    fn dashboard(pods: &Pods) -> Option<SocketAddr> {
        let head = pods.values().find(|pod| pod["metadata"]["labels"]["ray.io/node-type"] == "head")?;
        Some(SocketAddr::new(head["status"]["podIP"].as_str()?.parse().ok()?, 8265))
    }

    /// Runs a script in the cluster until it succeeds, each time in a new process, and returns what it counted.
    async fn count(&self, script: &str) -> String {
        let path = self.up.directory.path().join(script);
        let entrypoint = json!({"entrypoint": format!("python {}", path.display())});
        self.see(&format!("an answer to {script}"), |pods| {
            let dashboard = Self::dashboard(pods)?;
            let job = json_of(dashboard, "POST", "/api/jobs/", &entrypoint)?;
            let job = format!("/api/jobs/{}", job["submission_id"].as_str()?);
            loop {
                match json_of(dashboard, "GET", &job, &Value::Null)?["status"].as_str()? {
                    "SUCCEEDED" => break,
                    "FAILED" | "STOPPED" => return None,
                    _ => thread::sleep(Duration::from_millis(100)),
                }
            }
            let logs = json_of(dashboard, "GET", &format!("{job}/logs"), &Value::Null)?;
            let logs = logs["logs"].as_str()?;
            logs.rsplit_once("COUNT ").map(|(_, count)| count.trim().to_owned())
        })
        .await
    }

    /// Kills a pod at once, with all of its processes.
    async fn kill(&self, pod: &Value) {
        let pods: Api<Pod> = Api::default_namespaced(self.up.client().await);
        pods.delete(name(pod), &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    async fn deploy_app(&self) {
        let path = self.up.directory.path();
        let app = json!({
            "proxy_location": "EveryNode",
            "http_options": {"host": "0.0.0.0", "port": 8000},
            "applications": [{"name": "echo", "route_prefix": "/", "import_path": "echo_app:app", "runtime_env": {"env_vars": {"PYTHONPATH": path}}}],
        });
        self.see("the config of Serve accepted", |pods| {
            json_of(Self::dashboard(pods)?, "PUT", "/api/serve/applications/", &app)
        })
        .await;
    }

    /// Waits until Serve itself says that the application runs.
    async fn app_runs(&self) {
        self.see("an application that runs", |pods| {
            let path = "/api/serve/applications/";
            let serve = json_of(Self::dashboard(pods)?, "GET", path, &Value::Null)?;
            (serve["applications"]["echo"]["status"] == "RUNNING").then_some(())
        })
        .await;
    }

    /// The number of keys in Redis.
    fn keys(&self) -> u64 {
        let redis: Value = serde_json::from_str(&self.up.says(&["get", "pod/redis", "-o", "json"])).unwrap();
        let mut stream = TcpStream::connect((ip(&redis), 6379)).unwrap();
        stream.write_all(b"AUTH change-me\r\nDBSIZE\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let count = said.lines().find_map(|line| line.strip_prefix(':'));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }
}

/// Requests at the proxies of workers, twenty a second at each, each on a connection of its own.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    answers: usize,
    failures: Vec<String>,
    /// The processes of replicas that answered.
    replicas: BTreeSet<String>,
}

impl Load {
    fn start(workers: &[Value]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |worker: &Value| {
            let (stop, address) = (Arc::clone(&stop), SocketAddr::new(ip(worker), 8000));
            thread::spawn(move || {
                let mut counts = Counts::default();
                while !stop.load(Relaxed) {
                    match http(address, "GET", "/", "") {
                        Ok((200, replica)) => {
                            counts.answers += 1;
                            counts.replicas.insert(replica);
                        }
                        other => counts.failures.push(format!("{other:?}")),
                    }
                    thread::sleep(Duration::from_millis(50));
                }
                counts
            })
        };
        let threads = workers.iter().map(thread).collect();
        Self { stop, threads }
    }

    fn end(self) -> Counts {
        self.stop.store(true, Relaxed);
        let mut all = Counts::default();
        for thread in self.threads {
            let counts = thread.join().unwrap();
            all.answers += counts.answers;
            all.failures.extend(counts.failures);
            all.replicas.extend(counts.replicas);
        }
        all
    }
}

fn same_workers(before: &[Value], after: &[Value]) {
    let told = |workers: &[Value]| -> Vec<(String, u64)> {
        workers.iter().map(|worker| (uid(worker).to_owned(), restarts(worker))).collect()
    };
    assert_eq!(told(before), told(after), "no worker is replaced or restarted");
}

#[tokio::test]
#[ignore = "needs Ray, Redis and root"]
async fn a_fault_tolerant_cluster_keeps_its_actor_and_its_answers_while_the_head_is_replaced() {
    let _turn = TURN.lock().await;
    let document = support::blocks().into_iter().find(|block| block.runner == "ray").unwrap();
    let [apply, get, delete] = document.commands.as_slice() else { panic!("{:?}", document.commands) };
    let ray = Ray::start();
    ray.run(apply);
    let (head, workers) = ray.whole("a cluster", |_| true).await;
    assert_eq!(ray.count("make.py").await, "1");
    ray.deploy_app().await;
    ray.see("answers of both proxies", |_| {
        let answers = |worker: &Value| http(SocketAddr::new(ip(worker), 8000), "GET", "/", "");
        workers.iter().all(|worker| answers(worker).is_ok_and(|(code, _)| code == 200)).then_some(())
    })
    .await;
    ray.app_runs().await;
    ray.run(get);
    let load = Load::start(&workers);

    // The head pod with everything in it. The client asks again and again while the cluster answers with failures.
    ray.kill(&head).await;
    assert_eq!(ray.count("ask.py").await, "2", "the actor has its state");
    let (second, after) = ray.whole("a replacement of the head", |new| uid(new) != uid(&head)).await;
    same_workers(&workers, &after);
    ray.app_runs().await;

    // GCS alone. The container of the head ends with it, and starts again in the same pod.
    let gcs = format!("gcs_server.*--node-ip-address={}", ip(&second));
    assert!(Command::new("pkill").args(["-9", "-f", "--", &gcs]).status().unwrap().success());
    let (_, after) = ray.whole("a restart of GCS", |it| uid(it) == uid(&second) && restarts(it) > 0).await;
    same_workers(&workers, &after);
    ray.app_runs().await;
    assert_eq!(ray.count("ask.py").await, "3", "the actor has its state");

    let counts = load.end();
    println!("{} requests, {} failures", counts.answers, counts.failures.len());
    assert!(counts.failures.is_empty(), "{counts:?}");
    assert_eq!(counts.replicas.len(), 2, "the replicas stay: {counts:?}");

    // Its keys go with the cluster.
    assert!(ray.keys() > 0);
    ray.run(delete);
    assert_eq!(ray.keys(), 0, "Redis is clean");
}

#[tokio::test]
#[ignore = "needs Ray, Redis and root"]
async fn without_fault_tolerance_the_actor_is_lost_with_the_head() {
    let _turn = TURN.lock().await;
    let without = |text: &str| {
        let (before, after) = text.split_once("  gcsFaultToleranceOptions:").unwrap();
        let (_, after) = after.split_once("  headGroupSpec:").unwrap();
        format!("{before}  headGroupSpec:{after}")
    };
    let ray = Ray::start();
    let cluster = without(&support::read("examples/ray-gcs-ha/raycluster-processes.yaml"));
    ray.up.says(&["apply", "-f", &ray.up.file("cluster.yaml", &cluster)]);
    let (head, workers) = ray.whole("a cluster", |_| true).await;
    assert_eq!(ray.count("make.py").await, "1");
    ray.kill(&head).await;
    let (_, after) = ray.whole("a new cluster", |new| uid(new) != uid(&head)).await;
    let is_new = |worker: &&Value| workers.iter().all(|old| uid(old) != uid(worker));
    assert_eq!(after.iter().filter(is_new).count(), 2, "the workers of the lost head are replaced");
    assert_eq!(ray.count("ask.py").await, "lost");
}
