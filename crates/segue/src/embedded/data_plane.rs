//! The observations that the controllers get of the embedded gateway.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use controllers::{Answer, Call, Calls, DataPlane, Key, Latencies, ObjectId, Outside};
use gateway::{Distribution, EndpointCounts, Gateway, Snapshot, routes::ServicePort};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

/// Observes the gateway for the controllers.
#[derive(Debug)]
pub(crate) struct GatewayDataPlane {
    gateway: Gateway,
    calls: Calls,
    /// The request counts of the last seconds, oldest first.
    counted: Mutex<VecDeque<(Instant, BTreeMap<Key, u64>)>>,
}

/// The counts of the gateway at `/metrics` of the embedded API.
#[derive(Debug)]
pub(crate) struct GatewayMetrics(pub(crate) Gateway);

impl apiserver::Metrics for GatewayMetrics {
    fn text(&self) -> String {
        self.0.metrics()
    }
}

/// How far back recent requests are counted.
const RECENT: Duration = Duration::from_secs(4);

impl GatewayDataPlane {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self { gateway, calls: Calls::default(), counted: Mutex::default() }
    }

    /// Returns how many requests came within the last seconds, at most since the first observation.
    fn lately(&self, requests: &BTreeMap<Key, u64>) -> BTreeMap<Key, u64> {
        let now = Instant::now();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest count that is old enough stays, to count from.
        while counted.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= RECENT) {
            counted.pop_front();
        }
        if counted.back().is_none_or(|(at, _)| now.duration_since(*at) >= RECENT / 8) {
            counted.push_back((now, requests.clone()));
        }
        let before = counted.front().map(|(_, before)| before);
        let since =
            |service: &Key| before.and_then(|before| before.get(service)).copied().unwrap_or_default();
        requests.iter().map(|(key, count)| (key.clone(), count.saturating_sub(since(key)))).collect()
    }
}

impl Outside for GatewayDataPlane {
    fn data_plane(&self) -> Option<DataPlane> {
        // The time of a snapshot is not read here.
        let mut plane = data_plane(self.gateway.controller(), &self.gateway.snapshot(SystemTime::UNIX_EPOCH));
        plane.recent_requests = self.lately(&plane.requests);
        Some(plane)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.gateway.changes()
    }

    fn tell(&self, object: &ObjectId, calls: &[Call]) {
        self.calls.tell(object, calls);
    }

    fn forget(&self, controller: &'static str, key: &Key) {
        self.calls.forget(controller, key);
    }

    fn heard(&self, object: &ObjectId) -> Vec<Answer> {
        self.calls.heard(object)
    }

    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        self.calls.answers()
    }
}

/// Converts counts by port into counts by Service and by pod.
fn data_plane(controller: &str, snapshot: &Snapshot) -> DataPlane {
    let mut plane = DataPlane { controller: controller.to_owned(), ..DataPlane::default() };
    for (port, endpoints) in &snapshot.ready {
        let ready = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        // A Service can take what each of its ports can.
        let least = plane.ready.entry(service(port)).or_insert(ready);
        *least = ready.min(*least);
    }
    for (port, counts) in &snapshot.services {
        *plane.requests.entry(service(port)).or_default() += counts.requests + counts.accepted;
        let answers = plane.answers.entry(service(port)).or_default();
        answers.all += counts.answers.values().sum::<u64>() + counts.failures();
        answers.errors += counts.answers.get(&500).copied().unwrap_or_default() + counts.failures();
    }
    for (port, latencies) in &snapshot.latencies {
        add(plane.latencies.entry(service(port)).or_default(), &latencies.whole);
        add(plane.first_bytes.entry(service(port)).or_default(), &latencies.first_byte);
    }
    for (address, EndpointCounts { in_service, counts }) in &snapshot.endpoints {
        // A pod is in service, or busy, if it is on any of its ports.
        let endpoint = plane.endpoints.entry(address.ip()).or_default();
        endpoint.in_service |= in_service;
        endpoint.in_flight += counts.in_flight + counts.connections;
    }
    plane
}

fn add(latencies: &mut Latencies, counted: &Distribution) {
    for (upper, answers) in &counted.buckets {
        latencies.add(*upper, *answers);
    }
}

fn service(port: &ServicePort) -> Key {
    Key::new(port.service.namespace.clone(), port.service.name.clone())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::SocketAddr};

    use controllers::{Answers, Endpoint};
    use gateway::{Cause, Counts, Settings, cache::Name};

    use super::*;

    fn port(service: &str, port: u16) -> ServicePort {
        ServicePort { service: Name::new("ns", service), port }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn counts(requests: u64, accepted: u64) -> Counts {
        Counts { requests, accepted, ..Counts::default() }
    }

    /// So many good answers, and so many errors.
    fn answered(counts: Counts, good: u64, errors: u64) -> Counts {
        Counts { answers: [(200, good), (500, errors)].into(), ..counts }
    }

    /// So many answers within so many milliseconds.
    fn within(millis: &[(u64, u64)]) -> BTreeMap<Duration, u64> {
        millis.iter().map(|(upper, answers)| (Duration::from_millis(*upper), *answers)).collect()
    }

    fn took(whole: &[(u64, u64)], first_byte: &[(u64, u64)]) -> gateway::Latencies {
        let distribution = |of| Distribution { buckets: within(of), sum: Duration::ZERO };
        gateway::Latencies { whole: distribution(whole), first_byte: distribution(first_byte) }
    }

    fn latencies(millis: &[(u64, u64)]) -> Latencies {
        let mut latencies = Latencies::default();
        for (upper, answers) in within(millis) {
            latencies.add(upper, answers);
        }
        latencies
    }

    fn busy(in_service: bool, in_flight: u64, connections: u64) -> EndpointCounts {
        EndpointCounts { in_service, counts: Counts { in_flight, connections, ..Counts::default() } }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            at: SystemTime::UNIX_EPOCH,
            table_epoch: 1,
            generations: BTreeMap::new(),
            ready: [
                (port("web", 80), vec![address("10.1.0.1:80"), address("10.1.0.2:80")]),
                (port("web", 90), vec![address("10.1.0.1:90")]),
                (port("none", 80), vec![]),
            ]
            .into(),
            routes: BTreeMap::new(),
            cluster_addresses: BTreeMap::new(),
            services: [
                (port("web", 80), answered(counts(5, 2), 3, 1)),
                (port("web", 90), Counts { failed: [(Cause::Reset, 1)].into(), ..counts(0, 1) }),
                (port("none", 80), counts(0, 0)),
            ]
            .into(),
            endpoints: [
                (address("10.1.0.1:80"), busy(false, 2, 1)),
                (address("10.1.0.1:90"), busy(true, 0, 3)),
                (address("10.1.0.3:80"), busy(false, 0, 0)),
            ]
            .into(),
            latencies: [
                (port("web", 80), took(&[(10, 3), (800, 1)], &[(5, 4)])),
                (port("web", 90), took(&[(800, 2)], &[])),
            ]
            .into(),
            unrouted: 7,
        }
    }

    #[test]
    fn ports_are_those_of_their_service_and_of_their_pod() {
        let key = |name: &str| Key::new("ns", name);
        let expected = DataPlane {
            controller: "us".to_owned(),
            ready: [(key("web"), 1), (key("none"), 0)].into(),
            requests: [(key("web"), 8), (key("none"), 0)].into(),
            answers: [(key("web"), Answers { all: 5, errors: 2 }), (key("none"), Answers::default())].into(),
            latencies: [(key("web"), latencies(&[(10, 3), (800, 3)]))].into(),
            first_bytes: [(key("web"), latencies(&[(5, 4)]))].into(),
            endpoints: [
                (address("10.1.0.1:0").ip(), Endpoint { in_service: true, in_flight: 6 }),
                (address("10.1.0.3:0").ip(), Endpoint { in_service: false, in_flight: 0 }),
            ]
            .into(),
            ..DataPlane::default()
        };
        assert_eq!(data_plane("us", &snapshot()), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn recent_requests_are_those_of_the_last_seconds() {
        let observed = GatewayDataPlane::new(Gateway::new(Settings::default()));
        let counted = |count: u64| BTreeMap::from([(Key::new("ns", "web"), count)]);
        // Nothing is counted before the first observation.
        assert_eq!(observed.lately(&counted(100)), counted(0));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(observed.lately(&counted(130)), counted(30));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(observed.lately(&counted(150)), counted(50));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(observed.lately(&counted(150)), counted(20));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(observed.lately(&counted(151)), counted(1));
    }

    #[test]
    fn the_gateway_is_observed_under_its_own_name() {
        let observed = GatewayDataPlane::new(Gateway::new(Settings::default()));
        let controller = Settings::default().controller;
        assert_eq!(observed.data_plane(), Some(DataPlane { controller, ..DataPlane::default() }));
        assert!(!observed.changes().has_changed().unwrap());
    }
}
