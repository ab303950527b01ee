//! A set and its pods, in the planner's words.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::leaderworkerset::{GroupStatus, LeaderWorkerSet, RestartPolicy, StartupPolicy};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use planner::{
    Budget, Time, Uid,
    sets::{self, Identity, SetSpec, State},
    units::{self, Revision, Unit, UnitSpec},
};

use super::{
    adopt, budgets, claims,
    revision::{self, Revisions},
};
use crate::{
    Protections, amount, count, labels, nodes,
    outside::DataPlane,
    request,
    runtime::{Error, Key, World, moment},
    unit::{self, Memory},
};

/// How long a leader may take to be ready before the workers that wait for it are worth a word. Large models load for
/// minutes.
pub(super) const LEADER_PATIENCE: Duration = Duration::from_mins(10);

/// A set, and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) set: Arc<LeaderWorkerSet>,
    pub(super) revisions: Revisions,
    pub(super) spec: SetSpec,
    pub(super) groups: BTreeMap<u32, Group>,
    /// The headless Services that exist.
    pub(super) services: Vec<Arc<Service>>,
    /// The claims that were made for its pods.
    pub(super) claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Disruption budgets that take groups for pods.
    pub(super) miscounting: Vec<Key>,
    /// When a pod is given up whose node does not report.
    pub(super) given_up_at: Option<Time>,
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) spec: UnitSpec,
    pub(super) unit: Unit,
    /// What the set sees of it.
    pub(super) state: State,
    /// Its pods; the leader first.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What is remembered of it.
    pub(super) record: Option<GroupStatus>,
    /// When its workers have waited long for their leader to be ready.
    pub(super) stuck_at: Option<Time>,
}

impl Group {
    pub(super) fn leader(&self) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| index(pod) == Some(0))
    }

    pub(super) fn pod(&self, uid: &Uid) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| pod.uid().as_deref() == Some(uid.0.as_str()))
    }

    /// What tells this group from a later one at the same place.
    pub(super) fn uid(&self) -> Uid {
        let first = self.leader().or_else(|| self.pods.first()).and_then(|pod| pod.uid());
        Uid(first.unwrap_or_else(|| format!("incarnation-{}", self.unit.history.incarnation)))
    }
}

/// What was found.
pub(super) enum Found {
    /// Nothing to look after.
    Nothing,
    /// A set whose template must be stored before anything is made from it.
    NewTemplate(Arc<LeaderWorkerSet>),
    /// A set that another operator runs, by one of its pods.
    Anothers(Arc<LeaderWorkerSet>, String),
    /// A set that another operator works on now, and until when that is assumed.
    Contested(Arc<LeaderWorkerSet>, Time),
    Set(Box<Observed>),
}

pub(super) fn observe(
    world: &World,
    key: &Key,
    data_plane: Option<&DataPlane>,
    protections: Protections,
    now: Time,
) -> Result<Found, Error> {
    let Some(set) = world.sets.get(key).filter(|set| set.metadata.deletion_timestamp.is_none()) else {
        return Ok(Found::Nothing);
    };
    let mut of_this_name = world.pods.named(&key.namespace, &format!("{}-", key.name));
    if let Some(pod) = of_this_name.find(|pod| adopt::is_anothers(set, pod)) {
        return Ok(Found::Anothers(Arc::clone(set), pod.name_any()));
    }
    if let Some(until) = adopt::contested_until(set).filter(|until| *until > now) {
        return Ok(Found::Contested(Arc::clone(set), until));
    }
    let Some(revisions) = revision::known(set, world)? else {
        return Ok(Found::NewTemplate(Arc::clone(set)));
    };
    let uid = set.uid().unwrap_or_default();
    let mut pods: BTreeMap<u32, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in world.pods.owned_by(&uid) {
        if let Some(group) = number(pod, labels::GROUP_INDEX) {
            pods.entry(group).or_default().push(Arc::clone(pod));
        }
    }
    // A group that was recreated and has no pod yet is known by its record alone.
    let records = set.status.iter().flat_map(|status| &status.groups);
    let mut records: BTreeMap<u32, GroupStatus> =
        records.map(|record| (count(record.index), record.clone())).collect();
    if asks_to_retry(set) {
        // Whoever waits because it failed again and again waits no longer.
        for record in records.values_mut() {
            record.restarts_in_a_row = 0;
        }
    }
    for (group, record) in &records {
        if record.restarts > 0 && revisions.find(&record.revision) != Revision(0) {
            pods.entry(*group).or_default();
        }
    }
    let look = unit::Look { world, data_plane, protections, now };
    let look = Reading { look, set, revisions: &revisions };
    let groups = pods
        .into_iter()
        .map(|(place, pods)| (place, look.group(pods, records.get(&place).cloned())))
        .collect();
    let given_up = world.pods.owned_by(&uid).filter_map(|pod| nodes::given_up_at(pod, world));
    let given_up_at = given_up.filter(|at| *at > now).min();
    let spec = set_spec(set, &revisions);
    let services = world.services.owned_by(&uid).cloned().collect();
    Ok(Found::Set(Box::new(Observed {
        set: Arc::clone(set),
        revisions,
        spec,
        groups,
        services,
        claims: claims::of(set, world),
        miscounting: budgets::miscounting(set, world),
        given_up_at,
    })))
}

impl Observed {
    /// The groups as the planner of sets sees them.
    pub(super) fn units(&self) -> Vec<sets::Unit> {
        let unit = |(ordinal, group): (&u32, &Group)| sets::Unit {
            ordinal: *ordinal,
            uid: group.uid(),
            revision: group.unit.revision,
            state: group.state,
            deletion_cost: group.leader().map_or(0, |leader| unit::deletion_cost(leader)),
        };
        self.groups.iter().map(unit).collect()
    }
}

fn asks_to_retry(set: &LeaderWorkerSet) -> bool {
    matches!(request::unanswered(set), Some(Ok(request)) if request.verb == super::RETRY)
}

fn set_spec(set: &LeaderWorkerSet, revisions: &Revisions) -> SetSpec {
    let replicas = count(set.spec.replicas);
    let strategy = set.spec.rollout_strategy.as_ref();
    let rolling = strategy.and_then(|it| it.rolling_update_configuration.clone()).unwrap_or_default();
    let budget = Budget::of(replicas, amount(&rolling.max_surge), amount(&rolling.max_unavailable));
    // A version of a deployment: no group has a place that anybody refers to, so the one that serves least goes first.
    let is_version = set.owner_references().iter().any(|owner| owner.kind == "ModelDeployment");
    SetSpec {
        replicas,
        budget: Budget { surge: budget.surge.min(replicas), ..budget },
        partition: count(rolling.partition),
        target: revisions.target,
        old: revisions.old,
        identity: if is_version { Identity::Any } else { Identity::Ordinal },
    }
}

/// What a group is judged by.
struct Reading<'a> {
    look: unit::Look<'a>,
    set: &'a LeaderWorkerSet,
    revisions: &'a Revisions,
}

impl Reading<'_> {
    fn group(&self, mut pods: Vec<Arc<Pod>>, record: Option<GroupStatus>) -> Group {
        pods.sort_by_key(|pod| index(pod));
        let record = record.filter(|record| record.restarts > 0 || !pods.is_empty());
        let key = match pods.first() {
            Some(pod) => pod.labels().get(labels::REVISION).cloned().unwrap_or_default(),
            None => record.as_ref().map(|record| record.revision.clone()).unwrap_or_default(),
        };
        let revision = self.revisions.find(&key);
        let unit = self.unit(revision, &pods, record.as_ref());
        let spec = self.unit_spec(revision);
        let leader = pods.iter().find(|pod| index(pod) == Some(0));
        let state = self.look.state(&spec, &unit, leader.map(AsRef::as_ref));
        let stuck_at =
            leader.filter(|_| spec.startup == units::StartupPolicy::LeaderReady && pods.len() == 1);
        let stuck_at = stuck_at.filter(|_| spec.size > 1).and_then(|leader| unready_since(leader));
        Group { spec, unit, state, pods, record, stuck_at: stuck_at.map(|since| since + LEADER_PATIENCE) }
    }

    fn unit_spec(&self, revision: Revision) -> UnitSpec {
        let template = self.revisions.get(revision).or_else(|| self.revisions.target());
        let template = template.map_or(&self.set.spec.leader_worker_template, |template| &template.pods);
        UnitSpec {
            size: count(template.size),
            startup: match self.set.spec.startup_policy {
                StartupPolicy::LeaderCreated => units::StartupPolicy::LeaderCreated,
                StartupPolicy::LeaderReady => units::StartupPolicy::LeaderReady,
                StartupPolicy::LeaderHasAddress => units::StartupPolicy::LeaderHasAddress,
            },
            restart: match template.restart_policy {
                // The older way to ask for the other policy.
                RestartPolicy::RecreateGroupOnPodRestart
                    if self.set.annotations().contains_key(labels::RECREATE_AFTER_START) =>
                {
                    units::RestartPolicy::RecreateAfterStart
                }
                RestartPolicy::RecreateGroupOnPodRestart => units::RestartPolicy::RecreateOnPodRestart,
                RestartPolicy::RecreateGroupAfterStart => units::RestartPolicy::RecreateAfterStart,
                RestartPolicy::Default | RestartPolicy::None => units::RestartPolicy::None,
            },
            drain: self.look.drain(self.set.annotations()),
        }
    }

    fn unit(&self, revision: Revision, pods: &[Arc<Pod>], record: Option<&GroupStatus>) -> Unit {
        let recorded = record.map_or(0, |record| count(record.restarts));
        let made_for = pods.iter().map(|pod| unit::incarnation(pod)).max().unwrap_or_default();
        let failure = record.and_then(|record| record.last_failure.as_ref());
        let memory = Memory {
            incarnation: made_for.max(recorded),
            recreations: record.map_or(0, |record| count(record.restarts_in_a_row)),
            last_recreation: failure.map(|failure| moment(failure.time.0)),
            served: record.is_some_and(|record| record.served),
        };
        let read = pods.iter().map(|pod| self.pod(pod)).collect();
        let leader = pods.iter().find(|pod| index(pod) == Some(0)).map(AsRef::as_ref);
        self.look.unit(revision, read, (leader, pods), false, memory)
    }

    fn pod(&self, pod: &Pod) -> units::Pod {
        let key = pod.labels().get(labels::REVISION).map(String::as_str).unwrap_or_default();
        self.look.pod(pod, index(pod).unwrap_or_default(), self.revisions.find(key))
    }
}

/// Since when a pod runs without being ready. One that is held back, by a queue or for want of a node, does not run.
fn unready_since(pod: &Pod) -> Option<Time> {
    let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
    let condition =
        unit::condition(pod, "ContainersReady").filter(|condition| runs && condition.status == "False")?;
    condition.last_transition_time.as_ref().map(|time| moment(time.0))
}

/// How often containers of a pod have restarted.
pub(super) fn restarts(pod: &Pod) -> u32 {
    unit::containers(pod).map(|status| count(status.restart_count)).sum()
}

pub(super) fn number(pod: &Pod, label: &str) -> Option<u32> {
    pod.labels().get(label)?.parse().ok()
}

/// The place of a pod in its group.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    number(pod, labels::WORKER_INDEX)
}
