//! The kinds on a cluster, wherever it is: observe, decide, status, act.
//!
//! A controller sees objects and changes them through one `kube::Client`, and observes and tells what is not in the API
//! through one [`Outside`]. It decides nothing: [`planner`] does. Each kind is one folder that implements
//! [`pipeline::Controller`] and describes itself ([`kind::Served`]): `observe.rs` reads objects, `wanted.rs` reads the
//! spec into the planner's words, `decide.rs` asks the planner, `status.rs` says what is, `act.rs` carries the answer
//! out, and `plan.rs` rehearses an upgrade.

#![deny(missing_docs)]

pub mod endpoints;
mod json;
pub mod kind;
mod labels;
mod leaderworkerset;
mod modeldeployment;
mod modelserving;
mod outside;
pub mod pipeline;
mod raycluster;
mod rayservice;
mod revisions;
mod runtime;
mod status;
mod traffic;
mod units;
mod verbs;

use std::time::Duration;

use api::IntOrPercent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use planner::{Amount, Time};

use crate::{json::digest, kind::Served, status::wait, units::nodes};
pub use crate::{
    outside::{Answer, Answers, Call, Calls, DataPlane, Endpoint, Expects, Latencies, ObjectId, Outside},
    runtime::{
        Cache, Claim, Clock, Context, End, Error, Event, FIELD_MANAGER, Key, Metrics, Reconciler, Requeue,
        Select, Times, Watched, Watches, run,
    },
    status::{blocking, conditions},
    verbs::{adopt, rehearsal, request},
};

/// How the controllers run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether there is no kube-controller-manager: endpoints of Services are then ours to write.
    pub embedded: bool,
    /// The kinds that are reconciled. Some need others beside them ([`Served::needs`]).
    pub kinds: Vec<&'static Served>,
    /// The namespaces in which they are; none means everywhere.
    pub namespaces: Vec<String>,
    /// What keeps requests from failing.
    pub protections: Protections,
    /// What time it is.
    pub clock: Clock,
    /// Counts what happens.
    pub metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            embedded: false,
            kinds: kind::KINDS.to_vec(),
            namespaces: Vec::new(),
            protections: Protections::default(),
            clock: Clock::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Settings {
    /// The scopes of lists and watches: each namespace by itself, or the empty one for all at once.
    fn scopes(&self) -> Vec<String> {
        if self.namespaces.is_empty() { vec![String::new()] } else { self.namespaces.clone() }
    }

    /// What reconciles the kinds, and what the embedded mode needs beside.
    fn controllers(&self) -> Vec<&'static dyn Reconciler> {
        let endpoints: &'static dyn Reconciler = &endpoints::Endpoints;
        let kinds = self.kinds.iter().map(|served| served.reconciler);
        kinds.chain(self.embedded.then_some(endpoints)).collect()
    }
}

/// What keeps requests from failing. Each can be left out, to see what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protections {
    /// A replica that leaves finishes its requests before it is deleted.
    pub drain: bool,
    /// A version gets traffic only when its replicas are ready.
    pub gate: bool,
    /// A weight counts only when the data plane has confirmed it.
    pub settle: bool,
}

impl Default for Protections {
    fn default() -> Self {
        Self { drain: true, gate: true, settle: true }
    }
}

/// When every gateway knows of what happened in this second. The API tells times in whole seconds, so it may have
/// happened later than it says; no wait is shorter than promised.
fn settled_at(second: Time, settle: Duration) -> Time {
    let later = if settle.is_zero() { Duration::ZERO } else { Duration::from_secs(1) };
    second + later + settle
}

/// The reference by which an object belongs to this one, and goes with it.
fn owner(object: &impl kube::Resource<DynamicType = ()>) -> OwnerReference {
    object.controller_owner_ref(&()).unwrap_or_default()
}

/// A number of an object, in the planner's words: admission lets no negative one through.
pub fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// A count of ours, in the API's words.
fn int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// An amount of an object, in the planner's words.
pub fn amount(value: &IntOrPercent) -> Amount {
    match value {
        IntOrPercent::Count(number) => Amount::Count(count(*number)),
        percent @ IntOrPercent::Percent(_) => {
            Amount::Percent(count(percent.floor_of(100).unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_shorten_no_wait() {
        let seconds = Duration::from_secs;
        // 10.9 s is told as 10 s: a wait of 5 s ends at 15.9 s at the earliest.
        assert_eq!(settled_at(seconds(10), seconds(5)), seconds(16));
        assert_eq!(settled_at(seconds(10), seconds(0)), seconds(10), "without a wait");
    }
}
