//! ModelDeployment: units that are ours to count.

use api::modeldeployment::{ModelDeployment, ModelDeploymentSpec, Workload};
use controllers::count;
use controllers::modeldeployment::wanted;
use planner::{
    Budget,
    handover::{self, Moment, Policy, Share, VersionId, Wanted},
};
use serde_json::Value;

use super::{
    Assumptions,
    resources::Resources,
    timetable::{Row, Side, Timetable},
};
use crate::{manifest, output::Error};

pub(super) fn timetable(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Timetable, Error> {
    let new: ModelDeployment = super::typed(manifest)?;
    let old: Option<ModelDeployment> = old.map(super::typed).transpose()?;
    let title = manifest::title(manifest);
    if let Some(old) = &old
        && old.spec.workload == new.spec.workload
        && old.spec.env == new.spec.env
    {
        return Err(Error::NoPlan(format!(
            "{title}: workload and env are the same: there is no new version"
        )));
    }
    let wanted = wanted(&new.spec, VersionId(2)).ok_or_else(|| {
        Error::NoPlan(format!("{title}: an update in place is rolled by layer 1 and has no rehearsal yet"))
    })?;
    let unit = |spec: &ModelDeploymentSpec| unit(&spec.workload);
    let units = (unit(&old.as_ref().unwrap_or(&new).spec), unit(&new.spec));
    let (rows, ends) = rehearse(&wanted, assumptions);
    let ready = assumptions.start.as_secs();
    let strategy = format!("{:?}", new.spec.strategy.ty);
    let room = format!(
        "{} units, {} more and {} fewer allowed",
        wanted.replicas, wanted.budget.surge, wanted.budget.unavailable
    );
    let mut timetable = Timetable {
        title: format!("{title}: {strategy}, {room}; a new unit is ready after {ready}s"),
        rows,
        ends,
        unit: Some(units),
        advice: Vec::new(),
    };
    if ends && assumptions.called_off.is_none() {
        timetable.advice = advice(&wanted, assumptions, &timetable);
    }
    Ok(timetable)
}

fn rehearse(wanted: &Wanted, assumptions: &Assumptions) -> (Vec<Row>, bool) {
    let Assumptions { start, stop, called_off } = assumptions;
    let (moments, ends) = handover::rehearse(wanted, *start, *stop, *called_off);
    (moments.into_iter().map(|moment| row(moment, wanted.replicas)).collect(), ends)
}

fn row(Moment { at, old, new, reason }: Moment, replicas: u32) -> Row {
    let side = |share: Share| Side {
        capacity: (share.units * 100).checked_div(replicas).unwrap_or(0),
        weight: share.percent,
        units: Some(share.units),
    };
    Row { at: at.as_secs(), old: side(old), new: side(new), reason: reason.what }
}

/// What more room would save, and what less room would cost: the same rehearsal with other numbers.
fn advice(wanted: &Wanted, assumptions: &Assumptions, timetable: &Timetable) -> Vec<String> {
    if !matches!(wanted.policy, Policy::Rolling | Policy::Incremental { .. } | Policy::Canary(_)) {
        return Vec::new();
    }
    let tell = |word: &str, field: &str, budget: Budget| {
        let other = Wanted { budget, ..wanted.clone() };
        let (rows, ends) = rehearse(&other, assumptions);
        let other = Timetable { rows, ends, ..timetable.clone() };
        let (seconds, units) = (other.seconds(), other.peak_units().unwrap_or_default());
        let better = match word {
            "faster" => seconds < timetable.seconds(),
            _ => Some(units) < timetable.peak_units(),
        };
        (ends && better).then(|| format!("{word}: {field} would take {seconds}s and peak at {units} units"))
    };
    let Budget { surge, unavailable } = wanted.budget;
    let doubled = Budget { surge: (surge * 2).max(1), unavailable };
    let smaller = Budget { surge: 0, unavailable: unavailable.max(1) };
    [
        tell("faster", &format!("a surge of {}", doubled.surge), doubled),
        tell("smaller", "no surge and one unit missing", smaller),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What one serving unit holds.
fn unit(workload: &Workload) -> Resources {
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
