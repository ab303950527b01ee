//! The small planner of a RayCluster: one head, worker groups, and what to do when some of them fail.
//!
//! [`plan`] is a function of the goal, one view of the pods and the time. What must outlive pods (spent names, decided
//! deletions, how often a place was replaced) is in the [`Ledger`], which the caller keeps in the cluster's status.
//!
//! # Guarantees
//! - **One head.** Every head has the same name, so the API server refuses a second one, also from a second leader or
//!   after an outdated observation. A head that terminates on a lost node would keep the name for ever; it is released by its uid.
//! - **A head's loss costs no worker** when the cluster is fault tolerant: while the head is away, no live worker goes
//!   except on explicit request. Without external storage the new head knows nothing of the old one's workers,
//!   actors and replicas, and raylets that had joined the old one end themselves (Ray checks the cluster id); so those
//!   that had started are replaced, before the new head comes. Workers still waiting for a head stay.
//! - **Correlated trouble stops evictions.** If more than half of the replicas (and more than one) are unhealthy or on
//!   lost nodes, or the head is not healthy, the cause is not in the workers and deleting them would make an outage of
//!   it. The kubelet's liveness probe remains the last resort.
//! - **Evictions have a budget**: a tenth of a group's pods, at least one replica, from the deletion until the
//!   replacement is ready. A place is replaced again after 10 s, then 20 s, up to 5 min.
//! - **Names are not given twice** to workers once a view showed them or a list holds them, so a stale
//!   `workersToDelete` hits no new pod. It is honoured for this cluster's workers only, and once.
//! - **Terminating pods occupy their place**; only those on lost nodes do not.
//! - **No view, no deletion.** A failed read plans nothing.

mod head;
mod ledger;
mod name;
mod types;
mod workers;

use std::collections::BTreeMap;

pub use self::{
    ledger::{Entry, Ledger},
    types::{
        Group, Observed, Op, Phase, Plan, Pod, RayContainer, Role, Slot, Spec, Template, Thresholds, Upgrade,
        Why,
    },
};
use crate::{
    Code,
    reason::{Reason, Time},
};

/// What to do next, and why. Without an observation, which is what a failed read leaves, nothing.
pub fn plan(spec: &Spec, observed: Option<&Observed>, now: Time) -> Plan {
    let Some(observed) = observed else {
        let reason =
            Reason::new(Code::ObservationMissing, "the pods could not be read, so nothing is decided");
        return Plan { record: None, ops: Vec::new(), reason, others: Vec::new() };
    };
    let mut draft = Draft::new(spec, observed, now);
    draft.condemn_head();
    draft.condemn_workers();
    draft.delete_condemned();
    draft.create_head();
    draft.create_workers();
    draft.into_plan(&observed.ledger)
}

/// A plan in the making.
struct Draft<'a> {
    spec: &'a Spec,
    now: Time,
    /// The pods by place. Places without pods are not in it.
    places: BTreeMap<Slot, Vec<&'a Pod>>,
    ledger: Ledger,
    ops: Vec<Op>,
    reasons: Vec<Reason>,
}

impl<'a> Draft<'a> {
    fn new(spec: &'a Spec, observed: &'a Observed, now: Time) -> Self {
        let mut places: BTreeMap<Slot, Vec<&Pod>> = BTreeMap::new();
        for pod in &observed.pods {
            places.entry(pod.slot()).or_default().push(pod);
        }
        let mut ledger = observed.ledger.clone();
        for (slot, pods) in &places {
            ledger.notice(slot, pods);
        }
        Self { spec, now, places, ledger, ops: Vec::new(), reasons: Vec::new() }
    }

    fn note(&mut self, code: Code, what: impl Into<String>) {
        self.reasons.push(Reason::new(code, what));
    }

    /// The pods of a place that are to stay.
    fn live(&self, slot: &Slot) -> Vec<&'a Pod> {
        let pods = self.places.get(slot).into_iter().flatten().copied();
        pods.filter(|pod| !pod.terminating && !self.ledger.condemns(slot, pod)).collect()
    }

    /// Whether a place still has pods that are going, and will confirm it.
    fn vacating(&self, slot: &Slot) -> bool {
        let pods = self.places.get(slot).into_iter().flatten();
        pods.into_iter().any(|pod| !pod.ghost() && (pod.terminating || self.ledger.condemns(slot, pod)))
    }

    /// Decides that the pods of a place go.
    fn condemn(&mut self, slot: &Slot, why: Why) {
        let pods = self.live(slot);
        self.ledger.condemn(slot, &pods, why, self.now);
    }

    /// The same, unless the place was replaced a moment ago: then it waits.
    fn condemn_after_pause(&mut self, slot: &Slot, why: Why) {
        if !self.pauses(slot) {
            self.condemn(slot, why);
        }
    }

    /// Whether a place is left alone for now, which is noted.
    fn pauses(&mut self, slot: &Slot) -> bool {
        let Some(until) = self.ledger.get(slot).pause(self.now) else { return false };
        let what = format!("{} was replaced a moment ago", describe(slot));
        self.reasons.push(Reason::new(Code::BackingOff, what).until(until).then("it is replaced again"));
        true
    }

    /// Whether a pod is to go because its template is not the wanted one.
    fn outdated(&self, pod: &Pod) -> bool {
        let other = pod.template.is_some_and(|template| template != self.spec.template);
        self.spec.upgrade == Upgrade::Recreate && other
    }

    /// Whether pods of another template are still there. What is new waits for them: the two must not meet.
    fn recreating(&self) -> bool {
        self.places.values().flatten().any(|pod| self.outdated(pod) && !pod.ghost())
    }

    fn delete_condemned(&mut self) {
        for (slot, pods) in &self.places {
            let doomed: Vec<_> =
                pods.iter().filter(|pod| !pod.terminating && self.ledger.condemns(slot, pod)).collect();
            if doomed.is_empty() {
                continue;
            }
            let why = self.ledger.get(slot).why.unwrap_or(Why::Superseded);
            let what = format!("{} goes: {}", describe(slot), why.sentence());
            self.reasons.push(Reason::new(why.code(), what));
            self.ops.extend(doomed.into_iter().map(|pod| Op::DeletePod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                why,
            }));
        }
    }

    fn into_plan(self, before: &Ledger) -> Plan {
        let mut reasons = self.reasons.into_iter();
        let matched = || Reason::new(Code::Matched, "the pods are as wanted");
        let reason = reasons.next().unwrap_or_else(matched);
        let record = (self.ledger != *before).then_some(self.ledger);
        Plan { record, ops: self.ops, reason, others: reasons.collect() }
    }
}

fn describe(slot: &Slot) -> String {
    match slot {
        Slot::Head => "the head".to_owned(),
        Slot::Replica { group, index } => format!("replica {index} of group {group}"),
    }
}
