//! What must never happen, judged by what the operator saw and by what is.

use std::collections::BTreeSet;

use planner::ray::{Group, Ledger, Observed, Phase, Pod, Role, Slot, Spec, Why};

use super::{World, slot};

impl World {
    /// Judges what is newly decided, by what was seen.
    pub(super) fn judge(&mut self, spec: &Spec, observed: &Observed, record: &Ledger) {
        let condemned = |ledger: &Ledger, pod: &Pod| {
            ledger.0.get(&pod.slot()).is_some_and(|entry| {
                pod.incarnation < entry.floor || entry.condemned.as_ref() == Some(&pod.uid)
            })
        };
        let head = Self::head_healthy(&observed.pods);
        let mut evicting = BTreeSet::new();
        for pod in observed.pods.iter().filter(|pod| !pod.terminating) {
            if !condemned(record, pod) || condemned(&observed.ledger, pod) {
                continue;
            }
            let Some(why) = record.0.get(&pod.slot()).and_then(|entry| entry.why) else {
                self.breaks(format!("{} goes without a reason", pod.name));
                continue;
            };
            if pod.role != Role::Head {
                self.judge_worker(spec, observed, pod, why, head);
            }
            if why == Why::Unhealthy {
                evicting.insert(pod.slot());
            }
        }
        self.judge_budget(spec, &evicting);
    }

    /// Where evictions are decided, all that are under way are within the budget; it may have been larger before. Where as
    /// many serve without them as are wanted, nothing that is wanted is away: a late view may not show a successor that
    /// was begun before the goal became smaller.
    fn judge_budget(&mut self, spec: &Spec, evicting: &BTreeSet<Slot>) {
        for group in &spec.groups {
            let of = |slot: &&Slot| matches!(slot, Slot::Replica { group: name, .. } if *name == group.name);
            let away = self.evicted.iter().filter(of).count();
            let pods = away * group.hosts as usize;
            if self.serving_beside(group, &self.evicted) >= group.desired() as usize {
                continue;
            }
            if evicting.iter().any(|slot| of(&slot)) && away > 1 && pods > group.eviction_budget() as usize {
                let what =
                    format!("{pods} pods of group {} are evicted at once: {:?}", group.name, self.evicted);
                self.breaks(what);
            }
        }
    }

    /// The whole and ready replicas of a group, except these.
    fn serving_beside(&self, group: &Group, except: &BTreeSet<Slot>) -> usize {
        let serves = |slot: &Slot| {
            let ready = |pod: &&Pod| pod.slot() == *slot && pod.ready_since.is_some() && !pod.terminating;
            self.pods.iter().filter(ready).count() >= group.hosts as usize
        };
        let slots = self.occupied(&group.name);
        slots.iter().filter(|slot| !except.contains(*slot) && serves(slot)).count()
    }

    fn judge_worker(&mut self, spec: &Spec, observed: &Observed, pod: &Pod, why: Why, head: bool) {
        let wished = matches!(
            why,
            Why::WorkersToDelete
                | Why::ScaledDown
                | Why::Suspended
                | Why::TemplateChanged
                | Why::GroupRemoved
        );
        let siblings: Vec<&Pod> = observed.pods.iter().filter(|other| other.slot() == pod.slot()).collect();
        let ending = siblings.iter().any(|other| other.terminating);
        let alive = siblings.iter().any(|other| other.phase != Phase::Failed);
        // What a second leader creates late is there twice: the place keeps its worker.
        let later = |other: &&Pod| other.incarnation > pod.incarnation && !other.terminating;
        let doubled = why == Why::Superseded && siblings.iter().any(later);
        if spec.fault_tolerant && !head && !wished && !ending && alive && !doubled {
            self.breaks(format!("{} goes while the head is away: {why:?}", pod.name));
        }
        let Some(group) = spec.groups.iter().find(|g| pod.slot() == slot_of(g, pod)) else { return };
        match why {
            Why::WorkersToDelete => {
                // A part that vanished before its replica started is made anew under its name: the replica is the same.
                let whom = |other: &Pod| self.meant.get(&other.name).is_none_or(|uid| *uid == other.uid);
                let listed = |other: &Pod| group.workers_to_delete.contains(&other.name);
                let meant = |other: &&Pod| group.hosts > 1 || listed(other) && whom(other);
                if group.workers_to_delete.is_empty() || !siblings.iter().any(meant) {
                    self.breaks(format!("{} was not meant to go", pod.name));
                }
            }
            Why::ScaledDown => {
                let most = if spec.autoscaling { group.max } else { group.desired() };
                let slots: BTreeSet<Slot> = observed.pods.iter().map(Pod::slot).collect();
                let of =
                    |slot: &&Slot| matches!(slot, Slot::Replica { group: name, .. } if *name == group.name);
                if slots.iter().filter(of).count() <= most as usize {
                    self.breaks(format!("{} goes although no more are there than wanted", pod.name));
                }
            }
            Why::Unhealthy => {
                self.evicted.insert(pod.slot());
                return;
            }
            _ => {}
        }
        if wished || why == Why::HeadLost {
            self.evicted.remove(&pod.slot());
        }
    }

    /// Forgets evictions that are made good, or that no longer matter.
    pub(super) fn look(&mut self) {
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.retain(|slot| {
            let floor = self.ledger.0.get(slot).map_or(0, |entry| entry.floor);
            let Slot::Replica { group, .. } = slot else { return false };
            let Some(group) = self.spec.groups.iter().find(|wanted| wanted.name == *group) else {
                return false;
            };
            let pods = || self.pods.iter().filter(|pod| pod.slot() == *slot);
            let back = pods().filter(|pod| pod.incarnation >= floor && pod.ready_since.is_some()).count();
            let needed = self.occupied(&group.name).len() < group.desired() as usize;
            back < group.hosts as usize && (self.occupied(&group.name).contains(slot) || needed)
        });
        self.evicted = evicted;
        let heads = |pod: &&Pod| pod.role == Role::Head && !pod.terminating && !pod.node_lost;
        if self.pods.iter().filter(heads).count() > 1 {
            self.breaks("two heads are in service".to_owned());
        }
    }
}

fn slot_of(group: &Group, pod: &Pod) -> Slot {
    match pod.role {
        Role::Head => Slot::Head,
        Role::Worker { replica, .. } => slot(&group.name, replica),
    }
}
