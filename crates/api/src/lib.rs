//! The kinds that Segue serves: their types, defaults, validation and CRDs.
//!
//! Three APIs are other people's and stay exactly as their users know them (`ray.io/v1`,
//! `leaderworkerset.x-k8s.io/v1`, `workload.serving.volcano.sh/v1alpha1`); `segue.dev/v1alpha1` is ours.
//!
//! A kind's Rust types are its CRD: doc comments become descriptions, `serde` defaults become schema defaults, bounds
//! and CEL rules stand next to the field that they bound. [`validate`] runs that same CRD in process and adds what CEL
//! cannot see, so there is one source and two places that enforce it.

#![deny(missing_docs)]

mod crd;
mod embedded;
mod installed;
mod kind;
mod percent;
mod pods;
mod tidy;
mod validation;
mod wait;
mod yaml;

pub mod gateway;
pub mod leaderworkerset;
pub mod modeldeployment;
pub mod modelserving;
pub mod raycluster;
pub mod rayservice;
pub mod volcano;

pub use crate::{
    embedded::{Conditions, Embedded, PodTemplate, Texts},
    gateway::ParentRef,
    kind::{Column, Kind, Object, ObjectRule, Scale, Status},
    percent::IntOrPercent,
    validation::{Review, Verdict, defaulted, validate},
    wait::Wait,
    yaml::yaml_fault,
};
pub use schema::{Cause, Violation};

/// Every kind, in the order in which they are listed to people.
pub static KINDS: &[&Kind] = &[
    &leaderworkerset::KIND,
    &modelserving::KIND,
    &modeldeployment::KIND,
    &raycluster::KIND,
    &rayservice::KIND,
];
