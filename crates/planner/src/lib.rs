//! Every decision, pure: a function of what is wanted, what is, and what time it is.
//!
//! No I/O, no clock, no randomness, no async, and no dependency. The operator, `segue plan`, the simulator and the model
//! checker run the same functions, so what is rehearsed is what happens.
//!
//! Today there is [`granted`], the handover in granted percent that RayService uses; units, sets, roles and the handover
//! by replicas follow.

#![deny(missing_docs)]

mod budget;
pub mod granted;
mod reason;

pub use crate::{
    budget::{Amount, Budget},
    reason::{Reason, Time},
};
