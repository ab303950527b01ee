//! The rehearsal of a set: groups that are replaced, one revision by the next.

use api::leaderworkerset::{LeaderWorkerSet, LeaderWorkerTemplate};
use planner::{
    Budget, counted,
    sets::{self, Moment, SetSpec},
    units::Revision,
};
use serde_json::Value;

use super::{is_same, set_spec};
use crate::{
    count,
    rehearsal::{Assumptions, NoPlan, Rehearsal, Resources, Row, typed},
};

/// What an upgrade would do.
pub(super) fn plan(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Rehearsal, NoPlan> {
    let new: LeaderWorkerSet = typed(manifest)?;
    let old: Option<LeaderWorkerSet> = old.map(typed).transpose()?;
    if assumptions.called_off.is_some() {
        return Err(NoPlan::unsupported("a set is reverted by applying the old manifest: plan that"));
    }
    let same = old.as_ref().map(|old| is_same(old, &new)).transpose();
    if same.map_err(|error| NoPlan::Unsupported(error.to_string()))? == Some(true) {
        return Err(NoPlan::nothing("template and network are the same: there is no new revision"));
    }
    let spec = set_spec(&new, Revision(2), Revision(1));
    let (rows, ends) = rehearse(&spec, assumptions);
    let Budget { surge, unavailable } = spec.budget;
    let template = &new.spec.leader_worker_template;
    let before = old.as_ref().map_or(template, |old| &old.spec.leader_worker_template);
    Ok(Rehearsal {
        how: format!(
            "{}, {surge} more and {unavailable} fewer allowed; a new group is ready after {} s",
            counted(spec.replicas, "group"),
            assumptions.start.as_secs()
        ),
        rows,
        ends,
        failure: None,
        replica: Some((group(before), group(template))),
        advice: Vec::new(),
    })
}

fn rehearse(spec: &SetSpec, assumptions: &Assumptions) -> (Vec<Row>, bool) {
    let (moments, ends) = sets::rehearse(spec, assumptions.start, assumptions.stop);
    let row =
        |Moment { at, old, new, reason }: Moment| Row::of_replicas(at, old, new, spec.replicas, reason.what);
    (moments.into_iter().map(row).collect(), ends)
}

/// What one group holds.
fn group(template: &LeaderWorkerTemplate) -> Resources {
    let leader = template.leader_template.as_ref().unwrap_or(&template.worker_template);
    Resources::of(leader).plus(&Resources::of(&template.worker_template).times(count(template.size - 1)))
}

#[cfg(test)]
mod tests {
    use planner::Time;

    use super::{
        super::{Sets, decide::decide, observe::Observed},
        *,
    };
    use crate::rehearsal::tests::{Acts, Answer};

    impl Acts for Sets {
        fn comes_to(_: &Observed, after: Observed, is_new: bool, assumptions: &Assumptions) -> Answer {
            let spec = decide(&after, Time::ZERO).spec;
            let spec = SetSpec { target: Revision(2), old: Revision(1), ..spec };
            Answer::of(is_new, || rehearse(&spec, assumptions).0)
        }
    }
}
