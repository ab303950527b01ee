//! Why, in a sentence.

use crate::{
    Code, Reason, Time,
    roles::{
        group::{Hold, Op, Turn},
        observed::{Group, Replica, State},
        position::Position,
        spec::GroupSpec,
        tally::Tally,
    },
};

/// Everything that a reason may speak of.
pub(super) struct Explainer<'a> {
    pub spec: &'a GroupSpec,
    pub group: &'a Group,
    pub tallies: &'a [Tally<'a>],
    pub position: &'a Position,
    pub turn: Turn,
    pub now: Time,
}

impl Explainer<'_> {
    pub fn reason(&self, ops: &[Op], replaced: &[&Replica], hold: Option<Hold>, done: bool) -> Reason {
        if done {
            return Reason::new(Code::UpToDate, "every replica has the revision of the spec and is Ready");
        }
        if let Some(first) = replaced.first() {
            return self.replacing(first);
        }
        match self.turn {
            Turn::Protected => return self.protected(),
            Turn::Waiting => {
                return Reason::new(
                    Code::WaitingForOtherGroups,
                    "waiting for the groups before it to be upgraded",
                );
            }
            Turn::Admitted => {}
        }
        let Some((role, _)) = self.position.current() else {
            return removing(ops);
        };
        self.overdue(self.waiting(&self.tallies[role], hold), &self.tallies[role])
    }

    fn replacing(&self, replica: &Replica) -> Reason {
        let name = format!("{}-{}", replica.role, replica.ordinal);
        let why = if replica.ready() { "which is next" } else { "which is not Ready and goes first" };
        let reason = Reason::new(Code::ReplacingReplica, format!("{} replaces {name}, {why}", self.step()));
        reason.then(format!("{name} starts at the new revision"))
    }

    fn protected(&self) -> Reason {
        let what = format!("group {} is below the partition and stays at its revision", self.group.ordinal);
        Reason::new(Code::BelowPartition, what)
    }

    /// The step in words: which one, and how far it is.
    fn step(&self) -> String {
        let Some(step) = self.position.state(self.tallies) else {
            return "the new group".to_owned();
        };
        let far = format!("({} of {} {} updated and Ready)", step.satisfied, step.required, step.role);
        let of = self.spec.steps.len();
        if step.index < of {
            format!("step {} of {of} {far}", step.index + 1)
        } else {
            format!("the last step {far}")
        }
    }

    fn waiting(&self, tally: &Tally<'_>, hold: Option<Hold>) -> Reason {
        let step = self.step();
        let regressed = self.position.state(self.tallies).is_some_and(|step| step.regressed);
        let on = on_what(tally);
        let (code, what) = match hold {
            Some(Hold::Gang) => (Code::WaitingForGangMinimum, format!("{step} keeps the gang minimum: {on}")),
            Some(Hold::Budget) => (
                Code::WaitingForRoleBudget,
                format!("{step} may not take another replica out of service: {on}"),
            ),
            None if regressed => (Code::StepRegressed, format!("{step} was complete and is no longer: {on}")),
            None => (Code::WaitingForReady, format!("{step} waits: {on}")),
        };
        Reason { since: blocking(tally).map(|replica| replica.since), ..Reason::new(code, what) }
            .then("the upgrade continues")
    }

    /// A deadline marks the reason and decides nothing.
    fn overdue(&self, reason: Reason, tally: &Tally<'_>) -> Reason {
        let (Some(deadline), Some(replica)) = (self.spec.deadline, blocking(tally)) else {
            return reason;
        };
        let end = replica.since.saturating_add(deadline);
        if self.position.state(self.tallies).is_none() {
            return reason;
        }
        if self.now >= end {
            return Reason { code: Code::StepOverdue, ..reason };
        }
        reason.until(end).then("the step counts as stalled; nothing else is replaced")
    }
}

/// What a role waits for: an updated replica that starts, else any that does, else one on its way out.
fn blocking<'a>(tally: &Tally<'a>) -> Option<&'a Replica> {
    let starting = tally.stay.iter().chain(&tally.failed).filter(|replica| !replica.ready());
    let first = starting.min_by_key(|replica| (!tally.is_updated(replica), replica.since, replica.ordinal));
    first.or_else(|| tally.leaving.first()).copied()
}

fn on_what(tally: &Tally<'_>) -> String {
    let Some(replica) = blocking(tally) else {
        return format!("{} of {} {} are being created", tally.vacant(), tally.wanted, tally.name);
    };
    let name = format!("{}-{}", replica.role, replica.ordinal);
    match (&replica.blocking, replica.state) {
        (Some(blocking), _) => format!("{name} is blocked by pod {}: {}", blocking.pod, blocking.why),
        (None, State::Leaving { .. }) => format!("{name} is draining"),
        (None, State::Terminating) => format!("{name} is terminating"),
        (None, _) => format!("{name} is starting"),
    }
}

/// All steps are met; what is left is in excess.
fn removing(ops: &[Op]) -> Reason {
    if ops.is_empty() {
        return Reason::new(
            Code::WaitingForTermination,
            "waiting for surplus replicas to finish their requests and end",
        );
    }
    Reason::new(Code::RemovingReplicas, "the spec asks for fewer replicas or no longer has their role")
}

pub(super) fn rebuilding(group: &Group) -> Reason {
    let failed = group.replicas.iter().filter(|replica| replica.failed);
    let first = failed.min_by_key(|replica| (&replica.role, replica.ordinal));
    let name = first.map_or_else(String::new, |replica| format!("{}-{}", replica.role, replica.ordinal));
    let what = format!("{name} failed, so all of group {} is recreated", group.ordinal);
    Reason::new(Code::RebuildingGroup, what).then("the group starts at one revision")
}
