//! Serving groups of roles on the embedded API, with a kubelet that runs nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

mod adoption;
mod budgets;
mod gang;
mod kind;
mod kit;
mod midway;
mod recovery;
mod rolling;
#[path = "../stage/mod.rs"]
mod stage;
mod steps;
mod truth;
mod weak;
