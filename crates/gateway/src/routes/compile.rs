//! The whole way: every object to one plan, with a verdict for each.
use std::collections::BTreeMap;

use kube::core::DynamicObject;

use super::{
    Entry, Listener, Plan,
    addresses::addresses,
    attach::{Ours, attach},
    endpoints,
    hosts::Host,
    rules,
    verdict::{Condition, GatewayVerdict, ParentVerdict, RouteVerdict, Verdicts},
};
use crate::{
    kinds::{ClassSpec, GROUP, GatewaySpec, ParentRef, RouteSpec},
    settings::Settings,
    world::{Kind, Name, World, generation, spec},
};

/// What is to be served, and what is to be said about it once it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    pub plan: Plan,
    pub verdicts: Verdicts,
}

pub fn compile(world: &World, settings: &Settings) -> Compiled {
    let classes: BTreeMap<Name, i64> = world
        .all(Kind::Class)
        .iter()
        .filter(|(_, class)| spec::<ClassSpec>(class).controller_name == settings.controller)
        .map(|(name, class)| (name.clone(), generation(class)))
        .collect();
    let mut gateways = ours(world, &classes, settings);
    let mut plan = Plan { ready: endpoints::ready(world), doors: endpoints::doors(world), ..Plan::default() };
    for gateway in gateways.values() {
        for (listener, verdict) in gateway.spec.listeners.iter().zip(&gateway.listeners) {
            if let Some(site) = verdict.site {
                let host = Host::parse(listener.hostname.as_deref());
                plan.sites.entry(site).or_default().listeners.push(Listener { host, entries: vec![] });
            }
        }
    }
    let mut verdicts = Verdicts { classes, ..Verdicts::default() };
    for (name, object) in world.all(Kind::HttpRoute) {
        let verdict = http_route(name, object, world, &mut gateways, &mut plan);
        verdicts.http_routes.insert(name.clone(), verdict);
    }
    for (name, object) in world.all(Kind::GrpcRoute) {
        verdicts.grpc_routes.insert(name.clone(), grpc_route(name, object, &gateways));
    }
    for site in plan.sites.values_mut() {
        site.sort();
    }
    verdicts.gateways = gateways
        .into_iter()
        .map(|(name, gateway)| {
            let Ours { generation, address, listeners, .. } = gateway;
            (name, GatewayVerdict { generation, address, listeners })
        })
        .collect();
    Compiled { plan, verdicts }
}

fn ours(world: &World, classes: &BTreeMap<Name, i64>, settings: &Settings) -> BTreeMap<Name, Ours> {
    let of_our_class = |object: &DynamicObject| {
        classes.contains_key(&Name::new("", &spec::<GatewaySpec>(object).gateway_class_name))
    };
    let found: Vec<(&Name, &DynamicObject)> = world
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
            Some((name.clone(), Ours::new(name, object, address)))
        })
        .collect()
}

/// The parents of a route that are Gateways of ours, as it has them.
fn parents<'a>(
    route: &'a RouteSpec,
    namespace: &'a str,
    gateways: &'a BTreeMap<Name, Ours>,
) -> impl Iterator<Item = (&'a serde_json::Value, ParentRef, Name)> {
    route.parent_refs.iter().filter_map(move |value| {
        let parent: ParentRef = serde::Deserialize::deserialize(value).ok()?;
        let gateway = parent.group.as_deref().is_none_or(|group| group == GROUP)
            && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let name = Name::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
        (gateway && gateways.contains_key(&name)).then_some((value, parent, name))
    })
}

fn http_route(
    name: &Name,
    object: &DynamicObject,
    world: &World,
    gateways: &mut BTreeMap<Name, Ours>,
    plan: &mut Plan,
) -> RouteVerdict {
    let route: RouteSpec = spec(object);
    let wanted: Vec<_> = parents(&route, &name.namespace, gateways)
        .map(|(value, parent, gateway)| (value.clone(), parent, gateway))
        .collect();
    let mut verdict = RouteVerdict { generation: generation(object), parents: Vec::new() };
    if wanted.is_empty() {
        return verdict;
    }
    plan.generations.insert(name.clone(), verdict.generation);
    let read = rules::read(name, &route, world);
    let first_rule = plan.rules.len();
    if let Ok(read) = &read {
        plan.rules.extend(read.rules.iter().map(|(rule, _)| rule.clone()));
    }
    let created =
        object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let seniority = (created, name.to_string());
    for (value, parent, gateway) in wanted {
        let Some(gateway) = gateways.get_mut(&gateway) else { continue };
        let attached = attach(gateway, &parent, name, &route.hostnames, world);
        let (accepted, resolved) = match (attached, &read) {
            (Err(no), Ok(read)) => (no, read.resolved.clone()),
            (Err(no), Err(_)) => (no, Condition::yes("ResolvedRefs", "ResolvedRefs", "")),
            (Ok(_), Err(why)) => (
                Condition::no("Accepted", "UnsupportedValue", why.clone()),
                Condition::yes("ResolvedRefs", "ResolvedRefs", "not looked at: the route is refused"),
            ),
            (Ok(places), Ok(read)) => {
                for (place, hosts) in places {
                    gateway.listeners[place].attached += 1;
                    let Some(site) = gateway.listeners[place].site else { continue };
                    let listener = listener_of(plan, site, gateway.spec.listeners[place].hostname.as_deref());
                    let Some(listener) = listener else { continue };
                    for host in hosts {
                        for (offset, (_, matches)) in read.rules.iter().enumerate() {
                            listener.entries.extend(matches.iter().map(|matching| Entry {
                                host: host.clone(),
                                matching: matching.clone(),
                                seniority: seniority.clone(),
                                rule: first_rule + offset,
                            }));
                        }
                    }
                }
                (Condition::yes("Accepted", "Accepted", "the route is served"), read.resolved.clone())
            }
        };
        verdict.parents.push(ParentVerdict { parent: value, accepted, resolved });
    }
    verdict
}

fn listener_of<'a>(
    plan: &'a mut Plan,
    site: std::net::SocketAddr,
    hostname: Option<&str>,
) -> Option<&'a mut Listener> {
    let host = Host::parse(hostname);
    plan.sites.get_mut(&site)?.listeners.iter_mut().find(|listener| listener.host == host)
}

/// Refused with a sentence: a gRPC route that looks accepted and is not served would be worse.
fn grpc_route(name: &Name, object: &DynamicObject, gateways: &BTreeMap<Name, Ours>) -> RouteVerdict {
    let route: RouteSpec = spec(object);
    let parents = parents(&route, &name.namespace, gateways)
        .map(|(value, ..)| ParentVerdict {
            parent: value.clone(),
            accepted: Condition::no(
                "Accepted",
                "NotAllowedByListeners",
                "GRPCRoutes are not supported yet: listeners take HTTPRoutes",
            ),
            resolved: Condition::yes("ResolvedRefs", "ResolvedRefs", "not looked at: the route is refused"),
        })
        .collect();
    RouteVerdict { generation: generation(object), parents }
}
