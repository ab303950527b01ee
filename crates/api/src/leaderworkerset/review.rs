//! The rules of a LeaderWorkerSet that its CRD cannot express.

use std::collections::BTreeSet;

use schema::Cause;
use serde_json::{Value, json};

use super::{
    GroupIdentity, GroupReplacementPolicy, LeaderWorkerSet, RollingUpdateConfiguration, StartupPolicy,
};
use crate::{pods::is_dns_label, validation::Review};

/// The longest name of a host.
const LONGEST_HOST_NAME: usize = 63;

const SUBGROUP_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
/// The label by which Kueue admits all pods of a group at once.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const VOLCANO_QUEUE: &str = "scheduling.volcano.sh/queue-name";

pub(super) fn review(review: &mut Review<'_>) {
    let Some(set) = review.typed::<LeaderWorkerSet>() else { return };
    let template = &set.spec.leader_worker_template;
    if let Some(leader) = &template.leader_template {
        crate::pods::review(review, "spec.leaderWorkerTemplate.leaderTemplate", leader);
    }
    crate::pods::review(review, "spec.leaderWorkerTemplate.workerTemplate", &template.worker_template);
    budget_moves(review, &set);
    names_of_the_surge_fit(review, &set);
    claims_have_names(review, &set);
    subgroup_topology_has_subgroups(review, &set);
    gangs_start_at_once(review, &set);
    review.times(&["segue.dev/drain-seconds", "segue.dev/settle-seconds"]);
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
                "rounds down to 0 with replicas {replicas} while maxSurge is 0: the update could never move; \
                 raise one of them"
            ),
        );
    }
}

/// The groups that an update adds have the highest ordinals, and so the longest names.
fn names_of_the_surge_fit(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    let strategy = set.spec.rollout_strategy.as_ref();
    let budget =
        strategy.and_then(|strategy| strategy.rolling_update_configuration.clone()).unwrap_or_default();
    let replicas = set.spec.replicas;
    let surge = budget.max_surge.ceil_of(replicas).unwrap_or_default().min(replicas);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let mut longest = format!("{name}-{}", (replicas + surge - 1).max(0));
    let size = set.spec.leader_worker_template.size;
    if size > 1 {
        longest.push_str(&format!("-{}", size - 1));
    }
    if longest.len() > LONGEST_HOST_NAME {
        let over = longest.len() - LONGEST_HOST_NAME;
        review.refuse(
            "metadata.name",
            Cause::Invalid,
            Some(&json!(name)),
            format!(
                "must be {over} characters shorter: with maxSurge an update makes the pod \"{longest}\", and its name may \
                 have {LONGEST_HOST_NAME} characters"
            ),
        );
    }
}

/// A claim is called after its template and its pod, and mounted by the name of the template.
fn claims_have_names(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    let field = "spec.leaderWorkerTemplate.volumeClaimTemplates";
    let mut names = BTreeSet::new();
    for (index, claim) in set.spec.leader_worker_template.volume_claim_templates.iter().enumerate() {
        let field = format!("{field}[{index}].metadata.name");
        let name = claim.json()["metadata"]["name"].as_str().unwrap_or_default();
        if !is_dns_label(name) {
            let allowed =
                "must be 1 to 63 lower case letters, digits and \"-\"; containers mount the claim by it";
            review.refuse(&field, Cause::Invalid, Some(&json!(name)), allowed);
        } else if !names.insert(name) {
            review.refuse(&field, Cause::Duplicate, Some(&json!(name)), "each claim needs a name of its own");
        }
    }
    let before = review.old.and_then(|old| old.pointer("/spec/leaderWorkerTemplate/volumeClaimTemplates"));
    let now = review.object.pointer("/spec/leaderWorkerTemplate/volumeClaimTemplates");
    if review.old.is_some() && before != now {
        review.warn(format!(
            "{field} changed: claims that exist stay as they are, new ones are made from the new template"
        ));
    }
}

/// What admits all pods of a group at once waits for pods that wait for their leader.
fn gangs_start_at_once(review: &mut Review<'_>, set: &LeaderWorkerSet) {
    if set.spec.startup_policy == StartupPolicy::LeaderCreated || set.spec.leader_worker_template.size < 2 {
        return;
    }
    let labels = set.metadata.labels.as_ref();
    let queue = labels.and_then(|labels| labels.get(QUEUE)).map(|queue| format!("{QUEUE} is \"{queue}\""));
    let scheduling = set.spec.scheduling.as_ref().and_then(|it| it.get("schedulingPolicy")?.get("gang"));
    let minimum = scheduling.map(|gang| gang.get("minCount").and_then(Value::as_i64).unwrap_or_default());
    let gang = minimum.filter(|minimum| *minimum != 1).map(|_| "spec.scheduling asks for a gang".to_owned());
    if let Some(why) = queue.or(gang) {
        let allowed =
            format!("must be \"LeaderCreated\": {why}, which waits for all pods of a group at once");
        review.refuse("spec.startupPolicy", Cause::Invalid, Some(&json!(set.spec.startup_policy)), allowed);
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
    let replaces_at_once = set.spec.group_replacement_policy == Some(GroupReplacementPolicy::Immediate);
    let annotated = set.metadata.annotations.iter().flatten();
    let volcano = annotated.clone().any(|(key, _)| key == VOLCANO_QUEUE || key.starts_with("volcano.sh/"));
    let fields = [
        ("spec.scheduling", set.spec.scheduling.is_some(), "pods of a group are scheduled one by one"),
        (
            "metadata.annotations of Volcano",
            volcano,
            "no PodGroup is made; pods of a group are scheduled one by one",
        ),
        (
            "spec.groupReplacementPolicy: Immediate",
            replaces_at_once,
            "a group starts when the one before is gone",
        ),
    ];
    for (field, _, instead) in fields.iter().filter(|(_, is_set, _)| *is_set) {
        review.ignore(field, instead);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate;

    fn set(changes: &[(&str, Value)]) -> Value {
        let mut set = json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "x", "annotations": {}},
            "spec": {"leaderWorkerTemplate": {
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "a"}}],
                "workerTemplate": {"spec": {"containers": [{"name": "w", "image": "i"}]}},
            }},
        });
        for (pointer, value) in changes {
            let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
            set.pointer_mut(parent).expect("a place")[name.replace("~1", "/")] = value.clone();
        }
        set
    }

    #[test]
    fn who_asks_for_what_is_not_acted_on_is_told() {
        assert!(validate(&set(&[]), None).warnings.is_empty());
        for (place, value, says) in [
            ("/spec/scheduling", json!({"a": 1}), "spec.scheduling"),
            ("/metadata/annotations/scheduling.volcano.sh~1queue-name", json!("q"), "Volcano"),
            ("/spec/groupReplacementPolicy", json!("Immediate"), "groupReplacementPolicy"),
        ] {
            let verdict = validate(&set(&[(place, value)]), None);
            assert!(verdict.accepted(), "{:?}", verdict.violations);
            assert!(verdict.warnings.iter().any(|warning| warning.contains(says)), "{:?}", verdict.warnings);
        }
        let placed =
            set(&[("/metadata/annotations/leaderworkerset.sigs.k8s.io~1exclusive-topology", json!("rack"))]);
        assert!(validate(&placed, None).warnings.is_empty(), "that is acted on");
    }

    /// Bug 6.12: upstream does not warn that a change of the claim templates does not affect existing claims.
    #[test]
    fn who_changes_templates_of_claims_is_told_what_it_changes() {
        let class = "/spec/leaderWorkerTemplate/volumeClaimTemplates/0/spec/storageClassName";
        let verdict = validate(&set(&[(class, json!("b"))]), Some(&set(&[])));
        assert!(verdict.accepted() && verdict.warnings[0].contains("claims that exist"), "{verdict:?}");
        assert!(validate(&set(&[]), Some(&set(&[]))).warnings.is_empty());
    }
}
