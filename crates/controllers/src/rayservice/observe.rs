//! A service, and what there is of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use api::{
    raycluster::RayCluster,
    rayservice::{ClusterServiceStatus, GivenUp, READINESS_PATH, RayService, ServeStatus, Upgrade},
};
use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::ResourceExt;
use planner::Time;
use serde_json::Value;

use super::{
    revision::{self, Known},
    wanted::{self, Ports, Wanted, cluster_service, stable_name},
};
use crate::{
    count, endpoints, labels,
    pipeline::{Found, Inputs},
    request::Request,
    runtime::{Error, Key},
    traffic::{self, BackendWeights, RouteWeights, Traffic},
    units,
};

/// A service, and everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) service: Arc<RayService>,
    pub(super) wanted: Wanted,
    /// The digest of the cluster config that is wanted.
    pub(super) goal: String,
    pub(super) revisions: Known,
    /// The cluster that users have.
    pub(super) active: Option<Cluster>,
    /// The cluster that users will have.
    pub(super) pending: Option<Cluster>,
    /// Clusters that no longer belong to the service.
    pub(super) retiring: Vec<Retiring>,
    pub(super) upgrade: Option<Upgrade>,
    pub(super) moved_at: Option<Time>,
    pub(super) progressed_at: Option<Time>,
    pub(super) created_at: Option<Time>,
    pub(super) given_up: Option<GivenUp>,
    pub(super) ports: Ports,
    pub(super) traffic: Traffic,
    pub(super) reached: traffic::Observed,
    /// What routes say, by the Services of clusters; without routes, what the stable Service says.
    pub(super) route_weights: Option<RouteWeights>,
    /// What a person asks for.
    pub(super) asked: Option<Request>,
}

/// A cluster of a service.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: String,
    /// What the status says of it.
    pub(super) status: ClusterServiceStatus,
    pub(super) object: Option<Arc<RayCluster>>,
    /// The capacity that its Serve should have, in percent.
    pub(super) sent_capacity: u32,
    /// What its Serve should have.
    pub(super) applications: String,
    /// The same, read.
    pub(super) config: Option<Value>,
    /// The cluster config that it is made from.
    pub(super) template: Option<Value>,
    pub(super) ports: Ports,
    /// Where its dashboard is, once its head is Ready.
    pub(super) dashboard: Option<String>,
    pub(super) pods: Vec<RayPod>,
    /// Its pods that get requests.
    pub(super) endpoints: u32,
    /// The path that must be answered with success before it counts as ready, where the user names one.
    pub(super) readiness_path: Option<String>,
}

/// A pod of a cluster.
#[derive(Debug)]
pub(super) struct RayPod {
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) is_head: bool,
    pub(super) pod: Arc<Pod>,
}

/// A cluster that no longer belongs to the service.
#[derive(Debug)]
pub(super) struct Retiring {
    pub(super) name: String,
    pub(super) goal: String,
    /// When it may be deleted; nothing where that is not in the status yet.
    pub(super) delete_at: Option<Time>,
    pub(super) object: Option<Arc<RayCluster>>,
    /// Requests that its pods work on.
    pub(super) in_flight: Option<u64>,
}

impl Cluster {
    pub(super) fn serve(&self) -> ServeStatus {
        self.status.serve.clone().unwrap_or_default()
    }

    /// The share of the traffic that it should get, in percent.
    pub(super) fn weight(&self) -> Option<u32> {
        self.status.traffic_routed_percent.map(count)
    }
}

impl Observed {
    /// The verb of what a person asks for.
    pub(super) fn verb(&self) -> Option<&str> {
        self.asked.as_ref().map(|asked| asked.verb.as_str())
    }

    pub(super) fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.active.iter().chain(&self.pending)
    }

    /// The weights of the Services of clusters, as the status has them.
    pub(super) fn shares(&self) -> BackendWeights {
        let share =
            |cluster: &Cluster| (cluster_service(&cluster.name), cluster.weight().unwrap_or_default());
        self.clusters().map(share).collect()
    }
}

pub(super) fn observe(inputs: &Inputs<'_>, service: &Arc<RayService>) -> Result<Found<Observed>, Error> {
    let wanted = match wanted::wanted(service) {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Found::NotServed(why)),
    };
    if let Some(cluster) = made_by_another(inputs, service) {
        return Ok(Found::NotAdopted(format!("RayCluster {cluster}")));
    }
    let revisions = match Known::observe(inputs, service.as_ref(), revision::wanted)? {
        Ok(revisions) => revisions,
        Err(new) => return Ok(Found::NewRevision(new)),
    };
    let status = service.status.clone().unwrap_or_default();
    let uid = service.uid().unwrap_or_default();
    let objects: BTreeMap<String, &Arc<RayCluster>> =
        inputs.cache.owned_by::<RayCluster>(&uid).map(|it| (it.name_any(), it)).collect();
    let goal = revisions.newest().goal.clone();
    let is_incremental = wanted.strategy.is_incremental();
    let read = |of: &Option<ClusterServiceStatus>| {
        let status = of.clone()?;
        cluster(inputs, service, &revisions, &objects, is_incremental, status)
    };
    let (active, pending) = (read(&status.active_service_status), read(&status.pending_service_status));
    let retiring = retiring(inputs, service, &objects, [&active, &pending]);
    let newest = revisions.newest();
    let wanted_ports = || wanted::ports(&newest.cluster, newest.config.as_ref().unwrap_or(&Value::Null));
    // Clients come in by the ports of the cluster that they have, until the next one takes over.
    let ports = active.as_ref().map_or_else(wanted_ports, |active| active.ports);
    let traffic = wanted::traffic(service, ports);
    let reached =
        traffic::Observed::observe(inputs, &uid, objects.values().filter_map(|object| object.uid()));
    let upgrade = status.upgrade;
    let adjusted = upgrade.as_ref().and_then(|it| it.adjusted_at.as_ref()).map(|time| time.0);
    let read_time = |time: &MicroTime| inputs.times.moment_of(time.0, adjusted);
    Ok(Found::Observed(Observed {
        route_weights: route_weights(inputs, service, &traffic, &reached),
        moved_at: upgrade.as_ref().and_then(|it| it.moved_at.as_ref()).map(read_time),
        progressed_at: upgrade.as_ref().map(|it| read_time(&it.progressed_at)),
        created_at: service.creation_timestamp().map(|time| inputs.times.moment(time.0)),
        upgrade,
        given_up: status.given_up.filter(|given_up| given_up.goal == goal),
        service: Arc::clone(service),
        asked: inputs.request.cloned(),
        wanted,
        goal,
        revisions,
        active,
        pending,
        retiring,
        ports,
        traffic,
        reached,
    }))
}

/// A cluster of the service that another operator made.
fn made_by_another(inputs: &Inputs<'_>, service: &RayService) -> Option<String> {
    let mut clusters = inputs.cache.owned_by::<RayCluster>(&service.uid().unwrap_or_default());
    let theirs = clusters.find(|cluster| !cluster.labels().contains_key(labels::RAY_GOAL))?;
    // A label that somebody took away makes a cluster of ours nobody else's.
    let status = service.status.as_ref()?;
    let ours = [&status.active_service_status, &status.pending_service_status];
    let is_ours = ours
        .into_iter()
        .flatten()
        .any(|it| it.goal.is_some() && it.ray_cluster_name.as_deref() == Some(theirs.name_any().as_str()));
    let goes = status.retiring.iter().any(|it| it.ray_cluster_name == theirs.name_any());
    (!is_ours && !goes).then(|| theirs.name_any())
}

fn cluster(
    inputs: &Inputs<'_>,
    service: &RayService,
    revisions: &Known,
    objects: &BTreeMap<String, &Arc<RayCluster>>,
    is_incremental: bool,
    status: ClusterServiceStatus,
) -> Option<Cluster> {
    let name = status.ray_cluster_name.clone()?;
    let told = status.revision.as_ref().and_then(|key| revisions.get(revisions.find(key)));
    let goal = status.goal.clone().unwrap_or_default();
    let made = revisions.all().rev().map(|(_, stored)| stored).find(|stored| stored.goal == goal);
    let template = made.map(|made| made.cluster.clone());
    let config = told.and_then(|told| told.config.clone());
    let ports =
        wanted::ports(template.as_ref().unwrap_or(&Value::Null), config.as_ref().unwrap_or(&Value::Null));
    let object = objects.get(&name).map(|object| Arc::clone(object));
    let pods = pods(inputs, object.as_deref());
    let capacity = status.target_capacity.filter(|_| is_incremental).map_or(100, count);
    let head = pods.iter().find(|it| it.is_head && units::is_true(units::condition(&it.pod, "Ready")));
    let dashboard = head.and_then(|head| head.address.as_deref()).map(|ip| address(ip, ports.dashboard));
    let endpoints = endpoints(inputs, &Key::of(service).beside(cluster_service(&name)));
    Some(Cluster {
        sent_capacity: capacity,
        applications: told.map(|told| told.applications.clone()).unwrap_or_default(),
        name,
        status,
        object,
        config,
        template,
        ports,
        dashboard,
        pods,
        endpoints,
        readiness_path: service.annotations().get(READINESS_PATH).cloned(),
    })
}

/// An address and a port, as a URL has them.
pub(super) fn address(ip: &str, port: i32) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn pods(inputs: &Inputs<'_>, object: Option<&RayCluster>) -> Vec<RayPod> {
    let uid = object.and_then(ResourceExt::uid).unwrap_or_default();
    let living = inputs.cache.owned_by::<Pod>(&uid).filter(|pod| !units::is_going(pod));
    let read = |pod: &Arc<Pod>| RayPod {
        name: pod.name_any(),
        address: pod.status.as_ref().and_then(|status| status.pod_ip.clone()),
        is_head: pod.labels().get(labels::RAY_NODE_TYPE).is_some_and(|ty| ty == "head"),
        pod: Arc::clone(pod),
    };
    living.map(read).collect()
}

/// The pods behind a Service that get requests: those that its slices name, and as far as it is known the data plane.
fn endpoints(inputs: &Inputs<'_>, service: &Key) -> u32 {
    let slices = inputs.cache.within::<EndpointSlice>(&service.namespace);
    let slices = slices.filter(|slice| endpoints::service_of(slice).as_ref() == Some(service));
    let ready: BTreeSet<&String> = slices
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        })
        .flat_map(|endpoint| &endpoint.addresses)
        .collect();
    let ready = u32::try_from(ready.len()).unwrap_or(u32::MAX);
    let known = inputs.data_plane.and_then(|data_plane| data_plane.ready.get(service).copied());
    known.map_or(ready, |known| known.min(ready))
}

/// The clusters of a service that are neither of the two: those that its status names, and any other one.
fn retiring(
    inputs: &Inputs<'_>,
    service: &RayService,
    objects: &BTreeMap<String, &Arc<RayCluster>>,
    used: [&Option<Cluster>; 2],
) -> Vec<Retiring> {
    let named = service.status.as_ref().map(|status| status.retiring.as_slice()).unwrap_or_default();
    let is_used = |name: &str| used.iter().any(|it| it.as_ref().is_some_and(|it| it.name == name));
    let read = |(name, object): (&String, &&Arc<RayCluster>)| {
        let known = named.iter().find(|known| known.ray_cluster_name == *name);
        let goal = known.map(|known| known.goal.clone());
        let labelled = || object.labels().get(labels::RAY_GOAL).cloned();
        Retiring {
            name: name.clone(),
            goal: goal.or_else(labelled).unwrap_or_default(),
            delete_at: known.map(|known| inputs.times.moment(known.delete_at.0)),
            in_flight: in_flight(inputs, object),
            object: Some(Arc::clone(object)),
        }
    };
    objects.iter().filter(|(name, _)| !is_used(name)).map(read).collect()
}

fn in_flight(inputs: &Inputs<'_>, object: &RayCluster) -> Option<u64> {
    let data_plane = inputs.data_plane?;
    let pods = pods(inputs, Some(object));
    let address = |pod: &RayPod| pod.address.as_deref()?.parse::<IpAddr>().ok();
    let busy = pods.iter().filter_map(|pod| data_plane.endpoints.get(&address(pod)?));
    Some(busy.map(|endpoint| endpoint.in_flight).sum())
}

/// What routes say; without routes, what the stable Service says.
fn route_weights(
    inputs: &Inputs<'_>,
    service: &RayService,
    traffic: &Traffic,
    reached: &traffic::Observed,
) -> Option<RouteWeights> {
    if traffic.gateway.is_some() {
        return reached.route_weights(inputs, traffic);
    }
    let stable: &Arc<Service> = reached.service(&stable_name(service))?;
    let text = stable.annotations().get(labels::WEIGHTS)?;
    Some(RouteWeights { shares: traffic::from_text(text), applied_at: Some(Time::ZERO) })
}
