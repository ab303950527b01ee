//! Whether the cluster holds a rollout, before anything of it begins.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    PodTemplate,
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::{Capacity, CapacityFinding, ModelDeployment, ModelDeploymentSpec, Outcome, Workload},
};
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::{Api, Client, ResourceExt, api::ListParams};
use planner::{
    Budget, Reason,
    admission::{self, Demand, FreeCapacity},
};
use serde_json::Value;

use super::{
    observe::{Observed, Version},
    rollout, version,
    wanted::budget,
};
use crate::{
    count, int, labels,
    pipeline::Inputs,
    rehearsal::{Resources, typed},
    runtime::{Cache, Key},
    units::free_capacity::{self, Belongs, Shape},
};

/// What a rollout needs, and what nodes have.
#[derive(Clone, Debug)]
pub(super) struct Question {
    demand: Demand,
    room: FreeCapacity,
    /// What one replica requests, as people write it.
    each: String,
}

/// The answer for a rollout that has not begun.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    /// What is short, if anything is.
    pub(super) short: Option<Short>,
    /// Nothing begins.
    pub(super) is_refused: bool,
}

/// What does not fit.
#[derive(Clone, Debug)]
pub(super) struct Short {
    pub(super) reason: Reason,
    needed: u32,
    room: u32,
}

impl Short {
    pub(super) fn status(&self) -> CapacityFinding {
        CapacityFinding {
            needed: int(self.needed),
            room: int(self.room),
            message: self.reason.what.chars().take(512).collect(),
        }
    }
}

impl Question {
    fn answer(&self) -> Option<Short> {
        let found = admission::admit(&self.demand, &self.room);
        let (needed, room) = found.short()?;
        let reason = found.reason();
        let what = match self.each.as_str() {
            "" => reason.what.clone(),
            each => format!("{}; a replica requests {each}", reason.what),
        };
        Some(Short { reason: Reason { what, ..reason }, needed, room })
    }
}

/// Judges a rollout that has not begun; nothing where it has, or where there is none.
pub(super) fn judge(observed: &Observed) -> Option<Judged> {
    let target = observed.target()?;
    let is_open = target.set.is_none() && observed.current() != Some(target.id);
    let written = rollout::written(&observed.deployment, &observed.version_template.hash);
    let has_begun = written.is_some_and(|it| it.outcome != Some(Outcome::Refused));
    if !is_open || has_begun {
        return None;
    }
    let short = observed.capacity.as_ref().and_then(Question::answer);
    let is_refused = short.is_some() && observed.deployment.spec.capacity == Capacity::Enforce;
    Some(Judged { short, is_refused })
}

/// The deployments that more room may help: those that are refused, and those whose status is of an older spec, because they
/// may be refused just now.
pub(super) fn waiting(cache: &Cache) -> Vec<Key> {
    let may_wait = |it: &&Arc<ModelDeployment>| {
        let Some(status) = &it.status else { return true };
        let is_refused = status.rollout.as_ref().is_some_and(|it| it.outcome == Some(Outcome::Refused));
        is_refused || status.observed_generation < it.metadata.generation.unwrap_or_default()
    };
    cache.all::<ModelDeployment>().filter(may_wait).map(|it| Key::of(it.as_ref())).collect()
}

/// What is to be judged where a version does not exist yet, and where nodes say what they have.
pub(super) fn observe(
    inputs: &Inputs<'_>,
    deployment: &ModelDeployment,
    target: &Version,
    current: Option<&Version>,
) -> Option<Question> {
    if target.set.is_some() || deployment.spec.capacity == Capacity::Off {
        return None;
    }
    let before = current.filter(|version| version.id != target.id);
    let set = before.and_then(|version| version.set.as_deref());
    let name = deployment.name_any();
    let belongs = |pod: &Pod| {
        let is_ours =
            pod.labels().get(labels::DEPLOYMENT) == Some(&name) && pod.namespace() == deployment.namespace();
        match pod.labels().get(labels::VERSION) {
            _ if !is_ours => Belongs::Others,
            Some(hash) if before.is_some_and(|before| before.hash == *hash) => Belongs::Before,
            _ => Belongs::Going,
        }
    };
    let live = before.map_or(0, |version| placed(&version.pods));
    let nodes = inputs.cache.all::<Node>().map(AsRef::as_ref);
    let pods = inputs.cache.all::<Pod>().map(AsRef::as_ref);
    question(&deployment.spec, set.and_then(of_set).as_ref(), live, nodes, pods, belongs)
}

fn question<'a>(
    spec: &ModelDeploymentSpec,
    before: Option<&Shape>,
    live: u32,
    nodes: impl Iterator<Item = &'a Node>,
    pods: impl Iterator<Item = &'a Pod>,
    belongs: impl Fn(&Pod) -> Belongs,
) -> Option<Question> {
    let shape = of_workload(&spec.workload)?;
    let room = free_capacity::of_nodes(&shape, nodes, pods, belongs)?;
    let replicas = count(spec.replicas);
    let none = Budget { surge: 0, unavailable: 0 };
    let demand = Demand {
        unit: shape.amounts(),
        before: before.map(Shape::amounts).unwrap_or_default(),
        replicas,
        live,
        budget: if before.is_some() { budget(spec)? } else { none },
    };
    let each = Resources::in_order(&shape.requests());
    let each: Vec<String> =
        each.iter().map(|(name, amount)| format!("{name} {}", Resources::display(name, *amount))).collect();
    Some(Question { demand, room, each: each.join(", ") })
}

/// The groups of which a pod has a node.
fn placed(pods: &[Arc<Pod>]) -> u32 {
    let placed = pods.iter().filter(|pod| free_capacity::holds_resources(pod));
    let groups: BTreeSet<_> = placed.filter_map(|pod| pod.labels().get(labels::GROUP_INDEX)).collect();
    u32::try_from(groups.len()).unwrap_or(u32::MAX)
}

/// One replica of a workload; nothing where a template cannot be read, and for one of too many pods.
fn of_workload(workload: &Workload) -> Option<Shape> {
    if let Some(pod) = &workload.pod {
        return Some(Shape::of([spec_of(pod)?]));
    }
    let unit = workload.leader_worker.as_ref()?;
    group(unit.leader_template.as_ref(), &unit.worker_template, unit.size)
}

/// One replica of a version that exists.
fn of_set(set: &LeaderWorkerSet) -> Option<Shape> {
    let unit = &set.spec.leader_worker_template;
    group(unit.leader_template.as_ref(), &unit.worker_template, unit.size)
}

/// Replicas of more pods are not judged.
const MOST_PODS: i32 = 1_000;

fn group(leader: Option<&PodTemplate>, worker: &PodTemplate, size: i32) -> Option<Shape> {
    let leader = spec_of(leader.unwrap_or(worker))?;
    let worker = spec_of(worker)?;
    let workers = (1..size).map(|_| worker.clone());
    (size <= MOST_PODS).then(|| Shape::of(std::iter::once(leader).chain(workers)))
}

fn spec_of(template: &PodTemplate) -> Option<PodSpec> {
    template.typed().ok()?.spec
}

/// Whether the API that a client talks to has room for the rollout to a manifest: nothing, or why it would be refused.
pub(super) fn would_be_refused(
    client: Client,
    manifest: Value,
    live: Option<Value>,
) -> BoxFuture<'static, Result<Option<String>, kube::Error>> {
    Box::pin(async move {
        let Ok(new) = typed::<ModelDeployment>(&manifest) else { return Ok(None) };
        let live = live.and_then(|live| typed::<ModelDeployment>(&live).ok());
        let is_same = |live: &ModelDeployment| version::is_one(live, &new);
        if new.spec.capacity != Capacity::Enforce || live.as_ref().is_some_and(is_same) {
            return Ok(None);
        }
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
        let pods = Api::<Pod>::all(client).list(&ListParams::default()).await?.items;
        Ok(refusal_of(&new, live.as_ref(), &nodes, &pods))
    })
}

/// The same for what there is. What runs is taken to be of the live spec.
fn refusal_of(
    new: &ModelDeployment,
    live: Option<&ModelDeployment>,
    nodes: &[Node],
    pods: &[Pod],
) -> Option<String> {
    let serves =
        |it: &&ModelDeployment| it.status.as_ref().is_some_and(|status| status.current_version.is_some());
    let live = live.filter(serves);
    let name = live.map(ResourceExt::name_any);
    let namespace = live.and_then(ResourceExt::namespace);
    let is_its = |pod: &Pod| {
        name.is_some()
            && pod.labels().get(labels::DEPLOYMENT) == name.as_ref()
            && pod.namespace() == namespace
    };
    let belongs = |pod: &Pod| if is_its(pod) { Belongs::Before } else { Belongs::Others };
    let is_leader = |pod: &&Pod| pod.labels().get(labels::WORKER_INDEX).is_some_and(|index| index == "0");
    let placed = pods
        .iter()
        .filter(|pod| is_its(pod) && free_capacity::holds_resources(pod))
        .filter(is_leader)
        .count();
    let before = live.and_then(|live| of_workload(&live.spec.workload));
    let live = u32::try_from(placed).unwrap_or(u32::MAX);
    let short = question(&new.spec, before.as_ref(), live, nodes.iter(), pods.iter(), belongs)?.answer()?;
    Some(short.reason.what)
}
