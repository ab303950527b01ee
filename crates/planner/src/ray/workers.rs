//! Worker groups: how many, which go, and what is done for those in trouble.

use std::cmp::Reverse;

use super::{
    Draft, describe, name,
    types::{Group, Op, Phase, Pod, Slot, Why},
};
use crate::{
    Code, counted,
    reason::{Reason, Time},
};

/// What is wrong with a replica, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// All that is left of it ended.
    Dead,
    /// A part of it ended or is missing, and another lives.
    Broken,
    /// A node of it is lost.
    Lost,
    /// A pod of it is marked, by us or by others.
    Marked,
    /// The check of a part of it fails, since then.
    Sick(Time),
    /// Not all of it is ready.
    Unready,
    /// Nothing.
    None,
}

impl Trouble {
    /// How much is lost with such a replica.
    fn worth(self) -> u8 {
        match self {
            Self::None => 2,
            Self::Unready => 1,
            _ => 0,
        }
    }
}

fn trouble(group: &Group, pods: &[&Pod]) -> Trouble {
    let any = |test: fn(&Pod) -> bool| pods.iter().any(|pod| test(pod));
    let started = any(|pod| pod.phase == Phase::Running);
    let whole = complete(group, pods);
    let sick = pods.iter().filter_map(|pod| pod.raylet_unhealthy_since).min();
    match sick {
        _ if pods.iter().all(|pod| pod.failed()) => Trouble::Dead,
        // What has not started yet can still be completed: the view may simply show the first of two creations.
        _ if any(Pod::failed) || (!whole && started) => Trouble::Broken,
        _ if any(|pod| pod.node_lost) => Trouble::Lost,
        _ if any(|pod| pod.marked_unhealthy) => Trouble::Marked,
        Some(since) => Trouble::Sick(since),
        None if !whole || !pods.iter().all(|pod| pod.ready()) => Trouble::Unready,
        None => Trouble::None,
    }
}

/// Whether every part is there, and no part too many (the number of hosts may have changed).
fn complete(group: &Group, pods: &[&Pod]) -> bool {
    (0..group.hosts()).all(|host| pods.iter().any(|pod| pod.host() == host))
        && pods.iter().all(|pod| pod.host() < group.hosts())
}

/// What may be done about unhealthy workers.
struct Evictions {
    /// Since when the head is healthy; nothing stops all evictions.
    head: Option<Time>,
    /// Whether so many are in trouble that the cause is elsewhere.
    correlated: bool,
}

impl Draft<'_> {
    pub(super) fn condemn_workers(&mut self) {
        self.condemn_strays();
        let spec = self.spec;
        for group in &spec.groups {
            self.condemn_wanted(group);
        }
        for group in &spec.groups {
            self.condemn_excess(group);
        }
        let evictions = Evictions { head: self.head_healthy_since(), correlated: self.correlated() };
        for group in &spec.groups {
            self.condemn_dead(group, &evictions);
            self.evict(group, &evictions);
        }
    }

    fn slots(&self, group: &str) -> Vec<Slot> {
        let of = |slot: &&Slot| matches!(slot, Slot::Replica { group: name, .. } if name == group);
        self.places.keys().filter(of).cloned().collect()
    }

    /// The replicas of a group that are to stay.
    fn replicas(&self, group: &Group) -> Vec<(Slot, Trouble)> {
        let slots = self.slots(&group.name).into_iter();
        let live = slots.map(|slot| (self.live(&slot), slot)).filter(|(pods, _)| !pods.is_empty());
        live.map(|(pods, slot)| (slot, trouble(group, &pods))).collect()
    }

    /// Groups that are no longer wanted.
    fn condemn_strays(&mut self) {
        let wanted = |slot: &Slot| match slot {
            Slot::Head => true,
            Slot::Replica { group, .. } => self.spec.groups.iter().any(|wanted| wanted.name == *group),
        };
        let strays: Vec<Slot> = self.places.keys().filter(|slot| !wanted(slot)).cloned().collect();
        for slot in strays.iter().filter(|slot| !self.live(slot).is_empty()).collect::<Vec<_>>() {
            self.condemn(slot, Why::GroupRemoved);
        }
    }

    /// Replicas that are asked to go, and replicas that cannot stay: no budget, because waiting would bring nothing.
    fn condemn_wanted(&mut self, group: &Group) {
        let orphaned = !self.spec.fault_tolerant && !self.head_present();
        for (slot, _) in self.replicas(group) {
            let pods = self.live(&slot);
            let started = pods.iter().any(|pod| pod.phase == Phase::Running);
            if self.spec.suspended || group.suspended {
                self.condemn(&slot, Why::Suspended);
            } else if pods.iter().any(|pod| self.outdated(pod)) {
                self.condemn(&slot, Why::TemplateChanged);
            } else if orphaned && started {
                self.condemn(&slot, Why::HeadLost);
            } else if self.listed(group, &slot, &pods) {
                self.condemn(&slot, Why::WorkersToDelete);
            }
        }
    }

    /// Whether the autoscaler wants a part of this replica gone, be it a part that is gone already.
    fn listed(&self, group: &Group, slot: &Slot, pods: &[&Pod]) -> bool {
        let Slot::Replica { index, .. } = slot else { return false };
        let names = |pod: &&Pod| {
            (0..group.hosts()).any(|host| group.lists(&self.name_of(group, *index, host, pod.incarnation)))
        };
        !group.workers_to_delete.is_empty() && pods.iter().any(|pod| group.lists(&pod.name) || names(pod))
    }

    fn name_of(&self, group: &Group, index: u32, host: u32, incarnation: u32) -> String {
        name::worker(self.spec, &group.name, index, host, incarnation)
    }

    /// More replicas than wanted: those in trouble go first, then the last ones.
    ///
    /// With autoscaling, the autoscaler that lowers `replicas` also names the replicas that go, because only Ray knows
    /// which node is idle; so only what is above the maximum goes unnamed.
    fn condemn_excess(&mut self, group: &Group) {
        let most = if self.spec.autoscaling && !group.suspended { group.max } else { group.desired() };
        let mut replicas = self.replicas(group);
        let excess = replicas.len().saturating_sub(most as usize);
        replicas.sort_by_key(|(slot, trouble)| (trouble.worth(), Reverse(slot.clone())));
        for (slot, _) in replicas.into_iter().take(excess) {
            self.condemn(&slot, Why::ScaledDown);
        }
    }

    /// More than half of all replicas, and more than one: then it is the network or the head, not the workers.
    fn correlated(&self) -> bool {
        let groups = self.spec.groups.iter();
        let troubles: Vec<Trouble> =
            groups.flat_map(|group| self.replicas(group)).map(|(_, trouble)| trouble).collect();
        let affected = |trouble: &&Trouble| matches!(trouble, Trouble::Lost | Trouble::Sick(_));
        let affected = troubles.iter().filter(affected).count();
        affected > 1 && 2 * affected > troubles.len()
    }

    /// Replicas of which nothing can be saved. They are lost already, so there is no budget; where a part still lives
    /// it stays while the head is away, since that may be why the other part ended.
    fn condemn_dead(&mut self, group: &Group, evictions: &Evictions) {
        for (slot, trouble) in self.replicas(group) {
            match trouble {
                Trouble::Dead => self.condemn_after_pause(&slot, Why::PodFailed),
                Trouble::Broken if evictions.head.is_some() => {
                    self.condemn_after_pause(&slot, Why::IncompleteReplica);
                }
                Trouble::Lost if evictions.head.is_some() && !evictions.correlated => {
                    self.condemn_after_pause(&slot, Why::NodeLost);
                }
                Trouble::Broken | Trouble::Lost => self.note_stopped(evictions, &slot),
                _ => {}
            }
        }
    }

    fn note_stopped(&mut self, evictions: &Evictions, slot: &Slot) {
        let what = describe(slot);
        let reason = if evictions.head.is_none() {
            let what = format!("{what} is in trouble, as is the head");
            Reason::new(Code::EvictionStoppedByHead, what).then("it is evicted once the head is healthy")
        } else {
            let what = format!("{what} is in trouble, as are more than half of all replicas");
            Reason::new(Code::EvictionStoppedCorrelated, what).then("it is evicted once fewer are in trouble")
        };
        self.reasons.push(reason);
    }

    /// Unhealthy replicas, within the budget: marked first, so that everyone can see why, and then replaced.
    fn evict(&mut self, group: &Group, evictions: &Evictions) {
        let mut replicas = self.replicas(group);
        for (slot, _) in replicas.iter().filter(|(_, trouble)| *trouble == Trouble::None) {
            self.ledger.restored(slot);
        }
        replicas.retain(|(_, trouble)| matches!(trouble, Trouble::Marked | Trouble::Sick(_)));
        // What is marked already is spent from the budget first.
        replicas.sort_by_key(|(slot, trouble)| (*trouble, slot.clone()));
        let mut away = self.away(group);
        for (slot, trouble) in replicas {
            let Some(head) = evictions.head.filter(|_| !evictions.correlated) else {
                self.note_stopped(evictions, &slot);
                continue;
            };
            let due = self.due(trouble, head);
            if let Some(until) = due.filter(|until| self.now < *until) {
                let what = format!("the raylet check of {} fails", describe(&slot));
                let reason = Reason::new(Code::WaitingForThreshold, what).until(until);
                self.reasons.push(reason.then("it is marked unhealthy"));
                continue;
            }
            let others = away.iter().filter(|away| **away != slot).count();
            if !Self::admits(group, others) {
                let what =
                    format!("{} is unhealthy, and as many as may be are being replaced", describe(&slot));
                self.reasons.push(
                    Reason::new(Code::EvictionBudgetSpent, what).then("it is replaced when they are ready"),
                );
                continue;
            }
            if !self.pauses(&slot) {
                self.mark_or_condemn(&slot, trouble);
                away.push(slot);
            }
        }
    }

    /// When a failing check becomes a verdict. A mark already is one.
    fn due(&self, trouble: Trouble, head: Time) -> Option<Time> {
        let Trouble::Sick(since) = trouble else { return None };
        Some(since.max(head) + self.spec.thresholds.worker)
    }

    fn mark_or_condemn(&mut self, slot: &Slot, trouble: Trouble) {
        if trouble == Trouble::Marked {
            return self.condemn(slot, Why::Unhealthy);
        }
        self.note(Code::MarkingUnhealthy, format!("the raylet check of {} fails", describe(slot)));
        let sick = self.live(slot).into_iter().filter(|pod| pod.raylet_unhealthy_since.is_some());
        self.ops.extend(sick.map(|pod| Op::MarkUnhealthy { uid: pod.uid.clone() }));
    }

    /// Whether one more replica may be away. One always may, however many hosts it has.
    fn admits(group: &Group, away: usize) -> bool {
        let pods =
            |replicas: usize| u32::try_from(replicas).unwrap_or(u32::MAX).saturating_mul(group.hosts());
        away == 0 || pods(away + 1) <= group.eviction_budget()
    }

    /// Replicas that were evicted and have no ready successor yet.
    fn away(&self, group: &Group) -> Vec<Slot> {
        let slots = self.slots(&group.name).into_iter();
        let mut away: Vec<Slot> =
            slots.filter(|slot| self.ledger.evicted(slot) && !self.free(slot)).collect();
        away.extend(self.free_evicted(group).into_iter().take(self.missing(group)));
        away
    }

    /// Whether a place has neither pods that stay nor pods that are still going.
    fn free(&self, slot: &Slot) -> bool {
        self.live(slot).is_empty() && !self.vacating(slot)
    }

    /// Free places whose last pods were evicted. They are filled before any other.
    fn free_evicted(&self, group: &Group) -> Vec<Slot> {
        let of = |slot: &&Slot| matches!(slot, Slot::Replica { group: name, .. } if *name == group.name);
        let slots = self.ledger.0.keys().filter(of);
        slots.filter(|slot| self.ledger.evicted(slot) && self.free(slot)).cloned().collect()
    }

    /// How many replicas are to be created.
    fn missing(&self, group: &Group) -> usize {
        let slots = self.slots(&group.name);
        let taken = slots.iter().filter(|slot| !self.free(slot)).count();
        (group.desired() as usize).saturating_sub(taken)
    }

    pub(super) fn create_workers(&mut self) {
        if self.spec.suspended || self.recreating() {
            return;
        }
        let spec = self.spec;
        for group in &spec.groups {
            self.complete_replicas(group);
            self.create_replicas(group);
        }
    }

    /// Replicas that were begun and have not started: a crash, or a view, came between two creations.
    fn complete_replicas(&mut self, group: &Group) {
        for (slot, trouble) in self.replicas(group) {
            let Slot::Replica { index, .. } = slot else { continue };
            let pods = self.live(&slot);
            let Some(incarnation) = pods.iter().map(|pod| pod.incarnation).max() else { continue };
            if matches!(trouble, Trouble::Dead | Trouble::Broken) {
                continue;
            }
            let missing = |host: &u32| !pods.iter().any(|pod| pod.host() == *host);
            let hosts: Vec<u32> = (0..group.hosts()).filter(missing).collect();
            if !hosts.is_empty() {
                self.note(Code::CompletingReplica, format!("{} was begun", describe(&slot)));
                self.create(group, index, incarnation, hosts);
            }
        }
    }

    fn create_replicas(&mut self, group: &Group) {
        let missing = self.missing(group);
        if missing == 0 {
            return;
        }
        self.note(
            Code::CreatingWorkers,
            format!("group {} lacks {missing} of {}", group.name, counted(group.desired(), "replica")),
        );
        let mut evicted = self.free_evicted(group);
        evicted.truncate(missing);
        let any = (0..u32::MAX).map(|index| Slot::Replica { group: group.name.clone(), index });
        let others: Vec<Slot> = any
            .filter(|slot| !evicted.contains(slot) && self.free(slot))
            .take(missing - evicted.len())
            .collect();
        for slot in evicted.into_iter().chain(others) {
            let Slot::Replica { index, .. } = slot else { continue };
            let incarnation = self.next_incarnation(group, &slot, index);
            self.create(group, index, incarnation, 0..group.hosts());
        }
    }

    /// An incarnation with names that were never used and never asked to be deleted.
    fn next_incarnation(&mut self, group: &Group, slot: &Slot, index: u32) -> u32 {
        let entry = self.ledger.get(slot);
        let fresh = entry.seen.map_or(0, |seen| seen.saturating_add(1)).max(entry.floor);
        let listed =
            |inc: u32| (0..group.hosts()).any(|host| group.lists(&self.name_of(group, index, host, inc)));
        let next = (fresh..u32::MAX).find(|inc| !listed(*inc)).unwrap_or(u32::MAX);
        if next > fresh {
            // The list may be empty before the view shows what was created: the choice must stay the same.
            self.ledger.raise(slot, next);
        }
        next
    }

    fn create(
        &mut self,
        group: &Group,
        replica: u32,
        incarnation: u32,
        hosts: impl IntoIterator<Item = u32>,
    ) {
        let group = &group.name;
        self.ops.extend(hosts.into_iter().map(|host| Op::CreateWorker {
            group: group.clone(),
            replica,
            host,
            incarnation,
        }));
    }
}
