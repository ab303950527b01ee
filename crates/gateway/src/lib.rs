//! The embedded data plane: a Gateway API implementation for one machine.
//!
//! Data goes one way. [`run`](Gateway::run) watches the API into a [`cache`], [`routes`] compile it to a config and the
//! conditions of every object (pure), [`router`] serves the config from one instant on, and then the conditions are
//! written as status. So a route whose status says `observedGeneration: 7` is served as of generation 7: the acknowledgement
//! that a handover waits for.
//!
//! Guarantees: shares are exact in every window ([`weights`]); once an acknowledgement is written, no request begins at
//! what the route left; a request in flight keeps its endpoint over any number of swaps; no client connection is cut by
//! a swap; a request is sent to a second endpoint only if nothing of it was sent to the first.

pub mod cache;
pub mod counters;
mod crds;
pub mod histogram;
mod kinds;
mod listeners;
pub mod load;
mod metrics;
mod pool;
mod proxy;
mod reflector;
mod router;
pub mod routes;
mod run;
mod settings;
mod status;
mod tcp;
mod tls;
pub mod weights;

pub use crate::{
    counters::{Cause, Counts, EndpointCounts, Snapshot},
    crds::crds,
    histogram::{Distribution, Latencies},
    listeners::Bindings,
    proxy::REASON,
    run::Gateway,
    settings::Settings,
};
