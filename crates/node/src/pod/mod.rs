//! A pod on this node: whether it can run here, the worker that runs it, and its status in the API.

pub(crate) mod admission;
pub(crate) mod phase;
pub(crate) mod status;
pub(crate) mod status_writer;
pub(crate) mod worker;
