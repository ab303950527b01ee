//! From the objects of the API to what is served where: pure.
mod addresses;
mod attach;
mod compile;
mod endpoints;
mod hosts;
mod matching;
mod rules;
mod verdict;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

pub use self::{
    compile::{Compiled, compile},
    hosts::Host,
    matching::{Entry, Head, Listener, Match, PathMatch, Site},
    verdict::{Condition, GatewayVerdict, ListenerVerdict, ParentVerdict, RouteVerdict, Verdicts},
};
use crate::{kinds::HeaderChange, world::Name};

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
    pub route: Name,
    /// Its place in the route: with the route's name, what it is known by over changes.
    pub place: usize,
    pub backends: Vec<Backend>,
    pub request_headers: Vec<HeaderChange>,
    pub response_headers: Vec<HeaderChange>,
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
pub struct Plan {
    /// HTTP, by the address that the Gateway asks for.
    pub sites: BTreeMap<SocketAddr, Site>,
    pub rules: Vec<Rule>,
    /// Of each route that asks for us: as of which generation it is served, or refused.
    pub generations: BTreeMap<Name, i64>,
    /// TCP, by cluster address and port.
    pub doors: BTreeMap<SocketAddr, ServicePort>,
    /// The endpoints that may get new requests.
    pub ready: BTreeMap<ServicePort, Vec<SocketAddr>>,
}
