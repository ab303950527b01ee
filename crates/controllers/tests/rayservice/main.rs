//! Services on the embedded API, with pods that run nothing and a Serve that is scripted. Where a test is named for a bug, it
//! is one of the public operator, and that operator fails the test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod blue_green;
mod both;
mod clock;
mod gateway_api;
mod incremental;
mod kit;
mod serve;
#[path = "../stage/mod.rs"]
mod stage;
