//! Disruption budgets that count wrongly.

use api::leaderworkerset::LeaderWorkerSet;
use k8s_openapi::{
    api::core::v1::Pod, api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};

use crate::runtime::{Cache, Key};

/// The budgets over pods of this set that take its groups for pods. Kubernetes asks the owner of a pod how many pods there
/// should be where a budget is a share or says how many may be missing, and a set answers with its groups. A budget that
/// says how many pods must stay counts pods.
pub(super) fn miscounting(set: &LeaderWorkerSet, cache: &Cache) -> Vec<Key> {
    if set.spec.leader_worker_template.size < 2 {
        return Vec::new();
    }
    let uid = set.uid().unwrap_or_default();
    let budgets = cache.within::<PodDisruptionBudget>(&set.namespace().unwrap_or_default());
    let budgets = budgets.filter(|budget| asks_the_owner(budget)).filter(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        selector.is_some_and(|selector| cache.owned_by::<Pod>(&uid).any(|pod| selector.matches(pod.labels())))
    });
    budgets.map(|budget| Key::of(budget.as_ref())).collect()
}

fn asks_the_owner(budget: &PodDisruptionBudget) -> bool {
    budget.spec.as_ref().is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}
