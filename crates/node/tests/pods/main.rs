//! Pods on a node, over the embedded API, with real processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod away;
mod ending;
mod logs;
mod names;
mod probing;
mod restart;
mod running;
mod scheduling;
mod support;
