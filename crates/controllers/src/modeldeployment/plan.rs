//! The rehearsal of a deployment: versions that hand over.

use api::modeldeployment::{ModelDeployment, Workload};
use planner::{
    Budget, Code, counted,
    handover::{self, Moment, Policy, Share, VersionId, Wanted},
};
use serde_json::{Value, json};

use super::{
    version,
    wanted::{NOT_SERVED_IN_PLACE, NOT_SERVED_ROLES, wanted},
};
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
    let new: ModelDeployment = typed(manifest)?;
    let old: Option<ModelDeployment> = old.map(typed).transpose()?;
    if version::version_template(&new).is_none() {
        return Err(NoPlan::NotServed(NOT_SERVED_ROLES));
    }
    let Some(wanted) = wanted(&new.spec, VersionId(2)) else {
        return Err(NoPlan::NotServed(NOT_SERVED_IN_PLACE));
    };
    if old.as_ref().is_some_and(|old| version::is_one(old, &new)) {
        return Err(NoPlan::nothing("workload and env are the same: there is no new version"));
    }
    let replicas = (replica(&old.as_ref().unwrap_or(&new).spec.workload), replica(&new.spec.workload));
    let Course { rows, ends, failure } = rehearse(&wanted, assumptions);
    let mut rehearsal = Rehearsal {
        how: format!(
            "{}, {}, {} more and {} fewer allowed; a new replica is ready after {} s",
            json!(new.spec.strategy.ty).as_str().unwrap_or_default(),
            counted(wanted.replicas, "replica"),
            wanted.budget.surge,
            wanted.budget.unavailable,
            assumptions.start.as_secs()
        ),
        rows,
        ends,
        failure,
        replica: Some(replicas),
        advice: Vec::new(),
    };
    if rehearsal.ends && rehearsal.failure.is_none() && assumptions.called_off.is_none() {
        rehearsal.advice = advice(&wanted, assumptions, &rehearsal);
    }
    Ok(rehearsal)
}

/// How a rollout goes.
struct Course {
    rows: Vec<Row>,
    ends: bool,
    failure: Option<String>,
}

fn rehearse(wanted: &Wanted, assumptions: &Assumptions) -> Course {
    let Assumptions { start, stop, called_off } = assumptions;
    let (moments, ends) = handover::rehearse(wanted, *start, *stop, *called_off);
    let fails = |moment: &&Moment| moment.reason.code == Code::ProgressDeadlineExceeded;
    let failure = moments.iter().find(fails);
    let failure = failure.map(|moment| format!("after {} s: {}", moment.at.as_secs(), moment.reason.what));
    let rows = moments.into_iter().map(|moment| row(moment, wanted.replicas)).collect();
    Course { rows, ends, failure }
}

fn row(Moment { at, old, new, reason }: Moment, replicas: u32) -> Row {
    let side = |share: Share| (share.units, share.percent);
    Row::of_versions(at, side(old), side(new), replicas, reason.what)
}

/// What more room would save, and what less room would cost: the same rehearsal with other numbers.
fn advice(wanted: &Wanted, assumptions: &Assumptions, rehearsal: &Rehearsal) -> Vec<String> {
    if !matches!(wanted.policy, Policy::Rolling | Policy::Incremental { .. } | Policy::Canary(_)) {
        return Vec::new();
    }
    let tell = |word: &str, field: &str, budget: Budget| {
        let other = Wanted { budget, ..wanted.clone() };
        let Course { rows, ends, failure } = rehearse(&other, assumptions);
        let other = Rehearsal { rows, ends, failure, ..rehearsal.clone() };
        let (seconds, units) = (other.seconds(), other.peak_replicas().unwrap_or_default());
        let better = match word {
            "faster" => seconds < rehearsal.seconds(),
            _ => Some(units) < rehearsal.peak_replicas(),
        };
        (ends && other.failure.is_none() && better).then(|| {
            format!("{word}: {field} would take {seconds} s and peak at {}", counted(units, "replica"))
        })
    };
    let Budget { surge, unavailable } = wanted.budget;
    let doubled = Budget { surge: (surge * 2).max(1), unavailable };
    let smaller = Budget { surge: 0, unavailable: unavailable.max(1) };
    [
        tell("faster", &format!("a surge of {}", doubled.surge), doubled),
        tell("smaller", "no surge and one unavailable replica", smaller),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What one replica holds.
fn replica(workload: &Workload) -> Resources {
    let mut total = workload.pod.as_ref().map(Resources::of).unwrap_or_default();
    if let Some(unit) = &workload.leader_worker {
        let leader = unit.leader_template.as_ref().unwrap_or(&unit.worker_template);
        let workers = Resources::of(&unit.worker_template).times(count(unit.size - 1));
        total = total.plus(&Resources::of(leader)).plus(&workers);
    }
    for role in workload.roles.iter().flat_map(|roles| &roles.roles) {
        let workers = role.worker_template.as_ref().map(Resources::of).unwrap_or_default();
        let replica = Resources::of(&role.entry_template).plus(&workers.times(count(role.worker_replicas)));
        total = total.plus(&replica.times(count(role.replicas)));
    }
    total
}

#[cfg(test)]
mod tests {
    use api::leaderworkerset::LeaderWorkerSet;
    use serde::Deserialize;

    use super::{
        super::{Deployments, observe::Observed},
        *,
    };
    use crate::{
        rehearsal::tests::{Acts, Answer},
        runtime::Cache,
    };

    impl Acts for Deployments {
        /// The set of the version that was asked for.
        fn exists(before: &Observed, cache: Cache) -> Cache {
            let (_, mut set) = before.version_template.child(&before.deployment, 1, 1, "v1");
            set["metadata"]["uid"] = json!("set");
            cache.and([LeaderWorkerSet::deserialize(set).unwrap()])
        }

        fn comes_to(_: &Observed, after: Observed, is_new: bool, assumptions: &Assumptions) -> Answer {
            // A version that was stored before may have no set any more.
            let is_new = is_new || after.target().is_some_and(|target| target.set.is_none());
            let wanted = Wanted { target: VersionId(2), ..after.wanted.clone() };
            Answer::of(is_new, || rehearse(&wanted, assumptions).rows)
        }
    }
}
