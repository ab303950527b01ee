//! What an upgrade would do, step by step, before it happens: capacities and traffic over time.

pub mod resources;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use planner::{percents, percents_of};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::resources::Resources;

/// What is assumed of the world.
#[derive(Clone, Copy, Debug)]
pub struct Assumptions {
    /// How long new capacity takes to be ready.
    pub start: Duration,
    /// How long old capacity takes to be gone after it left service.
    pub stop: Duration,
    /// When the upgrade is called off.
    pub called_off: Option<Duration>,
}

/// Why there is nothing to show, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Nothing would be done.
    Nothing(String),
    /// Everything is done at once, so there are no steps.
    AtOnce(String),
    /// The operator does nothing for such an object.
    NotServed(&'static str),
    /// It was asked for something that is not rehearsed, or of something that cannot be read.
    Unsupported(String),
}

impl NoPlan {
    pub(crate) fn nothing(why: &str) -> Self {
        Self::Nothing(why.to_owned())
    }

    pub(crate) fn unsupported(why: &str) -> Self {
        Self::Unsupported(why.to_owned())
    }
}

/// One version at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// In percent of the whole service.
    pub capacity: u32,
    /// In percent of all traffic; nothing where traffic does not follow capacity.
    pub weight: Option<u32>,
    /// In replicas, where they are ours to count.
    pub replicas: Option<u32>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Seconds since the beginning.
    pub at: u64,
    /// The version that is left.
    pub old: Side,
    /// The version that is gone to.
    pub new: Side,
    /// What is done or waited for.
    pub reason: String,
}

impl Row {
    /// A line about replicas without a route of their own: their traffic follows those that serve. Each side is
    /// (replicas, those that serve), of `whole` in all.
    pub(crate) fn of_replicas(
        at: Duration,
        old: (u32, u32),
        new: (u32, u32),
        whole: u32,
        reason: String,
    ) -> Self {
        let weights = percents(&[old.1, new.1]);
        Self::of_versions(at, (old.0, weights[0]), (new.0, weights[1]), whole, reason)
    }

    /// A line about two versions behind a route. Each side is (replicas, percent of the traffic), of `whole` replicas in
    /// all. The capacities add up to 100 where the replicas are the whole.
    pub(crate) fn of_versions(
        at: Duration,
        old: (u32, u32),
        new: (u32, u32),
        whole: u32,
        reason: String,
    ) -> Self {
        let capacities = percents_of(&[old.0, new.0], whole);
        let side = |(replicas, weight): (u32, u32), capacity: u32| Side {
            capacity,
            weight: Some(weight),
            replicas: Some(replicas),
        };
        Self { at: at.as_secs(), old: side(old, capacities[0]), new: side(new, capacities[1]), reason }
    }

    /// The same, where traffic is not split by how many serve: prefill and decode serve together.
    pub(crate) fn without_traffic(self) -> Self {
        let without = |side: Side| Side { weight: None, ..side };
        Self { old: without(self.old), new: without(self.new), ..self }
    }
}

/// An upgrade, rehearsed.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// How it is done: the strategy, and the room that it has.
    pub how: String,
    /// What happens when.
    pub rows: Vec<Row>,
    /// Whether it ends; the last row says what it would wait for where it does not.
    pub ends: bool,
    /// Why it fails, where it does: it ends with the version that it came from.
    pub failure: Option<String>,
    /// What one replica of each version holds, where that is known.
    pub replica: Option<(Resources, Resources)>,
    /// Other ways to do it, and what they would cost; what must be there for it to work.
    pub advice: Vec<String>,
}

impl Rehearsal {
    /// The most capacity that exists at once, in percent.
    pub fn peak(&self) -> u32 {
        self.rows.iter().map(|row| row.old.capacity + row.new.capacity).max().unwrap_or(100)
    }

    /// The most replicas that exist at once.
    pub fn peak_replicas(&self) -> Option<u32> {
        self.rows.iter().filter_map(|row| Some(row.old.replicas? + row.new.replicas?)).max()
    }

    /// How long it takes.
    pub fn seconds(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.at)
    }
}

/// A manifest as its type, with everything filled in.
pub(crate) fn typed<T: DeserializeOwned>(manifest: &Value) -> Result<T, NoPlan> {
    let filled = api::defaulted(manifest).map_err(|violation| NoPlan::Unsupported(violation.to_string()))?;
    T::deserialize(filled).map_err(|error| NoPlan::Unsupported(error.to_string()))
}
