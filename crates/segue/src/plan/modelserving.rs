//! ModelServing: role replicas in the order of the steps, whole groups, or roles by themselves.

use api::modelserving::{ModelServing, Role, RollingUpdateConfiguration, RolloutStrategyType};
use controllers::{amount, count};
use planner::{
    Amount, Budget,
    roles::{self, GroupSpec, Moment, Recovery, RoleHash, RoleSpec, SetSpec, Step},
    sets::{self, Identity},
    units::Revision,
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
    let is_changed = |role: &&Role| !before.contains(&(role.name.clone(), hash(role)));
    let changed: Vec<&Role> = new.spec.template.roles.iter().filter(is_changed).collect();
    if changed.is_empty() {
        return Err(Error::NoPlan(format!("{title}: the roles are the same: there is no new revision")));
    }
    let strategy = new.spec.rollout_strategy.as_ref();
    let update = strategy.and_then(|it| it.rolling_update_configuration.clone()).unwrap_or_default();
    let has_steps = update.role_upgrade.as_ref().is_some_and(|upgrade| !upgrade.steps.is_empty());
    let Rehearsal { room, rows, ends } = match strategy.map(|strategy| strategy.ty).unwrap_or_default() {
        RolloutStrategyType::RoleRollingUpdate => by_roles(&new, &changed, assumptions),
        RolloutStrategyType::ServingGroupRollingUpdate if has_steps => {
            by_steps(&spec(&new, &update), &before, assumptions)
        }
        RolloutStrategyType::ServingGroupRollingUpdate => by_groups(&new, &update, assumptions),
    };
    Ok(Timetable {
        title: format!("{title}: {room} is ready after {}s", assumptions.start.as_secs()),
        rows,
        ends,
        unit: None,
        advice: placed_by(&new).into_iter().collect(),
    })
}

/// How an update goes.
struct Rehearsal {
    room: String,
    rows: Vec<Row>,
    ends: bool,
}

/// Group after group, and in each the roles in the order of the steps.
fn by_steps(spec: &SetSpec, before: &[(String, RoleHash)], assumptions: &Assumptions) -> Rehearsal {
    let (moments, ends) = roles::rehearse(spec, before, assumptions.start, assumptions.stop);
    let total: u32 = spec.group.roles.iter().map(|role| role.replicas).sum::<u32>() * spec.replicas;
    let steps = spec.group.steps.len();
    let row = |Moment { at, old, new, group, reason }: Moment| {
        Row::of_units(at, old, new, total, format!("group {group}: {}", reason.what))
    };
    Rehearsal {
        room: format!(
            "{} groups, {} at a time, {steps} steps in each; a role replica",
            spec.replicas, spec.max_unavailable
        ),
        rows: moments.into_iter().map(row).collect(),
        ends,
    }
}

/// Whole groups, one revision by the next.
fn by_groups(
    serving: &ModelServing,
    update: &RollingUpdateConfiguration,
    assumptions: &Assumptions,
) -> Rehearsal {
    let replicas = count(serving.spec.replicas);
    let surge = update.max_surge.as_ref().map_or(Amount::Count(0), amount);
    let budget = Budget::of(replicas, surge, amount(&update.max_unavailable));
    let partition = update.partition.as_ref().map_or(0, |partition| amount(partition).ceil_of(replicas));
    let (moments, ends) =
        sets::rehearse(&set(replicas, budget, partition), assumptions.start, assumptions.stop);
    let row =
        |moment: sets::Moment| Row::of_units(moment.at, moment.old, moment.new, replicas, moment.reason.what);
    let Budget { surge, unavailable } = budget;
    Rehearsal {
        room: format!("{replicas} groups, {surge} more and {unavailable} fewer allowed; a whole group"),
        rows: moments.into_iter().map(row).collect(),
        ends,
    }
}

/// The roles that changed, each by itself and in all groups at once.
fn by_roles(serving: &ModelServing, changed: &[&Role], assumptions: &Assumptions) -> Rehearsal {
    let groups = count(serving.spec.replicas);
    let mut moments: Vec<(usize, sets::Moment)> = Vec::new();
    let mut ends = true;
    for (place, role) in changed.iter().enumerate() {
        let replicas = count(role.replicas);
        let surge = role.max_surge.as_ref().map_or(Amount::Count(0), amount);
        let budget = Budget::of(replicas, surge, amount(&role.max_unavailable));
        let budget = Budget { surge: budget.surge.min(replicas), ..budget };
        let partition = role.partition.as_ref().map_or(0, |partition| amount(partition).ceil_of(replicas));
        let (of_role, ended) =
            sets::rehearse(&set(replicas, budget, partition), assumptions.start, assumptions.stop);
        moments.extend(of_role.into_iter().map(|moment| (place, moment)));
        ends &= ended;
    }
    moments.sort_by_key(|(_, moment)| moment.at);
    let replicas = |role: &&Role| count(role.replicas);
    let total = changed.iter().map(replicas).sum::<u32>() * groups;
    let mut old: Vec<(u32, u32)> = changed.iter().map(|it| (replicas(it), replicas(it))).collect();
    let mut new = vec![(0, 0); changed.len()];
    let in_all = |side: &[(u32, u32)]| {
        side.iter().fold((0, 0), |sum, it| (sum.0 + it.0 * groups, sum.1 + it.1 * groups))
    };
    let rows = moments.into_iter().map(|(place, moment)| {
        (old[place], new[place]) = (moment.old, moment.new);
        let reason = format!("role {} of every group: {}", changed[place].name, moment.reason.what);
        Row::of_units(moment.at, in_all(&old), in_all(&new), total, reason)
    });
    Rehearsal {
        room: format!("{groups} groups, {} roles at once; a role replica", changed.len()),
        rows: rows.collect(),
        ends,
    }
}

fn set(replicas: u32, budget: Budget, partition: u32) -> sets::SetSpec {
    let (target, old) = (Revision(2), Revision(1));
    sets::SetSpec { replicas, budget, partition, target, old, identity: Identity::Ordinal }
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

fn spec(serving: &ModelServing, update: &RollingUpdateConfiguration) -> SetSpec {
    let replicas = count(serving.spec.replicas);
    let steps = update.role_upgrade.iter().flat_map(|upgrade| &upgrade.steps);
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
    SetSpec {
        group: GroupSpec {
            roles: serving.spec.template.roles.iter().map(role).collect(),
            steps: steps.map(step).collect(),
            recovery: Recovery::Role,
            deadline: None,
        },
        replicas,
        partition: update.partition.as_ref().map_or(0, |partition| amount(partition).ceil_of(replicas)),
        max_unavailable: amount(&update.max_unavailable).floor_of(replicas).max(1),
        current: Vec::new(),
    }
}
