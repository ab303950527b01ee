//! What the embedded API promises whoever builds on it: no control plane is needed to see it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod crash;
mod determinism;
mod support;
mod watches;
