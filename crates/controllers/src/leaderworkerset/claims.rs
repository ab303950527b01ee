//! What becomes of the claims of a set: they outlive their pods, and go only when the set says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::leaderworkerset::{ClaimRetention, LeaderWorkerSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::json;

use super::{Decision, observe::Observed, render};
use crate::{
    labels, owner,
    pipeline::Executor,
    runtime::{Cache, Error, together},
};

/// The claims that were made for a set. A foreign claim is used by a pod that asks for its name, and is
/// otherwise left alone.
pub(super) fn of(set: &LeaderWorkerSet, cache: &Cache) -> Vec<Arc<PersistentVolumeClaim>> {
    let name = set.name_any();
    let is_ours = |claim: &&Arc<PersistentVolumeClaim>| {
        let label = |key: &str| claim.labels().get(key).map(String::as_str);
        label(labels::SET_NAME) == Some(&name) && label(labels::MANAGED_BY) == Some(labels::SEGUE)
    };
    cache
        .within::<PersistentVolumeClaim>(&set.namespace().unwrap_or_default())
        .filter(is_ours)
        .cloned()
        .collect()
}

/// Makes claims go with their set or outlive it, as it says now, and deletes those of pods that were scaled away.
pub(super) async fn keep(
    executor: &Executor<'_, LeaderWorkerSet>,
    observed: &Observed,
    decision: &Decision,
) -> Result<(), Error> {
    for claim in observed.claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        tie(executor, claim).await?;
    }
    let surplus = surplus(observed, decision);
    if surplus.is_empty() {
        return Ok(());
    }
    executor.context().ensure_current(observed.set.as_ref()).await?;
    together(surplus.into_iter().map(|claim| executor.delete(claim.as_ref(), true)).collect()).await
}

/// A claim that goes with its set refers to it: the garbage collector does the rest, whether we run or not.
async fn tie(executor: &Executor<'_, LeaderWorkerSet>, claim: &PersistentVolumeClaim) -> Result<(), Error> {
    let set = executor.object();
    let uid = set.uid().unwrap_or_default();
    let mut owners = claim.owner_references().to_vec();
    let goes = render::goes_with(set);
    if owners.iter().any(|owner| owner.uid == uid) == goes {
        return Ok(());
    }
    if goes {
        owners.push(owner(set));
    } else {
        owners.retain(|owner| owner.uid != uid);
    }
    executor.change(claim, json!({"metadata": {"ownerReferences": owners}})).await
}

/// The claims of places that the set no longer has. A place that is only empty for a moment, because its group is made
/// again or replaced, must not lose its data: nothing goes before every group that is wanted serves.
fn surplus<'a>(observed: &'a Observed, decision: &Decision) -> Vec<&'a Arc<PersistentVolumeClaim>> {
    let policy = &observed.set.spec.leader_worker_template.persistent_volume_claim_retention_policy;
    let deletes = policy.as_ref().and_then(|policy| policy.when_scaled) == Some(ClaimRetention::Delete);
    if !deletes || !decision.set.done {
        return Vec::new();
    }
    let place = |labels: &BTreeMap<String, String>| {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        (label(labels::GROUP_INDEX), label(labels::WORKER_INDEX))
    };
    let pods = observed.groups.values().flat_map(|group| &group.pods);
    let taken: BTreeSet<_> = pods.map(|member| place(member.pod.labels())).collect();
    let living = |claim: &&Arc<PersistentVolumeClaim>| claim.metadata.deletion_timestamp.is_none();
    observed.claims.iter().filter(living).filter(|claim| !taken.contains(&place(claim.labels()))).collect()
}
