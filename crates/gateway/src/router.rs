//! The table that is served, and the way a request finds its endpoint in it.
//!
//! A choice, with the count of what is in flight, is made under the lock that a swap takes alone. So when
//! [`Router::install`] returns, no request begins at an endpoint that left, and what is in flight there is counted: the
//! two things that an acknowledgement and a drain rest on. The lock is held for a choice, never over I/O.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::SystemTime,
};

use http::StatusCode;
use rustls::ServerConfig;
use tokio::{sync::watch, time::Instant};

use crate::{
    cache::{Kind, Name},
    counters::{Cause, Counters, EndpointCounts, Flow, Snapshot},
    histogram::Timers,
    pool::{Connection, Pool},
    routes::{Config, Head, Rule, ServicePort},
    tls::Tls,
    weights::Shares,
};

/// Wakes the tasks that wait for a table or for a drain.
#[derive(Debug, Clone, Default)]
struct Changes(watch::Sender<u64>);

impl Changes {
    fn notify(&self) {
        self.0.send_modify(|changes| *changes += 1);
    }
}

/// The address of a server, with its connections and counters. It outlives the tables that name it.
#[derive(Debug)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub pool: Pool,
    counters: Counters,
    in_service: AtomicBool,
    /// It refused the last connection. Others are asked first; now and then it is tried again.
    failing: AtomicBool,
    changes: Changes,
}

impl Endpoint {
    fn new(address: SocketAddr, changes: Changes) -> Self {
        Self {
            address,
            pool: Pool::default(),
            counters: Counters::default(),
            in_service: AtomicBool::new(true),
            failing: AtomicBool::default(),
            changes,
        }
    }

    /// Whether it gets new requests. In one order with the counts of what is in flight, so that the end of the last request
    /// and the swap that takes the endpoint out of service do not miss each other.
    fn is_in_service(&self) -> bool {
        self.in_service.load(SeqCst)
    }

    /// Ends a request or connection. If it was the last and the endpoint is out of service, a handover may wait for it.
    /// An endpoint that leaves at this moment is not missed: `install` notifies after it has left.
    fn end(&self, flow: Flow) {
        self.counters.end(flow);
        if !self.is_in_service() && self.counters.busy() == 0 {
            self.changes.notify();
        }
    }

    /// Keeps a connection for the next request, if the endpoint is in service.
    pub fn keep(&self, connection: Connection) {
        if self.is_in_service() {
            self.pool.put(connection);
        }
    }

    pub fn refused(&self, refused: bool) {
        self.failing.store(refused, Relaxed);
    }
}

/// What is counted of a Service's port, over all tables.
#[derive(Debug)]
struct Counted {
    key: ServicePort,
    counters: Counters,
    timers: Timers,
}

impl Counted {
    fn new(key: ServicePort) -> Self {
        Self { key, counters: Counters::default(), timers: Timers::default() }
    }
}

/// A Service's port in one table.
#[derive(Debug)]
struct Service {
    counted: Arc<Counted>,
    /// What came in at its cluster address.
    direct: Arc<Counters>,
    /// The endpoints take turns. The least busy would not do: an endpoint that fails is never busy, and would draw the
    /// requests of all others.
    next: Arc<AtomicU64>,
    endpoints: Vec<Arc<Endpoint>>,
    http2: bool,
}

impl Service {
    /// The endpoint whose turn it is, of those that were not tried and did not refuse their last connection.
    fn pick(&self, tried: &[SocketAddr]) -> Option<&Arc<Endpoint>> {
        let turn = self.next.fetch_add(1, Relaxed);
        // A number that few counts of endpoints divide, so that each has a forgiving turn in time.
        let forgiving = turn.is_multiple_of(17);
        let untried = |endpoint: &&Arc<Endpoint>| !tried.contains(&endpoint.address);
        let in_order = |endpoint: &&Arc<Endpoint>| forgiving || !endpoint.failing.load(Relaxed);
        let all = || self.endpoints.iter().filter(untried);
        nth(turn, || all().filter(in_order)).or_else(|| nth(turn, all))
    }
}

/// The item whose turn it is.
fn nth<T, I: Iterator<Item = T>>(turn: u64, items: impl Fn() -> I) -> Option<T> {
    let count = u64::try_from(items().count()).unwrap_or(u64::MAX);
    let place = turn.checked_rem(count)?;
    items().nth(usize::try_from(place).unwrap_or_default())
}

#[derive(Debug)]
struct RuleState {
    rule: Arc<Rule>,
    /// Those of its backends and mirrors, in their order; none where the reference is invalid.
    services: Vec<Option<Arc<Service>>>,
    mirrors: Vec<Option<Arc<Service>>>,
    shares: Shares,
    turn: Arc<AtomicU64>,
    counters: Arc<Counters>,
}

impl RuleState {
    /// The backend that this turn belongs to, with its Service unless its reference is invalid.
    fn backend(&self, turn: u64) -> Option<(usize, &Service)> {
        let place = self.shares.choose(turn)?;
        Some((place, self.services.get(place)?.as_deref()?))
    }

    /// The backends of the following turns: by weight too, over many turns.
    fn others(&self, turn: u64) -> impl Iterator<Item = (usize, &Service)> {
        let period = self.shares.period() as u64;
        (turn..turn + period).skip(1).filter_map(|turn| self.backend(turn))
    }

    /// Copies of the request of this turn, for the Services that get them. One that has no endpoint gets none.
    fn mirrored(&self, turn: u64) -> Vec<InFlight> {
        let mirrors = self.rule.mirrors.iter().zip(&self.mirrors).filter(|(mirror, _)| mirror.is_due(turn));
        mirrors.filter_map(|(_, service)| begin(service.as_deref()?, Flow::Request, None)).collect()
    }
}

#[derive(Debug, Default)]
struct Table {
    epoch: u64,
    config: Config,
    rules: Vec<RuleState>,
    services: BTreeMap<ServicePort, Arc<Service>>,
    tls: BTreeMap<SocketAddr, Tls>,
    /// Those in service, and those that still have something in flight.
    endpoints: BTreeMap<SocketAddr, Arc<Endpoint>>,
    /// By route and place of the rule: what goes on over swaps.
    turns: BTreeMap<(Kind, Name, usize), Arc<AtomicU64>>,
    routes: BTreeMap<Name, Arc<Counters>>,
}

#[derive(Debug, Default)]
pub struct Router {
    table: RwLock<Table>,
    unrouted: AtomicU64,
    failover: bool,
    changes: Changes,
}

/// A request or connection in flight: counted for its route, Service and endpoint until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    flow: Flow,
    route: Option<Arc<Counters>>,
    service: Arc<Counted>,
    pub endpoint: Arc<Endpoint>,
    /// Whether the endpoint is to be asked by HTTP/2.
    pub http2: bool,
    began: Instant,
    /// Whether the first byte of the answer is still to come.
    is_waiting: bool,
    tried: Vec<SocketAddr>,
}

impl InFlight {
    /// Counts `what` for the route, the Service and the endpoint.
    pub fn record(&self, what: impl Fn(&Counters)) {
        self.route.iter().for_each(|route| what(route));
        what(&self.service.counters);
        what(&self.endpoint.counters);
    }

    /// Ends what turned out not to be a request or connection of its own, as if it had never begun.
    pub fn withdraw(self) {
        self.record(|counters| counters.withdraw(self.flow));
    }

    pub fn service(&self) -> &ServicePort {
        &self.service.key
    }

    /// The answer begins now.
    pub fn first_byte(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.service.timers.first_byte.observe(self.began.elapsed());
        }
    }

    /// The answer has ended now, or is waited for no longer.
    pub fn ended(&mut self) {
        self.first_byte();
        self.service.timers.whole.observe(self.began.elapsed());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.route.iter().for_each(|route| route.end(self.flow));
        self.service.counters.end(self.flow);
        // Last: a task that this wakes finds it ended everywhere.
        self.endpoint.end(self.flow);
    }
}

/// The way of a request.
#[derive(Debug)]
pub struct Chosen {
    /// The rule, and the place of the backend in it; none for what came in at the cluster address of a Service.
    pub by: Option<(Arc<Rule>, usize)>,
    pub in_flight: InFlight,
    /// Copies of it.
    pub mirrored: Vec<InFlight>,
}

/// Why there is no endpoint for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRouted {
    /// No rule matches.
    NoRule,
    /// The client was shown the certificate of another listener.
    Misdirected,
    /// The rule answers itself.
    Redirect(Arc<Rule>),
    Failed(Cause),
}

impl Router {
    pub fn new(failover: bool) -> Self {
        Self { failover, ..Self::default() }
    }

    fn read<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        read(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Chooses the rule, the Service by weight, and the endpoint of a request.
    pub fn choose(
        &self,
        frontend: SocketAddr,
        head: &Head<'_>,
        server_name: Option<&str>,
    ) -> Result<Chosen, NotRouted> {
        self.read(|table| {
            let frontend = table.config.frontends.get(&frontend);
            if let (Some(frontend), Some(name)) = (frontend, server_name)
                && frontend.is_misdirected(head, name)
            {
                return Err(NotRouted::Misdirected);
            }
            let state = frontend.and_then(|frontend| table.rules.get(frontend.find(head)?));
            let Some(state) = state else {
                self.unrouted.fetch_add(1, Relaxed);
                return Err(NotRouted::NoRule);
            };
            let fail = |cause| {
                fail(&state.counters, Flow::Request, cause);
                NotRouted::Failed(cause)
            };
            if let Some(redirect) = &state.rule.redirect {
                state.counters.begin(Flow::Request);
                state.counters.answered(StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::FOUND));
                state.counters.end(Flow::Request);
                return Err(NotRouted::Redirect(Arc::clone(&state.rule)));
            }
            let turn = state.turn.fetch_add(1, Relaxed);
            let (backend, service) = state.backend(turn).ok_or_else(|| fail(Cause::Invalid))?;
            let try_backend =
                |(backend, service)| Some((backend, begin(service, Flow::Request, Some(&state.counters))?));
            let mut chosen = try_backend((backend, service));
            if chosen.is_none() && self.failover {
                chosen = state.others(turn).find_map(try_backend);
                if chosen.is_some() {
                    service.counted.counters.failed_over();
                }
            }
            let (backend, mut in_flight) = chosen.ok_or_else(|| {
                service.counted.counters.failed(Cause::NoEndpoint);
                fail(Cause::NoEndpoint)
            })?;
            let mut mirrored = state.mirrored(turn);
            for in_flight in mirrored.iter_mut().chain([&mut in_flight]) {
                in_flight.http2 |= state.rule.kind == Kind::GrpcRoute;
            }
            Ok(Chosen { by: Some((Arc::clone(&state.rule), backend)), in_flight, mirrored })
        })
    }

    /// How TLS is served at the address of a listener; none where it is not.
    pub fn tls(&self, frontend: SocketAddr) -> Option<Arc<ServerConfig>> {
        self.read(|table| table.tls.get(&frontend).map(|tls| Arc::clone(&tls.config)))
    }

    /// Whether the port of the Service at this cluster address says that it speaks HTTP/2.
    pub fn is_http2(&self, service: SocketAddr) -> bool {
        self.read(|table| {
            let key = table.config.cluster_addresses.get(&service);
            key.is_some_and(|key| table.config.http2.contains(key))
        })
    }

    /// Chooses an endpoint for a connection to a Service, or for a request that came through one.
    pub fn choose_in_service(&self, service: SocketAddr, flow: Flow) -> Option<InFlight> {
        self.read(|table| {
            let service = table.services.get(table.config.cluster_addresses.get(&service)?)?;
            begin(service, flow, Some(&service.direct)).or_else(|| {
                service.counted.counters.failed(Cause::NoEndpoint);
                fail(&service.direct, flow, Cause::NoEndpoint);
                None
            })
        })
    }

    /// Moves what its endpoint refused to another endpoint of the same Service; `Err` with it when there is none.
    pub fn choose_another(&self, in_flight: InFlight) -> Result<InFlight, InFlight> {
        let mut tried = in_flight.tried.clone();
        tried.push(in_flight.endpoint.address);
        let next = self.read(|table| {
            let service = table.services.get(in_flight.service())?;
            let endpoint = service.pick(&tried)?;
            endpoint.counters.begin(in_flight.flow);
            Some(Arc::clone(endpoint))
        });
        let Some(endpoint) = next else { return Err(in_flight) };
        let mut in_flight = in_flight;
        in_flight.record(Counters::retried);
        in_flight.endpoint.end(in_flight.flow);
        in_flight.endpoint = endpoint;
        in_flight.tried = tried;
        Ok(in_flight)
    }

    /// Serves this config from now on and returns its number. A config that is served already keeps its number.
    pub fn install(&self, config: Config) -> u64 {
        // The long part, before the lock is taken.
        let shares = config.rules.iter().map(|rule| {
            let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
            Shares::new(&weights)
        });
        let shares: Vec<Shares> = shares.collect();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.epoch > 0 && table.config == config {
            return table.epoch;
        }
        let old = std::mem::take(&mut *table);
        *table = successor(old, config, shares, &self.changes);
        for (address, endpoint) in &table.endpoints {
            let serves = table
                .services
                .values()
                .any(|service| service.endpoints.iter().any(|endpoint| endpoint.address == *address));
            endpoint.in_service.store(serves, SeqCst);
            if !serves {
                // Nothing new comes: a server that stops need not wait for connections without a request.
                endpoint.pool.clear();
            }
        }
        let epoch = table.epoch;
        // A task that this wakes reads the table at once, and must not wait for the lock.
        drop(table);
        self.changes.notify();
        epoch
    }

    /// Changes when another table is served, and when an endpoint that left has finished.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.0.subscribe()
    }

    /// Whether nothing is in flight at an address and nothing new comes to it.
    pub fn drained(&self, address: SocketAddr) -> bool {
        self.read(|table| {
            table
                .endpoints
                .get(&address)
                .is_none_or(|endpoint| !endpoint.is_in_service() && endpoint.counters.busy() == 0)
        })
    }

    pub fn snapshot(&self, at: SystemTime) -> Snapshot {
        self.read(|table| Snapshot {
            at,
            table_epoch: table.epoch,
            generations: table.config.generations.clone(),
            ready: table.config.ready.clone(),
            routes: table.routes.iter().map(|(name, counters)| (name.clone(), counters.counts())).collect(),
            services: table
                .services
                .iter()
                .map(|(key, service)| (key.clone(), service.counted.counters.counts()))
                .collect(),
            latencies: table
                .services
                .iter()
                .map(|(key, service)| (key.clone(), service.counted.timers.read()))
                .collect(),
            cluster_addresses: table
                .services
                .iter()
                .map(|(key, service)| (key.clone(), service.direct.counts()))
                .collect(),
            endpoints: table
                .endpoints
                .values()
                .map(|endpoint| {
                    let in_service = endpoint.is_in_service();
                    (endpoint.address, EndpointCounts { in_service, counts: endpoint.counters.counts() })
                })
                .collect(),
            unrouted: self.unrouted.load(Relaxed),
        })
    }
}

/// Counts what found no endpoint.
fn fail(counters: &Counters, flow: Flow, cause: Cause) {
    counters.begin(flow);
    counters.failed(cause);
    counters.end(flow);
}

fn begin(service: &Service, flow: Flow, route: Option<&Arc<Counters>>) -> Option<InFlight> {
    let endpoint = Arc::clone(service.pick(&[])?);
    let in_flight = InFlight {
        flow,
        route: route.cloned(),
        service: Arc::clone(&service.counted),
        endpoint,
        http2: service.http2,
        began: Instant::now(),
        is_waiting: true,
        tried: Vec::new(),
    };
    in_flight.record(|counters| counters.begin(flow));
    Some(in_flight)
}

/// The table of a config, with the turns, counters and endpoints that go on from the table before.
fn successor(old: Table, config: Config, shares: Vec<Shares>, changes: &Changes) -> Table {
    let mut next = Table { epoch: old.epoch + 1, ..Table::default() };
    next.endpoints = old.endpoints;
    next.endpoints.retain(|_, endpoint| endpoint.counters.busy() > 0 || endpoint.is_in_service());
    for (key, addresses) in &config.ready {
        let endpoints = addresses.iter().map(|address| {
            let new = || Arc::new(Endpoint::new(*address, changes.clone()));
            Arc::clone(next.endpoints.entry(*address).or_insert_with(new))
        });
        let endpoints = endpoints.collect();
        let before = old.services.get(key);
        let counted = before.map(|service| Arc::clone(&service.counted));
        let counted = counted.unwrap_or_else(|| Arc::new(Counted::new(key.clone())));
        let direct = before.map(|service| Arc::clone(&service.direct)).unwrap_or_default();
        let turn = before.map(|service| Arc::clone(&service.next)).unwrap_or_default();
        let http2 = config.http2.contains(key);
        let service = Service { counted, direct, next: turn, endpoints, http2 };
        next.services.insert(key.clone(), Arc::new(service));
    }
    for (rule, shares) in config.rules.iter().zip(shares) {
        let place = (rule.kind, rule.route.clone(), rule.place);
        let turn = old.turns.get(&place).cloned().unwrap_or_default();
        let counters = next
            .routes
            .entry(rule.route.clone())
            .or_insert_with(|| old.routes.get(&rule.route).cloned().unwrap_or_default());
        let counters = Arc::clone(counters);
        next.turns.insert(place, Arc::clone(&turn));
        let of = |target: &Option<ServicePort>| next.services.get(target.as_ref()?).cloned();
        let services = rule.backends.iter().map(|backend| of(&backend.target)).collect();
        let mirrors = rule.mirrors.iter().map(|mirror| of(&mirror.target)).collect();
        let rule = Arc::new(rule.clone());
        next.rules.push(RuleState { rule, services, mirrors, shares, turn, counters });
    }
    next.tls = config
        .frontends
        .iter()
        .filter_map(|(address, frontend)| Some((*address, Tls::of(frontend, old.tls.get(address))?)))
        .collect();
    next.config = config;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = "10.0.0.1:80";
    const ONE: &str = "10.1.0.1:80";
    const TWO: &str = "10.1.0.2:80";

    /// One Service with a cluster address and these endpoints.
    fn config(endpoints: &[&str]) -> Config {
        let service = ServicePort { service: Name::new("ns", "web"), port: 80 };
        Config {
            cluster_addresses: [(SERVICE.parse().unwrap(), service.clone())].into(),
            ready: [(service, endpoints.iter().map(|address| address.parse().unwrap()).collect())].into(),
            ..Config::default()
        }
    }

    /// Whether there was a change since the last call.
    fn notified(changes: &mut watch::Receiver<u64>) -> bool {
        let notified = changes.has_changed().unwrap();
        changes.mark_unchanged();
        notified
    }

    #[test]
    fn a_table_is_notified_once_and_only_if_it_differs() {
        let router = Router::default();
        let mut changes = router.changes();
        router.install(config(&[ONE]));
        assert!(notified(&mut changes));
        router.install(config(&[ONE]));
        assert!(!notified(&mut changes));
        router.install(config(&[ONE, TWO]));
        assert!(notified(&mut changes));
    }

    #[test]
    fn the_end_of_the_last_connection_of_an_endpoint_that_left_is_notified() {
        let router = Router::default();
        router.install(config(&[ONE]));
        let mut changes = router.changes();
        let connection = || router.choose_in_service(SERVICE.parse().unwrap(), Flow::Connection).unwrap();
        drop(connection());
        assert!(!notified(&mut changes), "it is in service");
        let (first, last) = (connection(), connection());
        router.install(config(&[TWO]));
        assert!(notified(&mut changes));
        drop(first);
        assert!(!notified(&mut changes), "another is open");
        assert!(!router.drained(ONE.parse().unwrap()));
        drop(last);
        assert!(notified(&mut changes));
        assert!(router.drained(ONE.parse().unwrap()));
    }

    #[test]
    fn an_endpoint_that_left_is_drained_when_its_last_connection_moves_to_another() {
        let router = Router::default();
        router.install(config(&[ONE]));
        let in_flight = router.choose_in_service(SERVICE.parse().unwrap(), Flow::Connection).unwrap();
        router.install(config(&[TWO]));
        let mut changes = router.changes();
        let in_flight = router.choose_another(in_flight).unwrap();
        assert!(notified(&mut changes));
        assert!(router.drained(ONE.parse().unwrap()));
        drop(in_flight);
        assert!(!notified(&mut changes), "the other is in service");
    }
}
