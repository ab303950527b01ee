//! RayService: percents that Ray Serve grants.

use std::time::Duration;

use api::rayservice::{RayService, UpgradeType};
use planner::granted::{self, Moment, Pace};
use serde_json::Value;

use super::{
    Assumptions,
    timetable::{Row, Side, Timetable},
};
use crate::{manifest, output::Error};

pub(super) fn timetable(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Timetable, Error> {
    let service: RayService = super::typed(manifest)?;
    let old: Option<RayService> = old.map(super::typed).transpose()?;
    let title = manifest::title(manifest);
    if old.is_some_and(|old| old.spec.ray_cluster_config == service.spec.ray_cluster_config) {
        return Err(Error::NoPlan(format!("{title}: rayClusterConfig is the same: there is no new cluster")));
    }
    let strategy = service.spec.upgrade_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.ty) == Some(UpgradeType::None) {
        return Err(Error::NoPlan(format!("{title}: upgradeStrategy.type is None: nothing is upgraded")));
    }
    let Some(options) = service.spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.incremental())
    else {
        // Blue/green is a surge of everything and one step.
        return build(manifest, "blue/green", (100, 100, 0), assumptions);
    };
    let pace = (options.max_surge_percent, options.step_size_percent, options.interval_seconds);
    let how = format!("surge {}%, step {}%, every {}s", pace.0, pace.1, pace.2);
    build(manifest, &how, pace, assumptions)
}

fn build(
    manifest: &Value,
    how: &str,
    (surge, step, interval): (i32, i32, i32),
    assumptions: &Assumptions,
) -> Result<Timetable, Error> {
    let number = |value: i32| u32::try_from(value).unwrap_or_default();
    let pace = Pace::new(number(surge), number(step), Duration::from_secs(u64::from(number(interval))));
    let pace = pace.ok_or_else(|| Error::NoPlan("the upgrade could never end".into()))?;
    let moments = granted::rehearse(pace, assumptions.start, assumptions.called_off);
    let ready = assumptions.start.as_secs();
    Ok(Timetable {
        title: format!("{}: {how}; new capacity is ready after {ready}s", manifest::title(manifest)),
        rows: moments.into_iter().map(row).collect(),
        ends: true,
        unit: None,
        advice: Vec::new(),
    })
}

fn row(Moment { at, old, new, reason }: Moment) -> Row {
    let side = |side: granted::Side| Side { capacity: side.capacity, weight: side.weight, units: None };
    Row { at: at.as_secs(), old: side(old), new: side(new), reason: reason.what }
}
