//! The conditions of every object, before they are written.
use std::{collections::BTreeMap, net::SocketAddr};

use serde_json::Value;

use crate::cache::Name;

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub fn yes(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, holds: true, reason, message: message.into() }
    }

    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, holds: false, reason, message: message.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses {
    /// The classes that are ours, by generation.
    pub classes: BTreeMap<Name, i64>,
    pub gateways: BTreeMap<Name, GatewayStatus>,
    pub http_routes: BTreeMap<Name, RouteStatus>,
    pub grpc_routes: BTreeMap<Name, RouteStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayStatus {
    pub generation: i64,
    /// Why its address cannot be used, if so.
    pub address: Result<std::net::Ipv4Addr, String>,
    pub listeners: Vec<ListenerStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerStatus {
    pub name: String,
    /// Where it is to be served; nowhere if it was refused.
    pub frontend: Option<SocketAddr>,
    pub attached: usize,
    pub accepted: Condition,
    pub resolved: Condition,
    pub kinds: Vec<&'static str>,
}

/// What each of our parents says of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteStatus {
    pub generation: i64,
    pub parents: Vec<ParentStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentStatus {
    /// As the route has it.
    pub parent: Value,
    pub accepted: Condition,
    pub resolved: Condition,
}
