//! A spec, in the planner's words: what the controller acts on and what `segue plan` rehearses.

use api::leaderworkerset::{
    LeaderWorkerSet, LeaderWorkerTemplate, RestartPolicy, StartupPolicy, SubdomainPolicy,
};
use kube::ResourceExt;
use planner::{
    Budget,
    sets::{Identity, SetSpec},
    units::{self, Revision, UnitSpec},
};

use crate::{Protections, amount, count, labels, units as unit};

/// How a set gets from one revision to another.
pub(crate) fn set_spec(set: &LeaderWorkerSet, target: Revision, old: Revision) -> SetSpec {
    let replicas = count(set.spec.replicas);
    let strategy = set.spec.rollout_strategy.as_ref();
    let rolling = strategy.and_then(|it| it.rolling_update_configuration.clone()).unwrap_or_default();
    let budget = Budget::of(replicas, amount(&rolling.max_surge), amount(&rolling.max_unavailable));
    let any = set.annotations().get(labels::GROUP_IDENTITY).is_some_and(|it| it == labels::ANY_GROUP);
    SetSpec {
        replicas,
        budget: Budget { surge: budget.surge.min(replicas), ..budget },
        partition: count(rolling.partition),
        target,
        old,
        identity: if any { Identity::Any } else { Identity::Ordinal },
        noun: "group",
    }
}

/// What a group of this template is.
pub(super) fn unit_spec(
    set: &LeaderWorkerSet,
    template: &LeaderWorkerTemplate,
    protections: Protections,
) -> UnitSpec {
    let after_start = set.annotations().contains_key(labels::RECREATE_AFTER_START);
    UnitSpec {
        size: count(template.size),
        startup: match set.spec.startup_policy {
            StartupPolicy::LeaderCreated => units::StartupPolicy::LeaderCreated,
            StartupPolicy::LeaderReady => units::StartupPolicy::LeaderReady,
            StartupPolicy::LeaderHasAddress => units::StartupPolicy::LeaderHasAddress,
        },
        restart: match template.restart_policy {
            RestartPolicy::RecreateGroupOnPodRestart if after_start => {
                units::RestartPolicy::RecreateAfterStart
            }
            RestartPolicy::RecreateGroupOnPodRestart => units::RestartPolicy::RecreateOnPodRestart,
            RestartPolicy::RecreateGroupAfterStart => units::RestartPolicy::RecreateAfterStart,
            RestartPolicy::Default | RestartPolicy::None => units::RestartPolicy::None,
        },
        drain: unit::drain(set.annotations(), protections),
    }
}

/// Where the pods of a set have their names.
pub(super) fn subdomains(set: &LeaderWorkerSet) -> SubdomainPolicy {
    set.spec.network_config.as_ref().map_or(SubdomainPolicy::Shared, |network| network.subdomain_policy)
}
