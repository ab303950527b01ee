//! A ModelServing in the planner's words: its groups, their role replicas, and what each of those does.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    time::Duration,
};

use api::{
    leaderworkerset::GroupFailure,
    modelserving::{GroupStatus, RecoveryPolicy, ReplicaStatus},
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::{
    Time, Uid,
    roles::{Blocking, Recorded, RoleHash},
    sets::State,
    units::{Phase, RestartPolicy, Revision, StartupPolicy, Unit, UnitSpec},
};
use std::sync::Arc;

use super::{
    observe::{Id, Members, Observed, index},
    revision::Roles,
    status,
    wanted::By,
};
use crate::{
    blocking, count, labels,
    revisions::Stored,
    units::{
        self, Gate, Member, baseline, can_serve, incarnation,
        record::{Remembered, Restarts},
        restarts,
    },
};

/// The observation, and its groups as they are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) observed: &'a Observed,
    pub(super) groups: &'a BTreeMap<u32, Group>,
}

impl Deref for View<'_> {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        self.observed
    }
}

/// A serving group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The revision that it comes from; nothing, where it is of the wanted one and of no other.
    pub(super) from: Option<String>,
    /// The roles of that revision.
    pub(super) recorded: Vec<Recorded>,
    /// The whole group was chosen to go.
    pub(super) leaving: bool,
    /// The group was settled after the last reconcile, and the spec has not changed since. Segue has not deleted what is
    /// missing now: the status names a group before its pods are deleted.
    pub(super) was_whole: bool,
    /// How often it was made again as a whole. What was made for an earlier incarnation of it goes.
    pub(super) restarts: u32,
    pub(super) replicas: BTreeMap<Id, Replica>,
    /// What is remembered of it.
    pub(super) record: Option<GroupStatus>,
}

/// A role replica.
#[derive(Debug)]
pub(super) struct Replica {
    /// What it is made from.
    pub(super) hash: RoleHash,
    pub(super) spec: UnitSpec,
    pub(super) unit: Unit,
    /// What it does.
    pub(super) state: State,
    /// Since when.
    pub(super) since: Time,
    /// What keeps it from being Ready.
    pub(super) blocking: Option<Blocking>,
    /// Something is wrong with it: it does not only take its time.
    pub(super) in_trouble: bool,
    /// It was made for an earlier incarnation of its group.
    pub(super) outlived: bool,
    /// Its pods; the entry first.
    pub(super) pods: Vec<Member>,
    /// What is remembered of it.
    pub(super) record: Option<ReplicaStatus>,
}

impl Replica {
    pub(super) fn entry(&self) -> Option<&Arc<Pod>> {
        entry(&self.pods).map(|member| &member.pod)
    }

    /// Whether it is the one by which its group is counted.
    pub(super) fn counts(&self) -> bool {
        self.entry().is_some_and(|entry| entry.labels().contains_key(labels::COUNTS_GROUP))
    }

    /// What tells this replica from a later one at the same place.
    pub(super) fn uid(&self) -> Uid {
        let first = self.pods.first().and_then(|member| member.pod.uid());
        Uid(first.unwrap_or_else(|| format!("incarnation-{}", self.unit.history.incarnation)))
    }

    pub(super) fn deletion_cost(&self) -> i64 {
        self.pods.iter().map(|member| i64::from(units::deletion_cost(&member.pod))).sum()
    }

    /// It was deleted while it served, and not by us: what we delete is taken out of service first.
    pub(super) fn was_taken_away(&self) -> bool {
        self.state == State::Terminating && self.unit.in_service && !self.outlived
    }
}

/// The pod that takes requests for its replica.
fn entry(members: &[Member]) -> Option<&Member> {
    members.iter().find(|member| index(&member.pod) == 0)
}

/// The groups at this time.
pub(super) fn groups(observed: &Observed, now: Time) -> BTreeMap<u32, Group> {
    let reading = Reading { observed, now };
    observed.members.iter().map(|(ordinal, members)| (*ordinal, reading.group(*ordinal, members))).collect()
}

/// When anything is read otherwise though nothing changes.
pub(super) fn changes_at(observed: &Observed, now: Time) -> Option<Time> {
    let reading = Reading { observed, now };
    let replicas = observed.members.values().flat_map(|group| group.replicas.values());
    let members = || replicas.clone().flat_map(|(pods, _)| pods);
    let given_up = members().filter_map(|member| member.given_up_at);
    let held = members().filter_map(|member| reading.held_until(member));
    let unseen = members().filter_map(blocking::known_at);
    given_up.chain(held).chain(unseen).filter(|at| *at > now).min()
}

/// What pods are read with.
struct Reading<'a> {
    observed: &'a Observed,
    now: Time,
}

impl Reading<'_> {
    fn group(&self, ordinal: u32, members: &Members) -> Group {
        let Observed { revisions, wanted, .. } = self.observed;
        let record = members.record.as_ref();
        let entries = members.replicas.values().filter_map(|(pods, _)| entry(pods));
        let leaves = |entry: &Member| {
            let gate = entry.gate.as_ref();
            gate.is_some_and(|it| it.is_leaving() && it.reason.as_deref() == Some(labels::GROUP_LEAVING))
        };
        let leaving = entries.into_iter().any(leaves);
        let restarts = record.map_or(0, |record| count(record.restarts));
        let replicas: BTreeMap<Id, Replica> = members
            .replicas
            .iter()
            .map(|(id, (pods, own))| (id.clone(), self.replica(id, pods, own.as_ref(), (leaving, record))))
            .collect();
        let from = self.from(&replicas, record);
        // Below the partition what is missing comes back as it was, also where that is what is wanted.
        let kept = (ordinal < wanted.partition).then(|| revisions.newest());
        let recorded = from.or(kept).map(|stored| stored.recorded()).unwrap_or_default();
        let from = from.map(|stored| stored.key.clone());
        let was_whole = self.was_whole(record);
        Group { from, recorded, leaving, restarts, was_whole, replicas, record: record.cloned() }
    }

    fn was_whole(&self, record: Option<&GroupStatus>) -> bool {
        let serving = &self.observed.serving;
        let Some(status) = &serving.status else { return false };
        let is_listed = status.groups.len() < status::MOST_GROUPS;
        Some(status.observed_generation) == serving.metadata.generation
            && record.map_or(is_listed, |record| record.waiting_for.is_none())
    }

    /// The revision that a group comes from. What was written down of it counts before what its pods look like: between
    /// two steps they may all look new. A group that is whole at the wanted revision comes from nowhere, and so does
    /// one that is replaced as a whole and of which something is of the wanted revision alone: who wrote otherwise had
    /// not heard of its pods.
    fn from(&self, replicas: &BTreeMap<Id, Replica>, record: Option<&GroupStatus>) -> Option<&Stored<Roles>> {
        let Observed { revisions, wanted, .. } = self.observed;
        let target = revisions.newest();
        let is_at = |template: &Stored<Roles>| {
            replicas.iter().all(|(id, replica)| template.hash(&id.role) == Some(&replica.hash))
        };
        let is_whole = |template: &Stored<Roles>, enough: &dyn Fn(u32) -> usize, ready: bool| {
            template.roles().all(|role| {
                let enough_of = wanted.replicas_of(&role.name).unwrap_or_else(|| count(role.replicas));
                let of_role = replicas.iter().filter(|(id, _)| id.role == role.name);
                of_role.filter(|(_, it)| !ready || it.state == State::Ready).count() >= enough(enough_of)
            })
        };
        if is_at(target) && is_whole(target, &|wanted| wanted as usize, true) {
            return None;
        }
        let written = record.and_then(|record| revisions.named(&record.revision));
        if let Some(written) = written {
            let is_new = || replicas.iter().any(|(id, it)| written.hash(&id.role) != Some(&it.hash));
            let is_fresh = is_at(target) && (written.key == target.key || wanted.by == By::Group && is_new());
            return Some(written).filter(|_| !is_fresh);
        }
        let some = |wanted: u32| usize::from(wanted > 0);
        let mut others = revisions.all().rev().map(|(_, it)| it).filter(|it| it.key != target.key);
        if is_at(target) && is_whole(target, &some, false) {
            return None;
        }
        let looks_like = others.find(|template| is_at(template) && is_whole(template, &some, false));
        if looks_like.is_some() || is_at(target) {
            return looks_like;
        }
        revisions.named(&wanted.current).filter(|current| current.key != target.key)
    }

    fn replica(
        &self,
        id: &Id,
        pods: &[Member],
        record: Option<&ReplicaStatus>,
        (leaving, group): (bool, Option<&GroupStatus>),
    ) -> Replica {
        let Observed { revisions, wanted, .. } = self.observed;
        let known = record.map(|record| RoleHash(record.hash.clone()));
        let first = pods.first().map(|member| self.hash(&member.pod, &id.role));
        let hash = first.or(known).unwrap_or(RoleHash(String::new()));
        let read = pods.iter().map(|member| {
            let revision = revisions.number(&id.role, &self.hash(&member.pod, &id.role));
            self.pod(member, &id.role, revision)
        });
        let entry = entry(pods);
        let revision = revisions.number(&id.role, &hash);
        let remembered = self.remembered(pods, record, group);
        let mut unit = units::unit(revision, read.collect(), (entry, pods), leaving, remembered);
        // A restart that is forgiven is written down with the next start.
        unit.history.started &= !pods.iter().any(|member| self.is_forgiven(&member.pod));
        let spec = self.unit_spec(&hash, &id.role, pods.len());
        let state = units::state(&spec, &unit, entry, self.now);
        let gate = entry.and_then(|entry| entry.gate.as_ref()).and_then(|gate: &Gate| gate.since);
        let made = entry.and_then(|entry| entry.created_at);
        let outlived = wanted.recovery == RecoveryPolicy::ServingGroupRecreate
            && !pods.is_empty()
            && unit.history.incarnation < group.map_or(0, |group| count(group.restarts));
        let in_trouble = unit.history.recreations > 0
            || pods.iter().any(|member| blocking::is_in_trouble(member, self.now));
        Replica {
            in_trouble,
            // What goes is not waited for to be Ready.
            blocking: blocking::of(pods, self.now)
                .filter(|_| matches!(state, State::Starting | State::Lapsed)),
            since: gate.or(made).unwrap_or_default(),
            hash,
            spec,
            unit,
            state,
            outlived,
            pods: pods.to_vec(),
            record: record.cloned(),
        }
    }

    /// What a pod is made from: the role as its stored revision has it, else what its label says.
    fn hash(&self, pod: &Pod, role: &str) -> RoleHash {
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let stored = self.observed.revisions.named(&label(labels::SERVING_REVISION));
        let known = stored.and_then(|stored| stored.hash(role)).cloned();
        known.unwrap_or_else(|| RoleHash(label(labels::ROLE_HASH)))
    }

    /// Where a failure makes the whole group again, it is the group that is remembered.
    fn remembered(
        &self,
        pods: &[Member],
        record: Option<&ReplicaStatus>,
        group: Option<&GroupStatus>,
    ) -> Remembered {
        let made_for = pods.iter().map(|member| incarnation(&member.pod)).max();
        let times = &self.observed.times;
        if self.observed.wanted.recovery != RecoveryPolicy::ServingGroupRecreate {
            let restarts = record.map(of_replica).unwrap_or_default();
            return restarts.remembered(made_for, times);
        }
        let failed_at = |failure: &GroupFailure| times.moment(failure.time.0);
        Remembered {
            incarnation: made_for.unwrap_or_default(),
            recreations: group.map_or(0, |group| count(group.restarts_in_a_row)),
            last_recreation: group.and_then(|group| group.last_failure.as_ref()).map(failed_at),
            served: group.is_some_and(|group| group.served),
        }
    }

    fn unit_spec(&self, hash: &RoleHash, role: &str, pods: usize) -> UnitSpec {
        let Observed { revisions, wanted, serving, protections, .. } = self.observed;
        let made = revisions.making(role, hash);
        // What nothing is known of is as large as it is: it is replaced, and not repaired.
        let unknown = u32::try_from(pods).unwrap_or(u32::MAX).max(1);
        UnitSpec {
            size: made.map_or(unknown, |(_, role)| count(role.worker_replicas).saturating_add(1)),
            startup: StartupPolicy::LeaderCreated,
            restart: match wanted.recovery {
                RecoveryPolicy::None => RestartPolicy::None,
                _ => RestartPolicy::RecreateOnPodRestart,
            },
            drain: units::drain(serving.annotations(), *protections),
        }
    }

    /// A pod. A failure counts when its grace is over, unless the pod is ready again by then.
    fn pod(&self, member: &Member, role: &str, revision: Revision) -> planner::units::Pod {
        let mut read = member.read(index(&member.pod), revision, self.now);
        let is_held = self.held_until(member).is_some_and(|until| self.now < until);
        if is_held || self.is_forgiven(&member.pod) || self.was_handed_over(&member.pod, role) {
            read.restarts_baseline = read.restarts;
        }
        if is_held && read.phase == Phase::Ended {
            read.phase = Phase::Running;
        }
        read
    }

    /// Until when a failure of a pod is let be; nothing where it has not failed or is not let be.
    fn held_until(&self, member: &Member) -> Option<Time> {
        let grace = Duration::from_secs(self.observed.wanted.grace?);
        failed_at(member).map(|at| at.saturating_add(grace))
    }

    /// Whether another operator made a pod, which gave its template a hash of its own. What happened to it before it
    /// was ours is not held against it.
    fn was_handed_over(&self, pod: &Pod, role: &str) -> bool {
        baseline(pod).is_none() && pod.labels().get(labels::ROLE_HASH) != Some(&self.hash(pod, role).0)
    }

    fn is_forgiven(&self, pod: &Pod) -> bool {
        self.observed.wanted.grace.is_some() && failures(pod).is_some() && can_serve(pod)
    }
}

/// The record of a replica's restarts.
pub(super) fn of_replica(record: &ReplicaStatus) -> Restarts {
    Restarts {
        count: record.restarts,
        in_a_row: record.restarts_in_a_row,
        served: record.served,
        last_failure: record.last_failure.clone(),
    }
}

/// When a pod failed, as far as its status tells. From the second failure on the last end is not the first one, and
/// what fails again and again would be let be for ever: then it is since when it is not ready.
fn failed_at(member: &Member) -> Option<Time> {
    let Member { ended_at, unready_since, .. } = member;
    let failures = failures(&member.pod)?;
    if failures > 1 { unready_since.or(*ended_at) } else { *ended_at.max(unready_since) }
}

/// How often containers of a pod restarted since it had started; nothing where it has not failed. A pod that has
/// ended has failed, also if none of them restarted.
fn failures(pod: &Pod) -> Option<u32> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let failures = restarts(pod).saturating_sub(baseline(pod).unwrap_or_default());
    (failures > 0 || matches!(phase, Some("Failed" | "Succeeded"))).then_some(failures)
}

impl View<'_> {
    /// The revisions that something is made from or may return to.
    pub(super) fn used(&self) -> BTreeSet<String> {
        let groups = self.groups.values();
        let replicas = groups.clone().flat_map(|group| &group.replicas);
        let made = replicas.filter_map(|(id, it)| self.revisions.making(&id.role, &it.hash));
        let pods = groups.clone().flat_map(|group| group.replicas.values()).flat_map(|it| &it.pods);
        let labelled = pods.filter_map(|it| it.pod.labels().get(labels::SERVING_REVISION).cloned());
        let mut used: BTreeSet<String> = made.map(|(stored, _)| stored.key.clone()).collect();
        used.extend(groups.filter_map(|group| group.from.clone()).chain(labelled));
        used.extend([self.revisions.newest().key.clone(), self.wanted.current.clone()]);
        used
    }
}

#[cfg(test)]
mod tests {
    use planner::Time;
    use serde_json::json;

    use super::*;
    use crate::{pipeline::Inputs, runtime::Cache};

    #[test]
    fn a_pod_that_fails_again_and_again_failed_when_it_failed_first() {
        let failed = |restarts: u32, finished: &str| -> Option<u64> {
            let ended = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
            let pod = json!({"status": {
                "conditions": [{"type": "ContainersReady", "status": "False",
                    "lastTransitionTime": "1970-01-01T00:01:00Z"}],
                "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
                    "restartCount": restarts, "lastState": ended}],
            }});
            let pod = Arc::new(serde_json::from_value(pod).unwrap());
            let now = Time::from_hours(1);
            let member = Inputs::at(&Cache::default(), now, |inputs| Member::observe(inputs, &pod));
            failed_at(&member).map(|at| at.as_secs())
        };
        assert_eq!(failed(0, "1970-01-01T00:01:00Z"), None, "it only takes its time");
        assert_eq!(failed(1, "1970-01-01T00:05:00Z"), Some(300), "it failed while it started");
        assert_eq!(failed(2, "1970-01-01T00:09:00Z"), Some(60), "each end comes later, and is not the first");
    }
}
