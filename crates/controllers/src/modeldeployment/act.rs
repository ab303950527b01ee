//! The planner's answer, written to the API.

use api::{
    gateway::{GRPCRoute, Gateway, HTTPRoute},
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::Protocol,
};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use planner::{
    Time,
    handover::{Action, VersionId, Weights},
};
use serde_json::{Value, json};

use super::{
    observe::{Observed, Version},
    route::{self, Route, Shares},
    version,
};
use crate::{
    owner,
    runtime::{Context, Error, Key, timestamp},
};

/// Does what was decided, after it was written down. First everything that traffic needs, then who gets it, then how
/// much there is.
pub(super) async fn act(
    context: &Context,
    observed: &Observed,
    action: &Action,
    now: Time,
) -> Result<(), Error> {
    tell_waits(context, observed).await?;
    let weights = if let Action::Weigh(weights, _) = action { weights } else { &observed.seen.route };
    reach(context, observed, action, weights).await?;
    if weights.total() > 0 {
        weigh(context, observed, action, weights, now).await?;
    }
    match action {
        Action::Ask(id, units) => ask(context, observed, *id, *units).await,
        Action::Retire(id) => retire(context, observed, *id).await,
        // Everything else is in the status.
        _ => Ok(()),
    }
}

/// How long units have to go is what the deployment says now, not what it said when their version was made.
async fn tell_waits(context: &Context, observed: &Observed) -> Result<(), Error> {
    let waits = version::waits(&observed.deployment);
    let sets = observed.versions.iter().filter_map(|version| version.set.as_ref());
    for set in sets.filter(|set| set.metadata.deletion_timestamp.is_none()) {
        let is_told = |(name, wait): (&String, &Value)| {
            set.annotations().get(name).map(String::as_str) == wait.as_str()
        };
        if !waits.as_object().into_iter().flatten().all(is_told) {
            context.change(set.as_ref(), json!({"metadata": {"annotations": waits}})).await?;
        }
    }
    Ok(())
}

/// The Services and the Gateway.
async fn reach(
    context: &Context,
    observed: &Observed,
    action: &Action,
    weights: &Weights,
) -> Result<(), Error> {
    let deployment = &observed.deployment;
    let stays = |version: &&Version| *action != Action::Retire(version.id);
    for version in observed.versions.iter().filter(stays) {
        let Some(set) = version.set.as_deref() else { continue };
        let name = version::service_name(&version::child_name(deployment, &version.hash));
        // It belongs to its version, and goes with it: also one that a leader with an old view makes too late.
        let owned_by = owner(set);
        let (key, body) = route::service(deployment, &name, Some(&version.hash), None, &owned_by);
        apply_service(context, observed, &owned_by.uid, &key, body).await?;
    }
    let shares = shares(observed, weights);
    let text = deployment.spec.traffic.gateway.is_none().then(|| route::to_text(&shares));
    let stable = stable(observed, action, weights);
    let hash = stable.and_then(|id| observed.version(id)).map(|version| version.hash.as_str());
    let owned_by = owner(deployment.as_ref());
    let (key, body) = route::service(deployment, &deployment.name_any(), hash, text.as_deref(), &owned_by);
    apply_service(context, observed, &owned_by.uid, &key, body).await?;
    preview(context, observed).await?;
    if let Some(class) = deployment.spec.traffic.gateway.as_ref().and_then(|it| it.class_name.as_deref()) {
        let (key, body) = route::gateway(deployment, class);
        let owner = deployment.uid().unwrap_or_default();
        context.apply::<Gateway>(&key, &owner, body, observed.gateway.as_deref()).await?;
    }
    Ok(())
}

/// The one version that the stable Service selects, or nothing for all of them: as long as the current one is whole it
/// is that; once it shrinks, who is left of both.
fn stable(observed: &Observed, action: &Action, weights: &Weights) -> Option<VersionId> {
    let current = match action {
        Action::Promote(id) => *id,
        _ => observed.seen.current?,
    };
    if observed.deployment.spec.traffic.gateway.is_none() {
        // Without a route the Service is what splits traffic.
        let mut versions = weights.versions();
        let first = versions.next()?;
        return versions.next().is_none().then_some(first);
    }
    let seen = |id: VersionId| observed.seen.versions.iter().find(|version| version.id == id);
    let asked = match action {
        Action::Ask(id, units) if *id == current => *units,
        _ => seen(current)?.asked,
    };
    let whole = asked >= observed.wanted.replicas || observed.seen.versions.iter().all(|it| it.id == current);
    (whole && seen(current)?.ready > 0).then_some(current)
}

/// The Service of the version that is on its way, as long as it is.
async fn preview(context: &Context, observed: &Observed) -> Result<(), Error> {
    let name = format!("{}-preview", observed.deployment.name_any());
    let target = observed.target().filter(|version| version.set.is_some());
    let on_its_way =
        target.filter(|version| observed.seen.current.is_some_and(|current| current != version.id));
    if let Some(version) = on_its_way {
        let owned_by = owner(observed.deployment.as_ref());
        let (key, body) = route::service(&observed.deployment, &name, Some(&version.hash), None, &owned_by);
        return apply_service(context, observed, &owned_by.uid, &key, body).await;
    }
    match observed.services.iter().find(|service| service.name_any() == name) {
        Some(service) => context.delete(service.as_ref(), true).await,
        None => Ok(()),
    }
}

async fn apply_service(
    context: &Context,
    observed: &Observed,
    owner: &str,
    key: &Key,
    body: Value,
) -> Result<(), Error> {
    let live = observed.services.iter().find(|service| service.name_any() == key.name);
    context.apply::<Service>(key, owner, body, live.map(AsRef::as_ref)).await
}

fn shares(observed: &Observed, weights: &Weights) -> Shares {
    route::shares(weights, |id| observed.service_of(id))
}

/// Writes weights to every route; to one that says so already, nothing.
async fn weigh(
    context: &Context,
    observed: &Observed,
    action: &Action,
    weights: &Weights,
    now: Time,
) -> Result<(), Error> {
    let deployment = &observed.deployment;
    let Some(wish) = &deployment.spec.traffic.gateway else { return Ok(()) };
    let owner = deployment.uid().unwrap_or_default();
    let moved = matches!(action, Action::Weigh(..));
    let before = observed.routes.iter().filter_map(Route::weighed_at).max().filter(|_| !moved);
    let weighed_at = timestamp(before.unwrap_or(now)).to_string();
    for wanted in route::routes(deployment, wish, &shares(observed, weights), &weighed_at) {
        let live = observed.routes.iter().find(|route| route.name() == wanted.key.name);
        match wanted.protocol {
            Protocol::Http => {
                let live =
                    live.and_then(|live| if let Route::Http(it) = live { Some(it.as_ref()) } else { None });
                context.apply::<HTTPRoute>(&wanted.key, &owner, wanted.body, live).await?;
            }
            Protocol::Grpc => {
                let live =
                    live.and_then(|live| if let Route::Grpc(it) = live { Some(it.as_ref()) } else { None });
                context.apply::<GRPCRoute>(&wanted.key, &owner, wanted.body, live).await?;
            }
        }
    }
    Ok(())
}

/// Asks a version for so many units; one that does not exist is made.
async fn ask(context: &Context, observed: &Observed, id: VersionId, units: u32) -> Result<(), Error> {
    let Some(version) = observed.version(id) else { return Ok(()) };
    let deployment = &observed.deployment;
    if let Some(set) = &version.set {
        return context.change(set.as_ref(), json!({"spec": {"replicas": units}})).await;
    }
    let Version { number, name, .. } = version;
    let (key, body) = observed.blueprint.child(deployment, units, *number, name);
    context.create::<LeaderWorkerSet>(&key, &deployment.uid().unwrap_or_default(), &body).await?;
    let note = format!("version {name} is made, with {units} units to begin with");
    context.tell(deployment.as_ref(), false, "VersionCreated", note).await;
    Ok(())
}

/// Takes a version away that has no units and no traffic: first what routes could refer to, then the version itself.
async fn retire(context: &Context, observed: &Observed, id: VersionId) -> Result<(), Error> {
    let Some(version) = observed.version(id) else { return Ok(()) };
    let service = observed.service_of(id);
    let service = observed.services.iter().find(|it| Some(it.name_any()) == service);
    if let Some(service) = service {
        context.delete(service.as_ref(), true).await?;
    }
    if let Some(set) = &version.set {
        context.delete(set.as_ref(), true).await?;
        let note = format!("version {} is gone", version.name);
        context.tell(observed.deployment.as_ref(), false, "VersionRetired", note).await;
    }
    Ok(())
}

/// What people are told of a decision, where it is worth an event.
pub(super) fn event(observed: &Observed, action: &Action) -> Option<(&'static str, String)> {
    let name = |id: VersionId| observed.version(id).map(|version| version.name.clone()).unwrap_or_default();
    match action {
        Action::Ask(id, units) => {
            Some(("Scaling", format!("version {} is asked for {units} units", name(*id))))
        }
        Action::Weigh(weights, _) => {
            let shares = weights.versions().map(|id| format!("{} {}%", name(id), weights.percent(id)));
            Some(("TrafficMoved", format!("traffic: {}", shares.collect::<Vec<_>>().join(", "))))
        }
        Action::EnterStep(step) => Some(("StepEntered", format!("step {step}"))),
        Action::Enter(phase) => Some(("DirectionChanged", format!("the rollout goes {phase:?}"))),
        Action::Promote(id) => Some(("Promoted", format!("version {} carries everything", name(*id)))),
        Action::Install(_) | Action::Retire(_) | Action::Wait | Action::Done => None,
    }
}
