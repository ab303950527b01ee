//! The rehearsal of a ModelServing: role replicas in the order of the steps, whole groups, or roles by themselves.

use api::modelserving::{ModelServing, Role};
use planner::{
    Budget, counted,
    roles::{self, Moment, RoleHash, SetSpec},
    sets,
    units::Revision,
};
use serde_json::Value;

use super::{
    revision::hash,
    wanted::{By, Wanted},
};
use crate::rehearsal::{Assumptions, NoPlan, Rehearsal, Row, typed};

/// What an upgrade would do.
pub(super) fn plan(
    manifest: &Value,
    old: Option<&Value>,
    assumptions: &Assumptions,
) -> Result<Rehearsal, NoPlan> {
    let new: ModelServing = typed(manifest)?;
    let old: Option<ModelServing> = old.map(typed).transpose()?;
    if assumptions.called_off.is_some() {
        return Err(NoPlan::unsupported("it is reverted by applying the old manifest: plan that"));
    }
    let before = before(&new, old.as_ref()).map_err(NoPlan::Unsupported)?;
    let wanted = Wanted::planned(&new).map_err(NoPlan::Unsupported)?;
    let Some(Part { room, rows, ends }) = rehearse(&wanted, &before, assumptions) else {
        return Err(NoPlan::nothing("the roles are the same: there is no new revision"));
    };
    Ok(Rehearsal {
        how: format!("{room} is ready after {} s", assumptions.start.as_secs()),
        rows: rows.into_iter().map(Row::without_traffic).collect(),
        ends,
        failure: None,
        replica: None,
        advice: placed_by(&new).into_iter().collect(),
    })
}

/// How an update goes.
struct Part {
    room: String,
    rows: Vec<Row>,
    ends: bool,
}

/// How the roles become what is wanted; nothing where they are that.
fn rehearse(wanted: &Wanted, before: &[(String, RoleHash)], assumptions: &Assumptions) -> Option<Part> {
    let changed: Vec<usize> = (0..wanted.group.roles.len())
        .filter(|place| {
            let role = &wanted.group.roles[*place];
            !before.contains(&(role.name.clone(), role.target.clone()))
        })
        .collect();
    let dropped = before.iter().any(|(role, _)| wanted.replicas_of(role).is_none());
    (!changed.is_empty() || dropped).then(|| match wanted.by {
        By::Role => by_roles(wanted, &changed, assumptions),
        By::Steps => by_steps(wanted, before, assumptions),
        By::Group => by_groups(wanted, assumptions),
    })
}

/// Group after group, and in each the roles in the order of the steps.
fn by_steps(wanted: &Wanted, before: &[(String, RoleHash)], assumptions: &Assumptions) -> Part {
    let spec = wanted.by_steps(Vec::new());
    let (moments, ends) = roles::rehearse(&spec, before, assumptions.start, assumptions.stop);
    let SetSpec { group, replicas, max_unavailable, .. } = &spec;
    let total: u32 = group.roles.iter().map(|role| role.replicas).sum::<u32>() * replicas;
    let row = |Moment { at, old, new, group, reason }: Moment| {
        Row::of_replicas(at, old, new, total, format!("group {group}: {}", reason.what))
    };
    let steps = group.steps.len();
    Part {
        room: format!(
            "{}, {max_unavailable} at a time, {} in each; a role replica",
            counted(*replicas, "group"),
            counted(steps, "step")
        ),
        rows: moments.into_iter().map(row).collect(),
        ends,
    }
}

/// Whole groups, one revision by the next.
fn by_groups(wanted: &Wanted, assumptions: &Assumptions) -> Part {
    let spec = wanted.by_groups(Revision(2), Revision(1));
    let (moments, ends) = sets::rehearse(&spec, assumptions.start, assumptions.stop);
    let sets::SetSpec { replicas, budget: Budget { surge, unavailable }, .. } = spec;
    let row = |moment: sets::Moment| {
        Row::of_replicas(moment.at, moment.old, moment.new, replicas, moment.reason.what)
    };
    Part {
        room: format!(
            "{}, {surge} more and {unavailable} fewer allowed; a whole group",
            counted(replicas, "group")
        ),
        rows: moments.into_iter().map(row).collect(),
        ends,
    }
}

/// The roles that changed, each by itself and in all groups at once.
fn by_roles(wanted: &Wanted, changed: &[usize], assumptions: &Assumptions) -> Part {
    let groups = wanted.replicas;
    let replicas = |place: &usize| wanted.group.roles[*place].replicas;
    let mut moments: Vec<(usize, sets::Moment)> = Vec::new();
    let mut ends = true;
    for (row, place) in changed.iter().enumerate() {
        let spec = wanted.by_role(*place, Revision(2), Revision(1));
        let (of_role, ended) = sets::rehearse(&spec, assumptions.start, assumptions.stop);
        moments.extend(of_role.into_iter().map(|moment| (row, moment)));
        ends &= ended;
    }
    moments.sort_by_key(|(_, moment)| moment.at);
    let total = changed.iter().map(replicas).sum::<u32>() * groups;
    let mut old: Vec<(u32, u32)> = changed.iter().map(|it| (replicas(it), replicas(it))).collect();
    let mut new = vec![(0, 0); changed.len()];
    let in_all = |side: &[(u32, u32)]| {
        side.iter().fold((0, 0), |sum, it| (sum.0 + it.0 * groups, sum.1 + it.1 * groups))
    };
    let rows = moments.into_iter().map(|(row, moment)| {
        (old[row], new[row]) = (moment.old, moment.new);
        let name = &wanted.group.roles[changed[row]].name;
        let reason = format!("role {name} of every group: {}", moment.reason.what);
        Row::of_replicas(moment.at, in_all(&old), in_all(&new), total, reason)
    });
    Part {
        room: format!(
            "{}, {} of their roles at once; a role replica",
            counted(groups, "group"),
            changed.len()
        ),
        rows: rows.collect(),
        ends,
    }
}

/// What must run for anything to be placed. Where only the default scheduler runs nothing would start.
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
fn before(new: &ModelServing, old: Option<&ModelServing>) -> Result<Vec<(String, RoleHash)>, String> {
    let roles = old.map_or(&new.spec.template.roles, |old| &old.spec.template.roles);
    let hash = |role: &Role| match old {
        Some(_) => hash(role),
        None => Ok(RoleHash("before".to_owned())),
    };
    roles.iter().map(|role| Ok((role.name.clone(), hash(role)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Servings, observe::Observed},
        *,
    };
    use crate::rehearsal::tests::{Acts, Answer};

    impl Acts for Servings {
        fn comes_to(before: &Observed, after: Observed, is_new: bool, assumptions: &Assumptions) -> Answer {
            let recorded = before.revisions.newest().recorded().into_iter();
            let before: Vec<(String, RoleHash)> = recorded.map(|it| (it.role, it.hash)).collect();
            let rows = || rehearse(&after.wanted, &before, assumptions).map(|part| part.rows);
            Answer::of(is_new, || rows().into_iter().flatten().map(Row::without_traffic).collect())
        }
    }
}
