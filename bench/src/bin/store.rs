//! The store of the embedded API: objects of 2 KB, in memory and on disk.
//!
//!     cargo run --release -p bench --bin store
//!
//! The peers are what the machine itself takes: the disk's sync of 2 KB, and the copy of 10,000 pointers. `TMPDIR` says
//! which disk.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded for people")]

use std::{
    fs::File,
    hint::black_box,
    io::Write,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver::store::{Change, Draft, History, Key, Query, Settings, Store};
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinSet};

const PODS: &str = "/pods";
const OBJECT_BYTES: usize = 2048;
const LISTED: usize = 10_000;
const WATCHERS: usize = 100;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    // First: later, memory that was given back would be used again.
    let bytes_per_object = bytes_per_object(&runtime)?;
    let (list, list_before, copy) = lists(&runtime)?;
    let syncs = syncs_per_second()?;
    let durable = |writers| -> Result<_, Failure> {
        let rate = durable_commits_per_second(&runtime, writers)?;
        Ok(json!({"commitsPerSecond": rate.round(), "timesASync": tenths(rate / syncs)}))
    };
    let result = json!({
        "benchmark": "store",
        "objectBytes": OBJECT_BYTES,
        "memoryBytesPerObject": bytes_per_object.round(),
        "memoryCommitsPerSecond": memory_commits_per_second(&runtime)?.round(),
        "listOf10000Microseconds": micros(list),
        "listOf10000BeforeTheLast1000WritesMicroseconds": micros(list_before),
        "listTimesACopyOfPointers": tenths(list.as_secs_f64() / copy.as_secs_f64()),
        "eventsPerSecondTo100Watchers": fan_out(&runtime)?.round(),
        "syncMicroseconds": tenths(1e6 / syncs),
        "durable1Writer": durable(1)?,
        "durable8Writers": durable(8)?,
        "durable64Writers": durable(64)?,
        "longestCommitBesidesSnapshotsOf10000Milliseconds": tenths(longest_commit(&runtime)?.as_secs_f64() * 1e3),
    });
    println!("{result}");
    Ok(())
}

fn tenths(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

fn micros(time: Duration) -> f64 {
    tenths(time.as_secs_f64() * 1e6)
}

fn key(number: usize) -> Key {
    Key::new(PODS, &format!("namespace-{}", number % 10), &format!("pod-{number:06}"))
}

fn draft(number: usize) -> Result<Draft, Failure> {
    let object = |padding: usize| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("pod-{number:06}"), "labels": {"app": "bench", "unit": "unit-1"}},
            "spec": {"nodeName": "node-1", "padding": "x".repeat(padding)},
        })
    };
    let bare = object(0).to_string().len() + r#","resourceVersion":"000000""#.len();
    let fields = vec![("spec.nodeName".to_owned(), "node-1".to_owned())];
    Ok(Draft::new(&object(OBJECT_BYTES - bare))?.with_fields(fields))
}

async fn fill(store: &Store, objects: Range<usize>) -> Result<(), Failure> {
    for number in objects {
        store.commit(Change::create(key(number), draft(number)?)).await?;
    }
    Ok(())
}

fn bytes_per_object(runtime: &Runtime) -> Result<f64, Failure> {
    const OBJECTS: usize = 20_000;
    let store = Store::memory(History { events: 1, bytes: 1 << 20 });
    runtime.block_on(fill(&store, 0..100))?;
    let before = resident()?;
    runtime.block_on(fill(&store, 100..OBJECTS + 100))?;
    Ok((resident()? - before) / OBJECTS as f64)
}

/// `VmRSS`, in bytes.
fn resident() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

fn memory_commits_per_second(runtime: &Runtime) -> Result<f64, Failure> {
    const COMMITS: usize = 20_000;
    let store = Store::memory(History::default());
    let changes: Vec<Change> = (0..COMMITS)
        .map(|number| Ok(Change::create(key(number), draft(number)?)))
        .collect::<Result<_, Failure>>()?;
    let began = Instant::now();
    runtime.block_on(async {
        for change in changes {
            store.commit(change).await?;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(COMMITS as f64 / began.elapsed().as_secs_f64())
}

/// A list now, one from before the last writes, and the copy of as many pointers.
fn lists(runtime: &Runtime) -> Result<(Duration, Duration, Duration), Failure> {
    let store = Store::memory(History::default());
    runtime.block_on(fill(&store, 0..LISTED))?;
    let then = store.revision();
    runtime.block_on(async {
        for number in 0..1000 {
            let over = number as u64 + 1;
            store.commit(Change::update(key(number), over, draft(number)?)).await?;
        }
        Ok::<_, Failure>(())
    })?;
    let items = store.list(PODS, &Query::default())?.items;
    let past = Query { at: Some(then), ..Query::default() };
    let list = time(|| drop(black_box(store.list(PODS, &Query::default()))));
    let list_before = time(|| drop(black_box(store.list(PODS, &past))));
    let copy = time(|| drop(black_box(items.iter().map(|(_, entry)| Arc::clone(entry)).collect::<Vec<_>>())));
    Ok((list, list_before, copy))
}

/// The shortest of twenty runs: the others were disturbed.
fn time(mut run: impl FnMut()) -> Duration {
    let once = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..20).map(once).min().unwrap_or_default()
}

/// Every watcher is a task that waits for the next event.
fn fan_out(runtime: &Runtime) -> Result<f64, Failure> {
    const COMMITS: usize = 2_000;
    let store = Store::memory(History::default());
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let mut watcher = store.watch(PODS, 0)?;
        let follow = async move {
            for _ in 0..COMMITS {
                watcher.next().await?;
            }
            Ok::<_, apiserver::store::RevisionError>(())
        };
        watchers.spawn_on(follow, runtime.handle());
    }
    let began = Instant::now();
    runtime.block_on(async {
        fill(&store, 0..COMMITS).await?;
        while let Some(watcher) = watchers.join_next().await {
            watcher??;
        }
        Ok::<_, Failure>(())
    })?;
    Ok((COMMITS * WATCHERS) as f64 / began.elapsed().as_secs_f64())
}

/// What the disk can do: appends of 2 KB to one file, each synced.
fn syncs_per_second() -> Result<f64, Failure> {
    const SYNCS: usize = 1000;
    let directory = tempfile::tempdir()?;
    let mut file = File::create(directory.path().join("file"))?;
    let bytes = [b'x'; OBJECT_BYTES];
    let began = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&bytes)?;
        file.sync_data()?;
    }
    Ok(SYNCS as f64 / began.elapsed().as_secs_f64())
}

fn durable_commits_per_second(runtime: &Runtime, writers: usize) -> Result<f64, Failure> {
    let each = if writers == 1 { 1000 } else { 8000 / writers };
    let directory = tempfile::tempdir()?;
    let store = open(directory.path())?;
    let mut tasks = JoinSet::new();
    let mut changes = Vec::new();
    for number in 0..writers * each {
        changes.push(Change::create(key(number), draft(number)?));
    }
    let began = Instant::now();
    for share in changes.chunks(each) {
        let (store, share) = (store.clone(), share.to_vec());
        let write = async move {
            for change in share {
                store.commit(change).await?;
            }
            Ok::<_, apiserver::store::CommitError>(())
        };
        tasks.spawn_on(write, runtime.handle());
    }
    runtime.block_on(async {
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok::<_, Failure>(())
    })?;
    Ok((writers * each) as f64 / began.elapsed().as_secs_f64())
}

/// The commit that waited longest while 64 writers wrote 10,000 objects three times over: the log is replaced by a
/// snapshot on the way.
fn longest_commit(runtime: &Runtime) -> Result<Duration, Failure> {
    const WRITERS: usize = 64;
    let directory = tempfile::tempdir()?;
    let store = open(directory.path())?;
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        let write = async move {
            let mut longest = Duration::ZERO;
            for number in (0..3).flat_map(|_| (writer..LISTED).step_by(WRITERS)) {
                let draft = draft(number).map_err(|error| error.to_string())?;
                let change = match store.get(&key(number)) {
                    Some(entry) => Change::update(key(number), entry.revision, draft),
                    None => Change::create(key(number), draft),
                };
                let began = Instant::now();
                store.commit(change).await.map_err(|error| error.to_string())?;
                longest = longest.max(began.elapsed());
            }
            Ok::<_, String>(longest)
        };
        tasks.spawn_on(write, runtime.handle());
    }
    let longest = runtime.block_on(async {
        let mut longest = Duration::ZERO;
        while let Some(task) = tasks.join_next().await {
            longest = longest.max(task??);
        }
        Ok::<_, Failure>(longest)
    })?;
    let names = directory.path().read_dir()?.filter_map(Result::ok).map(|file| file.file_name());
    let snapshots = names.filter(|name| name.to_string_lossy().starts_with("snapshot")).count();
    if snapshots == 0 { Err("no snapshot was made".into()) } else { Ok(longest) }
}

fn open(path: &Path) -> Result<Store, Failure> {
    Ok(Store::open(path, Settings::default())?.store)
}
