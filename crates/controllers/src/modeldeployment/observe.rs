//! A deployment, and what there is of it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use api::{leaderworkerset::LeaderWorkerSet, modeldeployment::ModelDeployment};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use planner::{
    Time,
    handover::{
        Rollout, VersionId, Wanted,
        checks::{Answers, Standing},
    },
};

use super::{
    capacity::{self, Question},
    checks, rollout, scaling,
    version::{self, VersionTemplate, service_name},
    wanted::{NOT_SERVED_IN_PLACE, NOT_SERVED_ROLES, settle, traffic, wanted},
};
use crate::{
    Protections, count, labels,
    pipeline::{Found, Inputs},
    request::Request,
    runtime::{Error, Key},
    settled_at,
    traffic::{self, BackendWeights, RouteWeights, Traffic},
    units,
};

/// A deployment, and everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) deployment: Arc<ModelDeployment>,
    pub(super) version_template: VersionTemplate,
    pub(super) versions: Vec<Version>,
    pub(super) wanted: Wanted,
    /// How traffic should reach it, and what there is of that.
    pub(super) traffic: Traffic,
    pub(super) reached: traffic::Observed,
    /// What routes say, by the Services of versions; nothing where there is no route.
    pub(super) route_weights: Option<RouteWeights>,
    /// Where the rollout to the wanted version is, as it was written.
    pub(super) rollout: Option<Rollout>,
    /// Since when it is in a wait that no progress is asked of.
    pub(super) held_since: Option<Time>,
    /// How the checks of that rollout stood.
    pub(super) checks: Vec<(String, Standing)>,
    /// What the target needs and the nodes have, where that is to be judged.
    pub(super) capacity: Option<Question>,
    /// The version whose last request for replicas may be on its way.
    pub(super) pending: Option<VersionId>,
    /// What a person asks for.
    pub(super) request: Option<Request>,
    /// The version before the current one, and until when it is kept.
    pub(super) retained: Option<(VersionId, Time)>,
    pub(super) protections: Protections,
    /// The data plane counts requests.
    pub(super) is_counted: bool,
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
    /// Its pods.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Groups of which there is a pod. Counted by the pods themselves: what is written about them may be older than
    /// what was decided on it.
    pub(super) live: u32,
    /// Groups that its set says are ready.
    pub(super) ready: u32,
    /// Endpoints that the data plane sends requests to, where that is known.
    pub(super) endpoints: Option<u32>,
    /// For each leader that is ready, when every gateway knows of it.
    pub(super) settled_at: Vec<Time>,
    /// Requests that its replicas work on.
    pub(super) in_flight: Option<u64>,
    /// Requests that it got lately, by its routes.
    pub(super) recent_requests: Option<u64>,
    /// What it answered so far, by its routes.
    pub(super) answers: Option<Answers>,
    /// The most restarts of a pod that was made since its rollout began.
    pub(super) restarts: u32,
    /// Since when the scheduler finds no node for one of its pods.
    pub(super) unschedulable_since: Option<Time>,
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

    /// The version that last carried everything. Where the status does not say it, it is the one that serves.
    pub(super) fn current(&self) -> Option<VersionId> {
        let named = || {
            let name = self.deployment.status.as_ref()?.current_version.as_ref()?;
            self.versions.iter().find(|version| version.name == *name && version.set.is_some())
        };
        named().map(|version| version.id).or_else(|| self.serving())
    }

    /// The version beside the target that has ready replicas and most of the traffic: a status that another client
    /// erased must not make the replicas that serve look like replicas that are left over.
    fn serving(&self) -> Option<VersionId> {
        let weights = self.by_version(&self.route_weights.as_ref()?.shares);
        let weight = |id| weights.iter().find(|(of, _)| *of == id).map_or(0, |(_, weight)| *weight);
        let serves = |version: &&Version| {
            version.id != self.wanted.target && version.set.is_some() && version.ready > 0
        };
        let most = self.versions.iter().filter(serves).max_by_key(|version| weight(version.id))?;
        (weight(most.id) > 0).then_some(most.id)
    }

    /// Weights of Services as weights of versions.
    pub(super) fn by_version(&self, shares: &BackendWeights) -> Vec<(VersionId, u32)> {
        let id = |service: &str| {
            let ids = self.versions.iter().map(|version| version.id);
            ids.into_iter().find(|id| self.service_of(*id).as_deref() == Some(service))
        };
        shares.iter().filter_map(|(service, weight)| Some((id(service)?, *weight))).collect()
    }
}

pub(super) fn observe(
    inputs: &Inputs<'_>,
    deployment: &Arc<ModelDeployment>,
) -> Result<Found<Observed>, Error> {
    let uid = deployment.uid().unwrap_or_default();
    let sets = inputs.cache.owned_by::<LeaderWorkerSet>(&uid);
    let sets: Vec<_> = sets.filter_map(|set| Some((hash(deployment, set)?, set.as_ref()))).collect();
    let Some(version_template) = version::known_blueprint(deployment, sets.iter().cloned()) else {
        return Ok(Found::NotServed(NOT_SERVED_ROLES));
    };
    let versions = versions(inputs, deployment, &version_template);
    let target =
        versions.iter().find(|version| version.hash == version_template.hash).map(|version| version.id);
    let Some(wanted) = target.and_then(|target| wanted(&deployment.spec, target)) else {
        return Ok(Found::NotServed(NOT_SERVED_IN_PLACE));
    };
    let sets = versions.iter().filter_map(|version| version.set.as_ref()?.uid());
    let reached = traffic::Observed::observe(inputs, &uid, sets);
    let traffic = traffic(deployment, inputs.protections);
    let mut observed = Observed {
        pending: scaling::pending(inputs.cache, deployment, &versions)?,
        route_weights: route_weights(inputs, deployment, &traffic, &reached),
        rollout: rollout::written(deployment, &version_template.hash)
            .map(|it| rollout::read(it, inputs.times)),
        held_since: rollout::written(deployment, &version_template.hash)
            .and_then(|it| rollout::held_since(it, inputs.times)),
        request: inputs.request.cloned(),
        checks: rollout::written(deployment, &version_template.hash)
            .map(|it| checks::written(it, inputs.times))
            .unwrap_or_default(),
        capacity: None,
        retained: rollout::retained(deployment, &versions, &wanted, inputs.times),
        version_template,
        versions,
        wanted,
        traffic,
        reached,
        protections: inputs.protections,
        is_counted: inputs.data_plane.is_some(),
        deployment: Arc::clone(deployment),
    };
    let current = observed.current().and_then(|id| observed.version(id));
    observed.capacity =
        observed.target().and_then(|target| capacity::observe(inputs, deployment, target, current));
    Ok(Found::Observed(observed))
}

/// What routes say; without routes, what the stable Service says.
fn route_weights(
    inputs: &Inputs<'_>,
    deployment: &ModelDeployment,
    traffic: &Traffic,
    reached: &traffic::Observed,
) -> Option<RouteWeights> {
    if traffic.gateway.is_some() {
        return reached.route_weights(inputs, traffic);
    }
    let stable = reached.service(&deployment.name_any());
    let text = stable.and_then(|service| service.annotations().get(labels::WEIGHTS));
    let shares = text.map(|text| traffic::from_text(text)).unwrap_or_default();
    Some(RouteWeights { shares, applied_at: Some(Time::ZERO) })
}

/// The versions that exist, and the one that is wanted.
fn versions(
    inputs: &Inputs<'_>,
    deployment: &ModelDeployment,
    version_template: &VersionTemplate,
) -> Vec<Version> {
    let sets = inputs.cache.owned_by::<LeaderWorkerSet>(&deployment.uid().unwrap_or_default());
    let mut versions: Vec<Version> = sets.filter_map(|set| existing(inputs, deployment, set)).collect();
    versions.sort_by(|one, other| (one.number, &one.hash).cmp(&(other.number, &other.hash)));
    if versions.iter().all(|version| version.hash != version_template.hash) {
        versions.push(unborn(deployment, version_template, &versions));
    }
    for (place, version) in (1..).zip(&mut versions) {
        version.id = VersionId(place);
    }
    versions
}

fn existing(
    inputs: &Inputs<'_>,
    deployment: &ModelDeployment,
    set: &Arc<LeaderWorkerSet>,
) -> Option<Version> {
    let text = |name: &str| set.annotations().get(name).cloned();
    let pods: Vec<&Arc<Pod>> = inputs.cache.owned_by(&set.uid().unwrap_or_default()).collect();
    let groups: BTreeSet<&String> =
        pods.iter().filter_map(|pod| pod.labels().get(labels::GROUP_INDEX)).collect();
    let service = Key::of(deployment).beside(service_name(&set.name_any()));
    let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.as_deref()?.parse::<IpAddr>().ok();
    let in_flight = inputs.data_plane.map(|data_plane| {
        let busy = pods.iter().filter_map(|pod| data_plane.endpoints.get(&address(pod)?));
        busy.map(|endpoint| endpoint.in_flight).sum()
    });
    Some(Version {
        id: VersionId(0),
        name: text(labels::VERSION_NAME).unwrap_or_default(),
        number: text(labels::VERSION_NUMBER).and_then(|number| number.parse().ok()).unwrap_or_default(),
        hash: hash(deployment, set)?,
        live: u32::try_from(groups.len()).unwrap_or(u32::MAX),
        ready: set.status.as_ref().map_or(0, |status| count(status.ready_replicas)),
        endpoints: inputs.data_plane.map(|it| it.ready.get(&service).copied().unwrap_or_default()),
        settled_at: pods.iter().filter_map(|pod| leader_settled_at(inputs, deployment, pod)).collect(),
        in_flight,
        recent_requests: inputs
            .data_plane
            .and_then(|data_plane| data_plane.recent_requests.get(&service).copied()),
        answers: inputs.data_plane.and_then(|data_plane| data_plane.answers.get(&service).copied()),
        restarts: pods
            .iter()
            .filter(|pod| is_new(deployment, pod))
            .map(|pod| units::restarts(pod))
            .max()
            .unwrap_or(0),
        unschedulable_since: pods
            .iter()
            .filter_map(|pod| units::unschedulable_since(pod, inputs.times))
            .min(),
        set: Some(Arc::clone(set)),
        pods: pods.into_iter().map(Arc::clone).collect(),
    })
}

/// Whether a pod was created since the rollout in progress began: earlier restarts are no fault of its version.
fn is_new(deployment: &ModelDeployment, pod: &Pod) -> bool {
    let rollout = deployment.status.as_ref().and_then(|status| status.rollout.as_ref());
    let made = pod.metadata.creation_timestamp.as_ref();
    made.zip(rollout).is_some_and(|(made, rollout)| made.0 >= rollout.started_at.0)
}

/// The hash of a version: its label or, where the label was removed, the end of its name.
fn hash(deployment: &ModelDeployment, set: &LeaderWorkerSet) -> Option<String> {
    let named = || set.name_any().strip_prefix(&format!("{}-", deployment.name_any())).map(ToOwned::to_owned);
    set.labels().get(labels::VERSION).cloned().or_else(named)
}

/// When every gateway knows that a leader is ready.
fn leader_settled_at(inputs: &Inputs<'_>, deployment: &ModelDeployment, pod: &Pod) -> Option<Time> {
    let is_leader = pod.labels().get(labels::WORKER_INDEX).is_some_and(|index| index == "0");
    let lives = pod.metadata.deletion_timestamp.is_none();
    let conditions = pod.status.as_ref().filter(|_| is_leader && lives)?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    let since = inputs.times.moment(ready.last_transition_time.as_ref()?.0);
    Some(settled_at(since, settle(deployment, inputs.protections)))
}

/// The number of a version that does not exist: the one that its rollout has given it, or the next.
fn number(deployment: &ModelDeployment, version_template: &VersionTemplate, others: &[Version]) -> i64 {
    let status = deployment.status.as_ref();
    let rollout = status.and_then(|status| status.rollout.as_ref());
    let given = rollout.filter(|rollout| rollout.to == version_template.hash).map(|rollout| rollout.revision);
    let latest = status.map_or(0, |status| status.latest_revision);
    let next = others.iter().map(|version| version.number).fold(latest, i64::max) + 1;
    given.filter(|given| *given > 0 && others.iter().all(|it| it.number != *given)).unwrap_or(next)
}

/// The version that is wanted and does not exist yet.
fn unborn(deployment: &ModelDeployment, version_template: &VersionTemplate, others: &[Version]) -> Version {
    let number = number(deployment, version_template, others);
    let name = deployment.spec.version.clone().unwrap_or_else(|| format!("r{number}"));
    let taken = others.iter().any(|version| version.name == name);
    let name = if taken { format!("{name}-{}", version_template.hash) } else { name };
    Version {
        id: VersionId(0),
        name,
        number,
        hash: version_template.hash.clone(),
        set: None,
        pods: Vec::new(),
        live: 0,
        ready: 0,
        endpoints: None,
        settled_at: Vec::new(),
        in_flight: None,
        recent_requests: None,
        answers: None,
        restarts: 0,
        unschedulable_since: None,
    }
}
