//! Many clients that wait, and clients that do not read: other clients are served, and memory is bounded.
//!
//! Memory is that of the process, so these run one after the other.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
mod common;

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use apiserver::{Body, Limits, Server};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Mutex,
};

use crate::common::{Behind, ask, rest, send, server};

static ALONE: Mutex<()> = Mutex::const_new(());

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// What the process has in memory, in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

async fn watch(server: &Server, path: &str) -> Body {
    let response = ask(server, "GET", &format!("{path}?watch=true"), "", "").await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// Counts how often somebody who waits is looked after.
struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicUsize>,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

#[tokio::test]
async fn a_thousand_idle_watches_cost_writers_nothing() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    let before = resident();
    let polls = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        let mut body = watch(&server, MAPS).await;
        let future = Box::pin(async move { body.frame().await });
        waiting.push(tokio::spawn(Counted { future, polls: Arc::clone(&polls) }));
    }
    while polls.load(Ordering::Relaxed) < 1_000 {
        tokio::task::yield_now().await;
    }
    // Others write and read; nobody who waits for something else is woken by it, so it costs the same as without them.
    let mut reading = watch(&server, SECRETS).await;
    for number in 0..500 {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s-{number}")}});
        assert_eq!(send(&server, "POST", SECRETS, JSON, secret.to_string()).await.code, 201);
        let event = reading.frame().await.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], format!("s-{number}"));
        tokio::task::yield_now().await;
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1_000, "nobody was woken");
    assert!(resident() < before + 64, "{before} MiB, then {} MiB", resident());
    // And what they wait for reaches them all.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(send(&server, "POST", MAPS, JSON, map.to_string()).await.code, 201);
    for watch in waiting {
        let event = watch.await.unwrap().unwrap().unwrap().into_data().unwrap();
        assert!(event.starts_with(b"{\"type\":\"ADDED\""));
    }
}

#[tokio::test]
async fn a_thousand_watches_that_begin_with_everything_share_it() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    for number in 0..50 {
        let data = json!({"k": "x".repeat(100_000)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{number}")}, "data": data});
        assert_eq!(send(&server, "POST", MAPS, JSON, map.to_string()).await.code, 201);
    }
    let before = resident();
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        watches.push(watch(&server, MAPS).await);
    }
    // Five megabytes each would be five thousand.
    assert!(resident() < before + 128, "{before} MiB, then {} MiB", resident());
    let mut seen = 0;
    while seen < 50 {
        let piece = watches[500].frame().await.unwrap().unwrap().into_data().unwrap();
        seen += piece.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_dropped_or_told_and_the_others_get_everything() {
    const EVENTS: usize = 20_000;
    const SLEEPERS: usize = 20;
    let _alone = ALONE.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { stall: Duration::from_mins(5), ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"pad": "x".repeat(2_000)}});
    assert_eq!(send(&behind.server, "POST", MAPS, JSON, map.to_string()).await.code, 201);
    let mut sleepers = Vec::new();
    for _ in 0..SLEEPERS {
        let mut stream = behind.connect().await;
        stream
            .write_all(behind.head("GET", &format!("{MAPS}?watch=true"), "Connection: close\r\n").as_bytes())
            .await
            .unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        sleepers.push(stream);
    }
    // One that reads, and whom the writer never leaves behind further than the history reaches.
    let progress = Arc::new(AtomicUsize::new(0));
    let mut body = watch(&behind.server, MAPS).await;
    let reader = tokio::spawn({
        let progress = Arc::clone(&progress);
        async move {
            let (mut numbers, mut rest) = (BTreeSet::new(), Vec::new());
            while numbers.len() < EVENTS {
                rest.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).unwrap();
                    if let Some(number) = event["object"]["data"]["n"].as_str() {
                        numbers.insert(number.parse::<usize>().unwrap());
                        progress.store(numbers.len(), Ordering::Release);
                    }
                }
            }
            numbers
        }
    });
    let before = resident();
    for number in 0..EVENTS {
        let patch = json!({"data": {"n": number.to_string()}}).to_string();
        assert_eq!(send(&behind.server, "PATCH", &format!("{MAPS}/a"), MERGE, patch).await.code, 200);
        while number - progress.load(Ordering::Acquire).min(number) > 5_000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(reader.await.unwrap(), (0..EVENTS).collect::<BTreeSet<_>>(), "who reads gets everything");
    // The history is 10,000 events of 2.5 KB; twenty sleepers with all they missed would be a gigabyte.
    assert!(resident() < before + 160, "{before} MiB, then {} MiB", resident());
    for sleeper in sleepers {
        let text = String::from_utf8_lossy(&rest(sleeper).await).into_owned();
        let events = text.matches("\"type\":\"MODIFIED\"").count();
        assert!(events < EVENTS, "more than it can have been sent: {events}");
        assert!(text.contains("\"reason\":\"Expired\""), "told after {events} events");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_an_answer_unread_is_dropped() {
    let _alone = ALONE.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { stall: Duration::from_millis(200), ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    for number in 0..40 {
        let data = json!({"k": "x".repeat(900_000)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{number}")}, "data": data});
        assert_eq!(send(&behind.server, "POST", MAPS, JSON, map.to_string()).await.code, 201);
    }
    let mut stream = behind.connect().await;
    stream.write_all(behind.head("GET", MAPS, "").as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    behind.stop.send_replace(true);
    // It stops, because the connection does not hold it up: nothing of it was read.
    behind.serving.await.unwrap();
    let read = rest(stream).await;
    assert!(read.len() < 36_000_000, "cut off: {}", read.len());
}
