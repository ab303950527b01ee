//! The kinds on a cluster, wherever it is: observe, plan, act, and say so.
//!
//! A controller sees objects and changes them through one `kube::Client`, and looks at what is not in the API through
//! one [`Outside`]. It decides nothing: [`planner`] does. Each kind is one folder with the same files: `observe.rs` reads
//! objects into the planner's words, `act.rs` writes the planner's answer in the words of the API, `status.rs` says what
//! is, and `mod.rs` is the list of those steps.

#![deny(missing_docs)]

pub mod adopt;
pub mod blocking;
mod conditions;
mod digest;
pub mod endpoints;
mod labels;
pub mod leaderworkerset;
mod lease;
mod metrics;
pub mod modeldeployment;
pub mod modelserving;
mod nodes;
mod outside;
mod pods;
mod printed;
pub mod request;
mod runtime;
pub mod sentence;
mod unit;

use std::time::Duration;

use api::{IntOrPercent, Kind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use planner::{Amount, Time};

pub(crate) use crate::runtime::Context;
pub use crate::{
    lease::{Claim, End},
    metrics::Metrics,
    outside::{DataPlane, Endpoint, Nothing, Outside},
    runtime::{Error, FIELD_MANAGER, Key, run},
};

/// The kinds that there are controllers for.
pub const SERVED: [&Kind; 3] =
    [&api::leaderworkerset::KIND, &api::modeldeployment::KIND, &api::modelserving::KIND];

/// How the controllers run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nobody else is there: endpoints of Services are ours to write.
    pub embedded: bool,
    /// The kinds that are looked after, of [`SERVED`]. `ModelDeployment` needs `LeaderWorkerSet`: its versions are sets.
    pub kinds: Vec<&'static Kind>,
    /// The namespaces in which they are looked after; none means everywhere.
    pub namespaces: Vec<String>,
    /// What keeps requests from failing.
    pub protections: Protections,
    /// The time since 1970.
    pub clock: fn() -> Time,
    /// Counts what happens.
    pub metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            embedded: false,
            kinds: SERVED.into(),
            namespaces: Vec::new(),
            protections: Protections::default(),
            clock: wall_clock,
            metrics: Metrics::default(),
        }
    }
}

impl Settings {
    /// Where lists and watches look: in each namespace by itself, or with the empty one everywhere at once.
    fn scopes(&self) -> Vec<String> {
        if self.namespaces.is_empty() { vec![String::new()] } else { self.namespaces.clone() }
    }

    fn looks_after(&self, kind: &Kind) -> bool {
        self.kinds.iter().any(|it| it.name == kind.name)
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

#[allow(clippy::disallowed_methods, reason = "deadlines and conditions carry the time of the wall clock")]
fn wall_clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// When every gateway knows of what happened in this second. The API tells times in whole seconds, so it may have happened
/// later than it says; nobody waits for less than was promised.
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
        assert_eq!(settled_at(seconds(10), seconds(0)), seconds(10), "nobody waits");
    }
}
