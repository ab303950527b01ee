//! What must be remembered of a unit, and is written in the status of its owner.

use api::leaderworkerset::GroupFailure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use kube::ResourceExt;
use planner::{
    Reason, Time,
    units::{Op, Phase, Unit},
};

use super::{Member, containers};
use crate::{count, int, runtime::Times, runtime::timestamp, wait::cut};

/// What is remembered of a unit beside its pods, in the planner's words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) incarnation: u32,
    pub(crate) recreations: u32,
    pub(crate) last_recreation: Option<Time>,
    pub(crate) served: bool,
}

/// The record of a unit's restarts, in the words of a status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts {
    pub(crate) count: i32,
    pub(crate) in_a_row: i32,
    pub(crate) served: bool,
    pub(crate) last_failure: Option<GroupFailure>,
}

impl Restarts {
    /// The record in the planner's words. Pods may have been made for a later incarnation than was written down.
    pub(crate) fn remembered(&self, made_for: Option<u32>, times: &Times) -> Remembered {
        Remembered {
            incarnation: made_for.unwrap_or_default().max(count(self.count)),
            recreations: count(self.in_a_row),
            last_recreation: self.last_failure.as_ref().map(|failure| times.moment(failure.time.0)),
            served: self.served,
        }
    }

    /// The record when these operations are carried out.
    pub(crate) fn after(mut self, ops: &[Op], failure: impl Fn() -> Option<GroupFailure>) -> Self {
        for op in ops {
            match op {
                Op::RecordRecreation { incarnation } => {
                    self.count = int(*incarnation);
                    self.in_a_row += 1;
                    self.last_failure = failure();
                }
                Op::RecordSteady => self.in_a_row = 0,
                _ => {}
            }
        }
        self
    }
}

/// The exit code of what made a unit start again, as the end of a sentence; nothing where no container ended.
pub(crate) fn exit(failure: Option<&GroupFailure>) -> String {
    let told = |failure: &GroupFailure| {
        let (container, code) = (failure.container.as_ref()?, failure.exit_code?);
        Some(format!(" (pod {}, container {container}: exit {code})", failure.pod))
    };
    failure.and_then(told).unwrap_or_default()
}

/// Whether a unit is made again.
pub(crate) fn is_recreated(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::RecordRecreation { .. }))
}

/// What made a unit start again. Nothing may be left of it.
pub(crate) fn failure(unit: Option<(&Unit, &[Member])>, reason: &Reason, now: Time) -> GroupFailure {
    let failed = |unit: &Unit, member: &Member| {
        let read = unit.pods.iter().find(|read| member.pod.uid().as_deref() == Some(read.uid.0.as_str()));
        read.is_some_and(|read| read.restarts > read.restarts_baseline || read.phase == Phase::Ended)
    };
    let pod = unit.and_then(|(unit, members)| members.iter().find(|member| failed(unit, member)));
    let pod = pod.map(|member| member.pod.as_ref());
    let ended = pod.into_iter().flat_map(containers).filter_map(|status| {
        let state = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        state.or(last).map(|ended| (status.name.clone(), ended.exit_code))
    });
    let ended = ended.last();
    GroupFailure {
        pod: pod.map(ResourceExt::name_any).unwrap_or_default(),
        container: ended.as_ref().map(|(container, _)| container.clone()),
        exit_code: ended.map(|(_, code)| code),
        reason: cut(&reason.what, 128),
        time: ApiTime(timestamp(now)),
    }
}
