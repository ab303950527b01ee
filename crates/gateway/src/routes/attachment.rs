//! Which listeners of a Gateway take a route.
use std::net::{Ipv4Addr, SocketAddr};

use kube::{
    ResourceExt,
    core::{DynamicObject, Selector, SelectorExt},
};

use super::{
    conditions::{Condition, ListenerStatus},
    hosts::Host,
    tls::{self, Certificate},
};
use crate::{
    cache::{Cache, Kind, Name, spec},
    kinds::{GROUP, GatewaySpec, ListenerSpec, ParentRef},
};

/// The kinds of routes that listeners take.
const ROUTES: [&str; 2] = ["HTTPRoute", "GRPCRoute"];

/// A Gateway of ours.
#[derive(Debug, Clone)]
pub struct OwnGateway {
    pub name: Name,
    pub generation: i64,
    pub spec: GatewaySpec,
    pub address: Result<Ipv4Addr, String>,
    /// One for each listener, in their order.
    pub listeners: Vec<ListenerStatus>,
    /// Those of each listener, in their order.
    pub certificates: Vec<Vec<Certificate>>,
}

impl OwnGateway {
    pub fn new(
        name: &Name,
        object: &DynamicObject,
        address: Result<Ipv4Addr, String>,
        cache: &Cache,
    ) -> Self {
        let spec: GatewaySpec = spec(object);
        let (mut listeners, mut certificates) = (Vec::new(), Vec::new());
        for (place, listener) in spec.listeners.iter().enumerate() {
            let (own, resolved) = match listener.protocol.as_str() {
                "HTTPS" => tls::certificates(name, listener, cache),
                _ => (Vec::new(), Condition::yes("ResolvedRefs", "ResolvedRefs", "every reference is valid")),
            };
            let accepted = accepted(&spec, place);
            let is_served = accepted.holds && (listener.protocol == "HTTP" || !own.is_empty());
            let frontend = address.as_ref().ok().filter(|_| is_served);
            let frontend = frontend.map(|ip| SocketAddr::new((*ip).into(), listener.port));
            listeners.push(listener_status(listener, frontend, accepted, resolved));
            certificates.push(own);
        }
        let generation = crate::cache::generation(object);
        Self { name: name.clone(), generation, spec, address, listeners, certificates }
    }
}

/// Whether the listener of this place can be served.
fn accepted(gateway: &GatewaySpec, place: usize) -> Condition {
    let listener = &gateway.listeners[place];
    let no = |reason, message: String| Condition::no("Accepted", reason, message);
    let mode = listener.tls.mode.as_deref().unwrap_or("Terminate");
    let before = gateway.listeners[..place].iter().find(|before| before.port == listener.port);
    match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => {}
        other => {
            let message = format!("{other} is not supported: listeners are HTTP or HTTPS");
            return no("UnsupportedProtocol", message);
        }
    }
    if let Some(before) = before.filter(|before| before.protocol != listener.protocol) {
        let message =
            format!("port {} has the listener {} of {}", listener.port, before.name, before.protocol);
        return no("PortUnavailable", message);
    }
    if listener.protocol == "HTTPS" && mode != "Terminate" {
        return no("UnsupportedValue", format!("the TLS mode {mode} is not supported: Terminate is"));
    }
    if listener.protocol == "HTTPS" && gateway.tls.frontend.is_some() {
        let message = "certificates of clients (spec.tls.frontend) are not supported".to_owned();
        return no("UnsupportedValue", message);
    }
    Condition::yes("Accepted", "Accepted", "this listener is served")
}

fn listener_status(
    listener: &ListenerSpec,
    frontend: Option<SocketAddr>,
    accepted: Condition,
    resolved: Condition,
) -> ListenerStatus {
    let kinds = &listener.allowed_routes.kinds;
    let known = |kind: &crate::kinds::RouteKind| {
        let group = kind.group.as_deref().is_none_or(|group| group == GROUP);
        ROUTES.into_iter().find(|known| group && kind.kind == *known)
    };
    let resolved = match kinds.iter().find(|kind| known(kind).is_none()) {
        Some(kind) if resolved.holds => {
            let message = format!(
                "routes of kind {} are not supported: routes are HTTPRoutes and GRPCRoutes",
                kind.kind
            );
            Condition::no("ResolvedRefs", "InvalidRouteKinds", message)
        }
        _ => resolved,
    };
    ListenerStatus {
        name: listener.name.clone(),
        frontend,
        attached: 0,
        kinds: match kinds.is_empty() {
            _ if !accepted.holds => Vec::new(),
            true => ROUTES.to_vec(),
            false => kinds.iter().filter_map(known).collect(),
        },
        accepted,
        resolved,
    }
}

/// The listeners, by place, that take a route, with the hosts that it has there; or why none does.
pub fn attach(
    gateway: &OwnGateway,
    parent: &ParentRef,
    kind: Kind,
    route: &Name,
    hostnames: &[String],
    cache: &Cache,
) -> Result<Vec<(usize, Vec<Host>)>, Condition> {
    let no = |reason, message: String| Err(Condition::no("Accepted", reason, message));
    let named = |listener: &ListenerSpec| {
        parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
    };
    let meant: Vec<_> =
        gateway.spec.listeners.iter().enumerate().filter(|(_, listener)| named(listener)).collect();
    if meant.is_empty() {
        return no("NoMatchingParent", format!("{} has no such listener", gateway.name));
    }
    let allowed: Vec<_> = meant
        .into_iter()
        .filter(|(place, listener)| {
            gateway.listeners[*place].kinds.contains(&kind.gvk().kind.as_str())
                && allows(gateway, listener, route, cache)
        })
        .collect();
    if allowed.is_empty() {
        return no("NotAllowedByListeners", format!("no listener of {} lets {route} attach", gateway.name));
    }
    let attached: Vec<_> = allowed
        .into_iter()
        .map(|(place, listener)| (place, common(&Host::parse(listener.hostname.as_deref()), hostnames)))
        .filter(|(_, hosts)| !hosts.is_empty())
        .collect();
    if attached.is_empty() {
        return no(
            "NoMatchingListenerHostname",
            format!("no listener of {} has these hostnames", gateway.name),
        );
    }
    Ok(attached)
}

fn common(listener: &Host, hostnames: &[String]) -> Vec<Host> {
    if hostnames.is_empty() {
        return vec![listener.clone()];
    }
    hostnames.iter().filter_map(|hostname| listener.and(&Host::parse(Some(hostname)))).collect()
}

fn allows(gateway: &OwnGateway, listener: &ListenerSpec, route: &Name, cache: &Cache) -> bool {
    let namespaces = &listener.allowed_routes.namespaces;
    match namespaces.from.as_deref().unwrap_or("Same") {
        "All" => true,
        "Same" => gateway.name.namespace == route.namespace,
        "Selector" => {
            let selector = namespaces.selector.clone().and_then(|it| Selector::try_from(it).ok());
            let namespace = cache.get(Kind::Namespace, &Name::new("", &route.namespace));
            // A namespace that is not known yet may have the label that a selector does not want.
            selector.zip(namespace).is_some_and(|(selector, namespace)| selector.matches(namespace.labels()))
        }
        _ => false,
    }
}
