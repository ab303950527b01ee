//! The rehearsal of a RayService: percents that Ray Serve grants.

use api::rayservice::RayService;
use planner::granted::{self, Moment, StepSchedule};
use serde_json::Value;

use super::{revision::Service, wanted::Strategy};
use crate::rehearsal::{Assumptions, NoPlan, Rehearsal, Row, Side, typed};

/// What an upgrade would do.
pub(super) fn plan(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Rehearsal, NoPlan> {
    let service: RayService = typed(manifest)?;
    let old: Option<RayService> = old.map(typed).transpose()?;
    let goal = |service: &RayService| Service::of(&service.spec).ok().map(|it| it.goal);
    if old.is_some_and(|old| goal(&old) == goal(&service)) {
        return Err(NoPlan::nothing("rayClusterConfig is the same: there is no new cluster"));
    }
    let strategy =
        Strategy::of(&service.spec).ok_or_else(|| NoPlan::unsupported("the upgrade could never end"))?;
    let Some(pace) = strategy.pace() else {
        return Err(NoPlan::nothing("upgradeStrategy.type is None: nothing is upgraded"));
    };
    let options = service.spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.incremental());
    let how = options.map_or_else(
        || "blue/green".to_owned(),
        |it| {
            let (surge, step, interval) = (it.max_surge_percent, it.step_size_percent, it.interval_seconds);
            format!("surge {surge}%, step {step}%, every {interval} s")
        },
    );
    Ok(rehearse(&how, pace, assumptions))
}

fn rehearse(how: &str, pace: StepSchedule, assumptions: &Assumptions) -> Rehearsal {
    let moments = granted::rehearse(pace, assumptions.start, assumptions.called_off);
    Rehearsal {
        how: format!("{how}; new capacity is ready after {} s", assumptions.start.as_secs()),
        rows: moments.into_iter().map(row).collect(),
        ends: true,
        replica: None,
        advice: Vec::new(),
    }
}

fn row(Moment { at, old, new, reason }: Moment) -> Row {
    let side =
        |side: granted::Side| Side { capacity: side.capacity, weight: Some(side.weight), replicas: None };
    Row { at: at.as_secs(), old: side(old), new: side(new), reason: reason.what }
}
