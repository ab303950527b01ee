//! A set, and what there is of it.

use std::{collections::BTreeMap, sync::Arc};

use api::leaderworkerset::{GroupStatus, LeaderWorkerSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;

use super::{
    adopt, budgets, claims,
    revision::{self, Known},
};
use crate::{
    Protections, count, labels,
    pipeline::{Found, Inputs},
    request::verbs::RETRY,
    revisions::UNKNOWN,
    runtime::{Error, Key},
    units::{
        Member, incarnation,
        record::{Remembered, Restarts},
    },
};

/// A set, and everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) set: Arc<LeaderWorkerSet>,
    pub(super) revisions: Known,
    /// Its groups, by their place.
    pub(super) groups: BTreeMap<u32, Members>,
    /// The headless Services that exist.
    pub(super) services: Vec<Arc<Service>>,
    /// The claims that were made for its pods.
    pub(super) claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Disruption budgets that take groups for pods.
    pub(super) miscounting: Vec<Key>,
    pub(super) protections: Protections,
}

/// The pods of a group, and what is remembered of it.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Its pods; the leader first.
    pub(super) pods: Vec<Member>,
    pub(super) record: Option<GroupStatus>,
    pub(super) remembered: Remembered,
}

impl Members {
    pub(super) fn leader(&self) -> Option<&Member> {
        self.pods.iter().find(|member| index(&member.pod) == Some(0))
    }
}

pub(super) fn observe(inputs: &Inputs<'_>, set: &Arc<LeaderWorkerSet>) -> Result<Found<Observed>, Error> {
    let key = Key::of(set.as_ref());
    let mut of_this_name = inputs.cache.named::<Pod>(&key.namespace, &format!("{}-", key.name));
    if let Some(pod) = of_this_name.find(|pod| adopt::has_other_owner(set, pod)) {
        return Ok(Found::NotAdopted(format!("pod {}", pod.name_any())));
    }
    let revisions = match Known::observe(inputs, set.as_ref(), revision::wanted)? {
        Ok(revisions) => revisions,
        Err(wanted) => return Ok(Found::NewRevision(wanted)),
    };
    let uid = set.uid().unwrap_or_default();
    Ok(Found::Observed(Observed {
        groups: groups(inputs, set, &revisions),
        revisions,
        services: inputs.cache.owned_by(&uid).cloned().collect(),
        claims: claims::of(set, inputs.cache),
        miscounting: budgets::miscounting(set, inputs.cache),
        protections: inputs.protections,
        set: Arc::clone(set),
    }))
}

/// Every group that has a pod, and those of which nothing but a record is left: a group that was made again has no pod
/// until the first is there.
fn groups(inputs: &Inputs<'_>, set: &LeaderWorkerSet, revisions: &Known) -> BTreeMap<u32, Members> {
    let mut groups: BTreeMap<u32, Members> = BTreeMap::new();
    for pod in inputs.cache.owned_by::<Pod>(&set.uid().unwrap_or_default()) {
        if let Some(place) = number(pod, labels::GROUP_INDEX) {
            groups.entry(place).or_default().pods.push(Member::observe(inputs, pod));
        }
    }
    for record in set.status.iter().flat_map(|status| &status.groups) {
        let mut record = record.clone();
        if inputs.request.is_some_and(|request| request.verb == RETRY) {
            // Groups that wait because they failed again and again wait no longer.
            record.restarts_in_a_row = 0;
        }
        let place = count(record.index);
        let is_known = groups.contains_key(&place);
        if is_known || record.restarts > 0 && revisions.find(&record.revision) != UNKNOWN {
            groups.entry(place).or_default().record = Some(record);
        }
    }
    for group in groups.values_mut() {
        group.pods.sort_by_key(|member| index(&member.pod));
        let made_for = group.pods.iter().map(|member| incarnation(&member.pod)).max();
        let restarts = group.record.as_ref().map(restarts).unwrap_or_default();
        group.remembered = restarts.remembered(made_for, inputs.times);
    }
    groups
}

/// The record of a group's restarts.
pub(super) fn restarts(record: &GroupStatus) -> Restarts {
    Restarts {
        count: record.restarts,
        in_a_row: record.restarts_in_a_row,
        served: record.served,
        last_failure: record.last_failure.clone(),
    }
}

pub(super) fn number(pod: &Pod, label: &str) -> Option<u32> {
    pod.labels().get(label)?.parse().ok()
}

/// The place of a pod in its group.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    number(pod, labels::WORKER_INDEX)
}
