//! A ModelServing and its pods, in the planner's words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use api::{
    modelserving::{GroupStatus, ModelServing, RecoveryPolicy, ReplicaStatus},
    volcano::PodGroup,
};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use planner::{
    Time,
    roles::{Blocking, Recorded, RoleHash},
    sets::State,
    units::{self, RestartPolicy, StartupPolicy, Unit, UnitSpec},
};

use super::{
    gang,
    render::group_name,
    revision::{self, Revisions, Template},
    status,
    wanted::{By, Wanted},
};
use crate::{
    blocking, count, labels, nodes,
    runtime::{Error, Key, moment},
    unit::{self, Gate, Look, Memory},
};

/// A replica of a role, in its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) role: String,
    pub(super) ordinal: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.role, self.ordinal)
    }
}

/// A ModelServing, and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) serving: Arc<ModelServing>,
    pub(super) revisions: Revisions,
    pub(super) wanted: Wanted,
    pub(super) groups: BTreeMap<u32, Group>,
    /// The Services that name entries.
    pub(super) services: Vec<Arc<Service>>,
    /// The groups that are placed as one.
    pub(super) pod_groups: Vec<Arc<PodGroup>>,
    /// The disruption budgets that are ours.
    pub(super) budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Groups are to be placed as one, by a scheduler that can.
    pub(super) is_gang: bool,
    /// When anything is judged otherwise though nothing changes.
    pub(super) judged_again_at: Option<Time>,
}

/// A serving group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The revision that it comes from; nothing, where it is of the wanted one and of no other.
    pub(super) from: Option<String>,
    /// The roles of that revision.
    pub(super) recorded: Vec<Recorded>,
    /// Somebody chose the whole group to go.
    pub(super) leaving: bool,
    /// When it was last looked at nothing was left to do in it, and what is wanted has not changed since. Whatever is
    /// missing was not taken away by us: what we do is told before.
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
    pub(super) pods: Vec<Arc<Pod>>,
    /// What is remembered of it.
    pub(super) record: Option<ReplicaStatus>,
}

impl Replica {
    pub(super) fn entry(&self) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| index(pod) == 0)
    }

    /// Whether it is the one by which its group is counted.
    pub(super) fn counts(&self) -> bool {
        self.entry().is_some_and(|entry| entry.labels().contains_key(labels::COUNTS_GROUP))
    }

    pub(super) fn pod(&self, uid: &planner::Uid) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| pod.uid().as_deref() == Some(uid.0.as_str()))
    }

    /// What tells this replica from a later one at the same place.
    pub(super) fn uid(&self) -> planner::Uid {
        let first = self.pods.first().and_then(|pod| pod.uid());
        planner::Uid(first.unwrap_or_else(|| format!("incarnation-{}", self.unit.history.incarnation)))
    }

    pub(super) fn deletion_cost(&self) -> i64 {
        self.pods.iter().map(|pod| i64::from(unit::deletion_cost(pod))).sum()
    }

    /// Somebody else deleted it while it served: what we delete is taken out of service first.
    pub(super) fn was_taken_away(&self) -> bool {
        self.state == State::Terminating && self.unit.in_service && !self.outlived
    }
}

/// What was found.
pub(super) enum Found {
    /// Nothing to look after.
    Nothing,
    /// A ModelServing whose roles must be stored before anything is made from them.
    NewRevision(Arc<ModelServing>),
    /// A ModelServing with this pod that another operator made, and that nobody has handed over.
    NotAdopted(Arc<ModelServing>, String),
    Serving(Box<Observed>),
}

pub(super) fn observe(look: Look<'_>, key: &Key) -> Result<Found, Error> {
    let world = look.world;
    let serving = world.servings.get(key).filter(|it| it.metadata.deletion_timestamp.is_none());
    let Some(serving) = serving else { return Ok(Found::Nothing) };
    let uid = serving.uid().unwrap_or_default();
    if let Some(pod) = world.pods.owned_by(&uid).find(|pod| is_anothers(pod)) {
        return Ok(Found::NotAdopted(Arc::clone(serving), pod.name_any()));
    }
    let Some(revisions) = revision::known(serving, world)? else {
        return Ok(Found::NewRevision(Arc::clone(serving)));
    };
    let wanted = Wanted::of(serving, &revisions);
    let reading = Reading { look, serving, revisions: &revisions, wanted: &wanted };
    let pods = world.pods.owned_by(&uid);
    let given_up = pods.filter_map(|pod| nodes::given_up_at(pod, world));
    let held = world.pods.owned_by(&uid).filter_map(|pod| reading.held_until(pod));
    let unseen = world.pods.owned_by(&uid).filter_map(|pod| blocking::known_at(pod));
    let judged_again_at = given_up.chain(held).chain(unseen).filter(|at| *at > look.now).min();
    let groups = reading.groups();
    let services = world.services.owned_by(&uid).cloned().collect();
    Ok(Found::Serving(Box::new(Observed {
        serving: Arc::clone(serving),
        revisions,
        wanted,
        groups,
        services,
        pod_groups: world.pod_groups.owned_by(&uid).cloned().collect(),
        budgets: world.budgets.owned_by(&uid).cloned().collect(),
        is_gang: gang::is_known(serving, world),
        judged_again_at,
    })))
}

/// What pods are read with.
struct Reading<'a> {
    look: Look<'a>,
    serving: &'a ModelServing,
    revisions: &'a Revisions,
    wanted: &'a Wanted,
}

impl Reading<'_> {
    /// Every group that has a pod or of which something must not be forgotten.
    fn groups(&self) -> BTreeMap<u32, Group> {
        let mut pods: BTreeMap<u32, BTreeMap<Id, Vec<Arc<Pod>>>> = BTreeMap::new();
        for pod in self.look.world.pods.owned_by(&self.serving.uid().unwrap_or_default()) {
            if let Some((group, id)) = self.place(pod) {
                pods.entry(group).or_default().entry(id).or_default().push(Arc::clone(pod));
            }
        }
        let records = self.serving.status.iter().flat_map(|status| &status.groups);
        let records: BTreeMap<u32, &GroupStatus> =
            records.map(|record| (count(record.index), record)).collect();
        for (group, record) in &records {
            if record.restarts > 0 {
                pods.entry(*group).or_default();
            }
            // A replica that was made again and has no pod yet is known by its record alone.
            for replica in record.replicas.iter().filter(|replica| replica.restarts > 0) {
                let id = Id { role: replica.role.clone(), ordinal: count(replica.index) };
                pods.entry(*group).or_default().entry(id).or_default();
            }
        }
        if self.wanted.is_without_pods() {
            // Roles without replicas: the groups are there, and nothing is in them.
            for group in 0..self.wanted.replicas {
                pods.entry(group).or_default();
            }
        }
        pods.into_iter()
            .map(|(group, pods)| (group, self.group(group, pods, records.get(&group).copied())))
            .collect()
    }

    /// The group and the replica that a pod belongs to, if its labels say so.
    fn place(&self, pod: &Pod) -> Option<(u32, Id)> {
        let label = |name: &str| pod.labels().get(name);
        let number = |text: &str, before: &str| text.strip_prefix(before)?.strip_prefix('-')?.parse().ok();
        let group = number(label(labels::SERVING_GROUP)?, &self.serving.name_any())?;
        let role = label(labels::ROLE)?.clone();
        let ordinal = number(label(labels::ROLE_ID)?, &role)?;
        Some((group, Id { role, ordinal }))
    }

    fn group(&self, ordinal: u32, pods: BTreeMap<Id, Vec<Arc<Pod>>>, record: Option<&GroupStatus>) -> Group {
        let entries = pods.values().flatten().filter(|pod| index(pod) == 0);
        let leaves = |pod: &Arc<Pod>| {
            let gate = Gate::of(Some(pod));
            gate.is_some_and(|gate| gate.is_leaving() && gate.reason == Some(labels::GROUP_LEAVING))
        };
        let leaving = entries.into_iter().any(leaves);
        let restarts = record.map_or(0, |record| count(record.restarts));
        let replicas: BTreeMap<Id, Replica> = pods
            .into_iter()
            .map(|(id, pods)| {
                let mut records = record.iter().flat_map(|record| &record.replicas);
                let own = records.find(|it| it.role == id.role && count(it.index) == id.ordinal).cloned();
                let replica = self.replica(&id, pods, own, (leaving, record));
                (id, replica)
            })
            .collect();
        let from = self.from(&replicas, record);
        // Below the partition what is missing comes back as it was, also where that is what is wanted.
        let kept = (ordinal < self.wanted.partition).then(|| self.revisions.target());
        let recorded = from.or(kept).map(Template::recorded).unwrap_or_default();
        let from = from.map(|template| template.key.clone());
        let was_whole = self.was_whole(record);
        Group { from, recorded, leaving, restarts, was_whole, replicas, record: record.cloned() }
    }

    fn was_whole(&self, record: Option<&GroupStatus>) -> bool {
        let Some(status) = &self.serving.status else { return false };
        let is_told = status.groups.len() < status::MOST_GROUPS;
        Some(status.observed_generation) == self.serving.metadata.generation
            && record.map_or(is_told, |record| record.message.is_none())
    }

    /// The revision that a group comes from. What was written down of it counts before what its pods look like: between
    /// two steps they may all look new. A group that is whole at the wanted revision comes from nowhere, and so does one
    /// that is replaced as a whole and of which something is of the wanted revision alone: who wrote otherwise had not
    /// heard of its pods.
    fn from(&self, replicas: &BTreeMap<Id, Replica>, record: Option<&GroupStatus>) -> Option<&Template> {
        let target = self.revisions.target();
        let is_at = |template: &Template| {
            replicas.iter().all(|(id, replica)| template.hash(&id.role) == Some(&replica.hash))
        };
        let is_whole = |template: &Template, enough: &dyn Fn(u32) -> usize, ready: bool| {
            template.roles().all(|role| {
                let wanted = self.wanted.replicas_of(&role.name).unwrap_or_else(|| count(role.replicas));
                let of_role = replicas.iter().filter(|(id, _)| id.role == role.name);
                of_role.filter(|(_, it)| !ready || it.state == State::Ready).count() >= enough(wanted)
            })
        };
        if is_at(target) && is_whole(target, &|wanted| wanted as usize, true) {
            return None;
        }
        let written = record.and_then(|record| self.revisions.find(&record.revision));
        if let Some(written) = written {
            let is_new = || replicas.iter().any(|(id, it)| written.hash(&id.role) != Some(&it.hash));
            let is_fresh =
                is_at(target) && (written.key == target.key || self.wanted.by == By::Group && is_new());
            return Some(written).filter(|_| !is_fresh);
        }
        let some = |wanted: u32| usize::from(wanted > 0);
        let mut others = self.revisions.newest_first().filter(|template| template.key != target.key);
        if is_at(target) && is_whole(target, &some, false) {
            return None;
        }
        let looks_like = others.find(|template| is_at(template) && is_whole(template, &some, false));
        if looks_like.is_some() || is_at(target) {
            return looks_like;
        }
        self.revisions.find(&self.wanted.current).filter(|current| current.key != target.key)
    }

    fn replica(
        &self,
        id: &Id,
        mut pods: Vec<Arc<Pod>>,
        record: Option<ReplicaStatus>,
        (leaving, group): (bool, Option<&GroupStatus>),
    ) -> Replica {
        pods.sort_by_key(|pod| index(pod));
        let known = record.as_ref().map(|record| RoleHash(record.hash.clone()));
        let hash =
            pods.first().map(|pod| self.hash(pod, &id.role)).or(known).unwrap_or(RoleHash(String::new()));
        let revision = self.revisions.number(&id.role, &hash);
        let restarts = group.map_or(0, |group| count(group.restarts));
        let memory = self.memory(&pods, record.as_ref(), group);
        let read: Vec<units::Pod> = pods
            .iter()
            .map(|pod| {
                let revision = self.revisions.number(&id.role, &self.hash(pod, &id.role));
                self.pod(pod, &id.role, revision)
            })
            .collect();
        let entry = pods.iter().find(|pod| index(pod) == 0).map(AsRef::as_ref);
        let mut unit = self.look.unit(revision, read, (entry, &pods), leaving, memory);
        // A restart that is forgiven is written down with the next start.
        unit.history.started &= !pods.iter().any(|pod| self.is_forgiven(pod));
        let spec = self.unit_spec(&hash, &id.role, pods.len());
        let state = self.look.state(&spec, &unit, entry);
        let gate = Gate::of(entry).and_then(|gate| gate.since);
        let made = entry.and_then(|pod| pod.metadata.creation_timestamp.as_ref()).map(|time| moment(time.0));
        let outlived = self.wanted.recovery == RecoveryPolicy::ServingGroupRecreate
            && !pods.is_empty()
            && unit.history.incarnation < restarts;
        let in_trouble = unit.history.recreations > 0
            || pods.iter().any(|pod| blocking::is_in_trouble(pod, self.look.now));
        Replica {
            in_trouble,
            // What goes is not waited for to be Ready.
            blocking: blocking::of(&pods, self.look.now)
                .filter(|_| matches!(state, State::Starting | State::Lapsed)),
            since: gate.or(made).unwrap_or_default(),
            hash,
            spec,
            unit,
            state,
            outlived,
            pods,
            record,
        }
    }

    /// What a pod is made from: the role as its revision has it, whoever stored that, else what its label says.
    fn hash(&self, pod: &Pod, role: &str) -> RoleHash {
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let template = self.revisions.find(&label(labels::SERVING_REVISION));
        let known = template.and_then(|template| template.hash(role)).cloned();
        known.unwrap_or_else(|| RoleHash(label(labels::ROLE_HASH)))
    }

    /// Where a failure makes the whole group again, it is the group that is remembered.
    fn memory(
        &self,
        pods: &[Arc<Pod>],
        record: Option<&ReplicaStatus>,
        group: Option<&GroupStatus>,
    ) -> Memory {
        let made_for = pods.iter().map(|pod| unit::incarnation(pod)).max();
        let failed_at = |failure: &api::leaderworkerset::GroupFailure| moment(failure.time.0);
        if self.wanted.recovery == RecoveryPolicy::ServingGroupRecreate {
            return Memory {
                incarnation: made_for.unwrap_or_default(),
                recreations: group.map_or(0, |group| count(group.restarts_in_a_row)),
                last_recreation: group.and_then(|group| group.last_failure.as_ref()).map(failed_at),
                served: group.is_some_and(|group| group.served),
            };
        }
        let recorded = record.map_or(0, |record| count(record.restarts));
        Memory {
            incarnation: made_for.unwrap_or_default().max(recorded),
            recreations: record.map_or(0, |record| count(record.restarts_in_a_row)),
            last_recreation: record.and_then(|record| record.last_failure.as_ref()).map(failed_at),
            served: record.is_some_and(|record| record.served),
        }
    }

    fn unit_spec(&self, hash: &RoleHash, role: &str, pods: usize) -> UnitSpec {
        let template = self.revisions.making(role, hash);
        // What nothing is known of is as large as it is: it is replaced, and not repaired.
        let unknown = u32::try_from(pods).unwrap_or(u32::MAX).max(1);
        UnitSpec {
            size: template.map_or(unknown, |(_, role)| count(role.worker_replicas).saturating_add(1)),
            startup: StartupPolicy::LeaderCreated,
            restart: match self.wanted.recovery {
                RecoveryPolicy::None => RestartPolicy::None,
                _ => RestartPolicy::RecreateOnPodRestart,
            },
            drain: self.look.drain(self.serving.annotations()),
        }
    }

    /// A pod. A failure counts when its grace is over, unless the pod is ready again by then.
    fn pod(&self, pod: &Pod, role: &str, revision: units::Revision) -> units::Pod {
        let mut read = self.look.pod(pod, index(pod), revision);
        let is_held = self.held_until(pod).is_some_and(|until| self.look.now < until);
        if is_held || self.is_forgiven(pod) || self.was_handed_over(pod, role) {
            read.restarts_baseline = read.restarts;
        }
        if is_held && read.phase == units::Phase::Ended {
            read.phase = units::Phase::Running;
        }
        read
    }

    /// Until when a failure of a pod is let be; nothing where it has not failed or is not let be.
    fn held_until(&self, pod: &Pod) -> Option<Time> {
        let grace = Duration::from_secs(self.wanted.grace?);
        failed_at(pod).map(|at| at.saturating_add(grace))
    }

    /// Whether another operator made a pod, which gave its template a hash of its own. What happened to it before it was
    /// ours is not held against it.
    fn was_handed_over(&self, pod: &Pod, role: &str) -> bool {
        let is_known = pod.annotations().contains_key(labels::RESTARTS_AT_START);
        !is_known && pod.labels().get(labels::ROLE_HASH) != Some(&self.hash(pod, role).0)
    }

    fn is_forgiven(&self, pod: &Pod) -> bool {
        self.wanted.grace.is_some() && failures(pod).is_some() && unit::can_serve(pod)
    }
}

/// When a pod failed, as far as its status tells. From the second failure on the last end is not the first one, and what
/// fails again and again would be let be for ever: then it is since when it is not ready.
fn failed_at(pod: &Pod) -> Option<Time> {
    let failures = failures(pod)?;
    let ended = unit::containers(pod).filter_map(|container| {
        let last = [container.state.as_ref(), container.last_state.as_ref()];
        let ended = last.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
        ended.filter_map(|ended| ended.finished_at.as_ref()).map(|time| moment(time.0)).max()
    });
    let unready = unit::condition(pod, "ContainersReady").filter(|it| it.status != "True");
    let unready = unready.and_then(|it| it.last_transition_time.as_ref()).map(|time| moment(time.0));
    if failures > 1 { unready.or_else(|| ended.max()) } else { ended.chain(unready).max() }
}

/// How often containers of a pod restarted since it had started; nothing where it has not failed. One that has ended has
/// failed, also if none of them restarted.
fn failures(pod: &Pod) -> Option<u32> {
    let baseline: Option<u32> =
        pod.annotations().get(labels::RESTARTS_AT_START).and_then(|text| text.parse().ok());
    let restarts: u32 = unit::containers(pod).map(|status| count(status.restart_count)).sum();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let failures = restarts.saturating_sub(baseline.unwrap_or_default());
    (failures > 0 || matches!(phase, Some("Failed" | "Succeeded"))).then_some(failures)
}

/// Whether another operator made a pod, and nobody has handed it over: every pod of ours says for which incarnation it was
/// made.
pub(super) fn is_anothers(pod: &Pod) -> bool {
    !pod.annotations().contains_key(labels::INCARNATION) && pod.metadata.deletion_timestamp.is_none()
}

/// The place of a pod in its replica: the number at the end of its name.
pub(super) fn index(pod: &Pod) -> u32 {
    let name = pod.name_any();
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

impl Observed {
    /// The labels of everything in a group.
    pub(super) fn selector(&self, group: u32) -> String {
        let (serving, name) = (self.serving.name_any(), group_name(&self.serving, group));
        format!("{}={serving},{}={name}", labels::SERVING_NAME, labels::SERVING_GROUP)
    }

    /// The revisions that something is made from or may return to.
    pub(super) fn used(&self) -> BTreeSet<String> {
        let groups = self.groups.values();
        let replicas = groups.clone().flat_map(|group| &group.replicas);
        let made = replicas.filter_map(|(id, it)| self.revisions.making(&id.role, &it.hash));
        let pods = groups.clone().flat_map(|group| group.replicas.values()).flat_map(|it| &it.pods);
        let labelled = pods.filter_map(|pod| pod.labels().get(labels::SERVING_REVISION).cloned());
        let mut used: BTreeSet<String> = made.map(|(template, _)| template.key.clone()).collect();
        used.extend(groups.filter_map(|group| group.from.clone()).chain(labelled));
        used.extend([self.revisions.target().key.clone(), self.wanted.current.clone()]);
        used
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            failed_at(&serde_json::from_value(pod).unwrap()).map(|at| at.as_secs())
        };
        assert_eq!(failed(0, "1970-01-01T00:01:00Z"), None, "it only takes its time");
        assert_eq!(failed(1, "1970-01-01T00:05:00Z"), Some(300), "it failed while it started");
        assert_eq!(failed(2, "1970-01-01T00:09:00Z"), Some(60), "each end comes later, and is not the first");
    }
}
