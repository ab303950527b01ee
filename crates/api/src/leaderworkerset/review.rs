//! What the CRD of a LeaderWorkerSet cannot say.

use schema::Cause;
use serde_json::json;

use super::{GroupIdentity, LeaderWorkerSet, RollingUpdateConfiguration};
use crate::validation::Review;

const SUBGROUP_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

pub(super) fn review(review: &mut Review<'_>) {
    let Some(set) = review.typed::<LeaderWorkerSet>() else { return };
    let template = &set.spec.leader_worker_template;
    if let Some(leader) = &template.leader_template {
        crate::pods::review(review, "spec.leaderWorkerTemplate.leaderTemplate", leader);
    }
    crate::pods::review(review, "spec.leaderWorkerTemplate.workerTemplate", &template.worker_template);
    budget_moves(review, &set);
    subgroup_topology_has_subgroups(review, &set);
    not_acted_on(review, &set);
}

/// A share that rounds to nothing is a budget of nothing: 25% of 2 groups.
fn budget_moves(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    let strategy = set.spec.rollout_strategy.as_ref();
    let Some(budget) = strategy.and_then(|strategy| strategy.rolling_update_configuration.as_ref()) else {
        return;
    };
    let RollingUpdateConfiguration { max_unavailable, max_surge, .. } = budget;
    let replicas = set.spec.replicas;
    if replicas > 0 && max_unavailable.floor_of(replicas) == Some(0) && max_surge.ceil_of(replicas) == Some(0)
    {
        review.refuse(
            "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
            Cause::Invalid,
            Some(&json!(max_unavailable)),
            format!(
                "rounds down to 0 of {replicas} groups while maxSurge is 0: the update could never move; \
                 raise one of them"
            ),
        );
    }
}

fn subgroup_topology_has_subgroups(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    let Some(key) = review.annotation(SUBGROUP_TOPOLOGY).map(str::to_owned) else { return };
    let policy = set.spec.leader_worker_template.sub_group_policy.as_ref();
    if policy.and_then(|policy| policy.sub_group_size).is_none() {
        review.refuse(
            &format!("metadata.annotations.{SUBGROUP_TOPOLOGY}"),
            Cause::Invalid,
            Some(&json!(key)),
            "needs spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
        );
    }
}

/// Fields of the public API that are kept and do nothing here yet. Who sets one should not find out later.
fn not_acted_on(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    if set.spec.group_identity == Some(GroupIdentity::Hash) {
        review.refuse(
            "spec.groupIdentity",
            Cause::Unsupported,
            Some(&json!("Hash")),
            "supported values: \"Ordinal\": groups have ordinal names here",
        );
    }
    let set_fields = [
        ("spec.scheduling", set.spec.scheduling.is_some()),
        (
            "spec.leaderWorkerTemplate.subGroupPolicy",
            set.spec.leader_worker_template.sub_group_policy.is_some(),
        ),
        ("metadata.annotations: exclusive topology", review.annotation(EXCLUSIVE_TOPOLOGY).is_some()),
    ];
    for (field, _) in set_fields.iter().filter(|(_, set)| *set) {
        review.warn(format!("{field} is kept but not acted on yet"));
    }
}
