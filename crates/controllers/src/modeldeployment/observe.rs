//! A deployment and its versions, in the planner's words.

use std::{net::IpAddr, sync::Arc, time::Duration};

use api::{
    gateway::Gateway,
    leaderworkerset::LeaderWorkerSet,
    modeldeployment::{Direction, ModelDeployment},
};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use planner::{
    Time,
    handover::{self, Phase, Rollout, Verdict, VersionId, Wanted, Weights},
};

use super::{
    route::{self, Route, Shares},
    version::{self, Blueprint, service_name},
    wanted::wanted,
};
use crate::{
    Protections, count, labels,
    outside::DataPlane,
    runtime::{Key, Next, World, moment},
    settled_at,
};

/// A deployment, and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) deployment: Arc<ModelDeployment>,
    pub(super) blueprint: Blueprint,
    pub(super) versions: Vec<Version>,
    pub(super) wanted: Wanted,
    pub(super) seen: handover::Observed,
    pub(super) services: Vec<Arc<Service>>,
    pub(super) gateway: Option<Arc<Gateway>>,
    pub(super) routes: Vec<Route>,
    /// When something is seen otherwise though nothing changes.
    pub(super) next: Next,
}

/// A version of the service.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) id: VersionId,
    /// What people call it.
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) hash: String,
    /// The object that realises it, unless it is still to be made.
    pub(super) set: Option<Arc<LeaderWorkerSet>>,
    /// Requests that its units work on.
    pub(super) in_flight: Option<u64>,
    /// Requests that it got lately, by its routes.
    pub(super) lately: Option<u64>,
}

/// What was found.
pub(super) enum Found {
    /// Nothing to look after.
    Nothing,
    /// A deployment of which something is not served yet.
    NotServed(Arc<ModelDeployment>, &'static str),
    Deployment(Box<Observed>),
}

impl Observed {
    pub(super) fn version(&self, id: VersionId) -> Option<&Version> {
        self.versions.iter().find(|version| version.id == id)
    }

    pub(super) fn target(&self) -> Option<&Version> {
        self.version(self.wanted.target)
    }

    /// The Service of a version.
    pub(super) fn service_of(&self, id: VersionId) -> Option<String> {
        let version = self.version(id)?;
        Some(service_name(&version::child_name(&self.deployment, &version.hash)))
    }
}

/// What a deployment is looked at with.
pub(super) struct Look<'a> {
    pub(super) world: &'a World,
    pub(super) data_plane: Option<&'a DataPlane>,
    pub(super) protections: Protections,
    pub(super) now: Time,
}

impl Look<'_> {
    pub(super) fn observe(&self, key: &Key) -> Found {
        let living = |it: &&Arc<ModelDeployment>| it.metadata.deletion_timestamp.is_none();
        let Some(deployment) = self.world.deployments.get(key).filter(living).cloned() else {
            return Found::Nothing;
        };
        let Some(blueprint) = version::blueprint(&deployment) else {
            return Found::NotServed(
                deployment,
                "a workload of roles is not served yet; use Pod or LeaderWorker",
            );
        };
        let versions = self.versions(&deployment, &blueprint);
        let target = versions.iter().find(|version| version.hash == blueprint.hash).map(|version| version.id);
        let Some(wanted) = target.and_then(|target| wanted(&deployment.spec, target)) else {
            return Found::NotServed(deployment, "the strategy InPlace is not served yet; use another one");
        };
        let uid = deployment.uid().unwrap_or_default();
        let sets = versions.iter().filter_map(|version| version.set.as_ref()?.uid());
        let owners: Vec<String> = sets.chain([uid.clone()]).collect();
        let services: Vec<Arc<Service>> =
            owners.iter().flat_map(|owner| self.world.services.owned_by(owner)).cloned().collect();
        let routes = Route::of(&uid, self.world);
        let mut next = Next::default();
        let (route, applied) = self.weights(&deployment, &versions, &services, &routes, &mut next);
        let seen = handover::Observed {
            versions: versions.iter().filter_map(|it| self.capacity(&deployment, it, &mut next)).collect(),
            current: current(&deployment, &versions),
            route,
            applied,
            rollout: rollout(&deployment, &blueprint, self.now),
            retained: None,
            in_place: None,
        };
        let gateway = self.world.gateways.owned_by(&uid).next().cloned();
        Found::Deployment(Box::new(Observed {
            deployment,
            blueprint,
            versions,
            wanted,
            seen,
            services,
            gateway,
            routes,
            next,
        }))
    }

    /// The versions that exist, and the one that is wanted.
    fn versions(&self, deployment: &ModelDeployment, blueprint: &Blueprint) -> Vec<Version> {
        let uid = deployment.uid().unwrap_or_default();
        let text = |set: &LeaderWorkerSet, name: &str| set.annotations().get(name).cloned();
        let mut versions: Vec<Version> = self
            .world
            .sets
            .owned_by(&uid)
            .filter_map(|set| {
                let number = text(set, labels::VERSION_NUMBER).and_then(|number| number.parse().ok());
                Some(Version {
                    id: VersionId(0),
                    name: text(set, labels::VERSION_NAME).unwrap_or_default(),
                    number: number.unwrap_or_default(),
                    hash: set.labels().get(labels::VERSION)?.clone(),
                    set: Some(Arc::clone(set)),
                    in_flight: self.in_flight(set),
                    lately: self.lately(set),
                })
            })
            .collect();
        versions.sort_by(|one, other| (one.number, &one.hash).cmp(&(other.number, &other.hash)));
        if versions.iter().all(|version| version.hash != blueprint.hash) {
            versions.push(unborn(deployment, blueprint, &versions));
        }
        for (place, version) in (1..).zip(&mut versions) {
            version.id = VersionId(place);
        }
        versions
    }

    fn pods<'a>(&'a self, set: &LeaderWorkerSet) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        self.world.pods.owned_by(&set.uid().unwrap_or_default())
    }

    fn in_flight(&self, set: &LeaderWorkerSet) -> Option<u64> {
        let endpoints = &self.data_plane?.endpoints;
        let address = |pod: &Arc<Pod>| pod.status.as_ref()?.pod_ip.as_deref()?.parse::<IpAddr>().ok();
        let busy = self.pods(set).filter_map(|pod| endpoints.get(&address(pod)?));
        Some(busy.map(|endpoint| endpoint.in_flight).sum())
    }

    fn lately(&self, set: &LeaderWorkerSet) -> Option<u64> {
        let service = Key::of(set).beside(service_name(&set.name_any()));
        self.data_plane?.lately.get(&service).copied()
    }

    fn capacity(
        &self,
        deployment: &ModelDeployment,
        version: &Version,
        next: &mut Next,
    ) -> Option<handover::Version> {
        let set = version.set.as_ref()?;
        // Counted by the pods themselves: what is written about them may be older than what was decided on it.
        let mut groups: Vec<&str> = self
            .pods(set)
            .filter_map(|pod| pod.labels().get(labels::GROUP_INDEX))
            .map(String::as_str)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        let live = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        let in_service = set.status.as_ref().map_or(0, |status| count(status.ready_replicas));
        let ready = match self.data_plane {
            _ if !self.protections.gate => live,
            Some(_) if !self.protections.settle => in_service,
            Some(data_plane) => {
                // A route and the endpoints that it needs come by different ways: what the data plane has not heard of
                // yet gets no traffic.
                let service = Key::of(deployment).beside(service_name(&set.name_any()));
                let known = data_plane.ready.get(&service).copied().unwrap_or_default();
                next.outside |= known < in_service;
                known.min(in_service)
            }
            None => self.settled(deployment, set, in_service, next),
        };
        Some(handover::Version { id: version.id, asked: count(set.spec.replicas), live, ready, proven: true })
    }

    /// Units that have been ready for long enough that every gateway knows of them.
    fn settled(
        &self,
        deployment: &ModelDeployment,
        set: &LeaderWorkerSet,
        ready: u32,
        next: &mut Next,
    ) -> u32 {
        let settle = settle(deployment, self.protections);
        let since = |pod: &Arc<Pod>| {
            let conditions = pod.status.as_ref()?.conditions.as_ref()?;
            let ready = conditions.iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
            Some(moment(ready.last_transition_time.as_ref()?.0))
        };
        let leaders = self.pods(set).filter(|pod| {
            pod.labels().get(labels::WORKER_INDEX).is_some_and(|index| index == "0")
                && pod.metadata.deletion_timestamp.is_none()
        });
        let mut settled = 0;
        for at in leaders.filter_map(since).map(|since| settled_at(since, settle)) {
            if at <= self.now {
                settled += 1;
            } else {
                *next = next.until(Some(at));
            }
        }
        ready.min(settled)
    }

    /// What the route says, and what the data plane has confirmed.
    fn weights(
        &self,
        deployment: &ModelDeployment,
        versions: &[Version],
        services: &[Arc<Service>],
        routes: &[Route],
        next: &mut Next,
    ) -> (Weights, Option<Weights>) {
        let id = |service: &str| {
            let of =
                |version: &&Version| service_name(&version::child_name(deployment, &version.hash)) == service;
            versions.iter().find(of).map(|version| version.id)
        };
        let to_weights = |shares: Shares| -> Weights {
            shares.into_iter().filter_map(|(service, weight)| Some((id(&service)?, weight))).collect()
        };
        if deployment.spec.traffic.gateway.is_none() {
            let stable = services.iter().find(|service| service.name_any() == deployment.name_any());
            let text = stable.and_then(|service| service.annotations().get(labels::WEIGHTS));
            let weights = to_weights(text.map(|text| route::from_text(text)).unwrap_or_default());
            return (weights.clone(), Some(weights));
        }
        let weights: Vec<Weights> = routes.iter().map(|route| to_weights(route.shares())).collect();
        let Some(first) = weights.first().cloned() else { return (Weights::default(), None) };
        if !self.protections.settle {
            return (first.clone(), Some(first));
        }
        let ours = self.data_plane.map(|data_plane| data_plane.controller.as_str());
        let settle = settle(deployment, self.protections);
        let taken_up: Option<Vec<Time>> = routes.iter().map(|route| route.taken_up(ours, settle)).collect();
        let agree = weights.iter().all(|other| *other == first)
            && routes.len() == deployment.spec.traffic.ports.len();
        let from = taken_up.and_then(|times| times.into_iter().max()).filter(|_| agree);
        if let Some(from) = from.filter(|from| *from > self.now) {
            *next = next.until(Some(from));
        }
        let applied = from.filter(|from| *from <= self.now).map(|_| first.clone());
        (first, applied)
    }
}

fn settle(deployment: &ModelDeployment, protections: Protections) -> Duration {
    let seconds = if protections.settle { count(deployment.spec.traffic.settle_seconds) } else { 0 };
    Duration::from_secs(u64::from(seconds))
}

/// The version that is wanted and does not exist yet.
fn unborn(deployment: &ModelDeployment, blueprint: &Blueprint, others: &[Version]) -> Version {
    let listed = deployment.status.iter().flat_map(|status| &status.versions).map(|version| version.revision);
    let number = others.iter().map(|version| version.number).chain(listed).max().unwrap_or_default() + 1;
    let name = deployment.spec.version.clone().unwrap_or_else(|| format!("r{number}"));
    let taken = others.iter().any(|version| version.name == name);
    let name = if taken { format!("{name}-{}", blueprint.hash) } else { name };
    Version {
        id: VersionId(0),
        name,
        number,
        hash: blueprint.hash.clone(),
        set: None,
        in_flight: None,
        lately: None,
    }
}

/// The version that last carried everything.
fn current(deployment: &ModelDeployment, versions: &[Version]) -> Option<VersionId> {
    let name = deployment.status.as_ref()?.current_version.as_ref()?;
    versions.iter().find(|version| version.name == *name && version.set.is_some()).map(|version| version.id)
}

/// The rollout that was written, if it is the one to this version. One that was called off, by asking for what was
/// current, is over: whoever asks for its version once more begins another.
pub(super) fn written<'a>(
    deployment: &'a ModelDeployment,
    hash: &str,
) -> Option<&'a api::modeldeployment::Rollout> {
    let status = deployment.status.as_ref()?;
    let rollout = status.rollout.as_ref().filter(|rollout| rollout.to == hash)?;
    let was_called_off =
        rollout.direction == Direction::Back && status.target_version == status.current_version;
    (!was_called_off).then_some(rollout)
}

/// Where the rollout is, as it was written.
fn rollout(deployment: &ModelDeployment, blueprint: &Blueprint, now: Time) -> Rollout {
    let Some(written) = written(deployment, &blueprint.hash) else {
        return Rollout {
            phase: Phase::Forward,
            step: 0,
            step_since: now,
            moved_at: None,
            progressed_at: now,
            verdict: Verdict::Open,
        };
    };
    Rollout {
        phase: match written.direction {
            Direction::Forward => Phase::Forward,
            Direction::Back => Phase::Back,
            Direction::Paused => Phase::Paused,
        },
        step: count(written.step),
        step_since: moment(written.step_since.0),
        moved_at: written.moved_at.as_ref().map(|time| moment(time.0)),
        progressed_at: moment(written.progressed_at.0),
        verdict: Verdict::Open,
    }
}
