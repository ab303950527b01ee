//! Processes: the shim that holds a container, the agent's side of it, and processes that an earlier agent left.

pub(crate) mod client;
pub(crate) mod orphans;
pub mod shim;
