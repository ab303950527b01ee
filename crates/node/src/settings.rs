//! The settings of a node.
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use jiff::Timestamp;
use planner::Backoff;

use crate::{network::address, process::client::Shim, resources::Resources};

/// The name, resources, directory and limits of a node.
#[derive(Debug, Clone)]
pub struct Settings {
    pub name: String,
    /// The allocatable resources: `cpu`, `memory`, `pods` and extended resources. Scheduling honours them; no
    /// limit is enforced.
    pub capacity: Resources,
    /// More labels for the Node object.
    pub labels: BTreeMap<String, String>,
    /// The directory of logs, volumes and working directories. One agent at a time may use it.
    pub directory: PathBuf,
    pub addresses: address::Range,
    /// Whether every pod gets a network of its own, which needs root. The addresses are then those of the bridge.
    pub pod_networks: bool,
    pub shim: Shim,
    /// The delays between restarts of a container. The first restart has none, as in the kubelet; a run of twice the
    /// longest delay resets them.
    pub backoff: Backoff,
    /// The size at which a log file is rotated.
    pub log_limit: u64,
    /// The period at which the Lease is renewed, for a control plane that watches nodes; the embedded one does not.
    pub heartbeat: Option<Duration>,
    /// The grace period of containers when the agent itself is stopped; a pod's own if that is shorter.
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
            pod_networks: false,
            shim: Shim::default(),
            backoff: Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) },
            log_limit: 10 << 20,
            heartbeat: None,
            stop_within: Duration::from_secs(10),
            now: machine_time,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the default of a setting: give another one to change it")]
fn machine_time() -> Timestamp {
    Timestamp::now()
}
