//! Which steps are admitted.

use std::fmt;

use crate::{
    Amount, Reason,
    roles::spec::{GroupSpec, Step},
};

/// More steps than this are refused: status and reasons stay readable, and each decision bounded.
pub const MAX_STEPS: usize = 32;

/// Why steps are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// There are more than [`MAX_STEPS`].
    TooMany,
    /// The step at this place names a role that the spec does not have.
    UnknownRole(usize),
    /// The step at this place asks for nothing.
    Nothing(usize),
    /// The step at this place asks for more than 100 %, or more replicas than its role has.
    TooMuch(usize),
    /// The step at this place asks for less than an earlier one of its role.
    Decreases(usize),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "at most {MAX_STEPS} steps are possible"),
            Self::UnknownRole(at) => write!(f, "steps[{at}].role is not a role of the template"),
            Self::Nothing(at) => write!(f, "steps[{at}].updateTo must be more than 0"),
            Self::TooMuch(at) => write!(f, "steps[{at}].updateTo is more than the role has"),
            Self::Decreases(at) => {
                write!(f, "steps[{at}].updateTo is less than an earlier step of the role asks for")
            }
        }
    }
}

/// Admits a spec, with warnings, or says why not.
///
/// Steps are judged when they or the roles are new. Where only numbers of replicas change they are not: an autoscaler
/// writes those, and a step that it outgrows is clamped by the planner and warned of here.
pub fn admit(old: Option<&GroupSpec>, new: &GroupSpec) -> Result<Vec<Reason>, Vec<Invalid>> {
    let found = judge(new);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    if old.is_some_and(|old| same_plan(old, new)) {
        let clamped = |invalid: &Invalid| Reason::new("StepClamped", format!("{invalid}; it is clamped"));
        return Ok(found.iter().map(clamped).collect());
    }
    Err(found)
}

fn same_plan(old: &GroupSpec, new: &GroupSpec) -> bool {
    let names = |spec: &GroupSpec| spec.roles.iter().map(|role| role.name.clone()).collect::<Vec<_>>();
    old.steps == new.steps && names(old) == names(new)
}

fn judge(spec: &GroupSpec) -> Vec<Invalid> {
    let mut found = Vec::new();
    if spec.steps.len() > MAX_STEPS {
        found.push(Invalid::TooMany);
    }
    for (at, step) in spec.steps.iter().enumerate() {
        found.extend(judge_step(spec, at, step));
    }
    found
}

fn judge_step(spec: &GroupSpec, at: usize, step: &Step) -> Option<Invalid> {
    let Some(role) = spec.roles.iter().find(|role| role.name == step.role) else {
        return Some(Invalid::UnknownRole(at));
    };
    let earlier = spec.steps[..at].iter().filter(|earlier| earlier.role == step.role);
    match step.update_to {
        Amount::Count(0) | Amount::Percent(0) => Some(Invalid::Nothing(at)),
        Amount::Count(count) if count > role.replicas => Some(Invalid::TooMuch(at)),
        Amount::Percent(percent) if percent > 100 => Some(Invalid::TooMuch(at)),
        // At no replicas every share is nothing, which is met and decreases nothing.
        _ => earlier
            .map(|earlier| earlier.required(role.replicas))
            .any(|asked| asked > step.required(role.replicas))
            .then_some(Invalid::Decreases(at)),
    }
}
