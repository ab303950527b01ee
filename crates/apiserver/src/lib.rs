//! The embedded Kubernetes API.
#![allow(dead_code)]

pub mod builtin;
pub mod fields;
pub mod patch;
pub mod quantity;
pub mod selector;
pub mod shape;
pub mod store;
pub mod table;
