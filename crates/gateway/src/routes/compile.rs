//! Every object of the cache to one config, with the conditions of each.
use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde_json::from_value;

use super::{
    Config, Entry, Listener,
    addresses::addresses,
    attachment::{OwnGateway, attach},
    conditions::{Condition, GatewayStatus, ParentStatus, RouteStatus, Statuses},
    endpoints, grpc,
    hosts::Host,
    rules,
};
use crate::{
    cache::{Cache, Kind, Name, generation, spec},
    kinds::{ClassSpec, GROUP, GatewaySpec, ParentRef, RouteSpec},
    settings::Settings,
};

/// What is to be served, and the conditions to be written once it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    pub config: Config,
    pub statuses: Statuses,
}

pub fn compile(cache: &Cache, settings: &Settings) -> Compiled {
    let classes: BTreeMap<Name, i64> = cache
        .all(Kind::GatewayClass)
        .iter()
        .filter(|(_, class)| spec::<ClassSpec>(class).controller_name == settings.controller)
        .map(|(name, class)| (name.clone(), generation(class)))
        .collect();
    let mut gateways = ours(cache, &classes, settings);
    let mut config = Config {
        ready: endpoints::ready(cache),
        cluster_addresses: endpoints::cluster_addresses(cache),
        http2: endpoints::http2(cache),
        ..Config::default()
    };
    for gateway in gateways.values() {
        for ((listener, status), certificates) in
            gateway.spec.listeners.iter().zip(&gateway.listeners).zip(&gateway.certificates)
        {
            if let Some(frontend) = status.frontend {
                let host = Host::parse(listener.hostname.as_deref());
                config.frontends.entry(frontend).or_default().listeners.push(Listener {
                    host,
                    certificates: certificates.clone(),
                    entries: vec![],
                });
            }
        }
    }
    let mut statuses = Statuses { classes, ..Statuses::default() };
    for (name, object) in cache.all(Kind::HttpRoute) {
        let status = route(Kind::HttpRoute, name, object, cache, &mut gateways, &mut config);
        statuses.http_routes.insert(name.clone(), status);
    }
    for (name, object) in cache.all(Kind::GrpcRoute) {
        let status = route(Kind::GrpcRoute, name, object, cache, &mut gateways, &mut config);
        statuses.grpc_routes.insert(name.clone(), status);
    }
    for frontend in config.frontends.values_mut() {
        frontend.sort();
    }
    statuses.gateways = gateways
        .into_iter()
        .map(|(name, gateway)| {
            let OwnGateway { generation, address, listeners, .. } = gateway;
            (name, GatewayStatus { generation, address, listeners })
        })
        .collect();
    Compiled { config, statuses }
}

fn ours(cache: &Cache, classes: &BTreeMap<Name, i64>, settings: &Settings) -> BTreeMap<Name, OwnGateway> {
    let of_our_class = |object: &DynamicObject| {
        classes.contains_key(&Name::new("", &spec::<GatewaySpec>(object).gateway_class_name))
    };
    let found: Vec<(&Name, &DynamicObject)> = cache
        .all(Kind::Gateway)
        .iter()
        .map(|(name, object)| (name, object.as_ref()))
        .filter(|(_, object)| of_our_class(object))
        .collect();
    let mut addresses = addresses(found.iter().copied(), settings);
    found
        .into_iter()
        .filter_map(|(name, object)| {
            let address = addresses.remove(name)?;
            Some((name.clone(), OwnGateway::new(name, object, address, cache)))
        })
        .collect()
}

/// The parents of a route that are Gateways of ours, as it has them.
fn parents<'a>(
    route: &'a RouteSpec,
    namespace: &'a str,
    gateways: &'a BTreeMap<Name, OwnGateway>,
) -> impl Iterator<Item = (&'a serde_json::Value, ParentRef, Name)> {
    route.parent_refs.iter().filter_map(move |value| {
        let parent: ParentRef = serde::Deserialize::deserialize(value).ok()?;
        let gateway = parent.group.as_deref().is_none_or(|group| group == GROUP)
            && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let name = Name::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
        (gateway && gateways.contains_key(&name)).then_some((value, parent, name))
    })
}

fn route(
    kind: Kind,
    name: &Name,
    object: &DynamicObject,
    cache: &Cache,
    gateways: &mut BTreeMap<Name, OwnGateway>,
    config: &mut Config,
) -> RouteStatus {
    let route: RouteSpec = match kind {
        Kind::GrpcRoute => from_value(grpc::as_http(&object.data["spec"])).unwrap_or_default(),
        _ => spec(object),
    };
    let wanted: Vec<_> = parents(&route, &name.namespace, gateways)
        .map(|(value, parent, gateway)| (value.clone(), parent, gateway))
        .collect();
    let mut status = RouteStatus { generation: generation(object), parents: Vec::new() };
    if wanted.is_empty() {
        return status;
    }
    if kind == Kind::HttpRoute {
        config.generations.insert(name.clone(), status.generation);
    }
    let read = rules::read(kind, name, &route, cache);
    let first_rule = config.rules.len();
    if let Ok(read) = &read {
        config.rules.extend(read.rules.iter().map(|(rule, _)| rule.clone()));
    }
    let created =
        object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let age = (created, name.to_string());
    for (value, parent, gateway) in wanted {
        let Some(gateway) = gateways.get_mut(&gateway) else { continue };
        let attached = attach(gateway, &parent, kind, name, &route.hostnames, cache);
        let (accepted, resolved) = match (attached, &read) {
            (Err(no), Ok(read)) => (no, read.resolved.clone()),
            (Err(no), Err(_)) => (no, Condition::yes("ResolvedRefs", "ResolvedRefs", "")),
            (Ok(_), Err(why)) => (
                Condition::no("Accepted", "UnsupportedValue", why.clone()),
                Condition::yes("ResolvedRefs", "ResolvedRefs", "not checked: the route is refused"),
            ),
            (Ok(places), Ok(read)) => {
                for (place, hosts) in places {
                    gateway.listeners[place].attached += 1;
                    let Some(frontend) = gateway.listeners[place].frontend else { continue };
                    let listener =
                        listener_of(config, frontend, gateway.spec.listeners[place].hostname.as_deref());
                    let Some(listener) = listener else { continue };
                    for host in hosts {
                        for (offset, (_, matches)) in read.rules.iter().enumerate() {
                            listener.entries.extend(matches.iter().map(|matching| Entry {
                                host: host.clone(),
                                matching: matching.clone(),
                                age: age.clone(),
                                rule: first_rule + offset,
                            }));
                        }
                    }
                }
                (Condition::yes("Accepted", "Accepted", "the route is served"), read.resolved.clone())
            }
        };
        status.parents.push(ParentStatus { parent: value, accepted, resolved });
    }
    status
}

fn listener_of<'a>(
    config: &'a mut Config,
    frontend: std::net::SocketAddr,
    hostname: Option<&str>,
) -> Option<&'a mut Listener> {
    let host = Host::parse(hostname);
    config.frontends.get_mut(&frontend)?.listeners.iter_mut().find(|listener| listener.host == host)
}
