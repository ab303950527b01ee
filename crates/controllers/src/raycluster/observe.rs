//! A cluster, and what there is of it.

use std::sync::Arc;

use api::raycluster::RayCluster;
use k8s_openapi::api::core::v1::{Container, Pod, Service};
use kube::ResourceExt;
use planner::{
    Time, Uid,
    ray::{self, Ledger, Phase, RayContainer, Role, Template},
};

use super::{
    autoscaling::Rights,
    cleanup::{self, Ending},
    record, wanted,
};
use crate::{
    labels, nodes,
    pipeline::{Found, Inputs},
    runtime::Key,
    units::{condition, incarnation, is_going, is_true},
};

/// A cluster, and everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) cluster: Arc<RayCluster>,
    /// Its pods.
    pub(super) members: Vec<Member>,
    /// The pods that have its label, its own and those of a namesake.
    pub(super) labelled: Vec<Arc<Pod>>,
    /// Its Services.
    pub(super) services: Vec<Arc<Service>>,
    /// What lets its autoscaler do its work.
    pub(super) rights: Rights,
    /// What is left to do before it is gone, where it is being deleted.
    pub(super) ending: Option<Ending>,
    /// What earlier decisions asked to be remembered.
    pub(super) ledger: Ledger,
}

/// A pod of the cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pod: Arc<Pod>,
    pub(super) role: Role,
    /// Since when it is Ready.
    pub(super) ready_since: Option<Time>,
    /// Since when the check of its raylet, or of GCS, fails past the threshold of the probe.
    unhealthy_since: Option<Time>,
    /// When it is given up because its node does not report.
    pub(super) given_up_at: Option<Time>,
}

pub(super) fn observe(inputs: &Inputs<'_>, cluster: &Arc<RayCluster>) -> Found<Observed> {
    if let Some(why) = wanted::not_served(cluster) {
        return Found::NotServed(why);
    }
    let (key, uid) = (Key::of(cluster.as_ref()), cluster.uid().unwrap_or_default());
    let pods: Vec<&Arc<Pod>> = inputs.cache.owned_by::<Pod>(&uid).collect();
    if let Some(pod) = pods.iter().find(|pod| !pod.annotations().contains_key(labels::MADE_WITH)) {
        return Found::NotAdopted(pod.name_any());
    }
    let named = |pod: &&Arc<Pod>| pod.labels().get(labels::RAY_CLUSTER) == Some(&key.name);
    Found::Observed(Observed {
        members: pods.into_iter().filter_map(|pod| Member::observe(inputs, pod)).collect(),
        labelled: inputs.cache.within::<Pod>(&key.namespace).filter(named).cloned().collect(),
        services: inputs.cache.owned_by(&uid).cloned().collect(),
        rights: Rights {
            account: inputs.cache.owned_by(&uid).next().cloned(),
            role: inputs.cache.owned_by(&uid).next().cloned(),
            binding: inputs.cache.owned_by(&uid).next().cloned(),
        },
        ending: cleanup::observe(inputs, cluster),
        ledger: record::ledger(cluster, inputs.times),
        cluster: Arc::clone(cluster),
    })
}

impl Member {
    fn observe(inputs: &Inputs<'_>, pod: &Arc<Pod>) -> Option<Self> {
        let times = inputs.times;
        let since = |ty: &str, status: &str| {
            let condition = condition(pod, ty).filter(|it| it.status == status)?;
            condition.last_transition_time.as_ref().map(|time| times.moment(time.0))
        };
        let failing = since("ContainersReady", "False").filter(|since| {
            // It was ready since it started: one that still starts has not become ready yet, and counts from before.
            let began = ray_started(pod).map(|time| times.moment(time));
            is_checked(pod) && is_fault_tolerant(pod) && began.is_some_and(|began| began < *since)
        });
        Some(Self {
            role: role(pod)?,
            ready_since: since("Ready", "True"),
            unhealthy_since: failing,
            given_up_at: nodes::given_up_at(pod, inputs.cache, times),
            pod: Arc::clone(pod),
        })
    }

    /// The pod in the planner's words.
    pub(super) fn read(&self, now: Time) -> ray::Pod {
        let Self { pod, .. } = self;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let template = pod.annotations().get(labels::RAY_TEMPLATE);
        let marked = pod.annotations().get(labels::RAY_HEALTH_STATE);
        ray::Pod {
            name: pod.name_any(),
            uid: Uid(pod.uid().unwrap_or_default()),
            role: self.role.clone(),
            incarnation: incarnation(pod),
            template: template.and_then(|hash| u64::from_str_radix(hash, 16).ok()).map(Template),
            phase: match phase {
                None | Some("Pending") => Phase::Pending,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some(_) => Phase::Running,
            },
            ready_since: self.ready_since,
            raylet_unhealthy_since: self.unhealthy_since,
            marked_unhealthy: marked.is_some_and(|state| state == labels::RAY_UNHEALTHY),
            terminating: is_going(pod),
            node_lost: self.given_up_at.is_some_and(|at| at <= now),
            ray: container(pod),
        }
    }

    /// Whether it counts among the pods that are there.
    pub(super) fn stays(&self) -> bool {
        !is_going(&self.pod)
    }

    pub(super) fn is_head(&self) -> bool {
        self.role == Role::Head
    }

    /// Whether its containers run.
    pub(super) fn runs(&self) -> bool {
        self.pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    }

    pub(super) fn is_ready(&self) -> bool {
        self.runs() && is_true(condition(&self.pod, "Ready"))
    }
}

fn role(pod: &Pod) -> Option<Role> {
    let number = |label: &str| pod.labels().get(label)?.parse().ok();
    match pod.labels().get(labels::RAY_NODE_TYPE)?.as_str() {
        "head" => Some(Role::Head),
        "worker" => Some(Role::Worker {
            group: pod.labels().get(labels::RAY_GROUP)?.clone(),
            replica: number(labels::RAY_REPLICA_INDEX)?,
            host: number(labels::RAY_HOST_INDEX)?,
        }),
        _ => None,
    }
}

/// The first container, which runs Ray.
fn ray(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.first()
}

fn status(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::ContainerStatus> {
    let name = &ray(pod)?.name;
    pod.status.as_ref()?.container_statuses.iter().flatten().find(|status| status.name == *name)
}

/// When the container that runs Ray started, if it runs and is not ready.
fn ray_started(pod: &Pod) -> Option<jiff::Timestamp> {
    let status = status(pod).filter(|status| !status.ready)?;
    Some(status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn container(pod: &Pod) -> RayContainer {
    let ended = status(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    match ended {
        None => RayContainer::Up,
        Some(ended) => RayContainer::Ended {
            comes_back: policy == "Always" || policy == "OnFailure" && ended.exit_code != 0,
        },
    }
}

/// Whether the readiness probe of a pod asks the raylet, or GCS, and nothing else: what a user's own probe, or one that
/// asks the proxy of Serve, says of a pod is no reason to replace it.
fn is_checked(pod: &Pod) -> bool {
    let Some(probe) = ray(pod).and_then(|container| container.readiness_probe.as_ref()) else { return false };
    let path = probe.http_get.as_ref().and_then(|get| get.path.as_deref());
    let command = probe.exec.as_ref().and_then(|exec| exec.command.as_ref()).map(|words| words.join(" "));
    let asks_raylet =
        |command: &String| command.contains("/api/local_raylet_healthz") && !command.contains("/-/healthz");
    path == Some("/api/healthz") || command.as_ref().is_some_and(asks_raylet)
}

/// Whether a pod belongs to a cluster with GCS fault tolerance.
fn is_fault_tolerant(pod: &Pod) -> bool {
    let is_on = |key| pod.annotations().get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    is_on(api::raycluster::HA_ENABLED) || is_on(api::raycluster::FT_ENABLED)
}
