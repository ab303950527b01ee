//! Probes of running containers, and the handlers that probes and lifecycle hooks share.

pub(crate) mod handler;
pub(crate) mod timing;
pub(crate) mod worker;
