//! What is, of a set, in the words of its contract.

use std::collections::BTreeMap;

use api::{
    Conditions,
    leaderworkerset::{GroupStatus, LeaderWorkerSet, LeaderWorkerSetStatus},
};
use kube::ResourceExt;
use planner::{
    Time, agreed, counted,
    sets::{Identity, State},
};

use super::{
    decide::{Decision, Group, LEADER_PATIENCE},
    observe::{Members, Observed, restarts},
};
use crate::{
    blocking,
    conditions::{Writer, leaderworkerset as contract, reasons, types},
    count, int, labels,
    revisions::UNKNOWN,
    units::record,
    wait,
};

/// Groups that are told of one by one. Those beyond are counted.
const MOST_GROUPS: usize = 128;

/// The longest message that a status takes.
const LONGEST: usize = 1_024;

/// The status of a set when this was observed and that was decided.
pub(super) fn status(observed: &Observed, decision: &Decision, now: Time) -> LeaderWorkerSetStatus {
    let Observed { set, revisions, .. } = observed;
    let Decision { spec, set: plan, .. } = decision;
    let before = set.status.clone().unwrap_or_default();
    let tally = Tally::of(decision);
    let groups: Vec<GroupStatus> = observed
        .groups
        .iter()
        .filter(|(place, _)| !decision.is_forgotten(**place))
        .filter_map(|(place, members)| group_status(*place, members, observed, decision, now))
        .take(MOST_GROUPS)
        .collect();
    let selector = format!("{}={},{}=0", labels::SET_NAME, set.name_any(), labels::WORKER_INDEX);
    let came_from = if tally.is_updated && plan.done { spec.target } else { spec.old };
    let is_busy = !plan.done;
    let mut status = LeaderWorkerSetStatus {
        observed_generation: set.metadata.generation.unwrap_or_default(),
        replicas: int(tally.exist),
        ready_replicas: int(tally.ready),
        updated_replicas: int(tally.updated),
        hpa_pod_selector: Some(before.hpa_pod_selector.unwrap_or(selector)),
        current_revision: Some(revisions.key(came_from)),
        update_revision: Some(revisions.key(spec.target)),
        message: is_busy.then(|| wait::cut(&wait::sentence(&plan.reason), LONGEST)),
        waiting_for: is_busy.then(|| wait::of(&plan.reason, None, before.waiting_for.as_ref(), now)),
        conditions: before.conditions,
        groups,
    };
    let mut conditions = std::mem::take(&mut status.conditions);
    set_conditions(&mut conditions, &status, &tally, observed, decision, now);
    status.conditions = conditions;
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
    fn of(Decision { spec, groups, .. }: &Decision) -> Self {
        let is_ready = |group: &&Group| group.state == State::Ready;
        let is_updated = |group: &&Group| group.unit.revision == spec.target;
        let living = |group: &&Group| !group.unit.pods.is_empty();
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

/// One group, if there is anything to say or to remember of it.
fn group_status(
    place: u32,
    members: &Members,
    observed: &Observed,
    decision: &Decision,
    now: Time,
) -> Option<GroupStatus> {
    let group = decision.groups.get(&place)?;
    let planned = decision.units.get(&place);
    let (ops, reason) = planned.map_or((&[][..], None), |(ops, reason)| (ops, Some(reason)));
    let ready = group.unit.pods.iter().filter(|pod| pod.ready && !pod.terminating).count();
    let record = members.record.as_ref();
    let mut known = record.map(restarts).unwrap_or_default();
    known.count = int(group.unit.history.incarnation);
    known.served = group.unit.history.served;
    let failure = || reason.map(|reason| record::failure(Some((&group.unit, &members.pods)), reason, now));
    let known = known.after(ops, failure);
    let reason = reason.filter(|_| group.state != State::Ready);
    let pod = blocking::of(&members.pods, now).map(|blocking| blocking.pod);
    let before = record.and_then(|record| record.waiting_for.as_ref());
    let status = GroupStatus {
        index: int(place),
        revision: observed.revisions.key(group.unit.revision),
        ready: int(ready),
        restarts: known.count,
        restarts_in_a_row: known.in_a_row,
        served: known.served,
        last_failure: known.last_failure,
        waiting_for: reason.map(|reason| wait::of(reason, pod, before, now)),
    };
    let outdated = group.unit.revision != decision.spec.target && group.unit.revision != UNKNOWN;
    let unremarkable = group.state == State::Ready && status.restarts == 0 && !outdated;
    (!unremarkable).then_some(status)
}

fn set_conditions(
    list: &mut Conditions,
    status: &LeaderWorkerSetStatus,
    tally: &Tally,
    observed: &Observed,
    decision: &Decision,
    now: Time,
) {
    let mut conditions = Writer::new(list, status.observed_generation, now);
    set_progress(&mut conditions, tally, &observed.set);
    let causes: Vec<(&str, String)> = failing(status).into_iter().chain(stuck(decision, now)).collect();
    let message = causes.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ");
    let reason = causes.first().map_or("", |(reason, _)| reason);
    conditions.alarm(types::DEGRADED, reason, (!causes.is_empty()).then_some(&message));
    conditions.alarm(
        types::DISRUPTIONS_MISCOUNTED,
        reasons::BUDGET_COUNTS_GROUPS,
        miscounted(observed).as_deref(),
    );
}

/// `Available` and the other two exclude each other.
fn set_progress(conditions: &mut Writer<'_>, tally: &Tally, set: &LeaderWorkerSet) {
    let available = (contract::AVAILABLE, reasons::ALL_GROUPS_READY, "All replicas are ready");
    let progressing = (contract::PROGRESSING, reasons::GROUPS_PROGRESSING, "Replicas are progressing");
    let updating = (contract::UPDATE_IN_PROGRESS, reasons::GROUPS_UPDATING, "Rolling Upgrade is in progress");
    let all_ready = tally.members_ready >= count(set.spec.replicas) as usize;
    let (so, not_so): (&[_], &[_]) = if tally.outdated > 0 {
        (&[updating, progressing], &[available])
    } else if all_ready {
        (&[available], &[updating, progressing])
    } else {
        (&[progressing], &[available])
    };
    for (ty, reason, message) in so {
        conditions.set_true(*ty, reason, message);
    }
    for (ty, ..) in not_so {
        conditions.set_false(*ty, "", "");
    }
}

fn failing(status: &LeaderWorkerSetStatus) -> Option<(&'static str, String)> {
    let failing = status.groups.iter().filter(|group| group.restarts_in_a_row > 1);
    let why = |group: &GroupStatus| {
        let wait = group.waiting_for.as_ref()?;
        Some(format!("{}{}", wait.subject, record::exit(group.last_failure.as_ref())))
    };
    let failing: BTreeMap<i32, String> =
        failing.filter_map(|group| Some((group.index, why(group)?))).collect();
    let (index, why) = failing.first_key_value()?;
    let message = format!("{} failing repeatedly, first group {index}: {why}", failing.len());
    Some((reasons::GROUPS_FAILING, message))
}

/// Leaders that may wait for workers that wait for them.
fn stuck(Decision { groups, .. }: &Decision, now: Time) -> Option<(&'static str, String)> {
    let stuck: Vec<u32> = groups
        .iter()
        .filter(|(_, group)| group.stuck_at.is_some_and(|at| at <= now))
        .map(|(place, _)| *place)
        .collect();
    let first = stuck.first()?;
    let message = format!(
        "{} {} not ready after {} minutes, first group {first}; workers wait: startupPolicy LeaderHasAddress starts both",
        counted(stuck.len(), "leader"),
        agreed(stuck.len(), "is", "are"),
        LEADER_PATIENCE.as_secs() / 60
    );
    Some((reasons::LEADER_WAITS_FOR_WORKERS, message))
}

fn miscounted(Observed { set, miscounting, .. }: &Observed) -> Option<String> {
    let first = miscounting.first()?;
    Some(format!(
        "{}, first {first}, {} {} as pods; set minAvailable to a number of pods",
        counted(miscounting.len(), "PodDisruptionBudget"),
        agreed(miscounting.len(), "counts", "count"),
        counted(set.spec.replicas, "group")
    ))
}
