//! A container: its environment, its runs and restarts, how it is stopped, its status and its log.

pub(crate) mod environment;
pub(crate) mod log;
pub(crate) mod runner;
pub(crate) mod status;
pub(crate) mod stop;
