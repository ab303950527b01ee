//! A node that runs pods as plain process trees of this machine: for the embedded mode and the test bed, never for a
//! real cluster. Images are names, resources are promises, nothing is isolated.
//!
//! Decisions are pure: [`schedule`] binds pods to the node; `pod::phase`, `pod::status` and `probe::timing`
//! compute from observations. [`Node`] watches the pods and starts a worker for each
//! (`pod::worker`), which runs the containers (`container::runner`) under shims ([`shim`]) and writes the
//! pod's status.
//!
//! Guarantees: no process of a pod outlives the agent, not even after `kill -9`; the resources of a pod are free
//! only when its processes are gone; a pod leaves the API only after its processes.

mod agent;
mod container;
mod context;
mod events;
mod network;
mod pod;
mod probe;
mod process;
mod registration;
mod resources;
mod scheduler;
mod settings;
mod volume;
mod watch;

pub use planner::Backoff;

pub use crate::{
    agent::{Node, NodeError},
    container::log::{LogError, LogRequest, LogStore, Logs},
    network::address::Range,
    process::{client::Shim, shim},
    resources::Resources,
    scheduler::{Decision, NodeInfo, PendingPod, schedule},
    settings::Settings,
};
