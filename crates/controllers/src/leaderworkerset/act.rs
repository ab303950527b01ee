//! The planner's answer, written to the API.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use planner::{Reason, Time, sets, units};
use serde_json::{Value, json};

use super::{
    Decision, claims, events,
    observe::{Group, Observed, index},
    render::{self, Claim, Place},
    revision::Template,
    services,
};
use crate::{
    labels,
    runtime::{Context, Error, Key, timestamp, together},
};

/// Why a leader that was chosen to go is out of service.
const LEAVES: &str = "chosen to go; it finishes its requests";

/// What came of a look.
pub(super) struct Outcome {
    /// What could not be made because its name is somebody else's, or still in use.
    pub(super) blocked: BTreeSet<String>,
    pub(super) result: Result<(), Error>,
}

/// Does what was decided. The status, with everything that must be remembered first, is written before.
pub(super) async fn act(
    context: &Context,
    observed: &Observed,
    decision: &Decision,
    status_was_written: bool,
    now: Time,
) -> Outcome {
    let hand = Hand { context, observed, now, blocked: Mutex::default() };
    let result = hand.act(decision, status_was_written).await;
    Outcome { blocked: hand.blocked.into_inner().unwrap_or_else(PoisonError::into_inner), result }
}

struct Hand<'a> {
    context: &'a Context,
    observed: &'a Observed,
    now: Time,
    blocked: Mutex<BTreeSet<String>>,
}

impl Hand<'_> {
    async fn act(&self, decision: &Decision, status_was_written: bool) -> Result<(), Error> {
        let Self { context, observed, .. } = self;
        for foreign in services::keep(context, observed, decision).await? {
            self.is_blocked(foreign.to_string());
        }
        let takes_away = |op: &sets::Op| !matches!(op, sets::Op::Create { .. });
        if decision.set.ops.iter().any(takes_away) && !status_was_written {
            context.is_current(observed.set.as_ref()).await?;
        }
        let mut done = Vec::new();
        let acted = self.act_on_ops(&decision.set.ops, &mut done).await;
        events::tell_of_ops(context, observed, &done).await;
        acted?;
        let mut acting = Vec::new();
        for (place, (ops, reason)) in &decision.groups {
            if let Some(group) = observed.groups.get(place).filter(|_| !ops.is_empty()) {
                acting.push(self.act_on_group((*place, group), (ops, reason)));
            }
        }
        together(acting).await?;
        claims::keep(context, observed, decision).await
    }

    fn is_blocked(&self, why: String) {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner).insert(why);
    }

    async fn act_on_ops<'op>(
        &self,
        ops: &'op [sets::Op],
        done: &mut Vec<&'op sets::Op>,
    ) -> Result<(), Error> {
        for op in ops {
            if self.act_on_set(op).await? {
                done.push(op);
            }
        }
        Ok(())
    }

    /// Says whether it did anything.
    async fn act_on_set(&self, op: &sets::Op) -> Result<bool, Error> {
        let Self { context, observed, now, .. } = *self;
        match op {
            sets::Op::Create { ordinal, revision } => {
                let Some(template) = observed.revisions.get(*revision) else { return Ok(false) };
                // The leader alone: its workers follow when the startup policy allows.
                self.create(template, Place { group: *ordinal, index: 0, incarnation: 0 }).await
            }
            sets::Op::TakeOut { ordinal, .. } => {
                let Some(leader) = observed.groups.get(ordinal).and_then(Group::leader) else {
                    return Ok(false);
                };
                take_out(context, leader, labels::LEAVING, LEAVES, now).await.map(|()| true)
            }
            sets::Op::Delete { ordinal, .. } => {
                let Some(group) = observed.groups.get(ordinal) else { return Ok(false) };
                self.remove(group).await.map(|()| true)
            }
        }
    }

    /// Deletes a group as it was seen. What says that it goes is its leader, on the condition that the leader has not
    /// changed: a worker that was deleted because of an old view would take a group down that serves by now. One that is
    /// in service finishes its requests first, and is deleted in a later look.
    async fn remove(&self, group: &Group) -> Result<(), Error> {
        let Self { context, now, .. } = *self;
        let lives = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        let pods = || group.pods.iter().filter(lives);
        let leader = group.leader().filter(lives).filter(|_| !group.unit.leaving);
        let Some(leader) = leader.filter(|_| group.unit.in_service || pods().count() > 1) else {
            return delete(context, pods(), true).await;
        };
        take_out(context, leader, labels::LEAVING, LEAVES, now).await?;
        if group.unit.in_service { Ok(()) } else { delete(context, pods(), false).await }
    }

    async fn act_on_group(
        &self,
        (place, group): (u32, &Group),
        (ops, reason): (&[units::Op], &Reason),
    ) -> Result<(), Error> {
        let Self { context, observed, now, .. } = *self;
        for op in ops {
            match op {
                units::Op::CreatePod { index } => {
                    let Some(template) = observed.revisions.get(group.unit.revision) else { continue };
                    let incarnation = group.unit.history.incarnation;
                    self.create(template, Place { group: place, index: *index, incarnation }).await?;
                }
                units::Op::PutInService => {
                    let Some(leader) = group.leader() else { continue };
                    let why = (true, "InService", "every pod of its group is ready");
                    context.set_pod_condition(leader, labels::IN_SERVICE, why, timestamp(now)).await?;
                }
                units::Op::TakeOutOfService => {
                    let Some(leader) = group.leader() else { continue };
                    let (reason, why) = if group.unit.leaving {
                        (labels::LEAVING, LEAVES)
                    } else {
                        ("NotReady", "not every pod of its group is ready")
                    };
                    take_out(context, leader, reason, why, now).await?;
                }
                units::Op::RecordStart { baselines } => record_start(context, group, baselines).await?,
                // Written with the status, before this.
                units::Op::RecordRecreation { .. } => {
                    let note = format!("group {place} is made again: {}", reason.what);
                    context.tell_of(observed.set.as_ref(), false, ("Delete", "RecreateGroup"), note).await;
                }
                units::Op::RecordSteady => {}
                units::Op::DeletePods { uids } => {
                    delete(context, uids.iter().filter_map(|uid| group.pod(uid)), false).await?;
                }
                units::Op::ForceRelease { uids } => {
                    let pods = uids.iter().filter_map(|uid| group.pod(uid));
                    together(pods.map(|pod| context.release(pod.as_ref())).collect()).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes a pod, and before it what it keeps its data in. Says whether it did.
    async fn create(&self, template: &Template, place: Place) -> Result<bool, Error> {
        let set = self.observed.set.as_ref();
        let owner = set.uid().unwrap_or_default();
        for claim in render::claims(set, template, place) {
            if !self.claim(&owner, &claim).await? {
                return Ok(false);
            }
        }
        let key = Key::of(set).beside(place.name(set));
        let body: Value = render::pod(set, template, place);
        match self.context.create::<Pod>(&key, &owner, &body).await {
            Err(error @ Error::Foreign { .. }) => {
                self.is_blocked(error.to_string());
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Whether a pod may use its claim. One that exists is used whoever made it, as `StatefulSets` do; one that is being
    /// deleted would take the pod's data with it.
    async fn claim(&self, owner: &str, claim: &Claim) -> Result<bool, Error> {
        let known = self.context.index.read().claims.get(&claim.key).cloned();
        if let Some(known) = known {
            let stays = known.metadata.deletion_timestamp.is_none();
            if !stays {
                let key = &claim.key;
                self.is_blocked(format!(
                    "PersistentVolumeClaim {key} is being deleted; its pod waits for that"
                ));
            }
            return Ok(stays);
        }
        match self.context.create::<PersistentVolumeClaim>(&claim.key, owner, &claim.body).await {
            Ok(()) | Err(Error::Foreign { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Deletes pods of a group: the leader last, because what is known of the group, that it leaves, is written on it.
async fn delete(
    context: &Context,
    pods: impl Iterator<Item = &Arc<Pod>>,
    exactly: bool,
) -> Result<(), Error> {
    let (leader, workers): (Vec<_>, Vec<_>) = pods.partition(|pod| index(pod) == Some(0));
    for pods in [workers, leader] {
        together(pods.into_iter().map(|pod| context.delete(pod.as_ref(), exactly)).collect()).await?;
    }
    Ok(())
}

/// The first of the two writes that retire a group. Times in conditions are whole seconds: the next one, so that nobody
/// drains for less than was promised.
async fn take_out(context: &Context, leader: &Pod, reason: &str, why: &str, now: Time) -> Result<(), Error> {
    let since = planner::Time::from_secs(now.as_secs() + u64::from(now.subsec_nanos() > 0));
    context.set_pod_condition(leader, labels::IN_SERVICE, (false, reason, why), timestamp(since)).await
}

/// The leader last: it says for the whole group that all have started.
async fn record_start(
    context: &Context,
    group: &Group,
    baselines: &[(planner::Uid, u32)],
) -> Result<(), Error> {
    let leader = group.leader().and_then(|leader| leader.uid());
    let (first, last): (Vec<_>, Vec<_>) =
        baselines.iter().partition(|(uid, _)| leader.as_deref() != Some(uid.0.as_str()));
    for (uid, restarts) in first.into_iter().chain(last) {
        let Some(pod) = group.pod(uid) else { continue };
        let patch = json!({"metadata": {"annotations": {labels::RESTARTS_AT_START: restarts.to_string()}}});
        context.change(pod.as_ref(), patch).await?;
    }
    Ok(())
}
