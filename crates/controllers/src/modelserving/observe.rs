//! A ModelServing, and what there is of it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use api::{
    modelserving::{GroupStatus, ModelServing, ReplicaStatus},
    volcano::PodGroup,
};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;

use super::{
    gang,
    render::group_name,
    revision::{self, Known},
    wanted::Wanted,
};
use crate::{
    Protections, count, labels,
    pipeline::{Found, Inputs},
    runtime::{Error, Times},
    units::{Member, is_going},
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
pub(crate) struct Observed {
    pub(super) serving: Arc<ModelServing>,
    pub(super) revisions: Known,
    pub(super) wanted: Wanted,
    /// Its groups, by their ordinal.
    pub(super) members: BTreeMap<u32, Members>,
    /// The Services that name entries.
    pub(super) services: Vec<Arc<Service>>,
    /// The groups that are placed as one.
    pub(super) pod_groups: Vec<Arc<PodGroup>>,
    /// The disruption budgets that are ours.
    pub(super) budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Groups are to be placed as one, by a scheduler that can.
    pub(super) is_gang: bool,
    pub(super) protections: Protections,
    pub(super) times: Times,
}

/// The pods of a group by the replicas that they belong to, and what is remembered of it.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) replicas: BTreeMap<Id, (Vec<Member>, Option<ReplicaStatus>)>,
    pub(super) record: Option<GroupStatus>,
}

pub(super) fn observe(inputs: &Inputs<'_>, serving: &Arc<ModelServing>) -> Result<Found<Observed>, Error> {
    let uid = serving.uid().unwrap_or_default();
    if let Some(pod) = inputs.cache.owned_by::<Pod>(&uid).find(|pod| has_other_owner(pod)) {
        return Ok(Found::NotAdopted(format!("pod {}", pod.name_any())));
    }
    let revisions = match Known::observe(inputs, serving.as_ref(), revision::wanted)? {
        Ok(revisions) => revisions,
        Err(wanted) => return Ok(Found::NewRevision(wanted)),
    };
    let wanted = Wanted::of(serving, &revisions);
    Ok(Found::Observed(Observed {
        members: members(inputs, serving, &wanted),
        revisions,
        wanted,
        services: inputs.cache.owned_by(&uid).cloned().collect(),
        pod_groups: inputs.cache.owned_by(&uid).cloned().collect(),
        budgets: inputs.cache.owned_by(&uid).cloned().collect(),
        is_gang: gang::is_known(serving, inputs.cache),
        protections: inputs.protections,
        times: inputs.times.clone(),
        serving: Arc::clone(serving),
    }))
}

/// Every group that has a pod or of which something must not be forgotten.
fn members(inputs: &Inputs<'_>, serving: &ModelServing, wanted: &Wanted) -> BTreeMap<u32, Members> {
    let mut groups: BTreeMap<u32, Members> = BTreeMap::new();
    for pod in inputs.cache.owned_by::<Pod>(&serving.uid().unwrap_or_default()) {
        if let Some((group, id)) = place(serving, pod) {
            let replicas = &mut groups.entry(group).or_default().replicas;
            replicas.entry(id).or_default().0.push(Member::observe(inputs, pod));
        }
    }
    for record in serving.status.iter().flat_map(|status| &status.groups) {
        let group = count(record.index);
        // A group or replica that was made again and has no pod yet is known by its record alone.
        let again: Vec<&ReplicaStatus> = record.replicas.iter().filter(|it| it.restarts > 0).collect();
        if record.restarts == 0 && again.is_empty() && !groups.contains_key(&group) {
            continue;
        }
        let known = groups.entry(group).or_default();
        known.record = Some(record.clone());
        for replica in again {
            let id = Id { role: replica.role.clone(), ordinal: count(replica.index) };
            known.replicas.entry(id).or_default();
        }
        for replica in &record.replicas {
            let id = Id { role: replica.role.clone(), ordinal: count(replica.index) };
            if let Some((_, record)) = known.replicas.get_mut(&id) {
                *record = Some(replica.clone());
            }
        }
    }
    if wanted.is_without_pods() {
        // Roles without replicas: the groups are there, and nothing is in them.
        for group in 0..wanted.replicas {
            let record = serving.status.iter().flat_map(|status| &status.groups);
            let record = record.into_iter().find(|it| count(it.index) == group).cloned();
            groups.entry(group).or_insert_with(|| Members { record, ..Members::default() });
        }
    }
    for (pods, _) in groups.values_mut().flat_map(|group| group.replicas.values_mut()) {
        pods.sort_by_key(|member| index(&member.pod));
    }
    groups
}

/// The group and the replica that a pod belongs to, if its labels say so.
fn place(serving: &ModelServing, pod: &Pod) -> Option<(u32, Id)> {
    let label = |name: &str| pod.labels().get(name);
    let number = |text: &str, before: &str| text.strip_prefix(before)?.strip_prefix('-')?.parse().ok();
    let group = number(label(labels::SERVING_GROUP)?, &serving.name_any())?;
    let role = label(labels::ROLE)?.clone();
    let ordinal = number(label(labels::ROLE_ID)?, &role)?;
    Some((group, Id { role, ordinal }))
}

/// Whether another operator made a pod, and it is not adopted: every pod of ours says for which incarnation it was
/// made.
pub(super) fn has_other_owner(pod: &Pod) -> bool {
    !pod.annotations().contains_key(labels::INCARNATION) && !is_going(pod)
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
}
