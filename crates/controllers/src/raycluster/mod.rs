//! `RayCluster`: a head, and groups of workers.

mod act;
mod autoscaling;
mod cleanup;
mod decide;
mod events;
mod kind;
mod observe;
mod plan;
mod record;
mod render;
mod services;
mod status;
mod wanted;

use std::sync::Arc;

use api::{
    Kind,
    raycluster::{RayCluster, RayClusterStatus},
};
use k8s_openapi::api::{
    core::v1::{Node, Pod, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use planner::{Time, ray::Op};

use self::{decide::Decision, observe::Observed};
pub(crate) use self::{
    kind::SERVED,
    services::head_ports,
    wanted::{asks_for_tokens, keeps_tables_in_rocksdb},
};
use crate::{
    Answer, labels, nodes,
    pipeline::{Controller, Executor, Found, Inputs, PodCheck},
    runtime::{Error, Event, Key, Requeue, Select, Watches},
};

/// The controller of Ray clusters.
#[derive(Debug)]
pub(crate) struct Clusters;

impl Controller for Clusters {
    type Object = RayCluster;
    type Observed = Observed;
    type Decision = Decision;

    const HAS_OTHER_OPERATORS: bool = true;

    fn kind() -> &'static Kind {
        &api::raycluster::KIND
    }

    fn acts_on(cluster: &RayCluster) -> bool {
        let lives = cluster.metadata.deletion_timestamp.is_none() || cleanup::is_pending(cluster);
        lives && wanted::left_to_another(cluster).is_none()
    }

    fn watches(watches: &mut Watches<'_>) {
        watches.own::<RayCluster>();
        watches.controlled::<Pod>(Self::kind(), Select::labelled(labels::RAY_CLUSTER));
        watches.controlled::<Service>(Self::kind(), Select::labelled(labels::OURS));
        watches.controlled::<ServiceAccount>(Self::kind(), Select::labelled(labels::OURS));
        watches.controlled::<Role>(Self::kind(), Select::labelled(labels::OURS));
        watches.controlled::<RoleBinding>(Self::kind(), Select::labelled(labels::OURS));
        watches.mapped::<Node>(Select::all(), |node, cache| nodes::owners(node, cache, Self::kind()));
    }

    fn observe(inputs: &Inputs<'_>, cluster: &Arc<RayCluster>) -> Result<Found<Observed>, Error> {
        Ok(observe::observe(inputs, cluster))
    }

    fn decide(observed: &Observed, now: Time) -> Decision {
        decide::decide(observed, now)
    }

    /// What replaces pods that failed or are gone: they may be pods that are not heard of yet.
    fn pods_to_check(observed: &Observed, decision: &Decision) -> Vec<PodCheck> {
        let is_doubtful = |op: &Op| match op {
            Op::DeletePod { why, .. } => why.backs_off(),
            Op::CreateWorker { incarnation, .. } => *incarnation > 0,
            Op::CreateHead | Op::ReleasePod { .. } | Op::MarkUnhealthy { .. } => false,
        };
        if !decision.plan.ops.iter().any(is_doubtful) {
            return Vec::new();
        }
        let selector = format!("{}={}", labels::RAY_CLUSTER, Key::of(observed.cluster.as_ref()).name);
        vec![PodCheck { selector, pods: observed.labelled.clone() }]
    }

    fn needs_current_spec(decision: &Decision) -> bool {
        let takes = |op: &Op| !matches!(op, Op::CreateHead | Op::CreateWorker { .. });
        decision.plan.ops.iter().any(takes)
    }

    fn status(observed: &Observed, decision: &Decision, _: &[Answer], now: Time) -> RayClusterStatus {
        status::status(observed, decision, now)
    }

    fn events(
        observed: &Observed,
        decision: &Decision,
        before: &RayClusterStatus,
        after: &RayClusterStatus,
    ) -> Vec<Event> {
        events::of_status(observed, decision, before, after)
    }

    async fn act(
        executor: &Executor<'_, RayCluster>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        act::act(executor, observed, decision).await
    }

    fn requeue(observed: &Observed, decision: &Decision, now: Time) -> Requeue {
        let lost = observed.members.iter().filter_map(|member| member.given_up_at);
        let ends = observed.ending.iter().map(|ending| ending.until);
        let at = decision.plan.wake().into_iter().chain(lost).chain(ends).filter(|at| *at > now).min();
        Requeue { at, outside: false }
    }
}
