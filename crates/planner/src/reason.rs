use std::{fmt, time::Duration};

/// A moment, on a clock of the caller's: time since some epoch.
pub type Time = Duration;

macro_rules! codes {
    ($($name:ident),* $(,)?) => {
        /// What is done or waited for, in one word. Clients match the word that stands in conditions, waits and events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the word itself")]
        pub enum Code {
            $($name),*
        }

        impl Code {
            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),*
                }
            }
        }
    };
}

codes! {
    Aborted, AddingSurge, Analysing, BackingOff, BelowPartition, CheckFailed, CompletingReplica, CrashLoop, CreatingHead,
    CreatingMissing, CreatingPods, CreatingWorkers, DeletingDrained, DeletingUnit, EvictionBudgetSpent,
    EvictionStoppedByHead, EvictionStoppedCorrelated, Fits, GroupRemoved, HeadLost, Idle,
    IncompleteReplica, Installing, InsufficientCapacity, Lowering, LoweringNew, LoweringOld,
    MarkingUnhealthy, Matched, MovingTraffic, MovingTrafficBack, NoGroups, NoRoom, NodeLost,
    ObservationMissing, Paused, PodFailed, Previewing, ProgressDeadlineExceeded, Promoted,
    PromotedByHand, PuttingInService, Raising, RaisingNew, RaisingOld, RebuildingGroup, RecreatingGroup,
    RecreatingUnit, RemovingGroup, RemovingReplicas, RemovingSurplus, ReplacingPod, ReplacingReplica,
    ReplacingUnready, Rescuing, Retaining, Retired, Retiring, RolledBack, ScaledDown, Scaling, Serving,
    Started, Steady, StepDone, StepOverdue, StepRegressed, Stopping, Superseded, Suspended, Suspending,
    TakingOutOfService, TemplateChanged, Trimming, Unhealthy, UpToDate, UpdatingReady, WaitingForDrain,
    WaitingForGangMinimum, WaitingForGone, WaitingForGroupBudget, WaitingForHeadToLeave,
    WaitingForInterval, WaitingForLeader, WaitingForLeaderAddress, WaitingForLeaderReady,
    WaitingForOldTemplate, WaitingForOldWorkers, WaitingForOtherGroups, WaitingForProbe, WaitingForReady,
    WaitingForRoleBudget, WaitingForRoom, WaitingForRoute, WaitingForTermination, WaitingForThreshold,
    WorkersToDelete,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why something is done or waited for. Status, events, `segue why` and logs print this one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The same in one word, for events and conditions.
    pub code: Code,
    /// What is done or waited for, and why: a sentence without its full stop.
    pub what: String,
    /// Since when it is waited for.
    pub since: Option<Time>,
    /// Until when; without, until it happens.
    pub until: Option<Time>,
    /// What happens then.
    pub then: Option<String>,
}

impl Reason {
    /// A reason without a time.
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), since: None, until: None, then: None }
    }

    /// The same, known to have been so since a time.
    #[must_use]
    pub fn since(self, time: Time) -> Self {
        Self { since: Some(time), ..self }
    }

    /// The same, with a time at which it ends.
    #[must_use]
    pub fn until(self, time: Time) -> Self {
        Self { until: Some(time), ..self }
    }

    /// The same, with what happens next.
    #[must_use]
    pub fn then(self, what: impl Into<String>) -> Self {
        Self { then: Some(what.into()), ..self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.then.as_ref().map_or(Ok(()), |then| write!(f, "; then {then}"))
    }
}

/// The decisions after which a rehearsal of so many units stands still: a few for each unit, and far more than any list
/// of steps has.
pub(crate) fn patience(units: u32) -> u64 {
    10_000 + 20 * u64::from(units)
}
