//! From the objects of the API to what is served where: pure.
mod addresses;
mod attachment;
mod compile;
mod conditions;
mod endpoints;
mod grpc;
mod hosts;
mod matching;
mod rewrite;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

pub use self::{
    compile::{Compiled, compile},
    conditions::{Condition, GatewayStatus, ListenerStatus, ParentStatus, RouteStatus, Statuses},
    hosts::Host,
    matching::{Entry, Frontend, Head, Listener, Match, PathMatch, Pattern, ValueMatch},
    rewrite::{PathChange, Redirect, Rewrite},
};
use crate::{
    cache::{Kind, Name},
    kinds::HeaderChange,
};

/// A port of a Service: what a rule sends to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    pub service: Name,
    pub port: u16,
}

impl std::fmt::Display for ServicePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.service, self.port)
    }
}

/// One rule of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The kind of the route. That of gRPC is served by HTTP/2 whatever the Service says.
    pub kind: Kind,
    pub route: Name,
    /// Its place in the route: with the route's name, what it is known by over changes.
    pub place: usize,
    pub backends: Vec<Backend>,
    pub request_headers: Vec<HeaderChange>,
    pub response_headers: Vec<HeaderChange>,
    pub rewrite: Option<Rewrite>,
    /// The answer of a rule that sends its requests elsewhere. It has no backends.
    pub redirect: Option<Redirect>,
    /// How long the head of the answer may take.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub weight: u32,
    /// None where the reference is invalid: it keeps its share, which is answered with 500.
    pub target: Option<ServicePort>,
}

/// What is served where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The listeners, by the address and port that the Gateway asks for.
    pub frontends: BTreeMap<SocketAddr, Frontend>,
    pub rules: Vec<Rule>,
    /// Of each `HTTPRoute` that asks for us: as of which generation it is served, or refused.
    pub generations: BTreeMap<Name, i64>,
    /// The Services that are served, by cluster address and port.
    pub cluster_addresses: BTreeMap<SocketAddr, ServicePort>,
    /// The ports of Services that speak HTTP/2.
    pub http2: BTreeSet<ServicePort>,
    /// The endpoints that may get new requests.
    pub ready: BTreeMap<ServicePort, Vec<SocketAddr>>,
}
