//! ModelDeployment: units that are ours to count.

use std::time::Duration;

use api::modeldeployment::{CanaryStep, ModelDeployment, ModelDeploymentSpec, StrategyType, Workload};
use planner::{
    Amount, Budget,
    handover::{self, Moment, OnFailure, Policy, Share, Step, VersionId, Wanted},
};
use serde_json::Value;

use super::{
    Assumptions,
    amounts::{amount, count},
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
    let wanted = wanted(&new.spec).ok_or_else(|| {
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

/// The spec in the planner's words; nothing for an update in place.
fn wanted(spec: &ModelDeploymentSpec) -> Option<Wanted> {
    let replicas = count(spec.replicas);
    let strategy = &spec.strategy;
    let seconds = |seconds: i32| Duration::from_secs(u64::from(count(seconds)));
    let all = Budget { surge: replicas, unavailable: 0 };
    let (budget, policy) = match strategy.ty {
        StrategyType::Rolling => {
            let rolling = strategy.rolling.clone().unwrap_or_default();
            (
                Budget::of(replicas, amount(&rolling.max_surge), amount(&rolling.max_unavailable)),
                Policy::Rolling,
            )
        }
        StrategyType::BlueGreen => {
            let options = strategy.blue_green.clone().unwrap_or_default();
            let policy = Policy::BlueGreen {
                auto_promote: options.auto_promote,
                delay: seconds(options.promote_delay_seconds),
                preview: amount(&options.preview_replicas),
                retain: seconds(options.retain_seconds),
            };
            (all, policy)
        }
        StrategyType::Canary => {
            let canary = strategy.canary.as_ref()?;
            let steps = canary.steps.iter().filter_map(step).collect();
            (Budget::of(replicas, amount(&canary.max_surge), Amount::Count(0)), Policy::Canary(steps))
        }
        StrategyType::Incremental => {
            let options = strategy.incremental.as_ref()?;
            let surge = Amount::Percent(count(options.max_surge_percent));
            let policy = Policy::Incremental {
                step: count(options.step_size_percent),
                interval: seconds(options.interval_seconds),
            };
            (Budget::of(replicas, surge, Amount::Count(0)), policy)
        }
        StrategyType::Recreate => (Budget { surge: 0, unavailable: replicas }, Policy::Recreate),
        StrategyType::InPlace => return None,
    };
    let progress_deadline = Some(seconds(spec.rollback.progress_deadline_seconds));
    Some(Wanted {
        target: VersionId(2),
        replicas,
        budget,
        policy,
        progress_deadline,
        on_failure: OnFailure::RollBack,
    })
}

fn step(step: &CanaryStep) -> Option<Step> {
    let seconds = |seconds: i32| Duration::from_secs(u64::from(count(seconds)));
    let weight = step.weight.map(|weight| Step::Weight(count(weight), step.replicas.as_ref().map(amount)));
    let pause = step.pause.as_ref().map(|pause| Step::Pause(pause.seconds.map(seconds)));
    let analysis = step.analysis.as_ref().map(|analysis| Step::Analysis(seconds(analysis.seconds)));
    weight.or(pause).or(analysis)
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
