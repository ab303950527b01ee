//! Which groups may be in the upgrade now, and the next writes of each.

use std::cmp::Reverse;

use crate::{
    Code, Reason, Time,
    roles::{
        group::{Plan, Turn, plan_group, retire_group},
        observed::{Group, Replica},
        position::Position,
        spec::{GroupSpec, Recorded},
        tally::{Tally, count},
    },
};

/// What is wanted of all groups together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetSpec {
    /// What is wanted of each.
    pub group: GroupSpec,
    /// How many groups.
    pub replicas: u32,
    /// Groups with a lower ordinal keep the revision that they recorded.
    pub partition: u32,
    /// How many groups may be in the upgrade or otherwise not Running; 0 could never move and counts as 1.
    pub max_unavailable: u32,
    /// The roles of the revision before the upgrade: a group that is missing below the partition is made with them.
    pub current: Vec<Recorded>,
}

/// The decision for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// Its ordinal.
    pub ordinal: u32,
    /// Whether the upgrade works in it.
    pub turn: Turn,
    /// Every replica that it shall have is Ready, whatever the revision.
    pub running: bool,
    /// What to do.
    pub plan: Plan,
}

/// The decisions for all groups, by ordinal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPlan {
    /// One for each group that is or shall be.
    pub groups: Vec<GroupPlan>,
    /// What the set as a whole does or waits for.
    pub reason: Reason,
    /// Every group that is not protected is done, and there are as many groups as wanted.
    pub done: bool,
}

/// The next writes for every group.
///
/// Groups in the upgrade are at most `max_unavailable`, and those that are not Running for any other reason, protected
/// ones too, count against it before a Running group is taken. A group that was begun comes first, then those that are
/// not Running, then those with the least left to do, then the highest ordinal.
pub fn plan_set(spec: &SetSpec, groups: &[Group], now: Time) -> SetPlan {
    let (kept, surplus) = part_with_surplus(spec, groups);
    let missing = missing(spec, groups);
    let views: Vec<_> = kept.into_iter().chain(&missing).map(|group| View::of(spec, group)).collect();
    let turns = turns(spec, &views);
    let mut plans: Vec<_> = views
        .iter()
        .zip(turns)
        .map(|(view, turn)| GroupPlan {
            ordinal: view.group.ordinal,
            turn,
            running: view.running,
            plan: plan_group(&spec.group, view.group, turn, now),
        })
        .collect();
    plans.extend(surplus.iter().map(|group| removal(group)));
    plans.sort_by_key(|plan| plan.ordinal);
    let done = surplus.is_empty() && plans.iter().all(|plan| plan.plan.done || untouched(plan));
    SetPlan { reason: reason(&plans, &views, done), groups: plans, done }
}

/// A protected group is as it shall be when it runs.
fn untouched(plan: &GroupPlan) -> bool {
    plan.turn == Turn::Protected && plan.running && plan.plan.ops.is_empty()
}

/// What matters about a group for its turn.
struct View<'a> {
    group: &'a Group,
    /// Waiting, if something in it is still to be upgraded or to be made from what is wanted: also one of which nothing
    /// is left, so that a failure does not admit it beyond the room.
    turn: Turn,
    running: bool,
    /// Some of it has been.
    begun: bool,
    /// How many replicas are still to be upgraded. After a revert a mixed group does not look begun, but has fewest.
    left: usize,
}

impl<'a> View<'a> {
    fn of(spec: &SetSpec, group: &'a Group) -> Self {
        let tallies = Tally::all(&spec.group, group);
        let position = Position::of(&spec.group, group, &tallies, Turn::Waiting);
        let whole =
            |tally: &Tally<'_>| if position.fresh() { tally.ready() >= tally.wanted } else { tally.runs() };
        let lacks = |tally: &Tally<'_>| match tally.target {
            None => !tally.stay.is_empty(),
            Some(_) => tally.outdated() || (tally.changes() && tally.updated() < tally.wanted),
        };
        let replaced = |tally: &Tally<'_>| (tally.changes() || tally.outdated()) && tally.updated() > 0;
        let turn = match !position.fresh() && tallies.iter().any(lacks) {
            _ if group.ordinal < spec.partition => Turn::Protected,
            true => Turn::Waiting,
            false => Turn::Admitted,
        };
        let left = tallies.iter().map(|tally| tally.outdated_in_order().len()).sum();
        let (running, begun) = (tallies.iter().all(whole), tallies.iter().any(replaced));
        Self { group, turn, running, begun, left }
    }
}

fn turns(spec: &SetSpec, views: &[View<'_>]) -> Vec<Turn> {
    let room = spec.max_unavailable.max(1);
    // Groups at the target that do not run are in flight as well: fresh ones, and those whose new replicas fail.
    let mut in_flight = count(views.iter().filter(|view| view.turn == Turn::Admitted && !view.running));
    let mut missed = count(views.iter().filter(|view| !view.running));
    let mut turns: Vec<_> = views.iter().map(|view| view.turn).collect();
    let mut order: Vec<usize> = (0..views.len()).filter(|at| turns[*at] == Turn::Waiting).collect();
    order.sort_by_key(|at| {
        let view = &views[*at];
        (!view.begun, view.running, view.left, Reverse(view.group.ordinal))
    });
    for at in order {
        // A group that does not run is missing already: upgrading it takes nothing away, and may be its cure.
        let costs = u32::from(views[at].running);
        if in_flight < room && (costs == 0 || missed + costs <= room) {
            turns[at] = Turn::Admitted;
            in_flight += 1;
            missed += costs;
        }
    }
    turns
}

/// Fewer groups: those that are going anyway, then those above the partition, not Running, outdated, cheap, and of the
/// highest ordinal.
fn part_with_surplus<'a>(spec: &SetSpec, groups: &'a [Group]) -> (Vec<&'a Group>, Vec<&'a Group>) {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by_cached_key(|group| {
        let view = View::of(spec, group);
        let going = !group.replicas.is_empty() && !group.replicas.iter().any(Replica::stays);
        let cost: i64 =
            group.replicas.iter().map(|replica| replica.deletion_cost).fold(0, i64::saturating_add);
        (
            !going,
            view.turn == Turn::Protected,
            view.running,
            view.turn != Turn::Waiting,
            cost,
            Reverse(group.ordinal),
        )
    });
    let surplus = groups.len().saturating_sub(spec.replicas as usize);
    let kept = groups.split_off(surplus);
    (kept, groups)
}

/// The groups to make: all at the target, except below the partition.
fn missing(spec: &SetSpec, groups: &[Group]) -> Vec<Group> {
    let missing = (spec.replicas as usize).saturating_sub(groups.len());
    let free = |ordinal: &u32| !groups.iter().any(|group| group.ordinal == *ordinal);
    let recorded = |ordinal| if ordinal < spec.partition { spec.current.clone() } else { Vec::new() };
    let group = |ordinal| Group { ordinal, recorded: recorded(ordinal), replicas: Vec::new() };
    (0..u32::MAX).filter(free).take(missing).map(group).collect()
}

fn removal(group: &Group) -> GroupPlan {
    let reason = Reason::new(
        Code::RemovingGroup,
        format!("the spec asks for fewer groups: group {} is removed", group.ordinal),
    );
    let plan = Plan { ops: retire_group(group), reason, step: None, done: false };
    GroupPlan { ordinal: group.ordinal, turn: Turn::Waiting, running: false, plan }
}

/// One sentence for the set: the first group that is in the upgrade, else what keeps the next one out.
fn reason(plans: &[GroupPlan], views: &[View<'_>], done: bool) -> Reason {
    if done {
        return Reason::new(Code::UpToDate, "every group has the revision of the spec and serves");
    }
    let named = |plan: &GroupPlan| {
        let what = format!("group {}: {}", plan.ordinal, plan.plan.reason.what);
        Reason { what, ..plan.plan.reason.clone() }
    };
    let busy = plans.iter().rev().find(|plan| plan.turn == Turn::Admitted && !plan.plan.done);
    if let Some(plan) = busy {
        return named(plan);
    }
    let waits =
        plans.iter().any(|plan| plan.turn == Turn::Waiting && plan.plan.reason.code != Code::RemovingGroup);
    let down = views.iter().filter(|view| !view.running).map(|view| view.group.ordinal).min();
    if let (true, Some(down)) = (waits, down) {
        let what =
            format!("group {down} is not Running, and the budget allows no other group to be unavailable");
        return Reason::new(Code::WaitingForGroupBudget, what).then("the next group is upgraded");
    }
    let acting = plans.iter().find(|plan| !plan.plan.done && !plan.plan.ops.is_empty());
    acting
        .or_else(|| plans.first())
        .map_or_else(|| Reason::new(Code::NoGroups, "the spec asks for no groups"), named)
}
