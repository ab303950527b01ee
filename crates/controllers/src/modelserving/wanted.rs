//! A spec, in the planner's words: what the controller acts on and what `segue plan` rehearses.

use std::time::Duration;

use api::modelserving::{
    ModelServing, RecoveryPolicy, Role, RoleUpgradeStep, RollingUpdateConfiguration, RolloutStrategyType,
};
use kube::ResourceExt;
use planner::{
    Budget,
    roles::{self, GroupSpec, Recorded, Recovery, RoleHash, RoleSpec, Step},
    sets::{self, Identity},
    units::Revision,
};

use super::revision::{Known, hash};
use crate::{amount, count, labels, units};

/// How long a pod may take to become Ready before its step counts as stalled. Large models take minutes to load.
const PROGRESS: Duration = Duration::from_mins(10);

/// What is replaced at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Whole groups.
    Group,
    /// Role replicas, group after group, in the order of the steps.
    Steps,
    /// Role replicas, in all groups at the same time.
    Role,
}

/// What is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) by: By,
    /// How many groups.
    pub(super) replicas: u32,
    /// The room of an update of groups.
    pub(super) budget: Budget,
    /// Groups below this keep the revision that they come from.
    pub(super) partition: u32,
    pub(super) group: GroupSpec,
    /// The room and the partition of each role, where roles are replaced one by one.
    pub(super) roles: Vec<(Budget, u32)>,
    pub(super) recovery: RecoveryPolicy,
    /// For how many seconds a failure is let be.
    pub(super) grace: Option<u64>,
    /// The revision that all of it comes from.
    pub(super) current: String,
}

impl Wanted {
    /// What a spec asks for, of which these revisions are stored.
    pub(super) fn of(serving: &ModelServing, revisions: &Known) -> Self {
        let current = serving.status.as_ref().and_then(|status| status.current_revision.clone());
        let current = current.filter(|current| revisions.named(current).is_some());
        let current = current.unwrap_or_else(|| revisions.newest().key.clone());
        Self::read(serving, |role| revisions.newest().hash(&role.name).cloned(), current)
    }

    /// What a spec asks for, of which nothing is known but what it says.
    pub(super) fn planned(serving: &ModelServing) -> Result<Self, String> {
        for role in &serving.spec.template.roles {
            hash(role)?;
        }
        Ok(Self::read(serving, |role| hash(role).ok(), String::new()))
    }

    fn read(serving: &ModelServing, hash: impl Fn(&Role) -> Option<RoleHash>, current: String) -> Self {
        let spec = &serving.spec;
        let strategy = spec.rollout_strategy.as_ref();
        let rolling = strategy.and_then(|it| it.rolling_update_configuration.clone()).unwrap_or_default();
        let replicas = count(spec.replicas);
        let steps = steps(&rolling);
        let by = match strategy.map(|strategy| strategy.ty).unwrap_or_default() {
            RolloutStrategyType::RoleRollingUpdate => By::Role,
            RolloutStrategyType::ServingGroupRollingUpdate if steps.is_empty() => By::Group,
            RolloutStrategyType::ServingGroupRollingUpdate => By::Steps,
        };
        let zero = 0.into();
        let surge = rolling.max_surge.as_ref().unwrap_or(&zero);
        let gang = spec.template.gang_policy.as_ref().and_then(|gang| gang.min_role_replicas.as_ref());
        let role = |role: &Role| {
            let replicas = count(role.replicas);
            let target = hash(role)?;
            Some(RoleSpec {
                name: role.name.clone(),
                replicas,
                target,
                max_unavailable: amount(&role.max_unavailable).floor_of(replicas),
                min_replicas: gang.and_then(|gang| gang.get(&role.name)).map(|min| count(*min)),
            })
        };
        let room = |role: &Role| {
            let replicas = count(role.replicas);
            let surge = role.max_surge.as_ref().unwrap_or(&zero);
            let budget = Budget::of(replicas, amount(surge), amount(&role.max_unavailable));
            (budget, role.partition.as_ref().map_or(0, |it| amount(it).ceil_of(replicas)))
        };
        let progress = units::seconds(serving.annotations(), labels::PROGRESS_SECONDS);
        Self {
            by,
            replicas,
            budget: Budget::of(replicas, amount(surge), amount(&rolling.max_unavailable)),
            partition: rolling.partition.as_ref().map_or(0, |it| amount(it).ceil_of(replicas)),
            group: GroupSpec {
                roles: spec.template.roles.iter().filter_map(role).collect(),
                steps,
                recovery: match spec.recovery_policy {
                    RecoveryPolicy::ServingGroupRecreate => Recovery::Group,
                    // Units answer their failures themselves, at their own revision.
                    RecoveryPolicy::RoleRecreate | RecoveryPolicy::None => Recovery::None,
                },
                deadline: (by == By::Steps).then(|| progress.unwrap_or(PROGRESS)),
            },
            roles: spec.template.roles.iter().map(room).collect(),
            recovery: spec.recovery_policy,
            grace: u64::try_from(spec.template.restart_grace_period_seconds).ok().filter(|it| *it > 0),
            current,
        }
    }

    /// Group after group, and in each the roles in the order of the steps; groups come from these roles.
    pub(super) fn by_steps(&self, current: Vec<Recorded>) -> roles::SetSpec {
        roles::SetSpec {
            group: self.group.clone(),
            replicas: self.replicas,
            partition: self.partition,
            max_unavailable: self.budget.unavailable,
            current,
        }
    }

    /// Whole groups, from one revision to another. Where roles are replaced by themselves only their number is kept.
    pub(super) fn by_groups(&self, target: Revision, old: Revision) -> sets::SetSpec {
        let is_whole = self.by == By::Group;
        let all = Budget { surge: 0, unavailable: self.replicas };
        sets::SetSpec {
            replicas: self.replicas,
            budget: if is_whole { self.budget } else { all },
            partition: if is_whole { self.partition } else { 0 },
            target,
            old: if is_whole { old } else { target },
            identity: Identity::Ordinal,
            noun: "group",
        }
    }

    /// The replicas of one role of a group, by its place in the spec.
    pub(super) fn by_role(&self, place: usize, target: Revision, old: Revision) -> sets::SetSpec {
        let (role, (budget, partition)) = (&self.group.roles[place], &self.roles[place]);
        sets::SetSpec {
            replicas: role.replicas,
            budget: Budget { surge: budget.surge.min(role.replicas), ..*budget },
            partition: *partition,
            target,
            old,
            identity: Identity::Ordinal,
            noun: "replica",
        }
    }

    /// How many replicas of a role each group has; nothing for a role that there is no more.
    pub(super) fn replicas_of(&self, role: &str) -> Option<u32> {
        self.group.roles.iter().find(|it| it.name == role).map(|role| role.replicas)
    }

    /// Whether groups have no pods at all.
    pub(super) fn is_without_pods(&self) -> bool {
        self.group.roles.iter().all(|role| role.replicas == 0)
    }
}

fn steps(rolling: &RollingUpdateConfiguration) -> Vec<Step> {
    let steps = rolling.role_upgrade.iter().flat_map(|upgrade| &upgrade.steps);
    let step = |step: &RoleUpgradeStep| Step { role: step.role.clone(), update_to: amount(&step.update_to) };
    steps.map(step).collect()
}
