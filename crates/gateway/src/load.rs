//! A load generator.
//!
//! Open loop: requests start by the clock, whether or not the ones before were answered, as those of many clients do.
//! A closed loop would wait with the server and never see how many it kept waiting.
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::{
    pool::{Pool, SendError, Timeouts},
    proxy::REASON,
};

/// How long a closed loop waits after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// The server itself answered so.
    AppError,
    /// The platform's fault: refused, reset, or an error that the gateway says is its own.
    Failed,
    /// The answer began and broke off, or lacks its end: the platform's fault too.
    Truncated,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub host: String,
    pub path: String,
    /// A new connection for every request, as for a Service that is chosen by connection.
    pub fresh: bool,
}

/// How requests ended, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub ok: u64,
    pub app_errors: u64,
    pub failed: u64,
    pub truncated: u64,
}

impl Totals {
    pub fn requests(&self) -> u64 {
        self.ok + self.app_errors + self.failed + self.truncated
    }

    /// What the platform caused: answers that never began, and those that broke off.
    pub fn lost(&self) -> u64 {
        self.failed + self.truncated
    }
}

/// A client. Cheap to clone; every clone counts together.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    target: Target,
    ending: &'static str,
    pool: Pool,
    counts: [AtomicU64; 4],
}

impl Client {
    pub fn new(target: Target) -> Self {
        Self::of_streams(target, "")
    }

    /// A client that knows how every good answer ends. A stream that is cut between two events, by a server that ends
    /// in order, is as whole as any to HTTP; only what is missing tells.
    pub fn of_streams(target: Target, ending: &'static str) -> Self {
        Self(Arc::new(Inner { target, ending, pool: Pool::default(), counts: Default::default() }))
    }

    pub fn totals(&self) -> Totals {
        let [ok, app_errors, failed, truncated] = self.0.counts.each_ref().map(|count| count.load(Relaxed));
        Totals { ok, app_errors, failed, truncated }
    }

    /// Sends one request and reads its answer to the end.
    pub async fn request(&self) -> (Outcome, Bytes) {
        let (outcome, body) = self.0.request().await;
        self.0.counts[outcome as usize].fetch_add(1, Relaxed);
        (outcome, body)
    }

    /// Sends so many requests, `at_once` of them at a time: for throughput.
    pub async fn closed_loop(&self, requests: u64, at_once: usize) {
        let left = Arc::new(AtomicU64::new(requests));
        let mut workers = JoinSet::new();
        for _ in 0..at_once {
            let (client, left) = (self.clone(), Arc::clone(&left));
            workers.spawn(async move {
                while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                    client.request().await;
                }
            });
        }
        while workers.join_next().await.is_some() {}
    }

    /// Sends so many requests a second until `stop`, then waits for the last answers.
    pub async fn open_loop(&self, per_second: u32, stop: impl Future<Output = ()>) {
        let mut ticks = interval(Duration::from_secs(1) / per_second.max(1));
        // What a busy machine delayed is caught up with: the number of requests is that of the clock.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut asking = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = asking.join_next() => {}
                _ = ticks.tick() => {
                    let client = self.clone();
                    asking.spawn(async move { client.request().await });
                }
            }
        }
        while asking.join_next().await.is_some() {}
    }

    /// Keeps so many requests in flight until `stop`, then waits for the last answers.
    pub async fn closed_loop_until(&self, at_once: usize, stop: impl Future<Output = ()>) {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for _ in 0..at_once {
            let (client, stopped) = (self.clone(), Arc::clone(&stopped));
            workers.spawn(async move {
                while !stopped.load(Relaxed) {
                    let (outcome, _) = client.request().await;
                    if outcome != Outcome::Ok {
                        // What fails, fails at once: a client that tried again at once would count nothing else.
                        sleep(AFTER_FAILURE).await;
                    }
                }
            });
        }
        stop.await;
        stopped.store(true, Relaxed);
        while workers.join_next().await.is_some() {}
    }

    /// How many requests a second go through, `at_once` at a time.
    pub async fn rate(&self, requests: u64, at_once: usize) -> f64 {
        let begin = Instant::now();
        self.closed_loop(requests, at_once).await;
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        f64::from(requests) / begin.elapsed().as_secs_f64()
    }
}

impl Inner {
    async fn request(&self) -> (Outcome, Bytes) {
        let Target { address, host, path, fresh } = &self.target;
        let timeouts = Timeouts { connect: Duration::from_secs(10), idle: Duration::from_mins(1) };
        let request = Request::get(path).header(header::HOST, host);
        let request = if *fresh { request.header(header::CONNECTION, "close") } else { request };
        let Ok(request) = request.body(Empty::new().map_err(|never| match never {}).boxed_unsync()) else {
            return (Outcome::Failed, Bytes::new());
        };
        let (response, connection) = match self.pool.send(*address, request, timeouts).await {
            Ok(answered) => answered,
            Err(SendError::NotSent(_) | SendError::Lost) => return (Outcome::Failed, Bytes::new()),
        };
        let (head, body) = response.into_parts();
        let Ok(body) = body.collect().await else { return (Outcome::Truncated, Bytes::new()) };
        if !fresh {
            self.pool.put(connection);
        }
        let bytes = body.to_bytes();
        let outcome = match head.status.as_u16() {
            _ if head.headers.contains_key(REASON) => Outcome::Failed,
            400.. => Outcome::AppError,
            _ if !bytes.ends_with(self.ending.as_bytes()) => Outcome::Truncated,
            _ => Outcome::Ok,
        };
        (outcome, bytes)
    }
}
