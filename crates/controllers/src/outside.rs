//! What is not in the API: what the data plane does and counts.

use std::{collections::BTreeMap, fmt::Debug, net::IpAddr};

use tokio::sync::watch;

use crate::runtime::Key;

/// The window to what is outside the API. Whoever implements it looks by itself; nothing here waits.
pub trait Outside: Debug + Send + Sync {
    /// What the data plane does, where somebody knows.
    fn data_plane(&self) -> Option<DataPlane>;

    /// Changes whenever [`Self::data_plane`] says something new that matters: a table is served, or an endpoint that
    /// left has finished.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// What a data plane does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlane {
    /// The `controllerName` under which it answers for routes.
    pub controller: String,
    /// How many endpoints of a Service get new requests.
    pub ready: BTreeMap<Key, u32>,
    /// Requests and connections so far, by Service.
    pub requests: BTreeMap<Key, u64>,
    /// The same, of the last seconds.
    pub lately: BTreeMap<Key, u64>,
    /// What every endpoint works on.
    pub endpoints: BTreeMap<IpAddr, Endpoint>,
}

/// An endpoint of a data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it gets new requests.
    pub in_service: bool,
    /// Requests and connections that it works on.
    pub in_flight: u64,
}

/// Nobody knows anything: a data plane of others.
#[derive(Debug)]
pub struct Nothing(watch::Sender<u64>);

impl Default for Nothing {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

impl Outside for Nothing {
    fn data_plane(&self) -> Option<DataPlane> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
