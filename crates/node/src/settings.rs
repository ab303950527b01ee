//! What a node is told.
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use jiff::Timestamp;

use crate::{address, backoff::Backoff, process::Shim, resources::Resources};

/// How a node is called, what it has and where it keeps its things.
#[derive(Debug, Clone)]
pub struct Settings {
    pub name: String,
    /// What pods can ask for: `cpu`, `memory`, `nvidia.com/gpu`, `pods`. Nothing is enforced: a promise, not a wall.
    pub capacity: Resources,
    /// More labels for the Node object.
    pub labels: BTreeMap<String, String>,
    /// Logs, volumes and working directories. One agent at a time.
    pub directory: PathBuf,
    pub addresses: address::Range,
    pub shim: Shim,
    pub backoff: Backoff,
    /// The size at which a log file is put aside.
    pub log_limit: u64,
    /// How often a Lease is renewed, for a control plane that watches nodes; the embedded one does not.
    pub heartbeat: Option<Duration>,
    /// How long containers have when the agent itself is stopped; a pod's own grace period if that is shorter.
    pub stop_within: Duration,
    pub now: fn() -> Timestamp,
}

impl Settings {
    /// A node with four CPUs, 8 GiB and 110 places.
    pub fn new(name: &str, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            capacity: Resources::of([("cpu", "4"), ("memory", "8Gi"), ("pods", "110")]),
            labels: BTreeMap::new(),
            directory: directory.into(),
            addresses: address::Range::default(),
            shim: Shim::default(),
            backoff: Backoff::default(),
            log_limit: 10 << 20,
            heartbeat: None,
            stop_within: Duration::from_secs(10),
            now: machine_time,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the default of a setting: whoever wants another time gives one"
)]
fn machine_time() -> Timestamp {
    Timestamp::now()
}
