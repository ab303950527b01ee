//! Which listeners of a Gateway take a route.
use std::net::{Ipv4Addr, SocketAddr};

use kube::core::DynamicObject;

use super::{
    hosts::Host,
    verdict::{Condition, ListenerVerdict},
};
use crate::{
    kinds::{GROUP, GatewaySpec, ListenerSpec, ParentRef},
    world::{Kind, Name, World, spec},
};

/// A Gateway of ours.
#[derive(Debug, Clone)]
pub struct Ours {
    pub name: Name,
    pub generation: i64,
    pub spec: GatewaySpec,
    pub address: Result<Ipv4Addr, String>,
    /// One for each listener, in their order.
    pub listeners: Vec<ListenerVerdict>,
}

impl Ours {
    pub fn new(name: &Name, object: &DynamicObject, address: Result<Ipv4Addr, String>) -> Self {
        let spec: GatewaySpec = spec(object);
        let listeners = spec.listeners.iter().map(|listener| judge(listener, &address)).collect();
        Self { name: name.clone(), generation: crate::world::generation(object), spec, address, listeners }
    }
}

fn judge(listener: &ListenerSpec, address: &Result<Ipv4Addr, String>) -> ListenerVerdict {
    let kinds = &listener.allowed_routes.kinds;
    let known = |kind: &crate::kinds::RouteKind| {
        kind.kind == "HTTPRoute" && kind.group.as_deref().is_none_or(|group| group == GROUP)
    };
    let http = listener.protocol == "HTTP";
    let accepted = if http {
        Condition::yes("Accepted", "Accepted", "this listener is served")
    } else {
        let message = format!("{} is not supported: listeners are HTTP", listener.protocol);
        Condition::no("Accepted", "UnsupportedProtocol", message)
    };
    let resolved = match kinds.iter().find(|kind| !known(kind)) {
        Some(kind) => {
            let message = format!("routes of kind {} are not supported: routes are HTTPRoutes", kind.kind);
            Condition::no("ResolvedRefs", "InvalidRouteKinds", message)
        }
        None => Condition::yes("ResolvedRefs", "ResolvedRefs", "every reference is valid"),
    };
    ListenerVerdict {
        name: listener.name.clone(),
        site: address.as_ref().ok().filter(|_| http).map(|ip| SocketAddr::new((*ip).into(), listener.port)),
        attached: 0,
        accepted,
        resolved,
        kinds: if http && (kinds.is_empty() || kinds.iter().any(known)) {
            vec!["HTTPRoute"]
        } else {
            Vec::new()
        },
    }
}

/// The listeners, by place, that take a route, with the hosts that it has there; or why none does.
pub fn attach(
    gateway: &Ours,
    parent: &ParentRef,
    route: &Name,
    hostnames: &[String],
    world: &World,
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
            !gateway.listeners[*place].kinds.is_empty() && lets_in(gateway, listener, route, world)
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

fn lets_in(gateway: &Ours, listener: &ListenerSpec, route: &Name, world: &World) -> bool {
    let namespaces = &listener.allowed_routes.namespaces;
    match namespaces.from.as_deref().unwrap_or("Same") {
        "All" => true,
        "Same" => gateway.name.namespace == route.namespace,
        "Selector" => {
            let namespace = world.get(Kind::Namespace, &Name::new("", &route.namespace));
            let labels =
                namespace.and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
            namespaces.selector.as_ref().is_some_and(|selector| {
                selector.match_expressions.is_empty()
                    && selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            })
        }
        _ => false,
    }
}
