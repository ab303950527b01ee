//! LeaderWorkerSet: groups that layer 1 replaces, one revision by the next.

use api::leaderworkerset::LeaderWorkerSet;
use controllers::{amount, count};
use planner::{
    Budget,
    sets::{self, Identity, Moment, SetSpec},
    units::Revision,
};
use serde_json::Value;

use super::{
    Assumptions,
    resources::Resources,
    timetable::{Row, Timetable},
};
use crate::{manifest, output::Error};

pub(super) fn timetable(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Timetable, Error> {
    let new: LeaderWorkerSet = super::typed(manifest)?;
    let old: Option<LeaderWorkerSet> = old.map(super::typed).transpose()?;
    let title = manifest::title(manifest);
    if assumptions.called_off.is_some() {
        return Err(Error::NoPlan(format!(
            "{title}: a set is reverted by applying the old manifest: plan that"
        )));
    }
    let template = &new.spec.leader_worker_template;
    let before = old.as_ref().map(|old| &old.spec.leader_worker_template);
    if before == Some(template) {
        return Err(Error::NoPlan(format!("{title}: the template is the same: there is no new revision")));
    }
    let spec = spec(&new);
    let (moments, ends) = sets::rehearse(&spec, assumptions.start, assumptions.stop);
    let Budget { surge, unavailable } = spec.budget;
    let room = format!("{} groups, {surge} more and {unavailable} fewer allowed", spec.replicas);
    Ok(Timetable {
        title: format!("{title}: {room}; a new group is ready after {}s", assumptions.start.as_secs()),
        rows: moments.into_iter().map(|moment| row(moment, spec.replicas)).collect(),
        ends,
        unit: Some((group(before.unwrap_or(template)), group(template))),
        advice: Vec::new(),
    })
}

fn spec(set: &LeaderWorkerSet) -> SetSpec {
    let replicas = count(set.spec.replicas);
    let strategy = set.spec.rollout_strategy.as_ref();
    let update =
        strategy.and_then(|strategy| strategy.rolling_update_configuration.clone()).unwrap_or_default();
    SetSpec {
        replicas,
        budget: Budget::of(replicas, amount(&update.max_surge), amount(&update.max_unavailable)),
        partition: count(update.partition),
        target: Revision(2),
        old: Revision(1),
        identity: Identity::Ordinal,
    }
}

fn row(Moment { at, old, new, reason }: Moment, replicas: u32) -> Row {
    Row::of_units(at, old, new, replicas, reason.what)
}

/// What one group holds.
fn group(template: &api::leaderworkerset::LeaderWorkerTemplate) -> Resources {
    let leader = template.leader_template.as_ref().unwrap_or(&template.worker_template);
    Resources::of(leader).plus(&Resources::of(&template.worker_template).times(count(template.size - 1)))
}
