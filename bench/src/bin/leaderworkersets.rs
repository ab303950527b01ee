//! A large set on etcd, kube-apiserver and kube-controller-manager, with a kubelet that runs nothing.
//!
//!     cargo run --release -p bench --bin leaderworkersets
//!
//! The controllers run in a process of their own, as in `segue operator`, whose requests are counted and whose memory is
//! read. `GROUPS UPDATED` as arguments make it smaller: for a try, not for figures.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use controllers::{Calls, Settings};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams},
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testbed::{Cluster, Kubelet, eventually};
use tokio::sync::watch;
use tower::util::MapRequestLayer;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Set = api::leaderworkerset::LeaderWorkerSet;

/// Pods in a group.
const SIZE: u32 = 4;

/// Groups that may be missing at a time in an update.
const UNAVAILABLE: u32 = 20;

/// The limit of a run on a machine that is stuck; no result depends on it.
const LIMIT: Duration = Duration::from_hours(1);

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["operator", kubeconfig] => runtime.block_on(operate(kubeconfig)),
        [groups, updated] => runtime.block_on(measure(groups.parse()?, updated.parse()?)),
        _ => runtime.block_on(measure(1000, 200)),
    }
}

async fn measure(groups: u32, updated: u32) -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.install(api::KINDS.iter().map(|kind| kind.crd())).await?;
    let namespace = cluster.namespace("bench").await?;
    let _kubelet = Kubelet::start(cluster.client());
    let mut operator = Operator::start(&cluster)?;
    let bench = Bench {
        sets: Api::namespaced(cluster.client(), &namespace),
        pods: Api::namespaced(cluster.client(), &namespace),
        groups,
        partition: groups.saturating_sub(updated),
    };
    let idle = operator.report()?;

    let began = Instant::now();
    bench.apply("one").await?;
    bench.pods_are(groups * SIZE).await?;
    let created = began.elapsed();
    bench.groups_are("readyReplicas", groups).await?;
    let ready = began.elapsed();
    let start = operator.report()?;

    let began = Instant::now();
    bench.apply("two").await?;
    bench.groups_are("updatedReplicas", updated).await?;
    bench.groups_are("readyReplicas", groups).await?;
    let rolled = began.elapsed();
    let end = operator.report()?;

    let result = json!({
        "benchmark": "leaderworkersets",
        "groups": groups,
        "podsPerGroup": SIZE,
        "start": {
            "secondsUntilCreated": created.as_secs(),
            "secondsUntilReady": ready.as_secs(),
            "requests": start["requests"],
        },
        "rollingUpdate": {
            "groups": updated,
            "maxUnavailable": UNAVAILABLE,
            "seconds": rolled.as_secs(),
            "requests": difference(&end["requests"], &start["requests"]),
        },
        "residentMegabytes": {"idle": idle["megabytes"], "start": start["megabytes"], "end": end["megabytes"], "peak": end["peakMegabytes"]},
    });
    println!("{result}");
    Ok(())
}

/// The set and what there is of it.
struct Bench {
    sets: Api<Set>,
    pods: Api<Pod>,
    groups: u32,
    /// Groups of a lower number keep their template.
    partition: u32,
}

impl Bench {
    async fn apply(&self, image: &str) -> Result<(), Failure> {
        let set = json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "x", "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"}},
            "spec": {
                "replicas": self.groups,
                "leaderWorkerTemplate": {
                    "size": SIZE,
                    "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}},
                },
                "rolloutStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdateConfiguration": {"maxUnavailable": UNAVAILABLE, "partition": self.partition},
                },
            },
        });
        self.sets.patch("x", &PatchParams::apply("bench").force(), &Patch::Apply(set)).await?;
        Ok(())
    }

    /// Asks for one pod and how many more there are: a list of all would be a load of its own.
    async fn pods_are(&self, count: u32) -> Result<(), Failure> {
        eventually("pods", LIMIT, async || {
            let list = self.pods.list_metadata(&ListParams::default().limit(1)).await.ok()?;
            let there = list.items.len() as u64
                + u64::try_from(list.metadata.remaining_item_count.unwrap_or(0)).ok()?;
            (there == u64::from(count)).then_some(())
        })
        .await?;
        Ok(())
    }

    /// Waits until the status counts so many, of the spec as it is.
    async fn groups_are(&self, field: &str, count: u32) -> Result<(), Failure> {
        eventually(field, LIMIT, async || {
            let set = serde_json::to_value(self.sets.get("x").await.ok()?).ok()?;
            let is_of_this = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            (is_of_this && set["status"][field] == count).then_some(())
        })
        .await?;
        Ok(())
    }
}

/// The controllers in a process of their own. It ends when its input does.
struct Operator {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Operator {
    fn start(cluster: &Cluster) -> Result<Self, Failure> {
        let mut process = Command::new(env::current_exe()?)
            .arg("operator")
            .arg(cluster.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Self { process, said })
    }

    /// Its requests so far and its memory now.
    fn report(&mut self) -> Result<Value, Failure> {
        writeln!(self.process.stdin.as_mut().ok_or("no input")?, "report")?;
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let mut report: Value = serde_json::from_str(&line)?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        report["megabytes"] = megabytes(&status, "VmRSS:").into();
        report["peakMegabytes"] = megabytes(&status, "VmHWM:").into();
        Ok(report)
    }
}

fn megabytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes / 1024)
}

/// How often each verb was asked of each resource.
type Requests = BTreeMap<String, u64>;

async fn operate(kubeconfig: &str) -> Result<(), Failure> {
    let requests = Arc::new(Mutex::new(Requests::new()));
    let counted = Arc::clone(&requests);
    let counting = MapRequestLayer::new(move |request: Request<Body>| {
        *counted.lock().unwrap_or_else(PoisonError::into_inner).entry(kind(&request)).or_default() += 1;
        request
    });
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    config.proxy_url = None;
    let client: Client = ClientBuilder::try_from(config)?.with_layer(&counting).build();
    let (_running, stop) = watch::channel(false);
    tokio::spawn(controllers::run(client, Settings::default(), Arc::new(Calls::default()), stop));
    tokio::task::spawn_blocking(move || {
        for _ in std::io::stdin().lines() {
            let requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            println!("{}", json!({"requests": *requests}));
        }
    })
    .await?;
    // The controllers know no end of their own.
    std::process::exit(0)
}

/// As in "PATCH pods/status".
fn kind(request: &Request<Body>) -> String {
    let mut path = request.uri().path().trim_start_matches('/').split('/');
    // api/v1 or apis/group/version, then perhaps a namespace.
    let skipped = if path.next() == Some("api") { 1 } else { 2 };
    let mut path = path.skip(skipped).peekable();
    if path.next_if_eq(&"namespaces").is_some() {
        path.next();
    }
    let resource = path.next().unwrap_or("discovery");
    let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let verb = if watches { "WATCH" } else { request.method().as_str() };
    match path.nth(1) {
        Some(subresource) => format!("{verb} {resource}/{subresource}"),
        None => format!("{verb} {resource}"),
    }
}

fn difference(after: &Value, before: &Value) -> Requests {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let all = after.as_object().into_iter().flatten();
    let more = all.map(|(kind, after)| (kind.clone(), count(after) - count(&before[kind])));
    more.filter(|(_, count)| *count > 0).collect()
}
