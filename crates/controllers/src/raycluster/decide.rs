//! What is done next for a cluster, by the planner.

use planner::{
    Code, Reason, Time, agreed, counted,
    ray::{self, Ledger, Plan, Spec},
};

use super::{
    cleanup::{self, Step},
    observe::{Member, Observed},
    wanted,
};

/// What is done next, and what is waited for.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(super) spec: Spec,
    pub(super) plan: Plan,
    /// What is remembered after this.
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    /// What is done for a cluster that is being deleted, beside having its pods go.
    pub(super) ending: Option<Step>,
    /// What is left to do; nothing once every pod that is wanted is Ready, or none is there that should not be.
    pub(super) waits: Option<Reason>,
}

/// The pods of a cluster, counted.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) head_ready: bool,
    /// Worker pods that are there, run and are Ready.
    pub(super) workers: usize,
    pub(super) running: usize,
    pub(super) ready: usize,
    /// Worker pods that are wanted.
    pub(super) desired: usize,
}

impl Tally {
    fn of(spec: &Spec, members: &[Member]) -> Self {
        let workers: Vec<&Member> =
            members.iter().filter(|member| member.stays() && !member.is_head()).collect();
        let desired = spec.groups.iter().map(|group| group.desired().saturating_mul(group.hosts()) as usize);
        Self {
            head_ready: members.iter().any(|member| member.stays() && member.is_head() && member.is_ready()),
            running: workers.iter().filter(|member| member.runs()).count(),
            ready: workers.iter().filter(|member| member.is_ready()).count(),
            workers: workers.len(),
            desired: desired.sum(),
        }
    }

    /// Whether the pods are those that are wanted, all of them Ready.
    pub(super) fn is_ready(&self) -> bool {
        self.head_ready && self.workers == self.desired && self.ready == self.desired
    }
}

pub(super) fn decide(observed: &Observed, now: Time) -> Decision {
    let mut spec = wanted::spec(&observed.cluster);
    // Its pods go, as those of one that is suspended.
    spec.suspended |= observed.ending.is_some();
    let pods = observed.members.iter().map(|member| member.read(now)).collect();
    let plan = ray::plan(&spec, Some(&ray::Observed { pods, ledger: observed.ledger.clone() }), now);
    let tally = Tally::of(&spec, &observed.members);
    let ledger = plan.record.clone().unwrap_or_else(|| observed.ledger.clone());
    let ending = observed.ending.as_ref();
    let ending = ending.map(|it| cleanup::decide(it, &observed.cluster, observed.members.len(), now));
    let waits = match &ending {
        None => waits(&spec, &plan, &tally),
        Some(Step::Wait(reason) | Step::Make(reason)) => Some(reason.clone()),
        Some(Step::LetGo(_)) => None,
    };
    Decision { spec, plan, ledger, tally, ending, waits }
}

fn waits(spec: &Spec, plan: &Plan, tally: &Tally) -> Option<Reason> {
    if plan.reason.code == Code::Suspended || spec.suspended && plan.reason.code == Code::Matched {
        return None;
    }
    if plan.reason.code != Code::Matched {
        return Some(plan.reason.clone());
    }
    if tally.is_ready() {
        return None;
    }
    let what = if tally.head_ready {
        let are = agreed(tally.ready, "is", "are");
        format!("{} of {} {are} ready", tally.ready, counted(tally.desired, "worker"))
    } else {
        "the head is not ready".to_owned()
    };
    Some(Reason::new(Code::WaitingForReady, what))
}
