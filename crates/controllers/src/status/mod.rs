//! What every status has: conditions, what is waited for, and why a pod does not serve.

pub mod blocking;
pub mod conditions;
pub(crate) mod wait;
