//! The embedded data plane: a Gateway API implementation for one machine.
//!
//! Data goes one way. [`run`](Gateway::run) follows the API into a [`world`], [`routes`] turn it into a plan and a
//! verdict on every object (pure), [`live`] serves the plan from one instant on, and only then is the verdict written
//! as status. So a route whose status says `observedGeneration: 7` is served as of generation 7: the acknowledgement
//! that a handover waits for.
//!
//! Guarantees: shares are exact in every window ([`weights`]); once an acknowledgement is written, no request begins at
//! what the route left; a request in flight keeps its endpoint over any number of swaps; no client connection is cut by
//! a swap; a request is sent to a second endpoint only if nothing of it was sent to the first.

pub mod counters;
mod crds;
mod index;
mod kinds;
mod listeners;
mod live;
pub mod load;
mod pool;
mod proxy;
pub mod routes;
mod run;
mod settings;
mod status;
mod tcp;
pub mod weights;
pub mod world;

pub use crate::{
    counters::{Cause, Counts, EndpointCounts, Snapshot},
    crds::crds,
    listeners::Places,
    proxy::REASON,
    run::Gateway,
    settings::Settings,
};
