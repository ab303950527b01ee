//! What is, of a ModelServing, in the words of its contract.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Conditions, Wait,
    leaderworkerset::GroupFailure,
    modelserving::{GroupStatus, ModelServing, ModelServingStatus, ReplicaStatus, RoleStatus, StepStatus},
};
use kube::ResourceExt;
use planner::{Code, Time, agreed, roles, sets::State, units::Op};

use super::{
    decide::{Decision, GroupDecision, is_running},
    observe::{Id, Observed},
    plugin,
    read::{Group, Replica, View, of_replica},
    wanted::By,
};
use crate::{
    blocking,
    conditions::{Writer, modelserving as contract, reasons, types},
    count, int, labels,
    units::record,
    wait::{self, cut},
};

/// Groups that are told of one by one. Those beyond are counted.
pub(super) const MOST_GROUPS: usize = 128;

/// Replicas of a group that are told of one by one.
const MOST_REPLICAS: usize = 64;

/// The status of a ModelServing when this was seen and that was decided.
pub(super) fn status(observed: &Observed, decision: &Decision, now: Time) -> ModelServingStatus {
    let observed = decision.view(observed);
    let Observed { serving, revisions, wanted, .. } = observed.observed;
    let groups = observed.groups;
    let before = serving.status.clone().unwrap_or_default();
    let tally = Tally::of(observed);
    let told = decision.groups.iter().filter_map(|(index, decided)| match groups.get(index) {
        Some(group) => group_status(*index, group, observed, decided, now),
        None => being_made(*index, observed, decided, now),
    });
    let target = &revisions.newest().key;
    let is_busy = !decision.done;
    let came_from = if tally.is_updated() && decision.done { target } else { &wanted.current };
    let mut status = ModelServingStatus {
        observed_generation: serving.metadata.generation.unwrap_or_default(),
        replicas: int(groups.len()),
        current_replicas: int(if tally.is_settled(wanted.replicas) { tally.updated } else { tally.others }),
        updated_replicas: int(tally.updated),
        available_replicas: int(tally.running.len()),
        current_revision: Some(came_from.clone()),
        update_revision: Some(target.clone()),
        label_selector: Some(selector(serving)),
        message: is_busy.then(|| cut(&wait::sentence(&decision.reason), 1_024)),
        waiting_for: is_busy.then(|| wait::of(&decision.reason, None, before.waiting_for.as_ref(), now)),
        roles: role_counts(observed),
        groups: told.take(MOST_GROUPS).collect(),
        conditions: before.conditions,
    };
    let mut conditions = std::mem::take(&mut status.conditions);
    set_conditions(&mut conditions, &status, (&tally, observed, decision), now);
    status.conditions = conditions;
    status
}

/// The groups, counted.
struct Tally {
    running: Vec<u32>,
    /// Those that do not run, also if nothing of them is there yet.
    waiting: Vec<u32>,
    /// Those of which every replica is there and of the wanted template.
    updated: usize,
    others: usize,
    /// Those that an update is not through with: something of them is replaced, or what replaced it does not serve yet.
    outdated: Vec<u32>,
}

impl Tally {
    fn of(observed: View<'_>) -> Self {
        let groups = &observed.groups;
        let missing = (observed.wanted.replicas as usize).saturating_sub(groups.len());
        let missing = (0..u32::MAX).filter(|index| !groups.contains_key(index)).take(missing);
        let runs = |index: &u32| groups.get(index).is_some_and(|group| is_running(observed, group));
        let all: BTreeSet<u32> = groups.keys().copied().chain(missing).collect();
        let (running, waiting): (Vec<u32>, Vec<u32>) = all.iter().partition(|index| runs(index));
        let updated = groups.values().filter(|group| is_updated(observed, group)).count();
        let leaves = |group: &Group| group.leaving || group.replicas.values().all(|it| !it.state.is_live());
        let others = groups.values().filter(|group| !leaves(group) && !is_updated(observed, group)).count();
        let outdated = all.into_iter().filter(|index| is_outdated(observed, *index, runs(index)));
        let outdated = outdated.collect();
        Self { running, waiting, updated, others, outdated }
    }

    fn is_updated(&self) -> bool {
        self.others == 0 && self.outdated.is_empty()
    }

    fn is_settled(&self, replicas: u32) -> bool {
        let replicas = replicas as usize;
        self.waiting.is_empty() && self.running.len() == replicas && self.updated == replicas
    }
}

/// Whether every replica that a group shall have is there and of the wanted template.
fn is_updated(observed: View<'_>, group: &Group) -> bool {
    let is_new =
        |id: &Id, replica: &Replica| observed.revisions.newest().hash(&id.role) == Some(&replica.hash);
    let live = || group.replicas.iter().filter(|(_, replica)| replica.state.is_live());
    let enough = observed.wanted.group.roles.iter().all(|role| {
        let made = live().filter(|(id, replica)| id.role == role.name && is_new(id, replica));
        made.count() >= role.replicas as usize
    });
    !group.leaving && enough && live().all(|(id, replica)| is_new(id, replica))
}

/// Whether an update is not through with a group.
fn is_outdated(observed: View<'_>, index: u32, runs: bool) -> bool {
    let (wanted, target) = (&observed.wanted, observed.revisions.newest());
    let is_kept = match wanted.by {
        By::Role => wanted.roles.iter().any(|(_, partition)| *partition > 0),
        By::Group | By::Steps => index < wanted.partition,
    };
    if !runs && !is_kept && wanted.current != target.key {
        return true;
    }
    let kept = |id: &Id| {
        let places = wanted.group.roles.iter().zip(&wanted.roles);
        let mut partitions = places.filter(|(role, _)| role.name == id.role).map(|(_, (_, kept))| *kept);
        match wanted.by {
            By::Role => partitions.next().is_some_and(|partition| id.ordinal < partition),
            By::Group | By::Steps => index < wanted.partition,
        }
    };
    let replicas = observed.groups.get(&index).into_iter().flat_map(|group| &group.replicas);
    let mut replicas = replicas.filter(|(id, _)| !kept(id));
    replicas.any(|(id, it)| target.hash(&id.role) != Some(&it.hash))
}

/// One pod of each group, so that who counts pods counts groups.
fn selector(serving: &ModelServing) -> String {
    let (entry, name) = (labels::ENTRY, labels::SERVING_NAME);
    format!("{entry}=true,{name}={},{}=true", serving.name_any(), labels::COUNTS_GROUP)
}

/// Each role over all groups, in the order of the spec; then those that are no more.
fn role_counts(observed: View<'_>) -> Vec<RoleStatus> {
    let empty = |name: &str| RoleStatus {
        name: name.to_owned(),
        replicas: 0,
        ready_replicas: 0,
        updated_replicas: 0,
        updated_ready_replicas: 0,
    };
    let mut roles: Vec<RoleStatus> =
        observed.wanted.group.roles.iter().map(|role| empty(&role.name)).collect();
    for (id, replica) in observed.groups.values().flat_map(|group| &group.replicas) {
        let place = roles.iter().position(|role| role.name == id.role).unwrap_or_else(|| {
            roles.push(empty(&id.role));
            roles.len() - 1
        });
        let is_updated = observed.revisions.newest().hash(&id.role) == Some(&replica.hash);
        let is_ready = replica.state == State::Ready;
        let role = &mut roles[place];
        role.replicas += 1;
        role.ready_replicas += i32::from(is_ready);
        role.updated_replicas += i32::from(is_updated);
        role.updated_ready_replicas += i32::from(is_updated && is_ready);
    }
    // As many as a spec has before and after.
    roles.truncate(8);
    roles
}

/// One group, if there is anything to say or to remember of it.
fn group_status(
    index: u32,
    group: &Group,
    observed: View<'_>,
    decided: &GroupDecision,
    now: Time,
) -> Option<GroupStatus> {
    if decided.removed && group.replicas.values().all(|replica| replica.pods.is_empty()) {
        return None;
    }
    let target = &observed.revisions.newest().key;
    let is_there = decided.done && is_updated(observed, group);
    let revision = group.from.as_ref().filter(|_| !is_there).unwrap_or(target);
    let record = group.record.as_ref().filter(|_| !decided.removed);
    let mut status = GroupStatus {
        index: int(index),
        revision: revision.clone(),
        restarts: record.map_or(0, |record| record.restarts),
        restarts_in_a_row: record.map_or(0, |record| record.restarts_in_a_row),
        last_failure: record.and_then(|record| record.last_failure.clone()),
        served: record.is_some_and(|record| record.served),
        step: step(observed, group, decided),
        waiting_for: (!decided.done).then(|| waiting(group, decided, record, now)),
        replicas: replicas(group, decided, now),
    };
    if let Some((id, reason)) = &decided.failure {
        let made_for = group.replicas.values().map(|replica| replica.unit.history.incarnation).max();
        status.restarts = int(made_for.unwrap_or_default()).max(status.restarts) + 1;
        status.restarts_in_a_row += 1;
        status.served |= group.replicas.values().any(|replica| replica.unit.history.served);
        let replica = group.replicas.get(id).map(|it| (&it.unit, it.pods.as_slice()));
        status.last_failure = Some(record::failure(replica, reason, now));
    } else if is_steady(group, decided) {
        status.restarts_in_a_row = 0;
    }
    let unremarkable = decided.done
        && status.restarts == 0
        && status.replicas.is_empty()
        && revision == target
        && is_running(observed, group);
    (!unremarkable).then_some(status)
}

/// A group of which nothing is there yet. It is in the status before it is made, so that a restart in the middle of
/// that does not take missing pods for lost ones.
fn being_made(index: u32, observed: View<'_>, decided: &GroupDecision, now: Time) -> Option<GroupStatus> {
    let target = &observed.revisions.newest().key;
    let made = decided.ops.iter().filter_map(|op| match op {
        roles::Op::Create { role, hash, .. } => observed.revisions.making(role, hash),
        _ => None,
    });
    let keys: Vec<&String> = made.map(|(template, _)| &template.key).collect();
    let told = observed.serving.status.iter().flat_map(|status| &status.groups);
    let before =
        told.clone().find(|group| group.index == int(index)).and_then(|group| group.waiting_for.as_ref());
    let revision = keys.iter().find(|key| **key != target).or_else(|| keys.first())?;
    Some(GroupStatus {
        index: int(index),
        revision: (*revision).clone(),
        waiting_for: Some(wait::of(&decided.reason, None, before, now)),
        ..GroupStatus::default()
    })
}

/// Whether every replica of a group is ready for so long that its past failures are forgotten.
fn is_steady(group: &Group, decided: &GroupDecision) -> bool {
    let steady = |id: &Id| {
        let ops = decided.units.get(id).map(|(ops, _)| ops.as_slice()).unwrap_or_default();
        ops.contains(&Op::RecordSteady)
    };
    !group.replicas.is_empty() && group.replicas.keys().all(steady)
}

/// What a group waits for; where a replica of it backs off, until when.
fn waiting(group: &Group, decided: &GroupDecision, record: Option<&GroupStatus>, now: Time) -> Wait {
    let before = record.and_then(|record| record.waiting_for.as_ref());
    let held = decided.units.iter().find(|(_, (_, reason))| reason.code == Code::BackingOff);
    let Some((id, (_, reason))) = held.filter(|_| !group.leaving) else {
        let mut blocking = group.replicas.values().filter_map(|replica| replica.blocking.as_ref());
        let pod = blocking.next().map(|blocking| blocking.pod.clone());
        return wait::of(&decided.reason, pod, before, now);
    };
    let mut reason = reason.clone();
    reason.what = format!("{}; {id}: {}", decided.reason.what, reason.what);
    wait::of(&reason, None, before, now)
}

fn step(observed: View<'_>, group: &Group, decided: &GroupDecision) -> Option<StepStatus> {
    let step = decided.step.as_ref()?;
    let target = observed.revisions.newest().hash(&step.role);
    let waiting = group.replicas.iter().filter(|(id, _)| id.role == step.role);
    // What is updated first: it is what the step waits for.
    let rank = |it: &Replica| (Some(&it.hash) == target, it.since);
    let blocking = waiting.filter_map(|(_, it)| it.blocking.as_ref().map(|why| (rank(it), why)));
    let blocking = blocking.max_by_key(|(rank, _)| *rank).map(|(_, why)| why);
    Some(StepStatus {
        index: int(step.index),
        role: step.role.clone(),
        required: int(step.required),
        satisfied: int(step.satisfied),
        blocking_pod: blocking.map(|it| it.pod.clone()),
        reason: blocking.map(|it| cut(&it.why, 512)),
    })
}

/// The role replicas that were made again.
fn replicas(group: &Group, decided: &GroupDecision, now: Time) -> Vec<ReplicaStatus> {
    let told = group.replicas.iter().filter(|(id, _)| !decided.deletes(id));
    let told = told.filter_map(|(id, replica)| replica_status(id, replica, decided, now));
    told.take(MOST_REPLICAS).collect()
}

fn replica_status(id: &Id, replica: &Replica, decided: &GroupDecision, now: Time) -> Option<ReplicaStatus> {
    let (ops, reason) = decided.units.get(id).map_or((&[][..], None), |(ops, why)| (ops, Some(why)));
    let record = replica.record.as_ref();
    let failure = || reason.map(|reason| record::failure(Some((&replica.unit, &replica.pods)), reason, now));
    let known = record.map(of_replica).unwrap_or_default().after(ops, failure);
    let pod = replica.blocking.as_ref().map(|blocking| blocking.pod.clone());
    let before = record.and_then(|record| record.waiting_for.as_ref());
    let reason = reason.filter(|_| replica.state != State::Ready);
    (known.count > 0).then(|| ReplicaStatus {
        role: id.role.clone(),
        index: int(id.ordinal),
        hash: replica.hash.0.clone(),
        restarts: known.count,
        restarts_in_a_row: known.in_a_row,
        served: replica.unit.history.served,
        last_failure: known.last_failure,
        waiting_for: reason.map(|reason| wait::of(reason, pod, before, now)),
    })
}

/// What is said of the whole, besides what the public operator says: a stall, failures in a row, and what is not done.
fn set_conditions(
    list: &mut Conditions,
    status: &ModelServingStatus,
    (tally, observed, decision): (&Tally, View<'_>, &Decision),
    now: Time,
) {
    let mut conditions = Writer::new(list, status.observed_generation, now);
    let available = tally.waiting.is_empty() && tally.running.len() >= observed.wanted.replicas as usize;
    let verb = |groups: &[u32], one, more| agreed(groups.len(), one, more);
    let (waiting, outdated) = (&tally.waiting, &tally.outdated);
    let progressing = match waiting.as_slice() {
        [] => "some groups are still to be created".to_owned(),
        groups => format!("{} not serve yet", groups_of(groups, verb(groups, "does", "do"))),
    };
    let updating = format!(
        "{} not updated and ready yet; {} of the new revision",
        groups_of(outdated, verb(outdated, "is", "are")),
        tally.updated
    );
    let said = [
        (contract::AVAILABLE, available, reasons::ALL_GROUPS_READY, "all groups serve"),
        (contract::PROGRESSING, !available, reasons::GROUP_PROGRESSING, &progressing),
        (contract::UPDATE_IN_PROGRESS, !tally.outdated.is_empty(), reasons::GROUPS_UPDATING, &updating),
    ];
    for (ty, is, reason, message) in said {
        // What is over leaves no message behind.
        if is { conditions.set_true(ty, reason, message) } else { conditions.set_false(ty, reason, "") }
    }
    let alarms = [
        (types::STALLED, reasons::STEP_WAITS, stalled(status, observed, decision)),
        (types::DEGRADED, reasons::REPLICAS_FAILING, failing(status)),
        (types::SCHEDULER_MISSING, reasons::NO_SCHEDULER, unseen(observed, now)),
        (types::NOT_ACTED_ON, reasons::FIELDS_IGNORED, ignored(observed)),
    ];
    for (ty, reason, message) in alarms {
        conditions.alarm(ty, reason, message.as_deref());
    }
}

/// The first group whose step waits for a pod that is in trouble or has had its time.
fn stalled(status: &ModelServingStatus, observed: View<'_>, decision: &Decision) -> Option<String> {
    status.groups.iter().find_map(|group| {
        let step = group.step.as_ref()?;
        let pod = step.blocking_pod.as_deref()?;
        let index = count(group.index);
        let (seen, decided) = (observed.groups.get(&index)?, decision.groups.get(&index)?);
        let holds = |it: &Replica| it.in_trouble && it.blocking.as_ref().is_some_and(|it| it.pod == pod);
        let is_stalled = decided.reason.code == Code::StepOverdue || seen.replicas.values().any(holds);
        let regressed = decided.step.as_ref().is_some_and(|step| step.regressed);
        let which = match usize::try_from(step.index) {
            Ok(index) if index < observed.wanted.group.steps.len() => format!("step {}", index + 1),
            _ => "what is left after the steps".to_owned(),
        };
        is_stalled.then(|| {
            format!(
                "group {}, {which}{} ({}): {} of {} updated and Ready; pod {pod}: {}",
                group.index,
                if regressed { ", which was complete before" } else { "" },
                step.role,
                step.satisfied,
                step.required,
                step.reason.as_deref().unwrap_or_default()
            )
        })
    })
}

fn failing(status: &ModelServingStatus) -> Option<String> {
    let why = |wait: Option<&Wait>, failure: Option<&GroupFailure>| {
        let subject = wait.map(|wait| wait.subject.as_str()).unwrap_or_default();
        format!("{subject}{}", record::exit(failure))
    };
    let groups = status.groups.iter().filter(|group| group.restarts_in_a_row > 1);
    let replicas = status.groups.iter().flat_map(|group| group.replicas.iter().map(move |it| (group, it)));
    let replicas = replicas.filter(|(_, it)| it.restarts_in_a_row > 1 && it.waiting_for.is_some());
    let mut failing: BTreeMap<String, String> = groups
        .map(|group| {
            let why = why(group.waiting_for.as_ref(), group.last_failure.as_ref());
            (format!("group {}", group.index), why)
        })
        .collect();
    failing.extend(replicas.map(|(group, it)| {
        let name = format!("{}-{} of group {}", it.role, it.index, group.index);
        (name, why(it.waiting_for.as_ref(), it.last_failure.as_ref()))
    }));
    let (name, why) = failing.first_key_value()?;
    Some(format!("{} failing repeatedly, first {name}: {why}", failing.len()))
}

/// A pod that no scheduler places.
fn unseen(observed: View<'_>, now: Time) -> Option<String> {
    let replicas = observed.groups.values().flat_map(|group| group.replicas.values());
    let pods = replicas.flat_map(|replica| &replica.pods);
    let mut unseen = pods.filter_map(|member| {
        let why = blocking::unseen(&member.pod, member.created_at, now)?;
        let pod = member.pod.name_any();
        Some(format!("pod {pod}: {why}; spec.schedulerName names the scheduler of every pod"))
    });
    unseen.next()
}

/// The beginning of a sentence about these groups.
fn groups_of(groups: &[u32], verb: &str) -> String {
    let noun = agreed(groups.len(), "group", "groups");
    let listed = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("{noun} {listed} {verb}")
}

/// Fields that are accepted and kept, and without effect.
fn ignored(observed: View<'_>) -> Option<String> {
    let template = &observed.serving.spec.template;
    let gang = template.gang_policy.is_some() || template.network_topology.is_some();
    let why =
        "template.gangPolicy and networkTopology: they need schedulerName volcano, and Volcano installed";
    let alone = (gang && !observed.is_gang).then(|| why.to_owned());
    let unknown = plugin::unknown(&observed.serving).map(|name| format!("plugin {name}: unknown"));
    let fields: Vec<String> = alone.into_iter().chain(unknown).collect();
    (!fields.is_empty()).then(|| fields.join("; "))
}
