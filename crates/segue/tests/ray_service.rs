//! RayServices of real Ray that are upgraded under load, behind the gateway of `segue up`. Needs Ray and root, because every pod
//! has a network of its own; see CONTRIBUTING.md.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams},
};
use serde_json::Value;
use testbed::eventually;
use tokio::{sync::oneshot, task};

use self::support::up::Up;

/// Ray takes its time, and all of it where the machine has other things to do.
const LIMIT: Duration = Duration::from_mins(6);

/// The two shares of a service, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    capacity: u64,
    traffic: u64,
}

/// The shares of the active and of the pending cluster.
type Shares = (Option<Share>, Option<Share>);

struct Ray {
    up: Up,
    client: Client,
}

impl Ray {
    async fn start() -> Self {
        let up = Up::start_with(&["--pod-networks"]);
        let client = up.client().await;
        Self { up, client }
    }

    /// Applies the example at a version, with this strategy.
    fn apply(&self, version: &str, strategy: &str) {
        let example = support::read("examples/rayservice-incremental-upgrade/processes.yaml");
        let (before, after) = example.split_once("  upgradeStrategy:").unwrap();
        let (_, after) = after.split_once("  serveConfigV2:").unwrap();
        let manifest = format!("{before}  upgradeStrategy: {strategy}\n  serveConfigV2:{after}")
            .replace("value: one", &format!("value: {version}"))
            .replace("value: /examples", &format!("value: {}/examples", support::root().display()));
        self.up.says(&["apply", "-f", &self.up.file("service.yaml", &manifest)]);
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayService"));
        Api::default_namespaced_with(self.client.clone(), &kind)
    }

    /// Waits until this is so of the status, which speaks of the spec as it is.
    async fn until(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let seen = eventually(what, LIMIT, async || {
            let service = self.api().get("chat").await.unwrap();
            let status = service.data["status"].clone();
            let speaks = status["observedGeneration"].as_i64() == service.metadata.generation;
            (speaks && so(&status)).then_some(status)
        });
        seen.await.unwrap_or_else(|late| {
            let said = [&["why", "rayservice/chat"][..], &["get", "pods"], &["get", "events"]];
            panic!("{late}: {}", said.map(|it| support::stdout(&self.up.run(it))).join("\n"))
        })
    }

    /// Waits until the service runs on one cluster; returns the name of that.
    async fn settled(&self, what: &str) -> String {
        let status = self.until(what, |it| {
            it["waitingFor"].is_null() && it["pendingServiceStatus"].is_null() && !cluster(it).is_empty()
        });
        cluster(&status.await)
    }

    /// An address of an object, where clients come in.
    fn entrance(&self, object: &str, pointer: &str) -> SocketAddr {
        let object: Value = serde_json::from_str(&self.up.says(&["get", object, "-o", "json"])).unwrap();
        let address: IpAddr = object.pointer(pointer).unwrap().as_str().unwrap().parse().unwrap();
        SocketAddr::new(address, 8000)
    }
}

fn cluster(status: &Value) -> String {
    status["activeServiceStatus"]["rayClusterName"].as_str().unwrap_or_default().to_owned()
}

fn request(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: chat\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(io::Error::other(answer));
    }
    Ok(body.to_owned())
}

/// Two clients, each with a request after the other.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<BTreeMap<Result<String, String>, usize>>>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |stop: Arc<AtomicBool>| {
            thread::spawn(move || {
                let mut counts = BTreeMap::new();
                while !stop.load(Relaxed) {
                    let answer = request(address).map_err(|error| error.to_string());
                    *counts.entry(answer).or_default() += 1;
                    thread::sleep(Duration::from_millis(50));
                }
                counts
            })
        };
        let clients = (0..2).map(|_| client(Arc::clone(&stop))).collect();
        Self { stop, clients }
    }

    /// Ends it. No request has failed, and each of these versions has answered.
    fn end(self, versions: &[&str]) {
        self.stop.store(true, Relaxed);
        let mut all = BTreeMap::<_, usize>::new();
        for (answer, count) in self.clients.into_iter().flat_map(|client| client.join().unwrap()) {
            *all.entry(answer).or_default() += count;
        }
        println!("{all:?}");
        let answered: BTreeSet<&str> = all.keys().filter_map(|it| it.as_deref().ok()).map(body).collect();
        assert!(all.keys().all(Result::is_ok) && answered.iter().eq(versions), "{all:?}");
    }
}

/// A body that came in one chunk, or as it is.
fn body(text: &str) -> &str {
    text.lines().nth(1).unwrap_or(text)
}

/// Every status of the service that was written.
struct Watched {
    stop: oneshot::Sender<()>,
    watching: task::JoinHandle<Vec<Shares>>,
}

impl Watched {
    async fn start(ray: &Ray) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let api = ray.api();
        let version = api.get("chat").await.unwrap().metadata.resource_version.unwrap();
        let watching = tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            loop {
                let event = tokio::select! {
                    _ = &mut stopped => return seen,
                    event = events.next() => event.unwrap().unwrap(),
                };
                if let WatchEvent::Modified(service) = event {
                    let status = &service.data["status"];
                    seen.push((
                        share(&status["activeServiceStatus"]),
                        share(&status["pendingServiceStatus"]),
                    ));
                    seen.dedup();
                }
            }
        });
        Self { stop, watching }
    }

    /// Ends it. At every moment each cluster had the capacity for its traffic, and both had at most the surge more than
    /// everything.
    async fn end(self) -> Vec<Shares> {
        self.stop.send(()).unwrap();
        let seen = self.watching.await.unwrap();
        for (active, pending) in &seen {
            let both: Vec<Share> = active.iter().chain(pending).copied().collect();
            assert!(both.iter().all(|it| it.traffic <= it.capacity), "{seen:?}");
            assert!(both.iter().map(|it| it.capacity).sum::<u64>() <= 150, "{seen:?}");
            assert_eq!(both.iter().map(|it| it.traffic).sum::<u64>(), 100, "{seen:?}");
        }
        seen
    }
}

fn share(status: &Value) -> Option<Share> {
    let (capacity, traffic) = (&status["targetCapacity"], &status["trafficRoutedPercent"]);
    Some(Share { capacity: capacity.as_u64()?, traffic: traffic.as_u64()? })
}

const INCREMENTAL: &str = "{type: IncrementalUpgrade, incrementalUpgradeOptions: {maxSurgePercent: 50, \
                           stepSizePercent: 50, intervalSeconds: 1, gatewayClassName: segue}}";

/// Forward, back from the middle, forward to the end, and on to a third version at once.
#[tokio::test]
#[ignore = "needs Ray and root"]
async fn a_service_of_real_ray_is_upgraded_and_rolled_back_and_no_request_fails() {
    let ray = Ray::start().await;
    ray.apply("one", INCREMENTAL);
    let first = ray.settled("the first cluster serves").await;
    let load = Load::start(ray.entrance("gateway/chat-gateway", "/status/addresses/0/value"));
    let watched = Watched::start(&ray).await;

    ray.apply("two", INCREMENTAL);
    let half = ray.until("half of the traffic moved", |it| {
        share(&it["pendingServiceStatus"]).is_some_and(|it| it.traffic == 50)
    });
    let second = half.await["pendingServiceStatus"]["rayClusterName"].as_str().unwrap().to_owned();
    ray.apply("one", INCREMENTAL);
    assert_eq!(ray.settled("it is rolled back").await, first);

    ray.apply("two", INCREMENTAL);
    assert_eq!(ray.settled("it is upgraded").await, second, "the cluster that was to go is taken again");
    load.end(&["one", "two"]);
    let seen = watched.end().await;
    let steps = seen.iter().filter(|(_, pending)| pending.is_some_and(|it| it.traffic == 50)).count();
    assert!(steps > 0, "{seen:?}");

    // At once, and without a Gateway: clients use the Service.
    ray.apply("two", "{type: NewCluster}");
    ray.settled("it needs no gateway").await;
    let load = Load::start(ray.entrance("service/chat-serve-svc", "/spec/clusterIP"));
    ray.apply("three", "{type: NewCluster}");
    let third = ray.settled("it has switched").await;
    assert!(third != first && third != second);
    eventually("the third version answers", LIMIT, async || {
        let address = ray.entrance("service/chat-serve-svc", "/spec/clusterIP");
        request(address).is_ok_and(|answer| body(&answer) == "three").then_some(())
    })
    .await
    .unwrap();
    load.end(&["three", "two"]);
}
