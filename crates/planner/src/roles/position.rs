//! Where in its steps a group is: derived, never stored.

use crate::roles::{
    group::{StepState, Turn},
    observed::Group,
    spec::{GroupSpec, Recovery},
    tally::Tally,
};

/// A step with its number: the running maximum of its role so far, because `3` and then `50%` of four would otherwise
/// ask for less than was already asked.
struct Gate {
    /// Its place in the user's list; those of the tail follow.
    step: usize,
    role: usize,
    goal: u32,
    /// The goal of the role's gate before.
    before: u32,
}

/// The gates of a group, and how far it has come.
pub(super) struct Position {
    gates: Vec<Gate>,
    /// The first gate that is not met.
    unmet: Option<usize>,
    /// The last gate for which work shows: more replicas are updated than its role's gate before asks for.
    begun: Option<usize>,
    /// The gate that the group had come to, even if an earlier one has fallen back since: the first unmet one from
    /// there on. A replica that is lost meanwhile was permitted to be updated, and returns so.
    reached: Option<usize>,
    turn: Turn,
    /// The group has no history at all.
    fresh: bool,
    /// The group was made anew as a whole, and nothing old serves in it.
    rebuilt: bool,
}

impl Position {
    pub fn of(spec: &GroupSpec, group: &Group, tallies: &[Tally<'_>], turn: Turn) -> Self {
        let gates = gates(spec, tallies);
        let lacks = |gate: &Gate| tallies[gate.role].updated_and_ready() < gate.goal;
        let unmet = gates.iter().position(lacks);
        let shows = |gate: &Gate| {
            let tally = &tallies[gate.role];
            tally.changes() && tally.updated() > gate.before
        };
        let begun = gates.iter().rposition(shows);
        let from = |at: usize| gates[at..].iter().position(lacks).map_or(gates.len(), |after| at + after);
        let reached = begun.map(from);
        let all_new = !tallies.iter().any(Tally::outdated);
        let fresh = all_new && group.recorded.is_empty();
        let rebuilt = all_new && spec.recovery == Recovery::Group;
        Self { gates, unmet, begun, reached, turn, fresh, rebuilt }
    }

    /// Whether every gate is met.
    pub fn complete(&self) -> bool {
        self.unmet.is_none()
    }

    /// Whether the group was made at the target from the start and has no order to keep.
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    /// The role whose turn it is, and how many of it shall be updated.
    pub fn current(&self) -> Option<(usize, u32)> {
        self.unmet.map(|at| (self.gates[at].role, self.gates[at].goal))
    }

    /// The current step, for status.
    pub fn state(&self, tallies: &[Tally<'_>]) -> Option<StepState> {
        let at = self.unmet.filter(|_| !self.fresh)?;
        let gate = &self.gates[at];
        let tally = &tallies[gate.role];
        Some(StepState {
            index: gate.step,
            role: tally.name.to_owned(),
            required: gate.goal,
            satisfied: tally.updated_and_ready(),
            regressed: self.begun.is_some_and(|begun| begun > at),
        })
    }

    /// How many replicas of a role may be updated. A vacant slot carries no label, so this decides with which hash its
    /// replica returns.
    pub fn allowed(&self, role: usize, tally: &Tally<'_>) -> u32 {
        match self.turn {
            _ if tally.target.is_none() => 0,
            Turn::Protected => 0,
            Turn::Admitted if self.fresh || (self.rebuilt && tally.old.is_some()) => tally.wanted,
            // A role that is new and that no step names comes with the group's turn.
            Turn::Admitted if tally.old.is_none() && !self.names(role) => tally.wanted,
            Turn::Admitted => self.goal(role, self.unmet).max(self.kept(role, tally)),
            Turn::Waiting => self.kept(role, tally),
        }
    }

    /// What a role may keep although an earlier step fell back. Only a role that itself shows work has anything to keep:
    /// a stale read may have made a second canary of another role, which looks like a later step.
    fn kept(&self, role: usize, tally: &Tally<'_>) -> u32 {
        if tally.updated() > 0 { self.goal(role, self.reached) } else { 0 }
    }

    fn goal(&self, role: usize, at: Option<usize>) -> u32 {
        let through = at.map_or(0, |at| self.gates.len().min(at + 1));
        self.gates[..through].iter().filter(|gate| gate.role == role).map(|gate| gate.goal).max().unwrap_or(0)
    }

    /// Whether a step, rather than only the tail, asks for the role.
    fn names(&self, role: usize) -> bool {
        self.gates.iter().filter(|gate| gate.role == role).count() > 1
    }
}

/// The gates of the steps, then the tail: all that remains, in the order of the spec.
fn gates(spec: &GroupSpec, tallies: &[Tally<'_>]) -> Vec<Gate> {
    let mut goals = vec![0; spec.roles.len()];
    let steps = spec.steps.iter().enumerate().filter_map(|(index, step)| {
        let role = spec.roles.iter().position(|role| role.name == step.role)?;
        Some((index, role, step.required(tallies[role].wanted)))
    });
    let tail = (0..spec.roles.len()).map(|role| (spec.steps.len() + role, role, tallies[role].wanted));
    let gate = |(step, role, required): (usize, usize, u32)| {
        let before = goals[role];
        goals[role] = required.max(before);
        Gate { step, role, goal: goals[role], before }
    };
    steps.chain(tail).map(gate).collect()
}
