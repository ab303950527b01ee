//! The operations of a unit, carried out.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::{
    Reason, Uid,
    units::{Op, Unit},
};
use serde_json::json;

use super::{Member, is_going};
use crate::{
    labels,
    pipeline::Executor,
    runtime::{Error, Event, Watched, together},
};

/// Why something is taken out of service that goes.
pub(crate) const LEAVES: &str = "chosen to go; it finishes its requests";

/// A unit that something is done to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acted<'a> {
    pub(crate) unit: &'a Unit,
    pub(crate) members: &'a [Member],
    /// The pod that takes requests for the unit.
    pub(crate) leader: Option<&'a Arc<Pod>>,
    /// What people call it: a group, a role replica.
    pub(crate) noun: &'static str,
}

impl<'a> Acted<'a> {
    fn pod(&self, uid: &Uid) -> Option<&'a Arc<Pod>> {
        let is_it = |member: &&Member| member.pod.uid().as_deref() == Some(uid.0.as_str());
        self.members.iter().find(is_it).map(|member| &member.pod)
    }

    fn is_leader(&self, pod: &Pod) -> bool {
        self.leader.is_some_and(|leader| leader.uid() == pod.uid())
    }
}

/// What of a unit's operations depends on its kind.
pub(crate) trait Parent: Sync {
    /// Makes the pod of an index.
    fn create(&self, index: u32) -> impl Future<Output = Result<(), Error>> + Send;

    /// What people are told of an operation that was carried out.
    fn event(&self, _op: &Op, _reason: &Reason) -> Option<Event> {
        None
    }
}

/// Carries the operations of a unit out, in order.
pub(crate) async fn carry_out<K: Watched>(
    executor: &Executor<'_, K>,
    acted: Acted<'_>,
    (ops, reason): &(Vec<Op>, Reason),
    parent: &impl Parent,
) -> Result<(), Error> {
    for op in ops {
        match op {
            Op::CreatePod { index } => parent.create(*index).await?,
            Op::PutInService => {
                let Some(leader) = acted.leader else { continue };
                let why = format!("every pod of its {} is ready", acted.noun);
                executor.put_in_service(leader, &why).await?;
            }
            Op::TakeOutOfService => {
                let Some(leader) = acted.leader else { continue };
                let not_ready = format!("not every pod of its {} is ready", acted.noun);
                let leaves = acted.unit.leaving;
                let (reason, why) =
                    if leaves { (labels::LEAVING, LEAVES) } else { ("NotReady", not_ready.as_str()) };
                executor.take_out(leader, reason, why).await?;
            }
            Op::RecordStart { baselines } => record_start(executor, acted, baselines).await?,
            // Written with the status, before this.
            Op::RecordRecreation { .. } | Op::RecordSteady => {}
            Op::DeletePods { uids } => {
                let pods = uids.iter().filter_map(|uid| acted.pod(uid)).collect();
                delete(executor, acted, pods, false).await?;
            }
            Op::ForceRelease { uids } => {
                let pods = uids.iter().filter_map(|uid| acted.pod(uid)).collect();
                release(executor, pods).await?;
            }
        }
        if let Some(event) = parent.event(op, reason) {
            executor.record(event).await;
        }
    }
    Ok(())
}

/// Deletes a unit as it was observed. What says that it goes is its leader, on the condition that the leader has not
/// changed: a worker that was deleted because of an old observation would take a unit down that serves by now, and a
/// process that restarts in the middle must not take missing pods for a failure. With `finishes`, a unit
/// in service finishes its requests first, and is deleted in a later pass.
pub(crate) async fn remove<K: Watched>(
    executor: &Executor<'_, K>,
    acted: Acted<'_>,
    finishes: bool,
) -> Result<(), Error> {
    let (lost, there): (Vec<&Member>, Vec<&Member>) =
        acted.members.iter().partition(|member| member.is_lost(executor.now()));
    release(executor, lost.into_iter().map(|member| &member.pod).collect()).await?;
    let alive: Vec<&Arc<Pod>> =
        there.into_iter().map(|member| &member.pod).filter(|pod| !is_going(pod)).collect();
    let leader = alive.iter().find(|pod| acted.is_leader(pod)).filter(|_| !acted.unit.leaving);
    let waits = acted.unit.in_service && finishes;
    let Some(leader) = leader.filter(|_| waits || alive.len() > 1) else {
        return delete(executor, acted, alive, true).await;
    };
    executor.take_out(leader, labels::LEAVING, LEAVES).await?;
    if waits { Ok(()) } else { delete(executor, acted, alive, false).await }
}

/// Deletes pods of a unit: the leader last, because what is known of the unit, that it leaves, is written on it.
async fn delete<K: Watched>(
    executor: &Executor<'_, K>,
    acted: Acted<'_>,
    pods: Vec<&Arc<Pod>>,
    exactly: bool,
) -> Result<(), Error> {
    let (leader, workers): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| acted.is_leader(pod));
    for pods in [workers, leader] {
        together(pods.into_iter().map(|pod| executor.delete(pod.as_ref(), exactly)).collect()).await?;
    }
    Ok(())
}

/// Deletes pods without waiting for their nodes, which are lost.
async fn release<K: Watched>(executor: &Executor<'_, K>, pods: Vec<&Arc<Pod>>) -> Result<(), Error> {
    together(pods.into_iter().map(|pod| executor.context().release(pod.as_ref())).collect()).await
}

/// The leader last: it says for the whole unit that all have started.
async fn record_start<K: Watched>(
    executor: &Executor<'_, K>,
    acted: Acted<'_>,
    baselines: &[(Uid, u32)],
) -> Result<(), Error> {
    let leader = acted.leader.and_then(|leader| leader.uid());
    let (first, last): (Vec<_>, Vec<_>) =
        baselines.iter().partition(|(uid, _)| leader.as_deref() != Some(uid.0.as_str()));
    for (uid, restarts) in first.into_iter().chain(last) {
        let Some(pod) = acted.pod(uid) else { continue };
        let patch = json!({"metadata": {"annotations": {labels::RESTARTS_AT_START: restarts.to_string()}}});
        executor.change(pod.as_ref(), patch).await?;
    }
    Ok(())
}
