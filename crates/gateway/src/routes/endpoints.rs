//! Which endpoints of a Service may get new requests.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use super::ServicePort;
use crate::{
    cache::{Cache, Kind, Name, fields, spec},
    kinds::{ServiceSpec, Slice},
};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The ready endpoints of every TCP port of every Service. One that is terminating gets no new requests, ready or not.
pub fn ready(cache: &Cache) -> BTreeMap<ServicePort, Vec<SocketAddr>> {
    let mut slices: BTreeMap<Name, Vec<Slice>> = BTreeMap::new();
    for (name, object) in cache.all(Kind::EndpointSlice) {
        let labels = object.metadata.labels.as_ref();
        if let Some(service) = labels.and_then(|labels| labels.get(SERVICE_NAME)) {
            slices.entry(Name::new(&name.namespace, service)).or_default().push(fields(object));
        }
    }
    let mut ready = BTreeMap::new();
    for (name, object) in cache.all(Kind::Service) {
        for port in spec::<ServiceSpec>(object).ports.iter().filter(|port| is_tcp(port.protocol.as_deref())) {
            let found: BTreeSet<SocketAddr> = slices
                .get(name)
                .into_iter()
                .flatten()
                .flat_map(|slice| of(slice, port.name.as_deref()))
                .collect();
            let key = ServicePort { service: name.clone(), port: port.port };
            ready.insert(key, found.into_iter().collect());
        }
    }
    ready
}

fn of(slice: &Slice, port: Option<&str>) -> Vec<SocketAddr> {
    let same = |name: &Option<String>| name.as_deref().unwrap_or_default() == port.unwrap_or_default();
    let Some(number) = slice.ports.iter().find(|port| same(&port.name)).and_then(|port| port.port) else {
        return Vec::new();
    };
    let in_service = slice.endpoints.iter().filter(|endpoint| {
        endpoint.conditions.ready.unwrap_or(true) && !endpoint.conditions.terminating.unwrap_or(false)
    });
    in_service
        .filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, number))
        .collect()
}

/// The cluster addresses that this machine can serve. Those of a real cluster are kube-proxy's.
pub fn cluster_addresses(cache: &Cache) -> BTreeMap<SocketAddr, ServicePort> {
    let mut cluster_addresses = BTreeMap::new();
    for (name, object) in cache.all(Kind::Service) {
        let spec: ServiceSpec = spec(object);
        let address = spec.cluster_ip.as_deref().and_then(|address| address.parse::<Ipv4Addr>().ok());
        let Some(address) = address.filter(Ipv4Addr::is_loopback) else { continue };
        for port in spec.ports.iter().filter(|port| is_tcp(port.protocol.as_deref())) {
            let key = ServicePort { service: name.clone(), port: port.port };
            cluster_addresses.insert(SocketAddr::new(address.into(), port.port), key);
        }
    }
    cluster_addresses
}

/// The ports of Services that say that they speak HTTP/2.
pub fn http2(cache: &Cache) -> BTreeSet<ServicePort> {
    let mut http2 = BTreeSet::new();
    for (name, object) in cache.all(Kind::Service) {
        let ports = spec::<ServiceSpec>(object).ports.into_iter();
        let ports =
            ports.filter(|port| matches!(port.app_protocol.as_deref(), Some("kubernetes.io/h2c" | "grpc")));
        http2.extend(ports.map(|port| ServicePort { service: name.clone(), port: port.port }));
    }
    http2
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}
