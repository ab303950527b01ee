//! `ModelDeployment`: versions, and the way from one to the next.

mod act;
mod capacity;
mod checks;
mod decide;
mod events;
mod evidence;
#[cfg(test)]
mod fields;
mod kind;
mod observe;
mod outside_checks;
mod plan;
mod rollout;
mod scaling;
mod status;
mod verbs;
mod version;
mod wanted;

use std::{sync::Arc, time::Duration};

use api::{
    Kind,
    gateway::{GRPCRoute, Gateway, HTTPRoute},
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::{ModelDeployment, ModelDeploymentStatus},
};
use k8s_openapi::api::{
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt;
use planner::{Time, handover::Action};

pub(crate) use self::kind::SERVED;
use self::{decide::Decision, observe::Observed};
use crate::{
    Answer, Call, endpoints, labels,
    pipeline::{Controller, Executor, Found, Inputs},
    runtime::{Error, Event, Key, Requeue, Select, Watches, controllers_of},
    units::free_capacity,
};

/// How often what users get is observed during a rollout.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The controller of deployments.
#[derive(Debug)]
pub(crate) struct Deployments;

impl Controller for Deployments {
    type Object = ModelDeployment;
    type Observed = Observed;
    type Decision = Decision;

    const REQUESTS: &'static [(&'static str, &'static str)] = verbs::VERBS;

    fn kind() -> &'static Kind {
        &api::modeldeployment::KIND
    }

    fn answer(_: &Observed, decision: &Decision) -> Option<Result<String, String>> {
        decision.answer.clone()
    }

    fn watches(watches: &mut Watches<'_>) {
        let (kind, labelled) = (Self::kind(), labels::DEPLOYMENT);
        watches.own::<ModelDeployment>();
        watches.controlled::<LeaderWorkerSet>(kind, Select::all());
        // Counted and read. What of them fails is told by themselves alone: their sets say how many are ready.
        watches.mapped::<Pod>(Select::labelled(labels::SET_NAME), |pod, _| {
            let deployment = pod.labels().get(labels::DEPLOYMENT);
            deployment.map(|name| Key::of(pod).beside(name)).into_iter().collect()
        });
        // Every pod on a node takes room there.
        watches.mapped::<Pod>(Select::all().keeping(free_capacity::holds_resources), |_, cache| {
            capacity::waiting(cache)
        });
        watches.mapped::<Node>(Select::all(), |_, cache| capacity::waiting(cache));
        // That of a version belongs to its set, and is written here.
        watches.mapped::<Service>(Select::labelled(labels::OURS), |service, _| {
            let deployment = service.labels().get(labels::DEPLOYMENT);
            deployment.map(|name| Key::of(service).beside(name)).into_iter().collect()
        });
        watches.mapped::<EndpointSlice>(Select::labelled(labelled), |slice, cache| {
            let service = endpoints::service_of(slice).and_then(|key| cache.get::<Service>(&key));
            service.map(|service| controllers_of(service.as_ref(), Self::kind())).unwrap_or_default()
        });
        watches.controlled::<Gateway>(kind, Select::labelled(labelled));
        watches.controlled::<HTTPRoute>(kind, Select::labelled(labelled));
        watches.controlled::<GRPCRoute>(kind, Select::labelled(labelled));
    }

    fn observe(inputs: &Inputs<'_>, deployment: &Arc<ModelDeployment>) -> Result<Found<Observed>, Error> {
        observe::observe(inputs, deployment)
    }

    fn decide(observed: &Observed, now: Time) -> Decision {
        decide::decide(observed, now)
    }

    async fn withdraw(
        executor: &Executor<'_, ModelDeployment>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        scaling::withdraw(executor, observed, decision).await
    }

    fn needs_current_spec(decision: &Decision) -> bool {
        !matches!(decision.action, Action::Wait | Action::Done)
    }

    fn status(
        observed: &Observed,
        decision: &Decision,
        heard: &[Answer],
        now: Time,
    ) -> ModelDeploymentStatus {
        status::status(observed, decision, heard, now)
    }

    fn calls(_: &Observed, decision: &Decision) -> Vec<Call> {
        checks::calls(&decision.checks)
    }

    fn status_changed(before: &ModelDeploymentStatus, after: &ModelDeploymentStatus) -> bool {
        !status::say_the_same(before, after)
    }

    fn not_served(before: &ModelDeploymentStatus, why: &str) -> ModelDeploymentStatus {
        status::not_served(before, why)
    }

    fn events(
        observed: &Observed,
        decision: &Decision,
        before: &ModelDeploymentStatus,
        after: &ModelDeploymentStatus,
    ) -> Vec<Event> {
        let told =
            events::of_decision(observed, decision).into_iter().chain(events::of_failure(before, after));
        told.chain(events::of_ends(before, after)).collect()
    }

    async fn act(
        executor: &Executor<'_, ModelDeployment>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        act::act(executor, observed, decision).await
    }

    fn requeue(observed: &Observed, decision: &Decision, now: Time) -> Requeue {
        let Decision { action, reason, changes_at, is_behind, .. } = decision;
        // What was done is seen in the next pass; what was only written down needs one of its own.
        let again = matches!(action, Action::StartStep(_) | Action::SetPhase(_) | Action::Promote(_));
        // Where requests are counted, what users get is observed again as long as it moves.
        let counted = observed.is_counted && *action != Action::Done;
        let later = [*changes_at, reason.until].into_iter().flatten().filter(|at| *at > now).min();
        let next = Requeue { at: later, outside: *is_behind };
        next.until(again.then_some(now)).until(counted.then_some(now + POLL_INTERVAL))
    }
}
