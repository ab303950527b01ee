//! The planner's answer for a cluster, carried out.

use std::sync::Arc;

use api::raycluster::RayCluster;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::{Uid, ray::Op};
use serde_json::json;

use super::{autoscaling, cleanup, decide::Decision, events, observe::Observed, render, services};
use crate::{
    labels,
    pipeline::Executor,
    runtime::{Error, Key, together},
    units::labelled,
};

type Exec<'a> = Executor<'a, RayCluster>;

/// Carries a decision out. The status, with everything that must be remembered first, is written before.
pub(super) async fn act(executor: &Exec<'_>, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    if decision.ending.is_none() {
        if !cleanup::prepare(executor, &observed.cluster).await? {
            // The next pass finds it prepared.
            return Ok(());
        }
        services::keep(executor, observed).await?;
        autoscaling::keep(executor, observed).await?;
    }
    let (made, gone): (Vec<&Op>, Vec<&Op>) =
        decision.plan.ops.iter().partition(|op| matches!(op, Op::CreateHead | Op::CreateWorker { .. }));
    // What goes, goes before anything comes in its place. A pod that could not be made holds no other back.
    together(gone.iter().map(|op| take(executor, observed, op)).collect()).await?;
    for event in events::of_ops(observed, decision, &gone) {
        executor.record(event).await;
    }
    let (head, workers): (Vec<&Op>, Vec<&Op>) = made.into_iter().partition(|op| **op == Op::CreateHead);
    for ops in [head, workers].into_iter().filter(|ops| !ops.is_empty()) {
        let result = together(ops.iter().map(|op| make(executor, decision, op)).collect()).await;
        if result.is_ok() {
            for event in events::of_ops(observed, decision, &ops) {
                executor.record(event).await;
            }
        }
        executor.defer(result)?;
    }
    match &decision.ending {
        Some(step) => cleanup::act(executor, observed, step).await,
        None => Ok(()),
    }
}

async fn take(executor: &Exec<'_>, observed: &Observed, op: &Op) -> Result<(), Error> {
    let (Op::DeletePod { uid, .. } | Op::ReleasePod { uid, .. } | Op::MarkUnhealthy { uid }) = op else {
        return Ok(());
    };
    let Some(pod) = observed.pod(uid) else { return Ok(()) };
    match op {
        Op::ReleasePod { .. } => executor.context().release(pod).await,
        Op::MarkUnhealthy { .. } => {
            let mark = json!({labels::RAY_HEALTH_STATE: labels::RAY_UNHEALTHY});
            executor.change(pod.as_ref(), json!({"metadata": {"annotations": mark}})).await
        }
        _ => executor.delete(pod.as_ref(), false).await,
    }
}

async fn make(executor: &Exec<'_>, decision: &Decision, op: &Op) -> Result<(), Error> {
    let cluster = executor.object();
    let Some(name) = op.pod_name(&decision.spec) else { return Ok(()) };
    let Some(pod) = render::pod(cluster, decision.spec.template, op, &name) else { return Ok(()) };
    executor.create::<Pod>(&Key::of(cluster).beside(name), &labelled::note(pod)).await.map(drop)
}

impl Observed {
    /// The pod of a uid.
    pub(super) fn pod(&self, Uid(uid): &Uid) -> Option<&Arc<Pod>> {
        let mut members = self.members.iter();
        members.find(|member| member.pod.uid().as_deref() == Some(uid)).map(|member| &member.pod)
    }
}
