//! ModelServing: role replicas, in the order of the steps.

use api::modelserving::{ModelServing, Role, RollingUpdateConfiguration};
use controllers::{amount, count};
use planner::{
    Amount,
    roles::{self, GroupSpec, Moment, Recovery, RoleHash, RoleSpec, SetSpec, Step},
};
use serde_json::Value;

use super::{
    Assumptions,
    timetable::{Row, Timetable},
};
use crate::{manifest, output::Error};

pub(super) fn timetable(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Timetable, Error> {
    let new: ModelServing = super::typed(manifest)?;
    let old: Option<ModelServing> = old.map(super::typed).transpose()?;
    let title = manifest::title(manifest);
    if assumptions.called_off.is_some() {
        return Err(Error::NoPlan(format!(
            "{title}: it is reverted by applying the old manifest: plan that"
        )));
    }
    let before = hashes(&new, old.as_ref());
    let spec = spec(&new);
    if spec.group.roles.iter().all(|role| before.iter().any(|(_, hash)| *hash == role.target)) {
        return Err(Error::NoPlan(format!("{title}: the roles are the same: there is no new revision")));
    }
    let (moments, ends) = roles::rehearse(&spec, &before, assumptions.start, assumptions.stop);
    let total: u32 = spec.group.roles.iter().map(|role| role.replicas).sum::<u32>() * spec.replicas;
    let steps = spec.group.steps.len();
    let room = format!("{} groups, {} at a time, {steps} steps in each", spec.replicas, spec.max_unavailable);
    Ok(Timetable {
        title: format!("{title}: {room}; a role replica is ready after {}s", assumptions.start.as_secs()),
        rows: moments.into_iter().map(|moment| row(moment, total)).collect(),
        ends,
        unit: None,
        advice: placed_by(&new).into_iter().collect(),
    })
}

/// What must run for anything to be placed. Who has the default one alone would wait for ever.
fn placed_by(serving: &ModelServing) -> Option<String> {
    let scheduler = &serving.spec.scheduler_name;
    (scheduler != "default-scheduler").then(|| {
        format!(
            "every pod asks for the scheduler `{scheduler}`: where none of that name runs, nothing starts; \
             spec.schedulerName names another"
        )
    })
}

/// What each role is made of before: as the old manifest has it, or something else than now.
fn hashes(new: &ModelServing, old: Option<&ModelServing>) -> Vec<(String, RoleHash)> {
    let roles = old.map_or(&new.spec.template.roles, |old| &old.spec.template.roles);
    let hash = |role: &Role| match old {
        Some(_) => hash(role),
        None => RoleHash("before".to_owned()),
    };
    roles.iter().map(|role| (role.name.clone(), hash(role))).collect()
}

/// What a role is made of. Its numbers are no part of it, but that of its workers is.
fn hash(role: &Role) -> RoleHash {
    let worker = role.worker_template.as_ref().map(|template| template.json().to_string());
    RoleHash(format!(
        "{} {} {}",
        role.entry_template.json(),
        role.worker_replicas,
        worker.unwrap_or_default()
    ))
}

fn spec(serving: &ModelServing) -> SetSpec {
    let replicas = count(serving.spec.replicas);
    let strategy = serving.spec.rollout_strategy.as_ref();
    let update: Option<&RollingUpdateConfiguration> =
        strategy.and_then(|strategy| strategy.rolling_update_configuration.as_ref());
    let steps =
        update.and_then(|update| update.role_upgrade.as_ref()).map(|upgrade| upgrade.steps.as_slice());
    let step = |step: &api::modelserving::RoleUpgradeStep| Step {
        role: step.role.clone(),
        update_to: amount(&step.update_to),
    };
    let role = |role: &Role| RoleSpec {
        name: role.name.clone(),
        replicas: count(role.replicas),
        target: hash(role),
        max_unavailable: amount(&role.max_unavailable).floor_of(count(role.replicas)),
        min_replicas: None,
    };
    let partition = update.and_then(|update| update.partition.as_ref());
    let max_unavailable = update.map_or(Amount::Count(1), |update| amount(&update.max_unavailable));
    SetSpec {
        group: GroupSpec {
            roles: serving.spec.template.roles.iter().map(role).collect(),
            steps: steps.unwrap_or_default().iter().map(step).collect(),
            recovery: Recovery::Role,
            deadline: None,
        },
        replicas,
        partition: partition.map_or(0, |partition| amount(partition).ceil_of(replicas)),
        max_unavailable: max_unavailable.floor_of(replicas).max(1),
        current: Vec::new(),
    }
}

fn row(Moment { at, old, new, group, reason }: Moment, total: u32) -> Row {
    Row::of_units(at, old, new, total, format!("group {group}: {}", reason.what))
}
