//! The head: exactly one.

use super::{
    Draft, name,
    types::{Op, Pod, Slot, Why},
};
use crate::{
    Code,
    reason::{Reason, Time},
};

impl Draft<'_> {
    /// The head that is to stay.
    fn live_head(&self) -> Option<&Pod> {
        self.live(&Slot::Head).pop()
    }

    /// Whether a head is there that workers can join or wait for.
    pub(super) fn head_present(&self) -> bool {
        self.live_head().is_some_and(|head| !head.failed() && !head.node_lost)
    }

    /// Since when the head is healthy. Without a time, what workers seem to suffer from may be its absence.
    pub(super) fn head_healthy_since(&self) -> Option<Time> {
        let head = self.live_head()?;
        let suspect = head.marked_unhealthy || head.raylet_unhealthy_since.is_some();
        head.ready_since.filter(|_| head.ready() && !suspect)
    }

    pub(super) fn condemn_head(&mut self) {
        let Some(head) = self.live(&Slot::Head).pop() else { return };
        if self.spec.suspended {
            return self.condemn(&Slot::Head, Why::Suspended);
        }
        if self.outdated(head) {
            return self.condemn(&Slot::Head, Why::TemplateChanged);
        }
        if head.failed() {
            return self.condemn_after_pause(&Slot::Head, Why::PodFailed);
        }
        if head.node_lost {
            return self.condemn_after_pause(&Slot::Head, Why::NodeLost);
        }
        if head.marked_unhealthy {
            return self.condemn_after_pause(&Slot::Head, Why::Unhealthy);
        }
        self.mark_head(head);
    }

    fn mark_head(&mut self, head: &Pod) {
        let Some(since) = head.raylet_unhealthy_since else { return };
        let until = since + self.spec.thresholds.head;
        if self.now < until {
            let what = "the head's check fails";
            let reason = Reason::new(Code::WaitingForThreshold, what).since(since).until(until);
            return self.reasons.push(reason.then("it is marked unhealthy"));
        }
        if !self.pauses(&Slot::Head) {
            self.reasons.push(
                Reason::new(Code::MarkingUnhealthy, "the head's check fails")
                    .since(since)
                    .then("it is replaced"),
            );
            self.ops.push(Op::MarkUnhealthy { uid: head.uid.clone() });
        }
    }

    pub(super) fn create_head(&mut self) {
        if self.spec.suspended {
            let what =
                if self.places.is_empty() { "all pods are gone" } else { "waiting for the pods to go" };
            let code = if self.places.is_empty() { Code::Suspended } else { Code::Suspending };
            return self.note(code, what);
        }
        if self.live_head().is_some() {
            return;
        }
        if self.vacating(&Slot::Head) {
            let reason = Reason::new(Code::WaitingForHeadToLeave, "the last head is terminating");
            return self.reasons.push(reason.then("the next one is created"));
        }
        if self.recreating() {
            return self.note(Code::WaitingForOldTemplate, "pods of the former template are still there");
        }
        if self.workers_of_lost_head() {
            return self.note(
                Code::WaitingForOldWorkers,
                "workers of the last head are deleted before the next one comes",
            );
        }
        self.note(Code::CreatingHead, format!("there is no head; {} is created", name::head(self.spec)));
        // The node is lost, so nothing else frees the name. A name of its own for the next head would let a leader with
        // an older view make one beside it.
        let ghosts = self.places.get(&Slot::Head).into_iter().flatten().filter(|head| head.ghost());
        self.ops.extend(ghosts.map(|head| Op::ReleasePod { name: head.name.clone(), uid: head.uid.clone() }));
        self.ops.push(Op::CreateHead);
    }

    /// Whether workers that must not meet the next head are not even terminating. Once they are, they cannot stay.
    fn workers_of_lost_head(&self) -> bool {
        let lost = |slot: &Slot| self.ledger.get(slot).why == Some(Why::HeadLost);
        self.places.iter().any(|(slot, pods)| {
            lost(slot) && pods.iter().any(|pod| !pod.terminating && self.ledger.condemns(slot, pod))
        })
    }
}
