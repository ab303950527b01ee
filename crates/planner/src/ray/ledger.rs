//! What must outlive the pods: kept in the cluster's status, written before anything is done.
//!
//! Pods that are gone tell nothing, so which names are spent, which deletions are decided and how often a place was
//! replaced of late is remembered here. Nothing is remembered in the process.

use std::{collections::BTreeMap, time::Duration};

use super::types::{Pod, Slot, Why};
use crate::{Backoff, Time, Uid};

/// The waits between replacements of one place in a row.
const PAUSE: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };

/// A place that gave no trouble for this long starts over; twice the longest pause, as the kubelet has it.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// What is remembered of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The lowest incarnation that may live: below it, workers are to go, and none is created.
    pub floor: u32,
    /// The highest incarnation that was seen. A worker's name is never given again once it was seen.
    pub seen: Option<u32>,
    /// The head that is to go. The next head has the same name, so that the API server itself refuses a second one.
    pub condemned: Option<Uid>,
    /// Why the last one had to go.
    pub why: Option<Why>,
    /// Whether its pods were evicted and no ready ones are there since. Whatever else befalls the place meanwhile.
    pub evicted: bool,
    /// How often the place was replaced in a row because of trouble.
    pub replaced: u32,
    /// When it last was.
    pub at: Option<Time>,
}

impl Entry {
    /// Until when the place must be left alone.
    pub(super) fn pause(&self, now: Time) -> Option<Time> {
        let until = self.at? + PAUSE.after(self.replaced);
        (now < until).then_some(until)
    }

    fn trouble(&mut self, now: Time) {
        let forgotten = self.at.is_none_or(|at| now.saturating_sub(at) >= FORGET_AFTER);
        self.replaced = if forgotten { 1 } else { self.replaced.saturating_add(1) };
        self.at = Some(now);
    }
}

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger(pub BTreeMap<Slot, Entry>);

impl Ledger {
    pub(super) fn get(&self, slot: &Slot) -> Entry {
        self.0.get(slot).cloned().unwrap_or_default()
    }

    pub(super) fn floor(&self, slot: &Slot) -> u32 {
        self.0.get(slot).map_or(0, |entry| entry.floor)
    }

    /// Whether a pod's deletion is decided.
    pub(super) fn condemns(&self, slot: &Slot, pod: &Pod) -> bool {
        self.0
            .get(slot)
            .is_some_and(|entry| pod.incarnation < entry.floor || entry.condemned.as_ref() == Some(&pod.uid))
    }

    /// Whether the pods of a place were evicted and no ready ones are there since.
    pub(super) fn evicted(&self, slot: &Slot) -> bool {
        self.0.get(slot).is_some_and(|entry| entry.evicted)
    }

    /// Takes note that a place is as it was before its eviction.
    pub(super) fn restored(&mut self, slot: &Slot) {
        self.0.entry(slot.clone()).and_modify(|entry| entry.evicted = false);
    }

    pub(super) fn raise(&mut self, slot: &Slot, floor: u32) {
        if floor > self.floor(slot) {
            self.0.entry(slot.clone()).or_default().floor = floor;
        }
    }

    /// Takes note of workers that are there, and of ends that others decided. The head has one name and no incarnations.
    pub(super) fn notice(&mut self, slot: &Slot, pods: &[&Pod]) {
        let of = |keep: &dyn Fn(&Pod) -> bool| {
            pods.iter().filter(|pod| keep(pod)).map(|pod| pod.incarnation).max()
        };
        if *slot == Slot::Head {
            return;
        }
        let alive = of(&|pod| !pod.terminating);
        if let Some(alive) = alive.filter(|alive| self.superseded(slot, pods, *alive)) {
            self.raise(slot, alive);
            self.0.entry(slot.clone()).or_default().why = Some(Why::Superseded);
        }
        let seen = of(&|_| true);
        if seen > self.get(slot).seen {
            self.0.entry(slot.clone()).or_default().seen = seen;
        }
        let ended = of(&|pod| pod.terminating).map_or(0, |ended| ended.saturating_add(1));
        if ended > self.floor(slot) {
            self.raise(slot, ended);
            self.0.entry(slot.clone()).or_default().why = Some(Why::IncompleteReplica);
        }
    }

    /// Whether one place has live pods older than its newest. Only a view that went back in time brings that about.
    fn superseded(&self, slot: &Slot, pods: &[&Pod], newest: u32) -> bool {
        let between = self.floor(slot)..newest;
        pods.iter().any(|pod| between.contains(&pod.incarnation) && !pod.terminating)
    }

    /// Decides that the pods of a place go.
    pub(super) fn condemn(&mut self, slot: &Slot, pods: &[&Pod], why: Why, now: Time) {
        let entry = self.0.entry(slot.clone()).or_default();
        for pod in pods {
            if *slot == Slot::Head {
                entry.condemned = Some(pod.uid.clone());
            } else {
                entry.floor = entry.floor.max(pod.incarnation.saturating_add(1));
            }
        }
        entry.why = Some(why);
        if why.backs_off() {
            entry.evicted |= why == Why::Unhealthy;
            entry.trouble(now);
        } else {
            entry.evicted = false;
        }
    }
}
