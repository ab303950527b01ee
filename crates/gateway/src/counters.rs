//! What went through, and how it ended.
//!
//! *Failed* is what the platform caused; what a server answered itself is counted by class and is not ours to judge.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::SystemTime,
};

use crate::{cache::Name, histogram::Latencies, routes::ServicePort};

/// Why a request failed on our side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No endpoint of the Service is ready.
    NoEndpoint,
    /// The backend, or every weight, is invalid.
    Invalid,
    /// No connection to any endpoint.
    Refused,
    /// The connection broke after the request was sent and before an answer came.
    Reset,
    /// The answer broke off.
    Truncated,
    /// The answer took longer than the route allows.
    TimedOut,
}

impl Cause {
    pub const ALL: [Self; 6] =
        [Self::NoEndpoint, Self::Invalid, Self::Refused, Self::Reset, Self::Truncated, Self::TimedOut];

    /// As the header of our own answers says it.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoEndpoint => "no-endpoint",
            Self::Invalid => "invalid-backend",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Truncated => "truncated",
            Self::TimedOut => "timed-out",
        }
    }
}

/// Counts as they are counted.
#[derive(Debug, Default)]
pub struct Counters {
    in_flight: AtomicU64,
    connections: AtomicU64,
    requests: AtomicU64,
    accepted: AtomicU64,
    retried: AtomicU64,
    failed_over: AtomicU64,
    cancelled: AtomicU64,
    answers: [AtomicU64; 6],
    failed: [AtomicU64; Cause::ALL.len()],
    received: AtomicU64,
    sent: AtomicU64,
}

/// What is counted as in flight: a request, or a whole TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Request,
    Connection,
}

impl Counters {
    pub fn begin(&self, flow: Flow) {
        let (open, all) = self.of(flow);
        open.fetch_add(1, Relaxed);
        all.fetch_add(1, Relaxed);
    }

    pub fn end(&self, flow: Flow) {
        // In one order with the loads of `busy`: of a last request and a last connection that end at the same time, one
        // must see that nothing is left.
        self.of(flow).0.fetch_sub(1, SeqCst);
    }

    /// Takes one back from the requests or connections so far.
    pub fn withdraw(&self, flow: Flow) {
        self.of(flow).1.fetch_sub(1, Relaxed);
    }

    fn of(&self, flow: Flow) -> (&AtomicU64, &AtomicU64) {
        match flow {
            Flow::Request => (&self.in_flight, &self.requests),
            Flow::Connection => (&self.connections, &self.accepted),
        }
    }

    pub fn busy(&self) -> u64 {
        self.in_flight.load(SeqCst) + self.connections.load(SeqCst)
    }

    pub fn answered(&self, status: http::StatusCode) {
        self.answers[usize::from(status.as_u16() / 100).min(5)].fetch_add(1, Relaxed);
    }

    pub fn failed(&self, cause: Cause) {
        self.failed[cause as usize].fetch_add(1, Relaxed);
    }

    pub fn retried(&self) {
        self.retried.fetch_add(1, Relaxed);
    }

    pub fn failed_over(&self) {
        self.failed_over.fetch_add(1, Relaxed);
    }

    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    pub fn received(&self, bytes: u64) {
        // Most requests have no body.
        if bytes > 0 {
            self.received.fetch_add(bytes, Relaxed);
        }
    }

    pub fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Counts {
            in_flight: read(&self.in_flight),
            connections: read(&self.connections),
            requests: read(&self.requests),
            accepted: read(&self.accepted),
            retried: read(&self.retried),
            failed_over: read(&self.failed_over),
            cancelled: read(&self.cancelled),
            answers: (1..=5_u16)
                .map(|class| (class * 100, read(&self.answers[usize::from(class)])))
                .collect(),
            failed: Cause::ALL.into_iter().map(|cause| (cause, read(&self.failed[cause as usize]))).collect(),
            bytes_received: read(&self.received),
            bytes_sent: read(&self.sent),
        }
    }
}

/// Counts at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// HTTP requests whose answer is not complete.
    pub in_flight: u64,
    /// TCP connections that are open through a Service.
    pub connections: u64,
    /// HTTP requests so far. At an endpoint: including those that it refused and another took.
    pub requests: u64,
    /// TCP connections so far.
    pub accepted: u64,
    /// Attempts that were refused here and made elsewhere.
    pub retried: u64,
    /// Requests whose turn it was here, and that another Service took because no endpoint was ready.
    pub failed_over: u64,
    /// Requests that the client gave up.
    pub cancelled: u64,
    /// Answers of the servers by class: 100, 200, 300, 400, 500.
    pub answers: BTreeMap<u16, u64>,
    pub failed: BTreeMap<Cause, u64>,
    /// From clients.
    pub bytes_received: u64,
    /// To clients.
    pub bytes_sent: u64,
}

impl Counts {
    /// All that failed on our side.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// An endpoint at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Whether it gets new requests; if not, it drains.
    pub in_service: bool,
    pub counts: Counts,
}

/// Everything that was counted, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub at: SystemTime,
    /// The table that is served: counts up with each that differs from the one before.
    pub table_epoch: u64,
    /// As of which generation each route is served: the acknowledgement, without the way over its status.
    pub generations: BTreeMap<Name, i64>,
    /// The endpoints that get new requests. A route and the endpoints of its Services come by different watches, in any
    /// order: a controller that gives a Service weight reads here first whether it has endpoints.
    pub ready: BTreeMap<ServicePort, Vec<SocketAddr>>,
    pub routes: BTreeMap<Name, Counts>,
    /// All that was sent to each Service, by routes and at its cluster address.
    pub services: BTreeMap<ServicePort, Counts>,
    /// How long they took. The window between two moments is the difference of the two.
    pub latencies: BTreeMap<ServicePort, Latencies>,
    /// The part that came in at the cluster address.
    pub cluster_addresses: BTreeMap<ServicePort, Counts>,
    pub endpoints: BTreeMap<SocketAddr, EndpointCounts>,
    /// Requests that no rule of a listener answers: 404, which is no failure.
    pub unrouted: u64,
}
