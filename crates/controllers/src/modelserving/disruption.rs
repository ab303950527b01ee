//! What stays available while nodes are drained: disruption budgets.
//!
//! A budget counts pods, and the loss of one pod breaks its unit: a serving group or a role replica. So a budget lets
//! as many pods go as units may be missing. Those that are missing already count with all of their pods, so that what
//! is broken leaves less to break; and units in excess are counted before they are made, so that none of their pods
//! stands in for a pod that must stay.

use std::collections::{BTreeMap, BTreeSet};

use api::modelserving::{EvictionStrategy, ProtectionLevel};
use kube::ResourceExt;
use planner::roles::Op;
use serde_json::{Value, json};

use super::{
    decide::{Decision, id_of},
    observe::Id,
    read::View,
    render::group_name,
};
use crate::{amount, count, labels, owner, runtime::Key};

/// Units of which some must stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Units {
    /// How many there are or shall be.
    number: u32,
    /// Their pods, when none is missing.
    pods: u32,
}

impl Units {
    /// How many pods must stay, so that so many units do whichever pods go.
    fn least_pods(self, least: u32) -> u32 {
        self.pods.saturating_sub(self.number.saturating_sub(least))
    }
}

/// Every budget that there should be. They come before what is made: a pod that no budget has counted weakens it.
pub(super) fn wanted(observed: View<'_>, decision: &Decision) -> Vec<(Key, Value)> {
    let strategy = observed.serving.spec.rollout_strategy.as_ref();
    let Some(strategy) = strategy.and_then(|strategy| strategy.eviction_strategy.as_ref()) else {
        return Vec::new();
    };
    let groups = sizes(observed, decision);
    match strategy.protection_level {
        ProtectionLevel::ServingGroup => whole_groups(observed, strategy, &groups).into_iter().collect(),
        ProtectionLevel::Role => of_roles(observed, strategy, &groups),
    }
}

fn whole_groups(observed: View<'_>, strategy: &EvictionStrategy, groups: &Groups) -> Option<(Key, Value)> {
    let wanted = observed.wanted.replicas;
    let least = amount(strategy.min_available.as_ref()?).ceil_of(wanted);
    let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let missing = wanted.saturating_sub(number);
    let pods_of = |(ordinal, group): (&u32, &Sizes)| {
        // Roles that the group has, or should have: it may stay at a revision that does not know them all.
        let from =
            observed.groups.get(ordinal).and_then(|group| observed.revisions.named(group.from.as_ref()?));
        let wanted = observed.wanted.group.roles.iter().map(|role| role.name.as_str());
        let wanted = wanted.filter(|role| from.is_none_or(|template| template.hash(role).is_some()));
        let roles: BTreeSet<&str> = group.keys().map(|id| id.role.as_str()).chain(wanted).collect();
        roles.into_iter().map(|role| of_role(observed, group, role).pods).sum::<u32>()
    };
    let pods = groups.iter().map(pods_of).sum::<u32>() + missing * pods_of((&u32::MAX, &Sizes::new()));
    let units = Units { number: number + missing, pods };
    let name = observed.serving.name_any();
    Some(budget(observed, &name, &json!({labels::SERVING_NAME: name}), units.least_pods(least)))
}

fn of_roles(observed: View<'_>, strategy: &EvictionStrategy, groups: &Groups) -> Vec<(Key, Value)> {
    let serving = observed.serving.as_ref();
    let minimums = || strategy.role_min_available.iter().flatten();
    let mut budgets = Vec::new();
    for (ordinal, group) in groups {
        for (role, least) in minimums() {
            let Some(wanted) = observed.wanted.replicas_of(role) else { continue };
            let least = amount(least).ceil_of(wanted);
            let name = group_name(serving, *ordinal);
            let covers = json!({
                labels::SERVING_NAME: serving.name_any(), labels::SERVING_GROUP: name, labels::ROLE: role,
            });
            let units = of_role(observed, group, role);
            budgets.push(budget(observed, &format!("{name}-{role}"), &covers, units.least_pods(least)));
        }
    }
    budgets
}

/// The replicas of each group, those that are about to be made included, with their numbers of pods.
type Groups = BTreeMap<u32, Sizes>;
type Sizes = BTreeMap<Id, u32>;

fn sizes(observed: View<'_>, decision: &Decision) -> Groups {
    let mut groups = Groups::new();
    for (ordinal, group) in observed.groups {
        for (id, replica) in group.replicas.iter().filter(|(_, replica)| !replica.pods.is_empty()) {
            let pods = u32::try_from(replica.pods.len()).unwrap_or(u32::MAX).max(replica.spec.size);
            groups.entry(*ordinal).or_default().insert(id.clone(), pods);
        }
    }
    for (ordinal, decided) in &decision.groups {
        for op in &decided.ops {
            let Op::Create { role, hash, .. } = op else { continue };
            let Some((_, role)) = observed.revisions.making(role, hash) else { continue };
            groups.entry(*ordinal).or_default().insert(id_of(op), 1 + count(role.worker_replicas));
        }
    }
    groups
}

/// The replicas of a role in a group, those that are missing included.
fn of_role(observed: View<'_>, group: &Sizes, role: &str) -> Units {
    let there: Vec<u32> = group.iter().filter(|(id, _)| id.role == role).map(|(_, pods)| *pods).collect();
    let number = u32::try_from(there.len()).unwrap_or(u32::MAX);
    let wanted = observed.wanted.replicas_of(role).unwrap_or_default();
    let roles = &observed.serving.spec.template.roles;
    let size = roles.iter().find(|it| it.name == role).map_or(0, |it| 1 + count(it.worker_replicas));
    let missing = wanted.saturating_sub(number);
    Units { number: number + missing, pods: there.iter().sum::<u32>() + missing * size }
}

/// A budget says how many pods must stay. How many may go would be reckoned from what the owner of the pods says of
/// their number, and a ModelServing says how many groups it has.
fn budget(observed: View<'_>, what: &str, covers: &Value, least: u32) -> (Key, Value) {
    let serving = observed.serving.as_ref();
    // People call their own budgets what they protect.
    let key = Key::of(serving).beside(format!("{what}-eviction"));
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {labels::SERVING_NAME: serving.name_any(), labels::MANAGED_BY: labels::SEGUE},
            "ownerReferences": [owner(serving)],
        },
        "spec": {
            "minAvailable": least,
            "selector": {"matchLabels": covers},
            // A pod that is not ready breaks its unit already: it holds no node back.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    });
    (key, body)
}
