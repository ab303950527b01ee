//! The table that is served, and the way a request finds its endpoint in it.
//!
//! A choice, with the count of what is in flight, is made under the lock that a swap takes alone. So when
//! [`Live::install`] returns, no request begins at an endpoint that left, and what is in flight there is counted: the
//! two things that an acknowledgement and a drain rest on. The lock is held for a choice, never over I/O.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use tokio::sync::watch;

use crate::{
    counters::{Cause, EndpointCounts, Snapshot, Tally, Unit},
    pool::{Connection, Pool},
    routes::{Head, Plan, Rule, ServicePort},
    weights::Shares,
    world::Name,
};

/// Counts what those who wait for a table or a drain have to know.
#[derive(Debug, Clone, Default)]
struct Changes(watch::Sender<u64>);

impl Changes {
    fn tell(&self) {
        self.0.send_modify(|changes| *changes += 1);
    }
}

/// A place that answers requests. It outlives the tables that name it.
#[derive(Debug)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub pool: Pool,
    tally: Tally,
    in_service: watch::Sender<bool>,
    /// It refused the last connection. Others are asked first; now and then it is tried again.
    suspect: AtomicBool,
    changes: Changes,
}

impl Endpoint {
    fn new(address: SocketAddr, changes: Changes) -> Self {
        let (in_service, _) = watch::channel(true);
        Self {
            address,
            pool: Pool::default(),
            tally: Tally::default(),
            in_service,
            suspect: AtomicBool::default(),
            changes,
        }
    }

    /// Something in flight here has ended. If it was the last and the endpoint has left, somebody waits for that. One
    /// that leaves at this moment is not missed: who swaps the table tells of it after it has left.
    fn end(&self, unit: Unit) {
        self.tally.end(unit);
        if !*self.in_service.borrow() && self.tally.busy() == 0 {
            self.changes.tell();
        }
    }

    /// Keeps a connection for the next request, if there may be one.
    pub fn keep(&self, connection: Connection) {
        if *self.in_service.borrow() {
            self.pool.put(connection);
        }
    }

    pub fn refused(&self, refused: bool) {
        self.suspect.store(refused, Relaxed);
    }

    /// Returns once it has been out of service for this long without a break.
    pub async fn gone_for(&self, time: std::time::Duration) {
        let mut in_service = self.in_service.subscribe();
        while in_service.wait_for(|in_service| !in_service).await.is_ok() {
            let back = in_service.wait_for(|in_service| *in_service);
            if tokio::time::timeout(time, back).await.is_err() {
                return;
            }
        }
    }
}

/// A Service's port in one table.
#[derive(Debug)]
struct Service {
    key: Arc<ServicePort>,
    tally: Arc<Tally>,
    /// Where the search for the least busy begins: equals take turns.
    next: Arc<AtomicU64>,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Service {
    /// The least busy endpoint that was not tried.
    fn pick(&self, tried: &[SocketAddr]) -> Option<&Arc<Endpoint>> {
        let turn = self.next.fetch_add(1, Relaxed);
        let count = self.endpoints.len();
        let first = usize::try_from(turn % u64::try_from(count.max(1)).unwrap_or(1)).unwrap_or(0);
        // A number that few counts of endpoints divide, so that each is the first of a forgiving turn in time.
        let forgiving = turn.is_multiple_of(17);
        (0..count)
            .map(|step| &self.endpoints[(first + step) % count])
            .filter(|endpoint| !tried.contains(&endpoint.address))
            .min_by_key(|endpoint| (!forgiving && endpoint.suspect.load(Relaxed), endpoint.tally.busy()))
    }
}

#[derive(Debug)]
struct Lane {
    rule: Arc<Rule>,
    shares: Shares,
    turn: Arc<AtomicU64>,
    tally: Arc<Tally>,
}

impl Lane {
    /// The Service whose turn it is, unless its reference is invalid.
    fn service<'a>(&self, turn: u64, table: &'a Table) -> Option<&'a Service> {
        table.services.get(self.rule.backends[self.shares.choose(turn)?].target.as_ref()?)
    }

    /// Those whose turns come next: by weight too, over many turns.
    fn others<'a>(&self, turn: u64, table: &'a Table) -> impl Iterator<Item = &'a Service> {
        let period = self.shares.period() as u64;
        (turn..turn + period).skip(1).filter_map(move |turn| self.service(turn, table))
    }
}

#[derive(Debug, Default)]
struct Table {
    epoch: u64,
    plan: Plan,
    lanes: Vec<Lane>,
    services: BTreeMap<ServicePort, Service>,
    /// Those in service, and those that still have something in flight.
    endpoints: BTreeMap<SocketAddr, Arc<Endpoint>>,
    /// By route and place of the rule: what goes on over swaps.
    turns: BTreeMap<(Name, usize), Arc<AtomicU64>>,
    routes: BTreeMap<Name, Arc<Tally>>,
}

#[derive(Debug, Default)]
pub struct Live {
    table: RwLock<Table>,
    unrouted: AtomicU64,
    divert: bool,
    changes: Changes,
}

/// A request or connection on its way: counted wherever it counts until it is dropped.
#[derive(Debug)]
pub struct Visit {
    unit: Unit,
    route: Option<Arc<Tally>>,
    service: (Arc<ServicePort>, Arc<Tally>),
    pub endpoint: Arc<Endpoint>,
    tried: Vec<SocketAddr>,
}

impl Visit {
    /// Tells every tally that this counts in.
    pub fn tell(&self, what: impl Fn(&Tally)) {
        self.route.iter().for_each(|route| what(route));
        what(&self.service.1);
        what(&self.endpoint.tally);
    }

    pub fn service(&self) -> &ServicePort {
        &self.service.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.route.iter().for_each(|route| route.end(self.unit));
        self.service.1.end(self.unit);
        // Last: who is told that it has ended finds it ended everywhere.
        self.endpoint.end(self.unit);
    }
}

/// Why there is no endpoint for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// No rule matches.
    NoRule,
    Failed(Cause),
}

impl Live {
    pub fn new(divert: bool) -> Self {
        Self { divert, ..Self::default() }
    }

    fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Chooses the rule, the Service by weight, and the endpoint of a request.
    pub fn choose(&self, site: SocketAddr, head: &Head<'_>) -> Result<(Arc<Rule>, Visit), Miss> {
        self.read(|table| {
            let Some(lane) = table.plan.sites.get(&site).and_then(|site| table.lanes.get(site.find(head)?))
            else {
                self.unrouted.fetch_add(1, Relaxed);
                return Err(Miss::NoRule);
            };
            let fail = |cause| {
                lane.tally.begin(Unit::Request);
                lane.tally.failed(cause);
                lane.tally.end(Unit::Request);
                Miss::Failed(cause)
            };
            let turn = lane.turn.fetch_add(1, Relaxed);
            let service = lane.service(turn, table).ok_or_else(|| fail(Cause::Invalid))?;
            let mut visit = begin(service, Unit::Request, Some(&lane.tally));
            if visit.is_none() && self.divert {
                visit =
                    lane.others(turn, table).find_map(|other| begin(other, Unit::Request, Some(&lane.tally)));
                if visit.is_some() {
                    service.tally.diverted();
                }
            }
            let visit = visit.ok_or_else(|| {
                service.tally.failed(Cause::NoEndpoint);
                fail(Cause::NoEndpoint)
            })?;
            Ok((Arc::clone(&lane.rule), visit))
        })
    }

    /// Chooses an endpoint for a connection to a Service.
    pub fn enter(&self, door: SocketAddr) -> Option<Visit> {
        self.read(|table| {
            let service = table.services.get(table.plan.doors.get(&door)?)?;
            begin(service, Unit::Connection, None).or_else(|| {
                service.tally.failed(Cause::NoEndpoint);
                None
            })
        })
    }

    /// Another endpoint of the same Service for what its endpoint refused; the visit itself when there is none.
    pub fn elsewhere(&self, visit: Visit) -> Result<Visit, Visit> {
        let mut tried = visit.tried.clone();
        tried.push(visit.endpoint.address);
        let next = self.read(|table| {
            let service = table.services.get(visit.service())?;
            let endpoint = service.pick(&tried)?;
            endpoint.tally.begin(visit.unit);
            Some(Arc::clone(endpoint))
        });
        let Some(endpoint) = next else { return Err(visit) };
        let mut visit = visit;
        visit.tell(Tally::retried);
        visit.endpoint.end(visit.unit);
        visit.endpoint = endpoint;
        visit.tried = tried;
        Ok(visit)
    }

    /// Serves this plan from now on, and says under which number. A plan that is served already keeps its number.
    pub fn install(&self, plan: Plan) -> u64 {
        // The long part, before anybody has to wait for it.
        let shares = plan.rules.iter().map(|rule| {
            let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
            Shares::new(&weights)
        });
        let shares: Vec<Shares> = shares.collect();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.epoch > 0 && table.plan == plan {
            return table.epoch;
        }
        let old = std::mem::take(&mut *table);
        *table = successor(old, plan, shares, &self.changes);
        for (address, endpoint) in &table.endpoints {
            let serves = table
                .services
                .values()
                .any(|service| service.endpoints.iter().any(|endpoint| endpoint.address == *address));
            endpoint
                .in_service
                .send_if_modified(|in_service| std::mem::replace(in_service, serves) != serves);
            if !serves {
                // Nothing new comes: a server that stops need not wait for connections without a request.
                endpoint.pool.clear();
            }
        }
        let epoch = table.epoch;
        // Whoever is told looks at once, and need not wait for us.
        drop(table);
        self.changes.tell();
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
                .is_none_or(|endpoint| !*endpoint.in_service.borrow() && endpoint.tally.busy() == 0)
        })
    }

    pub fn snapshot(&self, at: SystemTime) -> Snapshot {
        self.read(|table| Snapshot {
            at,
            table_epoch: table.epoch,
            generations: table.plan.generations.clone(),
            ready: table.plan.ready.clone(),
            routes: table.routes.iter().map(|(name, tally)| (name.clone(), tally.counts())).collect(),
            services: table.services.values().map(|s| (s.key.as_ref().clone(), s.tally.counts())).collect(),
            endpoints: table
                .endpoints
                .values()
                .map(|endpoint| {
                    let in_service = *endpoint.in_service.borrow();
                    (endpoint.address, EndpointCounts { in_service, counts: endpoint.tally.counts() })
                })
                .collect(),
            unrouted: self.unrouted.load(Relaxed),
        })
    }
}

fn begin(service: &Service, unit: Unit, route: Option<&Arc<Tally>>) -> Option<Visit> {
    let endpoint = Arc::clone(service.pick(&[])?);
    let service = (Arc::clone(&service.key), Arc::clone(&service.tally));
    let visit = Visit { unit, route: route.cloned(), service, endpoint, tried: Vec::new() };
    visit.tell(|tally| tally.begin(unit));
    Some(visit)
}

/// The table of a plan, with what goes on from the one before.
fn successor(old: Table, plan: Plan, shares: Vec<Shares>, changes: &Changes) -> Table {
    let mut next = Table { epoch: old.epoch + 1, ..Table::default() };
    next.endpoints = old.endpoints;
    next.endpoints.retain(|_, endpoint| endpoint.tally.busy() > 0 || *endpoint.in_service.borrow());
    for (key, addresses) in &plan.ready {
        let endpoints = addresses.iter().map(|address| {
            let new = || Arc::new(Endpoint::new(*address, changes.clone()));
            Arc::clone(next.endpoints.entry(*address).or_insert_with(new))
        });
        let endpoints = endpoints.collect();
        let before = old.services.get(key);
        let tally = before.map(|service| Arc::clone(&service.tally)).unwrap_or_default();
        let turn = before.map(|service| Arc::clone(&service.next)).unwrap_or_default();
        next.services
            .insert(key.clone(), Service { key: Arc::new(key.clone()), tally, next: turn, endpoints });
    }
    for (rule, shares) in plan.rules.iter().zip(shares) {
        let place = (rule.route.clone(), rule.place);
        let turn = old.turns.get(&place).cloned().unwrap_or_default();
        let tally = next
            .routes
            .entry(rule.route.clone())
            .or_insert_with(|| old.routes.get(&rule.route).cloned().unwrap_or_default());
        let tally = Arc::clone(tally);
        next.turns.insert(place, Arc::clone(&turn));
        next.lanes.push(Lane { rule: Arc::new(rule.clone()), shares, turn, tally });
    }
    next.plan = plan;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: &str = "10.0.0.1:80";
    const ONE: &str = "10.1.0.1:80";
    const TWO: &str = "10.1.0.2:80";

    /// One Service, with a door and these endpoints.
    fn plan(endpoints: &[&str]) -> Plan {
        let service = ServicePort { service: Name::new("ns", "web"), port: 80 };
        Plan {
            doors: [(DOOR.parse().unwrap(), service.clone())].into(),
            ready: [(service, endpoints.iter().map(|address| address.parse().unwrap()).collect())].into(),
            ..Plan::default()
        }
    }

    /// Whether there was a change since the last look.
    fn told(changes: &mut watch::Receiver<u64>) -> bool {
        let told = changes.has_changed().unwrap();
        changes.mark_unchanged();
        told
    }

    #[test]
    fn a_table_is_told_of_once_and_only_if_it_is_another() {
        let live = Live::default();
        let mut changes = live.changes();
        live.install(plan(&[ONE]));
        assert!(told(&mut changes));
        live.install(plan(&[ONE]));
        assert!(!told(&mut changes));
        live.install(plan(&[ONE, TWO]));
        assert!(told(&mut changes));
    }

    #[test]
    fn an_endpoint_that_left_is_told_of_when_its_last_connection_ends() {
        let live = Live::default();
        live.install(plan(&[ONE]));
        let mut changes = live.changes();
        let enter = || live.enter(DOOR.parse().unwrap()).unwrap();
        drop(enter());
        assert!(!told(&mut changes), "it is in service");
        let (first, last) = (enter(), enter());
        live.install(plan(&[TWO]));
        assert!(told(&mut changes));
        drop(first);
        assert!(!told(&mut changes), "another is open");
        assert!(!live.drained(ONE.parse().unwrap()));
        drop(last);
        assert!(told(&mut changes));
        assert!(live.drained(ONE.parse().unwrap()));
    }

    #[test]
    fn an_endpoint_that_left_is_told_of_when_its_last_connection_goes_elsewhere() {
        let live = Live::default();
        live.install(plan(&[ONE]));
        let visit = live.enter(DOOR.parse().unwrap()).unwrap();
        live.install(plan(&[TWO]));
        let mut changes = live.changes();
        let visit = live.elsewhere(visit).unwrap();
        assert!(told(&mut changes));
        assert!(live.drained(ONE.parse().unwrap()));
        drop(visit);
        assert!(!told(&mut changes), "the other is in service");
    }
}
