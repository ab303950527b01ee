//! The embedded data plane as the controllers see it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use controllers::{DataPlane, Key, Outside};
use gateway::{EndpointCounts, Gateway, Snapshot, routes::ServicePort};
use tokio::{sync::watch, time::Instant};

/// The window through which the controllers look at the gateway beside them.
#[derive(Debug)]
pub(crate) struct GatewayWindow {
    gateway: Gateway,
    /// What was counted when, for as long as it tells what happens lately.
    counted: Mutex<VecDeque<(Instant, BTreeMap<Key, u64>)>>,
}

/// How long lately is.
const LATELY: Duration = Duration::from_secs(4);

impl GatewayWindow {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self { gateway, counted: Mutex::default() }
    }

    /// What came since a while ago, or since it is looked.
    fn lately(&self, requests: &BTreeMap<Key, u64>) -> BTreeMap<Key, u64> {
        let now = Instant::now();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is old enough stays, to count from.
        while counted.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= LATELY) {
            counted.pop_front();
        }
        if counted.back().is_none_or(|(at, _)| now.duration_since(*at) >= LATELY / 8) {
            counted.push_back((now, requests.clone()));
        }
        let before = counted.front().map(|(_, before)| before);
        let since =
            |service: &Key| before.and_then(|before| before.get(service)).copied().unwrap_or_default();
        requests.iter().map(|(key, count)| (key.clone(), count.saturating_sub(since(key)))).collect()
    }
}

impl Outside for GatewayWindow {
    fn data_plane(&self) -> Option<DataPlane> {
        // The time is a mark on a snapshot, and nothing that is read here.
        let mut plane = data_plane(self.gateway.controller(), &self.gateway.snapshot(SystemTime::UNIX_EPOCH));
        plane.lately = self.lately(&plane.requests);
        Some(plane)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.gateway.changes()
    }
}

/// What was counted by port, by Service and by pod: controllers know those.
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
    }
    for (address, EndpointCounts { in_service, counts }) in &snapshot.endpoints {
        // A pod is out of service and has finished when it is and has on each of its ports.
        let endpoint = plane.endpoints.entry(address.ip()).or_default();
        endpoint.in_service |= in_service;
        endpoint.in_flight += counts.in_flight + counts.connections;
    }
    plane
}

fn service(port: &ServicePort) -> Key {
    Key::new(port.service.namespace.clone(), port.service.name.clone())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::SocketAddr};

    use controllers::Endpoint;
    use gateway::{Counts, Settings, world::Name};

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
            services: [
                (port("web", 80), counts(5, 2)),
                (port("web", 90), counts(0, 1)),
                (port("none", 80), counts(0, 0)),
            ]
            .into(),
            endpoints: [
                (address("10.1.0.1:80"), busy(false, 2, 1)),
                (address("10.1.0.1:90"), busy(true, 0, 3)),
                (address("10.1.0.3:80"), busy(false, 0, 0)),
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
    async fn lately_is_what_came_in_the_last_seconds() {
        let window = GatewayWindow::new(Gateway::new(Settings::default()));
        let counted = |count: u64| BTreeMap::from([(Key::new("ns", "web"), count)]);
        // Nothing was seen before the first look.
        assert_eq!(window.lately(&counted(100)), counted(0));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(window.lately(&counted(130)), counted(30));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(window.lately(&counted(150)), counted(50));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(window.lately(&counted(150)), counted(20));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(window.lately(&counted(151)), counted(1));
    }

    #[test]
    fn the_window_shows_the_gateway_under_its_own_name() {
        let window = GatewayWindow::new(Gateway::new(Settings::default()));
        let controller = Settings::default().controller;
        assert_eq!(window.data_plane(), Some(DataPlane { controller, ..DataPlane::default() }));
        assert!(!window.changes().has_changed().unwrap());
    }
}
