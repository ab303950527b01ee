//! `RayService`: Ray Serve applications on a RayCluster, and how one cluster takes over from another.
//!
//! Ray Serve owns the replicas: it is told a config and a `target_capacity` over HTTP and grants a share of them. Everything
//! that is told, answered and decided is in the status before it counts.

mod act;
mod decide;
mod kind;
mod observe;
mod plan;
mod render;
mod revision;
mod serve;
mod status;
mod verbs;
mod wanted;

use std::sync::Arc;

use api::{
    Kind,
    gateway::{GRPCRoute, Gateway, HTTPRoute},
    raycluster::RayCluster,
    rayservice::{RayService, RayServiceStatus},
};
use k8s_openapi::{
    api::{
        apps::v1::ControllerRevision,
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::Time as ApiTime,
};
use kube::ResourceExt;
use planner::Time;

pub(crate) use self::kind::SERVED;
use self::{
    decide::{Action, Decision},
    observe::Observed,
};
use crate::{
    Answer, Call, labels,
    pipeline::{Controller, Executor, Found, History, Inputs},
    runtime::{Error, Event, Key, Requeue, Select, Watches, controllers_of, timestamp},
};

/// The controller of services.
#[derive(Debug)]
pub(crate) struct Services;

impl Controller for Services {
    type Object = RayService;
    type Observed = Observed;
    type Decision = Decision;

    const REQUESTS: &'static [(&'static str, &'static str)] = verbs::VERBS;
    const HAS_OTHER_OPERATORS: bool = true;

    fn kind() -> &'static Kind {
        &api::rayservice::KIND
    }

    fn watches(watches: &mut Watches<'_>) {
        let kind = Self::kind();
        watches.own::<RayService>();
        watches.controlled::<RayCluster>(kind, Select::all());
        watches.controlled::<ControllerRevision>(kind, Select::labelled(labels::RAY_SERVICE));
        watches.mapped::<Pod>(Select::labelled(labels::RAY_CLUSTER), |pod, cache| {
            let cluster = pod.labels().get(labels::RAY_CLUSTER).map(|name| Key::of(pod).beside(name));
            let cluster = cluster.and_then(|key| cache.get::<RayCluster>(&key));
            cluster.map(|it| controllers_of(it.as_ref(), Self::kind())).unwrap_or_default()
        });
        watches.mapped::<Service>(Select::labelled(labels::RAY_SERVICE), |service, _| service_of(service));
        watches.mapped::<EndpointSlice>(Select::labelled(labels::RAY_SERVICE), |slice, _| service_of(slice));
        watches.controlled::<Gateway>(kind, Select::labelled(labels::RAY_SERVICE));
        watches.controlled::<HTTPRoute>(kind, Select::labelled(labels::RAY_SERVICE));
        watches.controlled::<GRPCRoute>(kind, Select::labelled(labels::RAY_SERVICE));
    }

    fn observe(inputs: &Inputs<'_>, service: &Arc<RayService>) -> Result<Found<Observed>, Error> {
        observe::observe(inputs, service)
    }

    fn decide(observed: &Observed, now: Time) -> Decision {
        decide::decide(observed, now)
    }

    fn needs_current_spec(decision: &Decision) -> bool {
        !decision.deleted.is_empty() || !matches!(decision.action, Action::Wait | Action::Done)
    }

    fn status(observed: &Observed, decision: &Decision, heard: &[Answer], now: Time) -> RayServiceStatus {
        let mut status = status::status(observed, decision, heard, now);
        status.last_update_time = Some(ApiTime(timestamp(Time::from_secs(now.as_secs()))));
        status
    }

    fn answer(observed: &Observed, decision: &Decision) -> Option<Result<String, String>> {
        verbs::refusal(observed, decision).map(Err)
    }

    fn status_changed(before: &RayServiceStatus, after: &RayServiceStatus) -> bool {
        !status::say_the_same(before, after)
    }

    fn events(
        observed: &Observed,
        decision: &Decision,
        _: &RayServiceStatus,
        _: &RayServiceStatus,
    ) -> Vec<Event> {
        act::events(observed, decision)
    }

    fn calls(_: &Observed, decision: &Decision) -> Vec<Call> {
        decision.serve_calls.iter().flat_map(|serve_call| serve_call.calls.clone()).collect()
    }

    async fn act(
        executor: &Executor<'_, RayService>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        act::act(executor, observed, decision).await
    }

    fn history(observed: &Observed, _: &Decision) -> Option<History> {
        let status = observed.service.status.clone().unwrap_or_default();
        let used_by = |key: &str, goal: &str| {
            let all = [&status.active_service_status, &status.pending_service_status];
            let mut clusters = all.into_iter().flatten();
            clusters.any(|it| it.revision.as_deref() == Some(key) || it.goal.as_deref() == Some(goal))
                || status.retiring.iter().any(|it| it.goal == goal)
        };
        let newest = &observed.revisions.newest().key;
        let stored = observed.revisions.all().map(|(_, stored)| stored);
        let used = stored.filter(|it| it.key == *newest || used_by(&it.key, &it.goal));
        let used = used.map(|stored| stored.key.clone()).collect();
        Some(History { label: labels::SERVICE_REVISION, used, limit: revision::HISTORY })
    }

    fn requeue(_: &Observed, decision: &Decision, now: Time) -> Requeue {
        // What was only written down is carried out by a pass of its own.
        let again = !matches!(decision.action, Action::Wait | Action::Done);
        Requeue::default().until(decision.next).until(again.then_some(now))
    }
}

/// The service that an object is labelled with.
fn service_of(object: &impl kube::Resource<DynamicType = ()>) -> Vec<Key> {
    let name = object.labels().get(labels::RAY_SERVICE);
    name.map(|name| Key::of(object).beside(name)).into_iter().collect()
}
