//! What is, of a set, in the words of its contract.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    Conditions,
    leaderworkerset::{GroupFailure, GroupStatus, LeaderWorkerSet, LeaderWorkerSetStatus},
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time as ApiTime};
use kube::ResourceExt;
use planner::{
    Reason, Time,
    sets::{Identity, State},
    units::{Op, Revision},
};

use super::{
    Decision,
    observe::{Group, LEADER_PATIENCE, Observed},
};
use crate::{conditions, count, int, labels, runtime::timestamp, sentence};

/// Groups that are told of one by one. Those beyond are counted.
const MOST_GROUPS: usize = 128;

/// Names of others that are told of one by one.
const MOST_NAMED: usize = 8;

/// The status of a set when this was seen and that was decided.
pub(super) fn status(observed: &Observed, decision: &Decision, now: Time) -> LeaderWorkerSetStatus {
    let Observed { set, revisions, spec, groups, .. } = observed;
    let before = set.status.clone().unwrap_or_default();
    let tally = Tally::of(observed);
    let groups: Vec<GroupStatus> = groups
        .iter()
        .filter(|(place, _)| !decision.is_forgotten(**place))
        .filter_map(|(place, group)| group_status(*place, group, observed, decision, now))
        .take(MOST_GROUPS)
        .collect();
    let selector = format!("{}={},{}=0", labels::SET_NAME, set.name_any(), labels::WORKER_INDEX);
    let came_from = if tally.is_updated && decision.set.done { spec.target } else { spec.old };
    let mut status = LeaderWorkerSetStatus {
        observed_generation: set.metadata.generation.unwrap_or_default(),
        replicas: int(tally.exist),
        ready_replicas: int(tally.ready),
        updated_replicas: int(tally.updated),
        hpa_pod_selector: Some(before.hpa_pod_selector.unwrap_or(selector)),
        current_revision: Some(revisions.key(came_from)),
        update_revision: Some(revisions.key(spec.target)),
        message: message(decision),
        conditions: before.conditions,
        groups,
    };
    set_conditions(&mut status, &tally, set, now);
    set_degraded(&mut status, observed, now);
    set_miscounted(&mut status, observed, now);
    status
}

/// The groups of a set, counted.
struct Tally {
    exist: usize,
    ready: usize,
    updated: usize,
    /// Of the places that the set has, how many serve.
    members_ready: usize,
    /// Of the places that the partition does not keep, how many are not of the target.
    outdated: usize,
    is_updated: bool,
}

impl Tally {
    fn of(Observed { spec, groups, .. }: &Observed) -> Self {
        let is_ready = |group: &&Group| group.state == State::Ready;
        let is_updated = |group: &&Group| group.unit.revision == spec.target;
        let living = |group: &&Group| !group.pods.is_empty();
        // Where groups have no places of their own, each is as good as another.
        let is_member = |place: u32| spec.identity == Identity::Any || place < spec.replicas;
        let members = || groups.iter().filter(|(place, _)| is_member(**place));
        let outdated = members()
            .filter(|(place, group)| **place >= spec.partition && !is_updated(group) && group.state.is_live())
            .count();
        Self {
            exist: groups.values().filter(living).count(),
            ready: groups.values().filter(is_ready).count(),
            updated: groups.values().filter(living).filter(is_updated).count(),
            members_ready: members().filter(|(_, group)| is_ready(group)).count(),
            outdated,
            is_updated: spec.partition == 0 && groups.values().all(|group| is_updated(&group)),
        }
    }
}

fn message(decision: &Decision) -> Option<String> {
    if !decision.set.done {
        return Some(sentence::of(&decision.set.reason));
    }
    None
}

/// One group, if there is anything to say or to remember of it.
fn group_status(
    place: u32,
    group: &Group,
    Observed { revisions, spec, .. }: &Observed,
    decision: &Decision,
    now: Time,
) -> Option<GroupStatus> {
    let (ops, reason) = decision.groups.get(&place).map_or((&[][..], None), |(ops, why)| (ops, Some(why)));
    let ready = group.unit.pods.iter().filter(|pod| pod.ready && !pod.terminating).count();
    let mut status = GroupStatus {
        index: int(place),
        revision: revisions.key(group.unit.revision),
        ready: int(ready),
        restarts: int(group.unit.history.incarnation),
        restarts_in_a_row: int(group.unit.history.recreations),
        served: group.unit.history.served,
        last_failure: group.record.as_ref().and_then(|record| record.last_failure.clone()),
        message: reason.filter(|_| group.state != State::Ready).map(sentence::of),
    };
    for op in ops {
        match op {
            Op::RecordRecreation { incarnation } => {
                status.restarts = int(*incarnation);
                status.restarts_in_a_row += 1;
                status.last_failure = Some(failure(group, reason, now));
            }
            Op::RecordSteady => status.restarts_in_a_row = 0,
            _ => {}
        }
    }
    let outdated = group.unit.revision != spec.target && group.unit.revision != Revision(0);
    let unremarkable = group.state == State::Ready && status.restarts == 0 && !outdated;
    (!unremarkable).then_some(status)
}

/// What made a group start again.
fn failure(group: &Group, reason: Option<&Reason>, now: Time) -> GroupFailure {
    let failed = |pod: &&Arc<Pod>| {
        let unit = group.unit.pods.iter().find(|unit| pod.uid().as_deref() == Some(unit.uid.0.as_str()));
        unit.is_some_and(|unit| {
            unit.restarts > unit.restarts_baseline || unit.phase == planner::units::Phase::Ended
        })
    };
    let pod = group.pods.iter().find(failed);
    let statuses = pod.and_then(|pod| pod.status.as_ref()).into_iter().flat_map(|status| {
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
    });
    let mut ended = statuses.filter_map(|status| {
        let state = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        state.or(last).map(|ended| (status.name.clone(), ended.exit_code))
    });
    let ended = ended.next_back();
    GroupFailure {
        pod: pod.map(|pod| pod.name_any()).unwrap_or_default(),
        container: ended.as_ref().map(|(container, _)| container.clone()),
        exit_code: ended.map(|(_, code)| code),
        reason: reason.map_or_else(String::new, |reason| reason.what.chars().take(128).collect()),
        time: ApiTime(timestamp(now)),
    }
}

/// What keeps pods or Services from being made, until a person does something about it.
pub(super) fn set_blocked(
    conditions: &mut Conditions,
    blocked: &BTreeSet<String>,
    generation: i64,
    now: Time,
) {
    const NAMES_TAKEN: &str = "NamesTaken";
    if blocked.is_empty() {
        return conditions::unset(conditions, NAMES_TAKEN, generation, now);
    }
    let mut named: Vec<String> = blocked.iter().take(MOST_NAMED).cloned().collect();
    let more = blocked.len() - named.len();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    let message = named.join("; ");
    conditions::set(conditions, (NAMES_TAKEN, true, "NotOurs", &message), generation, now);
}

/// `Available` and the other two exclude each other. A condition that is not so any more keeps what it said: clients of
/// the public operator match it.
fn set_conditions(status: &mut LeaderWorkerSetStatus, tally: &Tally, set: &LeaderWorkerSet, now: Time) {
    const AVAILABLE: (&str, &str, &str) = ("Available", "AllGroupsReady", "All replicas are ready");
    const PROGRESSING: (&str, &str, &str) = ("Progressing", "GroupsProgressing", "Replicas are progressing");
    const UPDATING: (&str, &str, &str) =
        ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress");
    let all_ready = tally.members_ready >= count(set.spec.replicas) as usize;
    let (so, not_so): (&[_], &[_]) = if tally.outdated > 0 {
        (&[UPDATING, PROGRESSING], &[AVAILABLE])
    } else if all_ready {
        (&[AVAILABLE], &[UPDATING, PROGRESSING])
    } else {
        (&[PROGRESSING], &[AVAILABLE])
    };
    let generation = set.metadata.generation.unwrap_or_default();
    for (ty, reason, message) in so {
        conditions::set(&mut status.conditions, (ty, true, reason, message), generation, now);
    }
    for (ty, ..) in not_so {
        conditions::unset(&mut status.conditions, ty, generation, now);
    }
}

/// What does not get well by itself, and what a person can do about it.
fn set_degraded(status: &mut LeaderWorkerSetStatus, observed: &Observed, now: Time) {
    let generation = observed.set.metadata.generation.unwrap_or_default();
    let causes: Vec<(&str, String)> = failing(status).into_iter().chain(stuck(observed, now)).collect();
    let Some((reason, _)) = causes.first() else {
        return conditions::unset(&mut status.conditions, "Degraded", generation, now);
    };
    let message = causes.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ");
    conditions::set(&mut status.conditions, ("Degraded", true, reason, &message), generation, now);
}

fn failing(status: &LeaderWorkerSetStatus) -> Option<(&'static str, String)> {
    let failing = status.groups.iter().filter(|group| group.restarts_in_a_row > 1 && group.message.is_some());
    let failing: BTreeMap<i32, &str> =
        failing.map(|group| (group.index, group.message.as_deref().unwrap_or_default())).collect();
    let (index, why) = failing.first_key_value()?;
    Some(("GroupsFailing", format!("{} groups fail again and again; group {index}: {why}", failing.len())))
}

/// Leaders that may wait for workers that wait for them.
fn stuck(Observed { groups, .. }: &Observed, now: Time) -> Option<(&'static str, String)> {
    let stuck: Vec<u32> = groups
        .iter()
        .filter(|(_, group)| group.stuck_at.is_some_and(|at| at <= now))
        .map(|(place, _)| *place)
        .collect();
    let first = stuck.first()?;
    let message = format!(
        "{} leaders have not been ready for {} minutes, the first that of group {first}, and under startupPolicy \
         LeaderReady their workers wait for them; a leader that needs its workers to be ready never will be: use \
         LeaderHasAddress",
        stuck.len(),
        LEADER_PATIENCE.as_secs() / 60
    );
    Some(("LeaderWaitsForWorkers", message))
}

fn set_miscounted(status: &mut LeaderWorkerSetStatus, observed: &Observed, now: Time) {
    const MISCOUNTED: &str = "DisruptionsMiscounted";
    let Observed { set, miscounting, .. } = observed;
    let generation = set.metadata.generation.unwrap_or_default();
    let Some(first) = miscounting.first() else {
        return conditions::unset(&mut status.conditions, MISCOUNTED, generation, now);
    };
    let message = format!(
        "{} PodDisruptionBudgets, the first {first}, take the {} groups of this set for its pods, because Kubernetes \
         asks the set how many pods there should be; say minAvailable as a number of pods instead",
        miscounting.len(),
        set.spec.replicas
    );
    conditions::set(
        &mut status.conditions,
        (MISCOUNTED, true, "BudgetCountsGroups", &message),
        generation,
        now,
    );
}
