//! What a plan may still spend, and what it has spent so far.

use crate::{
    Code, Reason, agreed,
    sets::{Op, Plan, SetSpec, State, Unit},
    units::Revision,
};

/// Why a write is planned. The first one names the plan's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Drained,
    Broken,
    Missing,
    Surge,
    Surplus,
    Outdated,
}

impl Why {
    fn code(self) -> Code {
        match self {
            Self::Drained => Code::DeletingDrained,
            Self::Broken => Code::ReplacingUnready,
            Self::Missing => Code::CreatingMissing,
            Self::Surge => Code::AddingSurge,
            Self::Surplus => Code::RemovingSurplus,
            Self::Outdated => Code::UpdatingReady,
        }
    }

    /// The words before and after the names of the units.
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Drained => ("deleting drained", ""),
            Self::Broken => ("replacing outdated, unready", ""),
            Self::Missing => ("creating", ""),
            Self::Surge => ("creating surge", ""),
            Self::Surplus => ("removing surplus", ""),
            Self::Outdated => ("taking outdated", " out of service"),
        }
    }
}

/// The room below the ceiling, what serves beyond the floor, and the writes so far.
pub(super) struct Ledger<'a> {
    pub spec: &'a SetSpec,
    /// Sorted by ordinal; where one is being deleted and another of its name exists, the living one comes first.
    pub units: &'a [&'a Unit],
    /// Units that may still be created. What is deleted frees nothing before it is gone.
    room: u32,
    /// Serving units that may still be taken out.
    spare: u32,
    /// Serving units and those that may serve again by themselves, less what this plan takes.
    hopeful: u32,
    ops: Vec<(Op, Why)>,
}

impl<'a> Ledger<'a> {
    pub fn open(spec: &'a SetSpec, units: &'a [&'a Unit]) -> Self {
        let count = |wanted: fn(State) -> bool| {
            u32::try_from(units.iter().filter(|unit| wanted(unit.state)).count()).unwrap_or(u32::MAX)
        };
        let serving = count(|state| state == State::Ready);
        Self {
            spec,
            units,
            room: spec.budget.ceiling(spec.replicas).saturating_sub(count(|_| true)),
            spare: serving.saturating_sub(spec.budget.floor(spec.replicas)),
            hopeful: serving + count(|state| state == State::Lapsed),
            ops: Vec::new(),
        }
    }

    /// The second write for whatever has finished.
    pub fn delete_drained(&mut self) {
        for unit in self.units {
            if unit.state == (State::Leaving { done: true }) {
                self.push(delete(unit), Why::Drained);
            }
        }
    }

    /// Makes a unit, if the ceiling has room.
    pub fn create(&mut self, ordinal: u32, revision: Revision, why: Why) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.push(Op::Create { ordinal, revision }, why);
        true
    }

    /// Retires a unit: a serving one only if the floor allows, any other at once.
    pub fn retire(&mut self, unit: &Unit, why: Why) -> bool {
        if unit.state != State::Ready {
            self.hopeful -= u32::from(unit.state == State::Lapsed);
            self.push(delete(unit), why);
            return true;
        }
        if self.spare == 0 {
            return false;
        }
        self.spare -= 1;
        self.hopeful -= 1;
        self.push(Op::TakeOut { ordinal: unit.ordinal, uid: unit.uid.clone() }, why);
        true
    }

    /// Replaces the outdated units that do not serve (LWS#488), all of them if need be (LWS#567).
    ///
    /// A unit that never served goes at once. A lapsed unit may be back in a moment; while the target has not shown
    /// that it can be ready, deleting it could leave the service below its floor for good. So it goes if nothing of the
    /// target is unready, or if the floor would hold without it. Where one is left, fewer serve than the floor wants,
    /// so none that serves is taken instead.
    pub fn replace_broken(&mut self, outdated: impl Fn(&Unit) -> bool) {
        let target = self.spec.target;
        let unready = |unit: &Unit| matches!(unit.state, State::Starting | State::Lapsed);
        let proven = !self.units.iter().any(|unit| unready(unit) && unit.revision == target);
        let floor = self.spec.budget.floor(self.spec.replicas);
        for unit in self.units.iter().rev().filter(|unit| unready(unit) && outdated(unit)) {
            if unit.state == State::Starting || proven || self.hopeful > floor {
                self.retire(unit, Why::Broken);
            }
        }
    }

    /// Whether a unit of this name exists.
    pub fn in_use(&self, ordinal: u32) -> bool {
        self.at(ordinal).is_some()
    }

    /// The unit of this name.
    pub fn at(&self, ordinal: u32) -> Option<&'a Unit> {
        let index = self.units.partition_point(|unit| unit.ordinal < ordinal);
        self.units.get(index).copied().filter(|unit| unit.ordinal == ordinal)
    }

    /// The plan, with its reason.
    pub fn close(self, done: bool) -> Plan {
        let reason = if done {
            Reason::new(Code::UpToDate, format!("every {} serves the wanted revision", self.spec.noun))
        } else if let Some((_, first)) = self.ops.first() {
            Reason::new(first.code(), self.story()).then(self.wait().what)
        } else {
            self.wait()
        };
        Plan { ops: self.ops.into_iter().map(|(op, _)| op).collect(), reason, done }
    }

    fn push(&mut self, op: Op, why: Why) {
        self.ops.push((op, why));
    }

    /// One clause for each kind of write, with the units that are written.
    fn story(&self) -> String {
        let mut clauses: Vec<(Why, Vec<u32>)> = Vec::new();
        for (op, why) in &self.ops {
            match clauses.iter_mut().find(|(seen, _)| seen == why) {
                Some((_, ordinals)) => ordinals.push(op.ordinal()),
                None => clauses.push((*why, vec![op.ordinal()])),
            }
        }
        let clause = |(why, ordinals): &(Why, Vec<u32>)| {
            let (before, after) = why.text();
            format!("{before} {}{after}", named(self.spec.noun, ordinals))
        };
        clauses.iter().map(clause).collect::<Vec<_>>().join("; ")
    }

    /// What has to happen before the next write.
    fn wait(&self) -> Reason {
        let noun = self.spec.noun;
        let first = |wanted: fn(State) -> bool| self.units.iter().find(|unit| wanted(unit.state));
        let unready = |state| matches!(state, State::Starting | State::Lapsed);
        if self.ops.iter().any(|(op, _)| matches!(op, Op::Create { .. })) {
            return Reason::new(Code::WaitingForReady, format!("waiting for the new {noun}s to be ready"));
        }
        if let Some(unit) = first(unready) {
            let is_update =
                self.units.iter().any(|unit| unit.state.is_live() && unit.revision != self.spec.target);
            if !is_update {
                let what = format!("waiting for {noun} {} to be ready", unit.ordinal);
                return Reason::new(Code::WaitingForReady, what);
            }
            let revision = if unit.revision == self.spec.target { "new" } else { "old" };
            let what = format!("waiting for {noun} {} of the {revision} revision to be ready", unit.ordinal);
            return Reason::new(Code::WaitingForReady, what).then(format!("the next {noun} is replaced"));
        }
        if let Some(unit) = first(|state| state == State::Leaving { done: false }) {
            let what = format!("waiting for {noun} {} to finish its requests", unit.ordinal);
            return Reason::new(Code::WaitingForDrain, what).then("it is deleted");
        }
        if let Some(unit) = first(|state| matches!(state, State::Leaving { .. } | State::Terminating)) {
            let what =
                format!("waiting for the pods of {noun} {} to end, which frees their devices", unit.ordinal);
            return Reason::new(Code::WaitingForTermination, what).then("its replacement is created");
        }
        if !self.ops.is_empty() {
            return Reason::new(
                Code::WaitingForDrain,
                format!("waiting for the {noun}s that leave service to finish their requests"),
            );
        }
        Reason::new(Code::NoRoom, format!("maxSurge and maxUnavailable leave no room to replace a {noun}"))
    }
}

/// `group 4`, `groups 0, 1`, `groups 0, 1, 2 and 5 more`.
fn named(noun: &str, ordinals: &[u32]) -> String {
    const MOST: usize = 3;
    let names: Vec<String> = ordinals.iter().take(MOST).map(u32::to_string).collect();
    let plural = agreed(ordinals.len(), "", "s");
    let more = ordinals.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{noun}{plural} {}{more}", names.join(", "))
}

impl Op {
    /// The name of the unit that is written.
    pub fn ordinal(&self) -> u32 {
        match self {
            Self::Create { ordinal, .. } | Self::TakeOut { ordinal, .. } | Self::Delete { ordinal, .. } => {
                *ordinal
            }
        }
    }
}

fn delete(unit: &Unit) -> Op {
    Op::Delete { ordinal: unit.ordinal, uid: unit.uid.clone() }
}
