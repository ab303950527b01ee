//! The embedded Kubernetes API: one generic server for every kind, in process or on loopback.
//!
//! A request goes one way: [`request`] takes its path apart, [`registry`] finds the [`resource`], `read`, `watching`,
//! `write` and `delete` do what the verb says, [`answer`] puts the result in the form that was asked for. What a kind is
//! comes from its schema; there is no code per kind but the small rules of the built-in ones.
//!
//! Guarantees: the same requests in the same order, the same [`world::World`], the same answers to the byte; no answer
//! before a durable store has the write; no panic for any request.

mod accept;
mod answer;
mod body;
pub mod builtin;
mod collector;
mod crd;
mod delete;
mod discovery;
pub mod fields;
mod front;
mod furnish;
mod logs;
mod object;
mod openapi;
pub mod patch;
mod patching;
mod protobuf;
mod read;
mod refusal;
mod registry;
mod request;
mod resource;
mod scale;
pub mod selector;
mod sent;
mod server;
pub mod shape;
mod special;
pub mod store;
pub mod table;
mod watching;
pub mod world;
mod write;

pub use schema::quantity;

pub use crate::{
    answer::Body,
    front::{Credentials, CredentialsError, InProcess, Limits, ListenError, Listener},
    logs::{LogRequest, PodLogs},
    refusal::{Cause, Refusal},
    server::{Admission, Server},
};
