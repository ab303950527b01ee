//! Cluster IPs and node ports: each belongs to one Service at a time.
//!
//! The stored Services alone say what is taken: a deleted Service frees what it had, and a restart loses nothing. An
//! address is picked among those that no Service has, and the store refuses the commit if another Service was given
//! it in between.
use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};

use crate::{
    builtin::{self, Need},
    handlers::write::draft,
    object,
    registry::resource::Resource,
    server::Server,
    status::{Cause, StatusError},
    store::{Change, CommitError, Entry, Key, Query},
};

/// The first address of the range, of which 16 bits are free. It is on loopback, where a gateway of this machine can
/// listen.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 96, 0, 0);
const RANGE: &str = "127.96.0.0/16";
/// The first and the last address of the range are given to no Service.
const ADDRESSES: u32 = u16::MAX as u32 - 1;
const FIRST_PORT: u32 = 30_000;
const PORTS: u32 = 2_768;
const PORT_RANGE: &str = "30000-32767";

/// Where the search for a free address begins. Going on behind the last one, concurrent requests pick different
/// addresses, and a freed address is given again late, because clients may still send to it.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    ip: AtomicU32,
    port: AtomicU32,
}

impl Addresses {
    fn pick(&self, need: Need, taken: &BTreeSet<Claim>) -> Option<Claim> {
        let (next, size) = match need {
            Need::ClusterIp => (&self.ip, ADDRESSES),
            Need::NodePort => (&self.port, PORTS),
        };
        (0..size).find_map(|_| {
            let number = next.fetch_add(1, Ordering::Relaxed) % size;
            let claim = match need {
                Need::ClusterIp => Claim::Ip(Ipv4Addr::from(u32::from(FIRST) + 1 + number).to_string()),
                Need::NodePort => Claim::Port(i64::from(FIRST_PORT + number)),
            };
            (!taken.contains(&claim)).then_some(claim)
        })
    }
}

/// What one Service has and no other may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Ip(String),
    Port(i64),
}

impl Claim {
    fn value(self) -> Value {
        match self {
            Self::Ip(ip) => ip.into(),
            Self::Port(port) => port.into(),
        }
    }

    /// Why the claim can be given to no Service.
    fn outside(&self) -> Option<String> {
        match self {
            Self::Ip(ip) => {
                let offset =
                    ip.parse::<Ipv4Addr>().ok().map(|ip| u32::from(ip).wrapping_sub(u32::from(FIRST)));
                let inside = offset.is_some_and(|offset| (1..=ADDRESSES).contains(&offset));
                let why = format!(
                    "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {RANGE}"
                );
                (!inside).then_some(why)
            }
            Self::Port(port) => {
                let offset = u32::try_from(*port).unwrap_or_default().wrapping_sub(FIRST_PORT);
                let why = format!(
                    "provided port is not in the valid range. The range of valid ports is {PORT_RANGE}"
                );
                (offset >= PORTS).then_some(why)
            }
        }
    }
}

fn claims(service: &Value) -> BTreeSet<Claim> {
    let spec = &service["spec"];
    let ips = spec["clusterIPs"].as_array().into_iter().flatten().chain(spec.get("clusterIP"));
    let ips = ips.filter_map(Value::as_str).filter(|ip| !matches!(*ip, "" | "None"));
    let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64());
    let ports = ports.chain(spec["healthCheckNodePort"].as_i64()).filter(|port| *port != 0);
    ips.map(|ip| Claim::Ip(ip.to_owned())).chain(ports.map(Claim::Port)).collect()
}

fn claims_of(entry: &Entry) -> BTreeSet<Claim> {
    match (entry.field("spec.type"), entry.field("spec.clusterIP")) {
        // The one address says it all; most Services are read without being parsed.
        (Some("ClusterIP"), Some(ip)) if !matches!(ip, "" | "None") => {
            BTreeSet::from([Claim::Ip(ip.to_owned())])
        }
        (Some("ClusterIP" | "ExternalName"), _) => BTreeSet::new(),
        _ => claims(&serde_json::from_slice(&entry.bytes).unwrap_or_default()),
    }
}

/// What a write claims that the object did not have before.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeSet<Claim>);

impl Claims {
    /// The change, refused if another Service has any of the claims when it is committed.
    pub(crate) fn guard(self, change: Change) -> Change {
        if self.0.is_empty() {
            return change;
        }
        change.unless_any(Arc::new(move |entry| !self.0.is_disjoint(&claims_of(entry))))
    }
}

impl Server {
    fn taken_addresses(&self) -> BTreeSet<Claim> {
        let services = self.store().list("services", &Query::default());
        let services = services.map(|listing| listing.items).unwrap_or_default();
        services.iter().flat_map(|(_, entry)| claims_of(entry)).collect()
    }

    /// Gives a Service the addresses that it needs and has not, and judges those that it asks for. Of other kinds, does
    /// nothing.
    pub(crate) fn give_addresses(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<Claims, StatusError> {
        if !resource.is_built_in("", "Service") {
            return Ok(Claims::default());
        }
        let had = old.map(claims).unwrap_or_default();
        let taken = LazyCell::new(|| self.taken_addresses());
        let asked: BTreeSet<Claim> = claims(object).difference(&had).cloned().collect();
        let refused: Vec<Cause> = asked.iter().filter_map(|claim| judge(claim, &taken, object)).collect();
        if !refused.is_empty() {
            let name = object::name(object);
            return Err(StatusError::invalid(&resource.group, &resource.kind, name, &refused));
        }
        let mut given = asked.clone();
        let lacking = builtin::allocate(object, &mut |need| {
            let claim = self.addresses().pick(need, &taken).filter(|claim| given.insert(claim.clone()))?;
            Some(claim.value())
        });
        match lacking {
            None => Ok(Claims(given)),
            Some(Need::ClusterIp) => {
                Err(StatusError::internal("failed to allocate a serviceIP: range is full"))
            }
            Some(Need::NodePort) => {
                Err(StatusError::internal("failed to allocate a nodePort: range is full"))
            }
        }
    }

    /// Gives new cluster IPs to Services whose own cannot be: it is that of an older Service, or outside the range. The
    /// store of an earlier version may hold such.
    pub(crate) async fn repair_addresses(&self) -> Result<(), StatusError> {
        let registry = self.registry();
        let Some(resource) = registry.find("", "v1", "services") else { return Ok(()) };
        let listed = self.store().list("services", &Query::default());
        let services = listed.map(|listing| listing.items).unwrap_or_default();
        let mut holders: BTreeMap<String, Vec<(String, Key)>> = BTreeMap::new();
        for (place, entry) in &services {
            for claim in claims_of(entry) {
                let Claim::Ip(ip) = claim else { continue };
                let service: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
                let created = object::meta(&service, "creationTimestamp").to_owned();
                let key = Key::new("services", &place.namespace, &place.name);
                holders.entry(ip).or_default().push((created, key));
            }
        }
        for (ip, mut services) in holders {
            services.sort();
            let kept = usize::from(Claim::Ip(ip).outside().is_none());
            for (_, key) in services.into_iter().skip(kept) {
                self.readdress(resource, &key).await?;
            }
        }
        Ok(())
    }

    async fn readdress(&self, resource: &Resource, key: &Key) -> Result<(), StatusError> {
        while let Some(entry) = self.get(key) {
            let old: Value = serde_json::from_slice(&entry.bytes).unwrap_or_default();
            let mut new = old.clone();
            if let Some(spec) = new["spec"].as_object_mut() {
                spec.retain(|name, _| name != "clusterIP" && name != "clusterIPs");
            }
            let claims = self.give_addresses(resource, Some(&old), &mut new)?;
            let change = Change::update(key.clone(), entry.revision, draft(resource, &new)?);
            match self.store().commit(claims.guard(change)).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Conflict { .. } | CommitError::Clash { .. }) => {}
                Err(refused @ (CommitError::Full { .. } | CommitError::ReadOnly { .. })) => {
                    return Err(StatusError::internal(refused.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Why a Service cannot have what it asks for, in the words of a kube-apiserver.
fn judge(claim: &Claim, taken: &BTreeSet<Claim>, service: &Value) -> Option<Cause> {
    let spec = &service["spec"];
    let outside = claim.outside();
    match claim {
        Claim::Ip(ip) => {
            let why = outside
                .or_else(|| taken.contains(claim).then(|| "provided IP is already allocated".into()))?;
            let ips = spec.get("clusterIPs").cloned().unwrap_or_else(|| json!([ip]));
            Some(Cause::invalid("spec.clusterIPs", &ips, &format!("failed to allocate IP {ip}: {why}")))
        }
        Claim::Port(port) => {
            let why = outside
                .or_else(|| taken.contains(claim).then(|| "provided port is already allocated".into()))?;
            let mut ports = spec["ports"].as_array().into_iter().flatten();
            let field = match ports.position(|one| one["nodePort"] == *port) {
                Some(i) => format!("spec.ports[{i}].nodePort"),
                None => "spec.healthCheckNodePort".to_owned(),
            };
            Some(Cause::invalid(field, &json!(port), &why))
        }
    }
}
