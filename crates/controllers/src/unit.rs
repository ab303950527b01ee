//! A unit, a leader and its workers, read from its pods into the planner's words: what is the same for every kind that is
//! made of units.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;
use planner::{
    Time, Uid,
    sets::State,
    units::{self, Drain, History, Phase, Revision, Unit, UnitSpec},
};

use crate::{
    Protections, count, endpoints, labels, nodes,
    outside::{DataPlane, Endpoint},
    runtime::{World, moment},
};

/// How long gateways may take to notice that a unit left service, where nobody says.
const SETTLE: Duration = Duration::from_secs(5);

/// How long requests may take to finish, where somebody counts them and nobody says.
const DRAIN_DEADLINE: Duration = Duration::from_mins(1);

/// What pods are judged by.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) world: &'a World,
    pub(crate) data_plane: Option<&'a DataPlane>,
    pub(crate) protections: Protections,
    pub(crate) now: Time,
}

/// What is remembered of a unit beside its pods.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) incarnation: u32,
    pub(crate) recreations: u32,
    pub(crate) last_recreation: Option<Time>,
    pub(crate) served: bool,
}

/// What the gate of a leader says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate<'a> {
    pub(crate) is_open: bool,
    pub(crate) reason: Option<&'a str>,
    pub(crate) since: Option<Time>,
}

impl<'a> Gate<'a> {
    pub(crate) fn of(leader: Option<&'a Pod>) -> Option<Self> {
        let gate = condition(leader?, labels::IN_SERVICE)?;
        let since = gate.last_transition_time.as_ref().map(|time| moment(time.0));
        Some(Self { is_open: gate.status == "True", reason: gate.reason.as_deref(), since })
    }

    /// Whether it was closed in order to go.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_open && matches!(self.reason, Some(labels::LEAVING | labels::GROUP_LEAVING))
    }
}

/// A time that an annotation gives in seconds.
pub(crate) fn seconds(annotations: &BTreeMap<String, String>, name: &str) -> Option<Duration> {
    annotations.get(name).and_then(|text| text.parse().ok()).map(Duration::from_secs)
}

impl Look<'_> {
    /// How long a unit may finish what it has, as the annotations of its owner say.
    pub(crate) fn drain(&self, annotations: &BTreeMap<String, String>) -> Drain {
        let none = Duration::ZERO;
        if !self.protections.drain {
            return Drain { settle: none, drain: none, deadline: none };
        }
        let drain = seconds(annotations, labels::DRAIN_SECONDS);
        let settle = seconds(annotations, labels::SETTLE_SECONDS).unwrap_or(SETTLE);
        Drain {
            settle: if self.protections.settle { settle } else { none },
            drain: drain.unwrap_or(none),
            deadline: drain.unwrap_or(DRAIN_DEADLINE),
        }
    }

    /// A unit of these pods. `leaving` says that something larger goes, and the unit with it.
    pub(crate) fn unit(
        &self,
        revision: Revision,
        pods: Vec<units::Pod>,
        (leader, others): (Option<&Pod>, &[Arc<Pod>]),
        leaving: bool,
        memory: Memory,
    ) -> Unit {
        let gate = Gate::of(leader);
        let in_service = gate.is_some_and(|gate| gate.is_open);
        let leaving = leaving || gate.is_some_and(|gate| gate.is_leaving());
        let since = gate.and_then(|gate| gate.since);
        let marked = |pod: &Pod| pod.annotations().contains_key(labels::RESTARTS_AT_START);
        let started = leader.map_or_else(|| others.iter().any(|pod| marked(pod)), marked);
        Unit {
            revision,
            pods,
            in_service,
            leaving,
            draining_since: since.filter(|_| leaving && !in_service),
            in_flight: leader.filter(|_| leaving).and_then(|leader| self.in_flight(leader)),
            history: History {
                incarnation: memory.incarnation,
                recreations: memory.recreations,
                last_recreation: memory.last_recreation,
                started,
                ready_since: since.filter(|_| in_service),
                served: gate.is_some() || memory.served,
            },
        }
    }

    /// What the planner of sets sees of a unit. One whose node has not noticed yet that it is in service is not: no data
    /// plane has.
    pub(crate) fn state(&self, spec: &UnitSpec, unit: &Unit, leader: Option<&Pod>) -> State {
        let state = units::state(spec, unit, self.now);
        let noticed = leader.is_some_and(|leader| is_true(condition(leader, "Ready")));
        if state == State::Ready && !noticed { State::Lapsed } else { state }
    }

    /// What a leader still works on. Unknown as long as the data plane sends it more, and where nothing that reaches it
    /// passes the data plane: a decode that prefills find by its name has requests that nobody counts.
    fn in_flight(&self, leader: &Pod) -> Option<u64> {
        let address: Option<IpAddr> =
            leader.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
        let known = self.data_plane?.endpoints.get(&address?).copied();
        let endpoint = known.or_else(|| endpoints::has_a_door(leader, self.world).then(Endpoint::default))?;
        (!endpoint.in_service || !self.protections.settle).then_some(endpoint.in_flight)
    }

    /// A pod.
    pub(crate) fn pod(&self, pod: &Pod, index: u32, revision: Revision) -> units::Pod {
        let status = pod.status.as_ref();
        let baseline = pod.annotations().get(labels::RESTARTS_AT_START).and_then(|text| text.parse().ok());
        units::Pod {
            index,
            uid: Uid(pod.uid().unwrap_or_default()),
            revision,
            incarnation: incarnation(pod),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                None | Some("Pending") => Phase::Pending,
                Some("Succeeded" | "Failed") => Phase::Ended,
                Some(_) => Phase::Running,
            },
            ready: can_serve(pod),
            has_address: status.is_some_and(|it| it.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty())),
            restarts: containers(pod).map(|status| count(status.restart_count)).sum(),
            restarts_baseline: baseline.unwrap_or_default(),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            node_lost: nodes::given_up_at(pod, self.world).is_some_and(|at| at <= self.now),
        }
    }
}

/// What is known of every container of a pod, the initial ones last.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        status.container_statuses.iter().flatten().chain(init)
    })
}

/// Whether a pod can serve, whatever our own gate says: that one says whether it should.
pub(crate) fn can_serve(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let mut theirs = gates.filter(|gate| gate.condition_type != labels::IN_SERVICE);
    is_true(condition(pod, "ContainersReady"))
        && theirs.all(|gate| is_true(condition(pod, &gate.condition_type)))
}

pub(crate) fn condition<'a>(pod: &'a Pod, ty: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == ty)
}

pub(crate) fn is_true(condition: Option<&PodCondition>) -> bool {
    condition.is_some_and(|condition| condition.status == "True")
}

/// Which incarnation of its unit a pod was made for.
pub(crate) fn incarnation(pod: &Pod) -> u32 {
    pod.annotations().get(labels::INCARNATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What it costs to delete a pod, compared to others.
pub(crate) fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.annotations().get("controller.kubernetes.io/pod-deletion-cost");
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::{Value, json};

    use super::*;

    /// What a leader at 10.0.0.1 works on, behind a Service with such an address.
    fn in_flight(service: Option<&str>, endpoint: Option<Endpoint>) -> Option<u64> {
        let meta = |labels: Value| json!({"name": "x", "namespace": "n", "labels": labels});
        let pod = json!({"metadata": meta(json!({"role": "decode"})), "status": {"podIP": "10.0.0.1"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let service = service.map(|address| {
            let spec = json!({"clusterIP": address, "selector": {"role": "decode"}});
            serde_json::from_value::<Service>(json!({"metadata": meta(json!({})), "spec": spec})).unwrap()
        });
        let mut data_plane = DataPlane::default();
        data_plane.endpoints.extend(endpoint.map(|it| ("10.0.0.1".parse().unwrap(), it)));
        let (world, protections) = (World::with(service), Protections::default());
        let look = Look { world: &world, data_plane: Some(&data_plane), protections, now: Time::ZERO };
        look.in_flight(&pod)
    }

    #[test]
    fn what_nobody_counts_is_not_over() {
        assert_eq!(in_flight(None, None), None);
        assert_eq!(in_flight(Some("None"), None), None, "who knows its name goes straight to it");
        assert_eq!(in_flight(Some("127.64.0.1"), None), Some(0), "it never had a request");
        let works = |in_service| Some(Endpoint { in_service, in_flight: 3 });
        assert_eq!(in_flight(Some("None"), works(false)), Some(3));
        assert_eq!(in_flight(Some("127.64.0.1"), works(true)), None, "it gets more");
    }
}
