//! The requests, and how many are answered.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::{Failure, sides::Side, significant};

pub const OBJECT_BYTES: usize = 2048;
const LISTED: usize = 5_000;
const WATCHERS: usize = 100;
const WATCHED: usize = 500;
/// Updates go to these, so that some meet.
const CONTENDED: usize = 16;
const CLIENTS: [usize; 3] = [1, 16, 64];
/// A measurement ends when this is over, or when it has done what it is to do.
const LONGEST: Duration = Duration::from_secs(3);
const ENOUGH: usize = 1_000_000;

/// All figures of one side.
pub async fn measure(side: &Side) -> Result<Value, Failure> {
    let idle = side.resident()?;
    let client = side.client()?;
    for namespace in ["one", "listed", "many", "watched"] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        expect(&client, "POST", "/api/v1/namespaces", Some(&body), StatusCode::CREATED).await?;
    }
    let mut creates = Map::new();
    // The objects that are listed later: all of them, however long it takes.
    let busy = side.busy()?;
    let all = creating(side, 16, "listed", LISTED, Duration::from_mins(2)).await?;
    let busy = (side.busy()? - busy) / LISTED as f64;
    creates.insert("16".to_owned(), json!(all));
    let filled = side.resident()?;
    let lists = each(side.clients(1).await?, LONGEST, ENOUGH, |client, _| async move {
        let body = get(&client, "/api/v1/namespaces/listed/configmaps").await?;
        if body.len() < LISTED * OBJECT_BYTES { Err("the list is too short".into()) } else { Ok(0) }
    });
    let lists = lists.await?.rate();
    let (mut gets, mut updates) = (Map::new(), Map::new());
    for clients in CLIENTS {
        let read = each(side.clients(clients).await?, LONGEST, ENOUGH, |client, number| async move {
            let body = get(&client, &path("listed", number * 7919 % LISTED)).await?;
            if body.len() < OBJECT_BYTES { Err("the object is too short".into()) } else { Ok(0) }
        });
        gets.insert(clients.to_string(), json!(read.await?.rate()));
        let done = each(side.clients(clients).await?, LONGEST, ENOUGH, update).await?;
        let conflicts = significant(done.extra as f64 / done.count as f64);
        updates
            .insert(clients.to_string(), json!({"perSecond": done.rate(), "conflictsPerUpdate": conflicts}));
    }
    creates.insert("1".to_owned(), json!(creating(side, 1, "one", LISTED, LONGEST).await?));
    creates.insert("64".to_owned(), json!(creating(side, 64, "many", LISTED, LONGEST).await?));
    let fan_out = fan_out(side).await?;
    let megabytes = |bytes: f64| json!(significant(bytes / f64::from(1 << 20)));
    Ok(json!({
        "millisecondsToFirstAnswer": significant(side.ready_in.as_secs_f64() * 1e3),
        "residentMegabytes": {"idle": megabytes(idle), "with5000Objects": megabytes(filled), "afterwards": megabytes(side.resident()?)},
        "createsPerSecond": creates,
        "processorMicrosecondsPerCreate": significant(busy * 1e6),
        "getsPerSecond": gets,
        "updates": updates,
        "listsOf5000PerSecond": lists,
        "eventsPerSecondTo100Watchers": fan_out,
    }))
}

struct Done {
    count: usize,
    extra: usize,
    time: Duration,
}

impl Done {
    fn rate(&self) -> f64 {
        significant(self.count as f64 / self.time.as_secs_f64())
    }
}

/// Every client sends one request after the other, until the time is over or `most` are done.
async fn each<Work, Working>(
    clients: Vec<Client>,
    longest: Duration,
    most: usize,
    work: Work,
) -> Result<Done, Failure>
where
    Work: Fn(Client, usize) -> Working + Copy + Send + 'static,
    Working: Future<Output = Result<usize, Failure>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for client in clients {
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            let (mut count, mut extra) = (0, 0);
            while began.elapsed() < longest {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= most {
                    break;
                }
                extra += work(client.clone(), number).await?;
                count += 1;
            }
            Ok::<_, Failure>((count, extra))
        });
    }
    let (mut count, mut extra) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        let done = task??;
        count += done.0;
        extra += done.1;
    }
    Ok(Done { count, extra, time: began.elapsed() })
}

async fn creating(
    side: &Side,
    clients: usize,
    namespace: &'static str,
    most: usize,
    longest: Duration,
) -> Result<f64, Failure> {
    let done = each(side.clients(clients).await?, longest, most, move |client, number| async move {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        expect(&client, "POST", &path, Some(&config_map(number)), StatusCode::CREATED).await?;
        Ok(0)
    });
    Ok(done.await?.rate())
}

/// Reads, changes and writes until no other client has written in between; returns the number of conflicts.
async fn update(client: Client, number: usize) -> Result<usize, Failure> {
    let path = path("listed", number % CONTENDED);
    for lost in 0.. {
        let mut object: Value = serde_json::from_slice(&get(&client, &path).await?)?;
        object["data"]["number"] = json!(number.to_string());
        let (code, body) = send(&client, "PUT", &path, Some(&object)).await?;
        match code {
            StatusCode::OK => return Ok(lost),
            StatusCode::CONFLICT => {}
            code => return Err(format!("{code}: {}", String::from_utf8_lossy(&body)).into()),
        }
    }
    Ok(0)
}

/// One writer and many watchers: until everyone has heard of everything.
async fn fan_out(side: &Side) -> Result<f64, Failure> {
    let mut watchers = JoinSet::new();
    for client in side.clients(WATCHERS).await? {
        let list = get(&client, "/api/v1/namespaces/watched/configmaps").await?;
        let list: Value = serde_json::from_slice(&list)?;
        let revision = list["metadata"]["resourceVersion"].as_str().ok_or("no revision")?;
        let path = format!("/api/v1/namespaces/watched/configmaps?watch=true&resourceVersion={revision}");
        let request = Request::get(path).body(Body::empty())?;
        let mut body = client.send(request).await?.into_body();
        watchers.spawn(async move {
            let _open = client;
            let mut seen = 0;
            while seen < WATCHED {
                let frame = body.frame().await.ok_or("the watch ended")??;
                let data = frame.into_data().unwrap_or_default();
                seen += data.split(|byte| *byte == b'\n').count() - 1;
            }
            Ok::<_, Failure>(())
        });
    }
    let began = Instant::now();
    creating(side, 1, "watched", WATCHED, Duration::from_mins(2)).await?;
    while let Some(watcher) = watchers.join_next().await {
        watcher??;
    }
    Ok(significant((WATCHED * WATCHERS) as f64 / began.elapsed().as_secs_f64()))
}

fn path(namespace: &str, number: usize) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{}", name(number))
}

fn name(number: usize) -> String {
    format!("object-{number:06}")
}

fn config_map(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name(number), "labels": {"app": "bench", "unit": "unit-1"}},
        "data": {"first": "x".repeat(OBJECT_BYTES / 2), "second": "y".repeat(OBJECT_BYTES / 2)},
    })
}

/// The first answer of a server.
pub async fn ready(client: &Client) -> Result<(), Failure> {
    get(client, "/readyz").await.map(drop)
}

async fn get(client: &Client, path: &str) -> Result<Bytes, Failure> {
    expect(client, "GET", path, None, StatusCode::OK).await
}

async fn expect(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
    expected: StatusCode,
) -> Result<Bytes, Failure> {
    let (code, body) = send(client, method, path, body).await?;
    if code != expected {
        return Err(format!("{method} {path}: {code}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(body)
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Bytes), Failure> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status();
    Ok((code, response.into_body().collect().await?.to_bytes()))
}
