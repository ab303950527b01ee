//! A real Ray cluster as a group: the head is the leader. Needs `ray` on the PATH; see CONTRIBUTING.md.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{collections::BTreeMap, process::Command, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use testbed::{eventually, free_port};

use self::support::up::Up;

/// Ray takes its time, and all of it where the machine has other things to do.
const LIMIT: Duration = Duration::from_mins(3);

/// The pods by name.
type Pods = BTreeMap<String, Value>;

struct Ray {
    up: Up,
    port: u16,
}

impl Ray {
    /// The example, at a port and in a directory that nobody else has.
    fn start() -> Self {
        let up = Up::start();
        let port = free_port();
        let manifest = support::read("examples/lws-startup-policy/ray-processes.yaml");
        let directory = format!("- --head\n          - --temp-dir={}/ray", up.directory.path().display());
        let manifest = manifest.replace("6379", &port.to_string()).replace("- --head", &directory);
        up.says(&["apply", "-f", &up.file("ray.yaml", &manifest)]);
        Self { up, port }
    }

    fn pods(&self) -> Pods {
        let list: Value = serde_json::from_str(&self.up.says(&["get", "pods", "-o", "json"])).unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        pods.map(|pod| (pod["metadata"]["name"].as_str().unwrap().to_owned(), pod.clone())).collect()
    }

    /// Waits until Ray itself says that the head and its worker are one cluster, of these pods.
    async fn cluster(&self, what: &str, so: impl Fn(&Pods) -> bool) -> Pods {
        let seen = eventually(what, LIMIT, async || {
            let pods = self.pods();
            let whole = pods.len() == 2 && pods.values().all(|pod| since(pod, "Ready").is_some());
            (whole && so(&pods) && self.nodes(&pods["ray-0"]) == 2).then_some(pods)
        });
        seen.await.unwrap_or_else(|late| panic!("{late}: {}", self.up.says(&["get", "pods"])))
    }

    /// How many nodes the head has.
    fn nodes(&self, head: &Value) -> usize {
        let address = format!("{}:{}", head["status"]["podIP"].as_str().unwrap(), self.port);
        let output = Command::new("ray").args(["status", "--address", &address]).output().unwrap();
        let said = support::stdout(&output);
        let active = said.split("Pending:").next().unwrap_or_default();
        active.matches(" node_").count()
    }
}

/// Since when a condition is true.
fn since(pod: &Value, condition: &str) -> Option<Timestamp> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|it| it["type"] == condition && it["status"] == "True")?;
    found["lastTransitionTime"].as_str()?.parse().ok()
}

fn created(pod: &Value) -> Timestamp {
    pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap()
}

fn starts_with_its_head(pods: &Pods) {
    let (head, worker) = (&pods["ray-0"], &pods["ray-0-1"]);
    // The head is in service when its whole group is: what the worker waits for is that the head itself is ready.
    let answers = since(head, "ContainersReady").unwrap();
    assert!(created(worker) >= answers, "made at {}, its head was ready at {answers}", created(worker));
}

#[tokio::test]
#[ignore = "needs Ray"]
async fn the_worker_of_a_ray_head_starts_when_the_head_answers_and_again_with_a_new_head() {
    let ray = Ray::start();
    let first = ray.cluster("a cluster of two", |_| true).await;
    starts_with_its_head(&first);

    let head = format!("--gcs_server_port={}", ray.port);
    assert!(Command::new("pkill").args(["-9", "-f", "--", &head]).status().unwrap().success());
    let is_new = |now: &Pods, pod: &str| now[pod]["metadata"]["uid"] != first[pod]["metadata"]["uid"];
    let again = ray.cluster("a new one", |now| ["ray-0", "ray-0-1"].iter().all(|pod| is_new(now, pod))).await;
    starts_with_its_head(&again);
}
