//! The planners, asked: which groups, which role replicas in them, and which pods of those.

use std::collections::{BTreeMap, BTreeSet};

use api::modelserving::RecoveryPolicy;
use planner::{
    Budget, Code, Reason, Time, Uid,
    roles::{self, Op, StepState, Turn},
    sets::{self, Identity, State},
    units::{self, Revision},
};

use super::{
    observe::{Id, Observed},
    read::{self, Group, Replica, View},
    wanted::By,
};
use crate::{revisions::UNKNOWN, units::record::is_recreated};

/// What is done next.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The groups as they were read.
    pub(super) read: BTreeMap<u32, Group>,
    pub(super) groups: BTreeMap<u32, GroupDecision>,
    pub(super) reason: Reason,
    /// Everything is as wanted, and nothing else is there.
    pub(super) done: bool,
    /// When anything is read otherwise though nothing changes.
    pub(super) changes_at: Option<Time>,
}

impl Decision {
    pub(super) fn view<'a>(&'a self, observed: &'a Observed) -> View<'a> {
        View { observed, groups: &self.read }
    }
}

/// What is done next in a group.
#[derive(Debug)]
pub(super) struct GroupDecision {
    /// What happens to the whole of it.
    pub(super) whole: Whole,
    /// It is not wanted any more: nothing of it is remembered.
    pub(super) removed: bool,
    /// Writes to its role replicas.
    pub(super) ops: Vec<Op>,
    /// What the replicas that are left alone do by themselves.
    pub(super) units: BTreeMap<Id, (Vec<units::Op>, Reason)>,
    pub(super) step: Option<StepState>,
    pub(super) reason: Reason,
    pub(super) done: bool,
    /// This failure makes the whole group again.
    pub(super) failure: Option<(Id, Reason)>,
}

/// What happens to a group as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// Nothing.
    Stays,
    /// It is taken out of service, or finishes what it has.
    Leaves,
    /// It is deleted.
    Goes,
}

impl GroupDecision {
    fn new(plan: roles::Plan) -> Self {
        let roles::Plan { ops, reason, step, done } = plan;
        let (units, removed) = (BTreeMap::new(), false);
        Self { whole: Whole::Stays, removed, ops, units, step, reason, done, failure: None }
    }

    fn whole(whole: Whole, reason: Reason) -> Self {
        let plan = roles::Plan { ops: Vec::new(), reason, step: None, done: false };
        Self { whole, removed: whole == Whole::Goes, ..Self::new(plan) }
    }

    /// Whether a replica is deleted: nothing of it is remembered then.
    pub(super) fn deletes(&self, id: &Id) -> bool {
        let is_it = |op: &Op| matches!(op, Op::Delete { role, ordinal, .. } if *role == id.role && *ordinal == id.ordinal);
        self.removed || self.ops.iter().any(is_it)
    }
}

pub(super) fn decide(observed: &Observed, now: Time) -> Decision {
    let read = read::groups(observed, now);
    let view = View { observed, groups: &read };
    let mut answers: BTreeMap<u32, Answers> =
        read.iter().map(|(ordinal, group)| (*ordinal, Answers::of(view, group, now))).collect();
    let Planned { mut groups, reason, done } = match observed.wanted.by {
        By::Steps => by_steps(view, &answers, now),
        By::Group | By::Role => by_groups(view, &answers, now),
    };
    for (ordinal, group) in &mut groups {
        let (Some(seen), Some(answers)) = (read.get(ordinal), answers.remove(ordinal)) else {
            continue;
        };
        group.failure = answers.failure.filter(|_| group.whole == Whole::Stays && !group.removed);
        group.units = left_alone(seen, group, answers.units);
    }
    let changes_at = read::changes_at(observed, now);
    Decision { read, groups, reason, done, changes_at }
}

/// What the planners say.
struct Planned {
    groups: BTreeMap<u32, GroupDecision>,
    reason: Reason,
    done: bool,
}

/// What the units of a group do by themselves, and whether that is the whole group's affair.
struct Answers {
    units: BTreeMap<Id, (Vec<units::Op>, Reason)>,
    failure: Option<(Id, Reason)>,
}

impl Answers {
    fn of(observed: View<'_>, group: &Group, now: Time) -> Self {
        let plan = |replica: &Replica| units::plan(&replica.spec, &replica.unit, now);
        let mut units: BTreeMap<Id, _> =
            group.replicas.iter().map(|(id, replica)| (id.clone(), plan(replica))).collect();
        if observed.wanted.recovery != RecoveryPolicy::ServingGroupRecreate {
            return Self { units, failure: None };
        }
        let gone = missing(observed, group).filter(|_| group.was_whole);
        let mut failure = gone.map(|id| {
            let reason = Reason::new(Code::RecreatingGroup, format!("{id} was deleted"));
            (id, reason)
        });
        for (id, replica) in &group.replicas {
            let Some((ops, reason)) = units.get_mut(id) else { continue };
            let fails = is_recreated(ops);
            if fails {
                // The group answers, and this replica with it.
                ops.retain(|op| matches!(op, units::Op::TakeOutOfService));
            }
            if fails && !replica.outlived {
                failure = failure.or_else(|| Some((id.clone(), reason.clone())));
            } else if replica.was_taken_away() {
                let what = format!("{id} was deleted while it served");
                failure = failure.or_else(|| Some((id.clone(), Reason::new(Code::RecreatingGroup, what))));
            }
        }
        Self { units, failure }
    }
}

/// A role replica that a group shall have and of which nothing is there.
fn missing(observed: View<'_>, group: &Group) -> Option<Id> {
    let roles = observed.wanted.group.roles.iter();
    let mut short = roles.filter_map(|role| {
        let is_there =
            |ordinal: &u32| group.replicas.contains_key(&Id { role: role.name.clone(), ordinal: *ordinal });
        let there = group.replicas.keys().filter(|id| id.role == role.name).count();
        let ordinal = (0..role.replicas).find(|ordinal| !is_there(ordinal))?;
        (there < role.replicas as usize).then(|| Id { role: role.name.clone(), ordinal })
    });
    short.next()
}

/// The replicas that no decision is about do what is next for them. In a group that leaves they leave service and
/// nothing else: the group drains as one, because its roles serve together.
fn left_alone(
    seen: &Group,
    decided: &GroupDecision,
    mut units: BTreeMap<Id, (Vec<units::Op>, Reason)>,
) -> BTreeMap<Id, (Vec<units::Op>, Reason)> {
    let chosen: BTreeSet<Id> = decided.ops.iter().map(id_of).collect();
    units.retain(|id, _| decided.whole != Whole::Goes && !chosen.contains(id));
    if seen.leaving || decided.whole == Whole::Leaves {
        for (ops, _) in units.values_mut() {
            ops.retain(|op| matches!(op, units::Op::TakeOutOfService | units::Op::ForceRelease { .. }));
        }
    }
    units
}

pub(super) fn id_of(op: &Op) -> Id {
    let (role, ordinal) = match op {
        Op::Create { role, ordinal, .. }
        | Op::TakeOut { role, ordinal, .. }
        | Op::Delete { role, ordinal, .. } => (role, ordinal),
    };
    Id { role: role.clone(), ordinal: *ordinal }
}

/// Group after group, and in each the roles in the order of the steps.
fn by_steps(observed: View<'_>, answers: &BTreeMap<u32, Answers>, now: Time) -> Planned {
    let wanted = &observed.wanted;
    let current = observed.revisions.named(&wanted.current);
    let spec = wanted.by_steps(current.map(|stored| stored.recorded()).unwrap_or_default());
    let groups: Vec<roles::Group> =
        observed.groups.iter().map(|(ordinal, it)| planned(*ordinal, it, answers.get(ordinal))).collect();
    let plan = roles::plan_set(&spec, &groups, now);
    let decided = |group: roles::GroupPlan| {
        let removed = group.plan.reason.code == Code::RemovingGroup;
        let step = group.plan.step.clone().filter(|_| group.turn == Turn::Admitted);
        (group.ordinal, GroupDecision { removed, step, ..GroupDecision::new(group.plan) })
    };
    let groups = plan.groups.into_iter().map(decided);
    Planned { groups: groups.collect(), reason: plan.reason, done: plan.done }
}

/// A group as the planner of roles sees it.
fn planned(ordinal: u32, group: &Group, answers: Option<&Answers>) -> roles::Group {
    let fails = answers.is_some_and(|answers| answers.failure.is_some());
    let replica = |(id, replica): (&Id, &Replica)| roles::Replica {
        role: id.role.clone(),
        ordinal: id.ordinal,
        uid: replica.uid(),
        hash: replica.hash.clone(),
        state: match replica.state {
            State::Starting | State::Lapsed => roles::State::Starting,
            State::Ready => roles::State::Ready,
            State::Leaving { done } => roles::State::Leaving { done },
            State::Terminating => roles::State::Terminating,
        },
        since: replica.since,
        failed: fails || replica.outlived,
        deletion_cost: replica.deletion_cost(),
        blocking: replica.blocking.clone(),
    };
    roles::Group {
        ordinal,
        recorded: group.recorded.clone(),
        replicas: group.replicas.iter().map(replica).collect(),
    }
}

/// Groups as a set of units: whole groups are replaced, or only their number is kept.
fn by_groups(observed: View<'_>, answers: &BTreeMap<u32, Answers>, now: Time) -> Planned {
    let wanted = &observed.wanted;
    let target = observed.revisions.target();
    let is_whole = wanted.by == By::Group;
    let current = known(observed.revisions.find(&wanted.current)).unwrap_or(target);
    let spec = wanted.by_groups(target, current);
    let units: Vec<sets::Unit> = observed
        .groups
        .iter()
        .map(|(ordinal, group)| sets::Unit {
            ordinal: *ordinal,
            uid: uid(group),
            revision: if is_whole { revision(observed, group) } else { target },
            state: state(observed, group),
            deletion_cost: 0,
        })
        .collect();
    let set = sets::plan(&spec, &units, now);
    let mut groups: BTreeMap<u32, GroupDecision> = BTreeMap::new();
    for op in &set.ops {
        let decided = match op {
            sets::Op::Create { ordinal, revision } => {
                // Where roles are replaced by themselves, each says what of a new group is old.
                let is_old = *revision != target || !is_whole && current != target;
                let recorded = observed.revisions.named(&wanted.current).filter(|_| is_old);
                let recorded = recorded.map(|stored| stored.recorded()).unwrap_or_default();
                let group = Group { recorded, ..Group::default() };
                inside(observed, *ordinal, &group, None, now)
            }
            sets::Op::TakeOut { .. } => GroupDecision::whole(Whole::Leaves, set.reason.clone()),
            sets::Op::Delete { .. } => GroupDecision::whole(Whole::Goes, set.reason.clone()),
        };
        groups.insert(op.ordinal(), decided);
    }
    for (ordinal, group) in observed.groups {
        let left_alone = || match state(observed, group) {
            State::Leaving { .. } => GroupDecision::whole(Whole::Leaves, leaving()),
            State::Terminating => GroupDecision::whole(Whole::Stays, leaving()),
            _ => inside(observed, *ordinal, group, answers.get(ordinal), now),
        };
        groups.entry(*ordinal).or_insert_with(left_alone);
    }
    let busy = groups.iter().find(|(_, group)| !group.done);
    let done = set.done && busy.is_none();
    let reason = match busy {
        Some((ordinal, group)) if set.done => {
            Reason { what: format!("group {ordinal}: {}", group.reason.what), ..group.reason.clone() }
        }
        _ => set.reason,
    };
    Planned { groups, reason, done }
}

fn leaving() -> Reason {
    Reason::new(Code::WaitingForDrain, "the group is removed and finishes its requests")
        .then("its pods are deleted")
}

/// What is done in a group that is neither made nor taken away.
fn inside(
    observed: View<'_>,
    ordinal: u32,
    group: &Group,
    answers: Option<&Answers>,
    now: Time,
) -> GroupDecision {
    if observed.wanted.by == By::Role {
        return by_role(observed, ordinal, group, now);
    }
    let turn = match revision(observed, group) == observed.revisions.target() {
        // What is made from what is wanted is wanted everywhere.
        true if group.recorded.is_empty() => Turn::Admitted,
        _ if ordinal < observed.wanted.partition => Turn::Protected,
        // What is outdated is replaced with its whole group, and kept up until then.
        false => Turn::Waiting,
        true => Turn::Admitted,
    };
    let plan = roles::plan_group(&observed.wanted.group, &planned(ordinal, group, answers), turn, now);
    // A group that its turn leaves alone is as it should be when it runs.
    let kept_up = turn != Turn::Admitted && plan.ops.is_empty() && is_running(observed, group);
    GroupDecision::new(roles::Plan { done: plan.done || kept_up, step: None, ..plan })
}

/// Each role of a group by itself, within its own room. Roles that the spec no longer has go when the others are done.
fn by_role(observed: View<'_>, ordinal: u32, group: &Group, now: Time) -> GroupDecision {
    let wanted = &observed.wanted;
    let mut ops = Vec::new();
    let mut waits = None;
    for (place, role) in wanted.group.roles.iter().enumerate() {
        let recorded = group.recorded.iter().find(|it| it.role == role.name).map(|it| &it.hash);
        let target = observed.revisions.number(&role.name, &role.target);
        let old = recorded.map_or(target, |hash| observed.revisions.number(&role.name, hash));
        let spec = wanted.by_role(place, target, old);
        let plan = plan_role(observed, group, &role.name, &spec, &mut ops, now);
        if !plan.done {
            let what = format!("role {}: {}", role.name, plan.reason.what);
            waits = waits.or(Some(Reason { what, ..plan.reason }));
        }
    }
    let gone: BTreeSet<&String> =
        group.replicas.keys().map(|id| &id.role).filter(|role| wanted.replicas_of(role).is_none()).collect();
    for role in gone {
        let kept = group.recorded.iter().find(|it| it.role == *role).filter(|_| waits.is_some());
        let old = kept.map_or(UNKNOWN, |kept| observed.revisions.number(role, &kept.hash));
        let spec = sets::SetSpec {
            replicas: kept.map_or(0, |kept| kept.replicas),
            budget: Budget { surge: 0, unavailable: u32::MAX },
            partition: u32::MAX,
            target: old,
            old,
            identity: Identity::Ordinal,
            noun: "replica",
        };
        let plan = plan_role(observed, group, role, &spec, &mut ops, now);
        waits = waits.or_else(|| (!plan.done).then_some(plan.reason));
    }
    let done = waits.is_none();
    let up_to_date = || Reason::new(Code::UpToDate, format!("every replica of group {ordinal} serves"));
    GroupDecision::new(roles::Plan { ops, reason: waits.unwrap_or_else(up_to_date), step: None, done })
}

fn plan_role(
    observed: View<'_>,
    group: &Group,
    role: &str,
    spec: &sets::SetSpec,
    ops: &mut Vec<Op>,
    now: Time,
) -> sets::Plan {
    let replicas = group.replicas.iter().filter(|(id, _)| id.role == role);
    let unit = |(id, replica): (&Id, &Replica)| sets::Unit {
        ordinal: id.ordinal,
        uid: replica.uid(),
        revision: observed.revisions.number(role, &replica.hash),
        state: replica.state,
        deletion_cost: 0,
    };
    let units: Vec<sets::Unit> = replicas.map(unit).collect();
    let plan = sets::plan(spec, &units, now);
    ops.extend(plan.ops.iter().filter_map(|op| in_words_of_roles(observed, group, role, op)));
    plan
}

fn in_words_of_roles(observed: View<'_>, group: &Group, role: &str, op: &sets::Op) -> Option<Op> {
    let role = role.to_owned();
    Some(match op {
        sets::Op::Create { ordinal, revision } => {
            let hash = observed.revisions.hash_of(&role, *revision)?.clone();
            Op::Create { role, ordinal: *ordinal, hash }
        }
        sets::Op::TakeOut { ordinal, uid } => Op::TakeOut { role, ordinal: *ordinal, uid: uid.clone() },
        sets::Op::Delete { ordinal, uid } => {
            let state = group.replicas.get(&Id { role: role.clone(), ordinal: *ordinal })?.state;
            let seen = match state {
                State::Leaving { done } => roles::State::Leaving { done },
                _ => roles::State::Starting,
            };
            Op::Delete { role, ordinal: *ordinal, uid: uid.clone(), seen }
        }
    })
}

/// What tells this group from a later one at the same place.
fn uid(group: &Group) -> Uid {
    let first = group.replicas.values().find(|replica| !replica.pods.is_empty()).map(Replica::uid);
    first.unwrap_or_else(|| Uid(format!("incarnation-{}", group.restarts)))
}

/// The one revision of a group. A mixed one has none.
fn revision(observed: View<'_>, group: &Group) -> Revision {
    let (target, newest) = (observed.revisions.target(), observed.revisions.newest());
    let is_outdated = |(id, replica): (&Id, &Replica)| newest.hash(&id.role) != Some(&replica.hash);
    match group.from.as_deref().and_then(|from| known(observed.revisions.find(from))) {
        Some(from) if from != target => from,
        _ if group.replicas.iter().any(is_outdated) => UNKNOWN,
        _ => target,
    }
}

/// A revision that is stored.
fn known(revision: Revision) -> Option<Revision> {
    Some(revision).filter(|revision| *revision != UNKNOWN)
}

/// What a group does as a whole.
fn state(observed: View<'_>, group: &Group) -> State {
    let mut states = group.replicas.values().map(|replica| replica.state);
    let going = |state: State| matches!(state, State::Leaving { done: true } | State::Terminating);
    if !group.replicas.is_empty() && states.clone().all(|state| state == State::Terminating) {
        State::Terminating
    } else if group.leaving {
        State::Leaving { done: states.all(going) }
    } else if is_running(observed, group) {
        State::Ready
    } else if group.replicas.values().any(|replica| replica.unit.history.served) {
        State::Lapsed
    } else {
        State::Starting
    }
}

/// Whether every replica that a group shall have serves, whatever its revision: of the roles that it has now.
pub(super) fn is_running(observed: View<'_>, group: &Group) -> bool {
    let serving = |role: &str| {
        let of_role = group.replicas.iter().filter(|(id, _)| id.role == role);
        of_role.filter(|(_, replica)| replica.state == State::Ready).count()
    };
    let wanted = &observed.wanted;
    let is_known = |role: &str| group.recorded.is_empty() || group.recorded.iter().any(|it| it.role == role);
    let roles = wanted.group.roles.iter();
    let mut now = roles.filter(|role| is_known(&role.name)).map(|role| (role.name.as_str(), role.replicas));
    let dropped = group.recorded.iter().filter(|it| wanted.replicas_of(&it.role).is_none());
    let mut dropped = dropped.map(|it| (it.role.as_str(), it.replicas));
    let serves = |(role, replicas): (&str, u32)| serving(role) >= replicas as usize;
    now.all(serves) && (wanted.by != By::Group || dropped.all(serves))
}
