//! Conditions: their types, their reasons, and how long they stand in a status.
//!
//! One rule for all: what is *always* told stands there from the first status on, true or false. What a public operator
//! tells is as that operator has it. An *alarm* stands there as long as it is true, and leaves nothing behind: a
//! reader who comes later sees the same.

use api::Conditions as List;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as ApiTime};
use planner::Time;

use crate::runtime::timestamp;

/// A type of condition.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Its name. Clients match it.
    pub name: &'static str,
    lifetime: Lifetime,
}

/// How long a condition stays in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// From the first status on.
    Always,
    /// From when it was first true; when it no longer is, with the words that it had.
    Once,
    /// As long as it is true.
    WhileTrue,
}

/// The longest message that is written.
const LONGEST: usize = 1_024;

const fn always(name: &'static str) -> Type {
    Type { name, lifetime: Lifetime::Always }
}

const fn once(name: &'static str) -> Type {
    Type { name, lifetime: Lifetime::Once }
}

const fn alarm(name: &'static str) -> Type {
    Type { name, lifetime: Lifetime::WhileTrue }
}

/// What any kind may say.
pub mod types {
    use super::{Type, alarm};

    /// Something fails again and again, or cannot get well by itself.
    pub const DEGRADED: Type = alarm("Degraded");
    /// An update waits for one thing, and does nothing else until then.
    pub const STALLED: Type = alarm("Stalled");
    /// Objects that are to be made have names of another owner, or names still in use.
    pub const NAMES_TAKEN: Type = alarm("NamesTaken");
    /// The API refuses writes: a quota, a policy, a webhook.
    pub const WRITES_REFUSED: Type = alarm("WritesRefused");
    /// An object that this one depends on cannot be read: nothing is decided until it is mended or deleted.
    pub const UNREADABLE: Type = alarm("Unreadable");
    /// Fields of the spec are kept and have no effect.
    pub const NOT_ACTED_ON: Type = alarm("NotActedOn");
    /// Nothing is done for the object, because something that it asks for is not served.
    pub const NOT_SERVED: Type = alarm("NotServed");
    /// Pods ask for a scheduler that does not run.
    pub const SCHEDULER_MISSING: Type = alarm("SchedulerMissing");
    /// Disruption budgets count groups where they mean pods.
    pub const DISRUPTIONS_MISCOUNTED: Type = alarm("DisruptionsMiscounted");

    /// The alarms that hold everything else back.
    pub const STALLING: [Type; 7] =
        [STALLED, DEGRADED, NAMES_TAKEN, WRITES_REFUSED, UNREADABLE, NOT_SERVED, SCHEDULER_MISSING];
    /// The alarms that are worth knowing, and hold nothing back.
    pub const NOTED: [Type; 2] = [NOT_ACTED_ON, DISRUPTIONS_MISCOUNTED];
}

/// What a LeaderWorkerSet says, as its public operator does: a condition that is not so any more keeps its words.
pub mod leaderworkerset {
    use super::{Type, once};

    /// Every group is ready.
    pub const AVAILABLE: Type = once("Available");
    /// Groups are not ready yet.
    pub const PROGRESSING: Type = once("Progressing");
    /// Groups are not of the wanted revision yet.
    pub const UPDATE_IN_PROGRESS: Type = once("UpdateInProgress");
}

/// What a ModelServing says, in the words of its public operator.
pub mod modelserving {
    use super::{Type, always};

    /// Every serving group serves.
    pub const AVAILABLE: Type = always("Available");
    /// Serving groups do not serve yet.
    pub const PROGRESSING: Type = always("Progressing");
    /// Serving groups are not of the wanted revision yet.
    pub const UPDATE_IN_PROGRESS: Type = always("UpdateInProgress");
}

/// What a ModelDeployment says.
pub mod modeldeployment {
    use super::{Type, alarm, always};

    /// Enough replicas serve.
    pub const READY: Type = always("Ready");
    /// A rollout is under way.
    pub const PROGRESSING: Type = always("Progressing");
    /// Fewer replicas serve than should, or the last rollout failed.
    pub const DEGRADED: Type = always("Degraded");
    /// Traffic goes back.
    pub const ROLLBACK_IN_PROGRESS: Type = always("RollbackInProgress");
    /// The rollout stands still until a person resumes it.
    pub const PAUSED: Type = always("Paused");
    /// A rollout was started that does not fit the cluster.
    pub const CAPACITY_SHORT: Type = alarm("CapacityShort");
}

/// What a RayService says, in the words of its public operator.
pub mod rayservice {
    use super::{Type, alarm, always, once};

    /// Pods take requests.
    pub const READY: Type = always("Ready");
    /// A second cluster is on its way.
    pub const UPGRADE_IN_PROGRESS: Type = always("UpgradeInProgress");
    /// Traffic goes back to the first cluster.
    pub const ROLLBACK_IN_PROGRESS: Type = alarm("RollbackInProgress");
    /// A person has paused the upgrade.
    pub const PAUSED: Type = alarm("Paused");
    /// The cluster config that is wanted was given up.
    pub const GIVEN_UP: Type = alarm("GivenUp");
    /// The clusters are being deleted, because the service is suspended.
    pub const SUSPENDING: Type = once("Suspending");
    /// No cluster is left, because the service is suspended.
    pub const SUSPENDED: Type = once("Suspended");
}

/// Why a condition of a RayService is so, in the words of its public operator.
pub mod rayservice_reasons {
    #![expect(missing_docs, reason = "each is the word itself")]

    pub const BOTH_CLUSTERS: &str = "BothActivePendingClustersExist";
    pub const DESIRED_SPEC_CHANGED: &str = "DesiredClusterSpecChanged";
    pub const INITIALIZING: &str = "Initializing";
    pub const INITIALIZING_TIMEOUT: &str = "InitializingTimeout";
    pub const NO_PENDING_CLUSTER: &str = "NoPendingCluster";
    pub const NON_ZERO_ENDPOINTS: &str = "NonZeroServeEndpoints";
    pub const RESUMED: &str = "RayServiceResumed";
    pub const SUSPEND_COMPLETE: &str = "SuspendComplete";
    pub const SUSPEND_IN_PROGRESS: &str = "SuspendInProgress";
    pub const UPGRADE_GIVEN_UP: &str = "UpgradeGivenUp";
    pub const ZERO_ENDPOINTS: &str = "ZeroServeEndpoints";
}

/// What a RayCluster says, in the words of its public operator.
pub mod raycluster {
    use super::{Type, always, once};

    /// The head pod is Ready.
    pub const HEAD_POD_READY: Type = always("HeadPodReady");
    /// All pods have been Ready together once.
    pub const PROVISIONED: Type = always("RayClusterProvisioned");
    /// The pods of a suspended cluster go.
    pub const SUSPENDING: Type = once("RayClusterSuspending");
    /// The pods of a suspended cluster are gone.
    pub const SUSPENDED: Type = once("RayClusterSuspended");
}

/// Why a condition is so. Clients match these words.
pub mod reasons {
    #![expect(missing_docs, reason = "each is the word itself")]

    /// The words of `RayCluster`s.
    pub const ALL_PODS_READY: &str = "AllPodRunningAndReadyFirstTime";
    pub const PODS_PROVISIONING: &str = "RayClusterPodsProvisioning";
    pub const HEAD_POD_NOT_FOUND: &str = "HeadPodNotFound";
    pub const HEAD_POD_READY: &str = "HeadPodRunningAndReady";
    pub const UNKNOWN: &str = "UnknownReason";
    pub const USER_REQUESTED: &str = "UserRequestSuspend";
    pub const PODS_FAILING: &str = "PodsFailing";

    pub const ALL_GROUPS_READY: &str = "AllGroupsReady";
    pub const BUDGET_COUNTS_GROUPS: &str = "BudgetCountsGroups";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    pub const FIELDS_IGNORED: &str = "FieldsIgnored";
    pub const GROUPS_FAILING: &str = "GroupsFailing";
    /// The word of `LeaderWorkerSet`s.
    pub const GROUPS_PROGRESSING: &str = "GroupsProgressing";
    /// The word of `ModelServing`s.
    pub const GROUP_PROGRESSING: &str = "GroupProgressing";
    pub const GROUPS_UPDATING: &str = "GroupsUpdating";
    pub const IDLE: &str = "Idle";
    pub const INSUFFICIENT_CAPACITY: &str = "InsufficientCapacity";
    pub const LEADER_WAITS_FOR_WORKERS: &str = "LeaderWaitsForWorkers";
    pub const MALFORMED: &str = "Malformed";
    pub const NOT_ENOUGH_READY: &str = "NotEnoughReady";
    pub const NOT_OURS: &str = "NotOurs";
    pub const NOT_PAUSED: &str = "NotPaused";
    pub const NOT_ROLLING_BACK: &str = "NotRollingBack";
    pub const NOT_SERVED: &str = "NotServed";
    pub const NO_SCHEDULER: &str = "NoScheduler";
    pub const PAUSED: &str = "Paused";
    pub const REPLICAS_FAILING: &str = "ReplicasFailing";
    pub const ROLLING_BACK: &str = "RollingBack";
    pub const ROLLOUT_FAILED: &str = "RolloutFailed";
    pub const ROLLOUT_REFUSED: &str = "RolloutRefused";
    pub const ROLLING_OUT: &str = "RollingOut";
    pub const SERVING: &str = "Serving";
    pub const STEP_WAITS: &str = "StepWaits";
}

/// The conditions of a status that is being written.
pub(crate) struct Writer<'a> {
    list: &'a mut List,
    generation: i64,
    now: Time,
}

impl<'a> Writer<'a> {
    /// Writes conditions of the spec of a generation.
    pub(crate) fn new(list: &'a mut List, generation: i64, now: Time) -> Self {
        Self { list, generation, now }
    }

    /// Something is so.
    pub(crate) fn set_true(&mut self, ty: Type, reason: &str, message: &str) {
        self.put(ty, true, reason, message);
    }

    /// Something is not so. The words are for what is always told.
    pub(crate) fn set_false(&mut self, ty: Type, reason: &str, message: &str) {
        match ty.lifetime {
            Lifetime::Always => self.put(ty, false, reason, message),
            Lifetime::Once => {
                let known = self.list.iter().find(|condition| condition.type_ == ty.name).cloned();
                if let Some(known) = known {
                    self.put(ty, false, &known.reason, &known.message);
                }
            }
            Lifetime::WhileTrue => self.list.retain(|condition| condition.type_ != ty.name),
        }
    }

    /// An alarm is so where there is a message.
    pub(crate) fn alarm(&mut self, ty: Type, reason: &str, message: Option<&str>) {
        match message {
            Some(message) => self.set_true(ty, reason, message),
            None => self.set_false(ty, reason, ""),
        }
    }

    /// The time of a condition is that of its last change.
    fn put(&mut self, ty: Type, is: bool, reason: &str, message: &str) {
        let status = if is { "True" } else { "False" };
        let place = self.list.iter().position(|condition| condition.type_ == ty.name);
        let since = place.map(|place| &self.list[place]).filter(|condition| condition.status == status);
        let condition = Condition {
            type_: ty.name.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(LONGEST).collect(),
            observed_generation: Some(self.generation),
            last_transition_time: since
                .map_or_else(|| ApiTime(timestamp(self.now)), |before| before.last_transition_time.clone()),
        };
        match place {
            Some(place) => self.list[place] = condition,
            None => self.list.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(list: &mut List, seconds: u64) -> Writer<'_> {
        Writer::new(list, i64::try_from(seconds).unwrap(), Duration::from_secs(seconds))
    }

    fn fields(list: &List) -> Vec<(&str, &str, &str, i64)> {
        list.iter()
            .map(|it| {
                let since = it.last_transition_time.0.as_second();
                (it.status.as_str(), it.reason.as_str(), it.message.as_str(), since)
            })
            .collect()
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let mut list = List::new();
        at(&mut list, 2).set_true(always("A"), "Why", "because");
        at(&mut list, 3).set_true(always("A"), "Other", "words");
        assert_eq!(fields(&list), [("True", "Other", "words", 2)]);
        at(&mut list, 4).set_false(always("A"), "Not", "");
        assert_eq!(fields(&list), [("False", "Not", "", 4)]);
        assert_eq!(list[0].observed_generation, Some(4));
    }

    #[test]
    fn what_is_over_stands_there_as_its_type_says() {
        let mut list = List::new();
        at(&mut list, 1).set_false(once("A"), "", "");
        at(&mut list, 1).set_false(alarm("B"), "", "");
        assert!(list.is_empty(), "what never was is not told");
        at(&mut list, 2).set_true(once("A"), "Why", "because");
        at(&mut list, 2).alarm(alarm("B"), "Why", Some("because"));
        at(&mut list, 3).set_false(once("A"), "", "");
        at(&mut list, 3).alarm(alarm("B"), "Why", None);
        assert_eq!(fields(&list), [("False", "Why", "because", 3)]);
    }
}
