//! The planner's answer for a deployment, carried out.

use api::{leaderworkerset::LeaderWorkerSet, modeldeployment::ModelDeployment};
use kube::ResourceExt;
use planner::handover::{Action, VersionId, Weights};
use serde_json::{Value, json};

use super::{
    decide::Decision,
    events,
    observe::{Observed, Version},
    version::{self, labels_of},
};
use crate::{
    json::erase,
    labels, leaderworkerset, owner,
    pipeline::Executor,
    runtime::{Error, Event, FIELD_MANAGER},
    traffic::{self, Backend, BackendWeights},
};

type Exec<'a> = Executor<'a, ModelDeployment>;

/// Carries a decision out, after it was written down. First everything that traffic needs, then what gets it, then how
/// much there is.
pub(super) async fn act(executor: &Exec<'_>, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    let Decision { seen, action, .. } = decision;
    keep_children(executor, observed).await?;
    let weights = if let Action::SetWeights(weights, _) = action { weights } else { &seen.route };
    let moves = matches!(action, Action::SetWeights(..));
    let traffic = keep_traffic(executor, observed, decision, weights).await;
    // Weights move only to what traffic can reach. Capacity does not depend on it.
    let are_kept = if moves { traffic? } else { executor.defer(traffic.map(drop)).map(|()| true)? };
    executor.defer(observed.traffic.forget(executor, &observed.reached).await)?;
    match action {
        Action::Scale(id, replicas) => ask(executor, observed, *id, *replicas).await?,
        Action::Retire(id) => retire(executor, observed, *id).await?,
        // Everything else is in the status.
        _ => {}
    }
    if let Some(event) = events::of_act(observed, decision).filter(|_| are_kept) {
        executor.record(event).await;
    }
    Ok(())
}

/// Keeps what traffic comes in by: first what routes refer to, then the routes. Returns whether they say the weights.
async fn keep_traffic(
    executor: &Exec<'_>,
    observed: &Observed,
    decision: &Decision,
    weights: &Weights,
) -> Result<bool, Error> {
    reach(executor, observed, decision, weights).await?;
    if weights.total() == 0 {
        return Ok(true);
    }
    let (shares, moves) = (shares(observed, weights), matches!(decision.action, Action::SetWeights(..)));
    observed.traffic.keep_routes(executor, &observed.reached, &shares, moves).await
}

/// Keeps what realises versions as their versions say: how long replicas have to go is what the deployment says now,
/// and what they are made from is what they were made from.
async fn keep_children(executor: &Exec<'_>, observed: &Observed) -> Result<(), Error> {
    let annotations = version::annotations(&observed.deployment);
    for version in &observed.versions {
        let Some(set) = version.set.as_ref().filter(|set| set.metadata.deletion_timestamp.is_none()) else {
            continue;
        };
        let is_set = |(name, value): (&String, &Value)| {
            set.annotations().get(name).map(String::as_str) == value.as_str()
        };
        let mut patch = json!({});
        let labels = labels_of(&observed.deployment, Some(&version.hash));
        let is_labelled =
            |(name, value): (&String, &Value)| set.labels().get(name).map(String::as_str) == value.as_str();
        if !labels.as_object().into_iter().flatten().all(is_labelled) {
            patch["metadata"]["labels"] = labels;
        }
        if !annotations.as_object().into_iter().flatten().all(is_set) {
            patch["metadata"]["annotations"] = annotations.clone();
        }
        let changed = if version.id == observed.wanted.target {
            changed(executor, observed, set)
        } else {
            // What an older version is made from stands in the first revision of its set.
            is_edited(set).then(|| leaderworkerset::as_made(&executor.context().cache(), set)).flatten()
        };
        if let Some(spec) = &changed {
            patch["spec"] = spec.clone();
        }
        if patch.as_object().is_none_or(serde_json::Map::is_empty) {
            continue;
        }
        let written = executor.change(set.as_ref(), patch).await;
        let is_repaired = changed.is_some() && written.is_ok();
        executor.defer(written)?;
        if is_repaired {
            let name = set.name_any();
            let note = format!("LeaderWorkerSet {name} was changed by another client and is set back");
            executor.record(Event::warning("Update", "Repaired", note)).await;
        }
    }
    Ok(())
}

/// Whether another field manager owns a field in the spec of a set, except `replicas`. What an admission webhook adds to
/// our own writes has our field manager, so it does not count.
fn is_edited(set: &LeaderWorkerSet) -> bool {
    let writes = set.metadata.managed_fields.iter().flatten();
    let theirs = writes.filter(|it| it.manager.as_deref() != Some(FIELD_MANAGER) && it.subresource.is_none());
    theirs
        .filter_map(|it| it.fields_v1.as_ref()?.0.get("f:spec")?.as_object())
        .any(|spec| spec.keys().any(|field| field != "f:replicas"))
}

/// The patch that sets a set back to its version, where another client has changed it. A spec that was
/// compared is not compared again.
fn changed(executor: &Exec<'_>, observed: &Observed, live: &LeaderWorkerSet) -> Option<Value> {
    if !is_edited(live) {
        return None;
    }
    let uid = live.uid().unwrap_or_default();
    let compared = format!("{} {:?}", observed.version_template.hash, live.metadata.generation);
    if executor.context().memory.is_settled(&uid, &compared) {
        return None;
    }
    let (_, body) = observed.version_template.child(&observed.deployment, 0, 0, "");
    let wanted: LeaderWorkerSet = serde_json::from_value(body.clone()).ok()?;
    let same = leaderworkerset::is_same(live, &wanted).unwrap_or(true)
        && live.spec.startup_policy == wanted.spec.startup_policy
        && live.spec.rollout_strategy == wanted.spec.rollout_strategy;
    if same {
        executor.context().memory.remember_applied(&uid, compared);
        return None;
    }
    let live = serde_json::to_value(&live.spec).ok()?;
    let mut spec = body["spec"].clone();
    erase(&mut spec, &live);
    // How many there are is the planner's.
    spec.as_object_mut()?.remove("replicas");
    Some(spec)
}

/// The Services and the Gateway.
async fn reach(
    executor: &Exec<'_>,
    observed: &Observed,
    decision: &Decision,
    weights: &Weights,
) -> Result<(), Error> {
    let Observed { deployment, traffic, reached, .. } = observed;
    let stays = |version: &&Version| decision.action != Action::Retire(version.id);
    for version in observed.versions.iter().filter(stays) {
        let Some(set) = version.set.as_deref() else { continue };
        let name = version::service_name(&version::child_name(deployment, &version.hash));
        // It belongs to its version, and goes with it: also one that a leader with an old observation makes too late.
        let backend = backend(observed, &name, Some(&version.hash));
        let kept = traffic.keep_service(executor, reached, Backend { owner: owner(set), ..backend }).await;
        // One that gets no traffic holds none of the others back: the way back least of all.
        if weights.of(version.id) > 0 { kept? } else { executor.defer(kept)? }
    }
    let stable = stable(observed, decision, weights);
    let hash = stable.and_then(|id| observed.version(id)).map(|version| version.hash.as_str());
    let name = deployment.name_any();
    let mut backend = backend(observed, &name, hash);
    if traffic.gateway.is_none() {
        backend.annotations = json!({labels::WEIGHTS: traffic::to_text(&shares(observed, weights))});
    }
    traffic.keep_service(executor, reached, backend).await?;
    executor.defer(preview(executor, observed, decision).await)?;
    traffic.keep_gateway(executor, reached).await
}

/// A Service of one version, or of all of them.
fn backend<'a>(observed: &Observed, name: &'a str, version: Option<&str>) -> Backend<'a> {
    let deployment = observed.deployment.as_ref();
    let mut selector = json!({labels::DEPLOYMENT: deployment.name_any(), labels::WORKER_INDEX: "0"});
    if let Some(version) = version {
        selector[labels::VERSION] = version.into();
    }
    let labels = labels_of(deployment, version);
    Backend { name, selector, labels, annotations: Value::Null, owner: owner(deployment) }
}

/// The one version that the stable Service selects, or nothing for all of them: as long as the current one is whole it
/// is that; once it shrinks, what is left of both.
fn stable(
    observed: &Observed,
    Decision { seen, action, .. }: &Decision,
    weights: &Weights,
) -> Option<VersionId> {
    let current = match action {
        Action::Promote(id) => *id,
        _ => seen.current?,
    };
    if observed.traffic.gateway.is_none() {
        // Without a route the Service is what splits traffic.
        let mut versions = weights.versions();
        let first = versions.next()?;
        return versions.next().is_none().then_some(first);
    }
    let found = |id: VersionId| seen.versions.iter().find(|version| version.id == id);
    let asked = match action {
        Action::Scale(id, replicas) if *id == current => *replicas,
        _ => found(current)?.asked,
    };
    let whole = asked >= observed.wanted.replicas || seen.versions.iter().all(|it| it.id == current);
    (whole && found(current)?.ready > 0).then_some(current)
}

/// The Service of the version that is on its way, as long as it is.
async fn preview(executor: &Exec<'_>, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    let name = format!("{}-preview", observed.deployment.name_any());
    let target = observed.target().filter(|version| version.set.is_some());
    let on_its_way =
        target.filter(|version| decision.seen.current.is_some_and(|current| current != version.id));
    if let Some(version) = on_its_way {
        let backend = backend(observed, &name, Some(&version.hash));
        return observed.traffic.keep_service(executor, &observed.reached, backend).await;
    }
    match observed.reached.service(&name) {
        Some(service) => executor.delete(service.as_ref(), true).await,
        None => Ok(()),
    }
}

fn shares(observed: &Observed, weights: &Weights) -> BackendWeights {
    weights.versions().filter_map(|id| Some((observed.service_of(id)?, weights.of(id)))).collect()
}

/// Asks a version for so many replicas. One that does not exist is made without any: a create has no precondition, so one
/// that comes late must not take room from others.
async fn ask(executor: &Exec<'_>, observed: &Observed, id: VersionId, replicas: u32) -> Result<(), Error> {
    let Some(version) = observed.version(id) else { return Ok(()) };
    if let Some(set) = &version.set {
        return executor.change(set.as_ref(), json!({"spec": {"replicas": replicas}})).await;
    }
    let Version { number, name, .. } = version;
    let (key, body) = observed.version_template.child(&observed.deployment, 0, *number, name);
    if executor.create::<LeaderWorkerSet>(&key, &body).await? {
        let note = format!("version {name} is created");
        executor.record(Event::normal("Create", "VersionCreated", note)).await;
    }
    Ok(())
}

/// Takes a version away that has no replicas and no traffic: first what routes could refer to, then the version itself.
async fn retire(executor: &Exec<'_>, observed: &Observed, id: VersionId) -> Result<(), Error> {
    let Some(version) = observed.version(id) else { return Ok(()) };
    let service = observed.service_of(id).and_then(|name| observed.reached.service(&name).cloned());
    if let Some(service) = service {
        executor.delete(service.as_ref(), true).await?;
    }
    if let Some(set) = &version.set {
        executor.delete(set.as_ref(), true).await?;
        let note = format!("version {} is removed", version.name);
        executor.record(Event::normal("Delete", "VersionRetired", note)).await;
    }
    Ok(())
}
