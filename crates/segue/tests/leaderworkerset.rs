//! Leaders and workers that find each other by name, as processes, on a `segue up`.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use testbed::{eventually, free_port};

use self::support::{
    pod::{address, is_ready, kill},
    up::Up,
};

const LIMIT: Duration = Duration::from_mins(2);

/// What the example's leaders load for, less what whole seconds may hide.
const LOADING: i64 = 2;

/// The pods by name.
type Pods = BTreeMap<String, Value>;

/// The example on a `segue up` of its own, at a port that nobody else has: all of them share the addresses of loopback.
struct Chat {
    up: Up,
    port: u16,
}

impl Chat {
    fn start() -> Self {
        let port = free_port();
        Self { up: Up::start(), port }
    }

    fn apply(&self, example: &str) {
        let manifest = support::read(&format!("examples/lws-startup-policy/{example}"));
        let manifest = manifest.replace("8000", &self.port.to_string());
        self.up.says(&["apply", "-f", &self.up.file(example, &manifest)]);
    }

    fn pods(&self) -> Pods {
        let list: Value = serde_json::from_str(&self.up.says(&["get", "pods", "-o", "json"])).unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        pods.map(|pod| (pod["metadata"]["name"].as_str().unwrap().to_owned(), pod.clone())).collect()
    }

    /// Waits until both groups are whole, and more.
    async fn see(&self, what: &str, so: impl Fn(&Pods) -> bool) -> Pods {
        let whole = |pods: &Pods| pods.len() == 6 && pods.values().all(is_ready);
        let seen = eventually(what, LIMIT, async || {
            let pods = self.pods();
            (so(&pods) && whole(&pods)).then_some(pods)
        });
        seen.await.unwrap_or_else(|late| panic!("{late}: {}", self.up.says(&["get", "pods"])))
    }

    /// What a pod answers.
    fn ask(&self, pod: &Value, path: &str) -> String {
        let mut stream = TcpStream::connect((address(pod), self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn created(pod: &Value) -> Timestamp {
    pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap()
}

fn seconds_between(first: &Value, second: &Value) -> i64 {
    created(second).duration_since(created(first)).as_secs()
}

fn is_new(before: &Pods, now: &Pods, pod: &str) -> bool {
    now.get(pod).is_some_and(|now| now["metadata"]["uid"] != before[pod]["metadata"]["uid"])
}

#[tokio::test]
async fn groups_start_with_their_leader_restart_as_one_and_roll_one_after_the_other() {
    let chat = Chat::start();
    chat.apply("processes.yaml");
    let first = chat.see("both groups", |_| true).await;
    for group in ["chat-0", "chat-1"] {
        for worker in ["1", "2"].map(|index| &first[&format!("{group}-{index}")]) {
            let waited = seconds_between(&first[group], worker);
            assert!(waited >= LOADING, "a worker of {group} was made {waited} s after its leader");
        }
        assert!(chat.ask(&first[group], "/stats").contains("\"members\":2"));
    }

    kill(&first["chat-0"]);
    let group = ["chat-0", "chat-0-1", "chat-0-2"];
    let again = chat.see("a new group", |now| group.iter().all(|pod| is_new(&first, now, pod))).await;
    assert_ne!(address(&again["chat-0"]), address(&first["chat-0"]), "the leader has moved");
    assert!(chat.ask(&again["chat-0"], "/stats").contains("\"members\":2"), "and was found where it is");
    for pod in ["chat-1", "chat-1-1", "chat-1-2"] {
        assert!(!is_new(&first, &again, pod), "{pod} has nothing to do with it");
    }

    chat.apply("processes-v2.yaml");
    let last = chat
        .see("the next version", |now| {
            let served = ["chat-0", "chat-1"].iter().any(|leader| now.get(*leader).is_some_and(is_ready));
            assert!(served, "nobody serves");
            now.keys().all(|pod| is_new(&again, now, pod))
        })
        .await;
    for leader in ["chat-0", "chat-1"] {
        assert!(chat.ask(&last[leader], "/v1/completions").contains("\"v2\""));
    }
    let apart = seconds_between(&last["chat-1"], &last["chat-0"]);
    assert!(apart >= LOADING, "the groups were replaced within {apart} s");
}
