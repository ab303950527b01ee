//! The embedded Kubernetes API: one generic server for every kind, in process or on loopback.
//!
//! The path of a request: [`request`] reads it, [`registry`] finds the resource, [`handlers`] have one file per verb,
//! [`response`] writes the result in the representation that was asked for. Defaults and validation of a kind come from
//! its schema; only the built-in kinds have code of their own ([`builtin`]).
//!
//! Guarantees: the same requests in the same order on the same [`environment::Environment`] get the same responses to
//! the byte; no response before a durable store has the write; no panic for any request.

mod addresses;
mod admission;
mod bootstrap;
pub mod builtin;
mod discovery;
pub mod environment;
mod garbage_collector;
mod handlers;
pub mod managed_fields;
mod object;
pub mod patch;
mod registry;
mod request;
mod response;
pub mod selector;
mod server;
mod status;
pub mod store;
pub mod table;
mod transport;
pub mod type_schema;

pub use crate::{
    admission::Admission,
    handlers::logs::{LogRequest, PodLogs},
    response::Body,
    server::{Metrics, Server},
    status::{Cause, StatusError},
    transport::{Credentials, CredentialsError, InProcess, Limits, ListenError, Listener},
};
