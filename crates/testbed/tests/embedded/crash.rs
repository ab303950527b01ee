//! A server that is killed while eight clients write to it over TLS.
//!
//! Each client has names of its own, so it knows what must be there; all of them also count together in one object, so
//! that a lost update would show.
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use apiserver::{
    Credentials, Limits, Listener, Server,
    environment::SystemEnvironment,
    store::{History, Settings, Store},
};
use fastrand::Rng;
use http::Request;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};

const DIRECTORY: &str = "EMBEDDED_CRASH_DIRECTORY";
const WRITERS: u64 = 8;
const NAMES: u64 = 5;
const COUNTER: &str = "counter";
const MOST_ACKNOWLEDGED: u64 = 100;
const MAPS: &str = "/api/v1/namespaces/crash/configmaps";
/// Compacts every few hundred writes: some kills hit a compaction.
const SETTINGS: Settings = Settings { history: History { events: 100, bytes: 1 << 20 }, least_log: 64 << 10 };

/// The other process: not a test of its own.
#[test]
fn victim() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = Path::new(&directory);
        let store = Store::open(&directory.join("store"), SETTINGS).unwrap().store;
        let server = Server::new(store, Arc::new(SystemEnvironment), Vec::new());
        tokio::spawn(server.clone().run_garbage_collector());
        let credentials = Credentials::load(directory, &SystemEnvironment).unwrap();
        let listener = Listener::bind(0, server, credentials.clone(), Limits::default()).await.unwrap();
        credentials.write_kubeconfig(&directory.join("kubeconfig"), listener.address()).unwrap();
        let (_running, stop) = watch::channel(false);
        tokio::spawn(listener.serve(stop));
        std::io::stdout().write_all(b"\nserving\n").unwrap();
        // Not without the test.
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    });
}

/// A write that nobody has answered.
#[derive(Debug, Clone, PartialEq)]
enum Open {
    /// Of this value.
    Write(u64),
    Delete,
}

/// What one client knows for certain.
#[derive(Debug, Default)]
struct Known {
    /// As the server last answered.
    objects: BTreeMap<String, Value>,
    open: Option<(String, Open)>,
    counted: u64,
    counting: u64,
    /// Of all that was acknowledged in this life of the server.
    revisions: Vec<u64>,
}

struct Writer {
    number: u64,
    dice: Rng,
    known: Known,
}

/// One life of the server.
struct Life {
    process: Arc<Mutex<Child>>,
    config: Config,
    left: Arc<AtomicU64>,
}

impl Life {
    async fn begin(directory: &Path, acknowledgements: u64) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crash::victim", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "serving"), "the server did not start");
        let kubeconfig = Kubeconfig::read_from(directory.join("kubeconfig")).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = None;
        Self { process: Arc::new(Mutex::new(process)), config, left: Arc::new(acknowledgements.into()) }
    }

    fn client(&self) -> Client {
        Client::try_from(self.config.clone()).unwrap()
    }

    /// Counts an acknowledged write, and kills the server after the last.
    fn acknowledge(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.process.lock().unwrap().kill().unwrap();
        }
    }

    fn share(&self) -> Self {
        Self { process: Arc::clone(&self.process), config: self.config.clone(), left: Arc::clone(&self.left) }
    }
}

/// Nothing when the server is gone.
async fn send(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = client.send(request.body(Body::from(body.into_bytes())).unwrap()).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.ok()?;
    Some((code, serde_json::from_slice(&bytes).unwrap()))
}

fn map(name: &str, value: u64) -> Value {
    // Of several sizes, so that frames end anywhere.
    let padding = "x".repeat(usize::try_from(value % 997).unwrap());
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"value": value.to_string()}},
        "data": {"value": value.to_string(), "padding": padding}})
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

impl Writer {
    fn new(number: u64, seed: u64) -> Self {
        Self { number, dice: Rng::with_seed(seed * WRITERS + number), known: Known::default() }
    }

    /// Until the server is gone.
    async fn write(mut self, life: Life) -> Self {
        let client = life.client();
        while self.one(&client, &life).await.is_some() {}
        self
    }

    async fn one(&mut self, client: &Client, life: &Life) -> Option<()> {
        if self.dice.u32(..8) == 0 {
            return self.count(client, life).await;
        }
        let name = format!("map-{}-{}", self.number, self.dice.u64(..NAMES));
        let path = format!("{MAPS}/{name}");
        let value = self.dice.u64(..1 << 40);
        let there = self.known.objects.get(&name).cloned();
        let (code, answer) = match there {
            Some(_) if self.dice.u32(..4) == 0 => {
                self.known.open = Some((name.clone(), Open::Delete));
                let answer = send(client, "DELETE", &path, None).await?;
                self.known.objects.remove(&name);
                answer
            }
            there => {
                self.known.open = Some((name.clone(), Open::Write(value)));
                let answer = match &there {
                    None => send(client, "POST", MAPS, Some(&map(&name, value))).await?,
                    Some(old) => {
                        let mut new = map(&name, value);
                        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                        send(client, "PUT", &path, Some(&new)).await?
                    }
                };
                self.known.revisions.push(revision(&answer.1));
                self.known.objects.insert(name.clone(), answer.1.clone());
                answer
            }
        };
        assert!(code < 300, "{name} is this client's alone: {code} {answer}");
        self.known.open = None;
        life.acknowledge();
        Some(())
    }

    /// One more in the object that all share.
    async fn count(&mut self, client: &Client, life: &Life) -> Option<()> {
        let path = format!("{MAPS}/{COUNTER}");
        let (_, mut object) = send(client, "GET", &path, None).await?;
        let next = counted(&object) + 1;
        object["data"]["count"] = json!(next.to_string());
        self.known.counting += 1;
        let (code, answer) = send(client, "PUT", &path, Some(&object)).await?;
        self.known.counting -= 1;
        match code {
            200 => {
                self.known.counted += 1;
                self.known.revisions.push(revision(&answer));
                life.acknowledge();
            }
            409 => {}
            code => panic!("{code} {answer}"),
        }
        Some(())
    }

    /// Everything acknowledged is there, to the byte; what was not answered is there as a whole or not at all.
    fn inspect(&mut self, found: &BTreeMap<String, Value>) {
        let open = self.known.open.take();
        for name in (0..NAMES).map(|name| format!("map-{}-{name}", self.number)) {
            let (known, found) = (self.known.objects.get(&name), found.get(&name));
            if known == found {
                continue;
            }
            let since = known.map_or(0, revision);
            match (&open, found) {
                (Some((tried, Open::Delete)), None) if *tried == name => {}
                (Some((tried, Open::Write(value))), Some(found)) if *tried == name => {
                    let whole = map(&name, *value);
                    assert_eq!(
                        (&found["data"], &found["metadata"]["labels"]),
                        (&whole["data"], &whole["metadata"]["labels"])
                    );
                    assert!(revision(found) > since);
                    if let Some(known) = known {
                        assert_eq!(known["metadata"]["uid"], found["metadata"]["uid"]);
                    }
                }
                _ => panic!("{name} was {known:?}, is {found:?}, open was {open:?}"),
            }
            match found {
                Some(found) => drop(self.known.objects.insert(name, found.clone())),
                None => drop(self.known.objects.remove(&name)),
            }
        }
    }
}

fn counted(object: &Value) -> u64 {
    object["data"]["count"].as_str().unwrap_or("0").parse().unwrap()
}

async fn kill(kills: u64) {
    let directory = TempDir::new().unwrap();
    let mut dice = Rng::with_seed(1);
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, 1)).collect();
    let (mut newest, mut count, mut acknowledged) = (0, 0, 0);
    for life in 0..=kills {
        let over = life == kills;
        let life = Life::begin(directory.path(), dice.u64(1..=MOST_ACKNOWLEDGED)).await;
        let client = life.client();
        if newest == 0 {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crash"}});
            send(&client, "POST", "/api/v1/namespaces", Some(&namespace)).await.unwrap();
            send(&client, "POST", MAPS, Some(&map(COUNTER, 0))).await.unwrap();
        }
        let (_, list) = send(&client, "GET", MAPS, None).await.unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let found: BTreeMap<String, Value> =
            items.map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item.clone())).collect();
        let mut revisions = BTreeSet::new();
        let (told, open) = writers.iter_mut().fold((count, 0), |(told, open), writer| {
            writer.inspect(&found);
            for revision in std::mem::take(&mut writer.known.revisions) {
                assert!(revision > newest, "{revision} was there before");
                assert!(revisions.insert(revision), "{revision} was given twice");
                acknowledged += 1;
            }
            let known = &mut writer.known;
            (told + std::mem::take(&mut known.counted), open + std::mem::take(&mut known.counting))
        });
        assert!(revision(&list) >= revisions.last().copied().unwrap_or(newest), "revisions went back");
        newest = revision(&list);
        count = counted(&found[COUNTER]);
        assert!((told..=told + open).contains(&count), "{count} counted, {told} acknowledged, {open} open");
        let known: usize = writers.iter().map(|writer| writer.known.objects.len()).sum();
        assert_eq!(found.len(), known + 1, "nothing is there that nobody wrote");
        if over {
            life.process.lock().unwrap().kill().unwrap();
        } else {
            let mut writing = JoinSet::new();
            writers.drain(..).for_each(|writer| drop(writing.spawn(writer.write(life.share()))));
            writers = writing.join_all().await;
        }
        life.process.lock().unwrap().wait().unwrap();
    }
    println!("{kills} kills, {acknowledged} creates and updates acknowledged, revision {newest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_loses_no_acknowledged_write() {
    kill(50).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; the same as above, longer"]
async fn two_hundred_kills_lose_nothing() {
    kill(200).await;
}
