//! A node that runs pods as plain process trees of this machine: for the embedded mode and the test bed, never for a
//! real cluster. Images are names, resources are promises, nothing is isolated.
//!
//! Decisions are pure and apart from what acts on them: [`place`](place()) puts pods on the node, `phase`, `status`,
//! `tally` and `backoff` judge what was seen. [`Node`] watches the pods and gives each to a keeper (`pod`), which runs
//! its containers (`container`) under shims ([`shim`]) and writes what becomes of them.
//!
//! Guarantees: no process of a pod outlives the agent, not even after `kill -9`; what a pod takes of the node is free
//! again only when its processes are gone; a pod leaves the API only after them.

mod address;
mod agent;
mod backoff;
mod check;
mod container;
mod context;
mod ending;
mod environment;
mod events;
mod index;
mod journal;
mod leftovers;
mod log;
mod names;
mod object;
mod phase;
mod place;
mod pod;
mod probing;
mod process;
mod refusal;
mod resources;
mod settings;
pub mod shim;
mod sources;
mod status;
mod tally;
mod view;
mod volume;
mod watch;

pub use crate::{
    address::Range,
    agent::{Node, NodeError},
    backoff::Backoff,
    log::{LogError, LogRequest, Logs, Outputs},
    place::{Room, Verdict, Waiting, place},
    process::Shim,
    resources::Resources,
    settings::Settings,
};
