//! Every decision, pure: a function of what is wanted, what is, and what time it is.
//!
//! No I/O, no clock, no randomness, no async, and no dependency. The operator, `segue plan`, the simulator and the model
//! checker run the same functions, so what is rehearsed is what happens.
//!
//! Layer 1 turns sets into pods: [`units`] (a leader and its workers), [`sets`] (units with budgets), [`roles`] (an order
//! over roles), [`ray`] (the head and the workers of a RayCluster). Layer 2 turns services into versions: [`handover`]
//! (by replicas), [`granted`] (in percent that Ray Serve grants), [`admission`] (does the peak fit).

#![deny(missing_docs)]

/// True only where a bug was planted on purpose, to see that the tests find it: `crates/planner/planted` runs them.
macro_rules! planted {
    ($name:literal) => {
        cfg!(feature = "planted") && option_env!("PLANTED") == Some($name)
    };
}

pub mod admission;
mod backoff;
mod budget;
pub mod granted;
pub mod handover;
pub mod ray;
mod reason;
pub mod roles;
pub mod sets;
mod uid;
pub mod units;
mod words;

pub use crate::{
    backoff::Backoff,
    budget::{Amount, Budget, percents, percents_of},
    reason::{Code, Reason, Time},
    uid::Uid,
    words::{agreed, counted},
};
