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
mod tls;

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
    tls::Certificate,
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
    pub mirrors: Vec<Mirror>,
    /// How long the whole answer may take, from when the gateway has the head of the request.
    pub timeout: Option<Duration>,
    /// How long the whole answer of one endpoint may take, from when the request is sent to it.
    pub backend_timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub weight: u32,
    /// None where the reference is invalid: it keeps its share, which is answered with 500.
    pub target: Option<ServicePort>,
    pub request_headers: Vec<HeaderChange>,
    pub response_headers: Vec<HeaderChange>,
}

/// A Service that gets copies of requests. Its answers are thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// None where the reference is invalid.
    pub target: Option<ServicePort>,
    /// The share that is copied: so many of so many.
    pub share: (u32, u32),
}

impl Mirror {
    /// Whether the request of this turn is copied. Exact in every window of the denominator, and spread evenly.
    pub fn is_due(&self, turn: u64) -> bool {
        let (part, all) = (u128::from(self.share.0), u128::from(self.share.1.max(1)));
        let before = |turn: u128| turn * part / all;
        before(u128::from(turn) + 1) > before(u128::from(turn))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_gets_its_share_of_every_window() {
        for share in [(0, 100), (1, 100), (37, 100), (100, 100), (1, 3), (2, 7), (1, 1)] {
            let mirror = Mirror { target: None, share };
            for from in [0, 1, 50, u64::MAX - 500] {
                let due = (from..from + u64::from(share.1)).filter(|turn| mirror.is_due(*turn)).count();
                assert_eq!(due, share.0 as usize, "{share:?} from {from}");
            }
        }
    }
}
