//! A unit, a leader and its workers: what every kind that is made of units has in common.
//!
//! Here its pods are observed, and read into the planner's words; [`act`] carries its operations out, and [`record`]
//! keeps what must be remembered of it. [`room`] counts what nodes have free for more of them.

pub(crate) mod act;
pub(crate) mod free_capacity;
pub(crate) mod labelled;
pub(crate) mod nodes;
pub(crate) mod record;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;
use planner::{
    Time, Uid,
    sets::State,
    units::{self, Drain, History, Phase, Revision, Unit, UnitSpec},
};

use self::record::Remembered;
use crate::{
    Protections, count, endpoints, kind::Right, labels, outside::Endpoint, pipeline::Inputs, runtime::Times,
};

/// What is needed to make and retire pods.
pub(crate) const RIGHTS: &[Right] = &[
    Right::new(
        "",
        "nodes",
        "list, watch",
        "know which pods are lost with their node, and what nodes have free",
    )
    .cluster_wide(),
    Right::new(
        "",
        "pods",
        "create, delete, get, list, patch, watch",
        "make and retire groups; patch notes how often containers had restarted",
    ),
    Right::new("", "pods/status", "patch", "the readiness gate that takes a group out of service"),
    Right::new(
        "apps",
        "controllerrevisions",
        "create, delete, get, list, patch, watch",
        "keep the template of every revision that runs; patch makes one the newest again",
    ),
    Right::new("", "services", "create, delete, get, list, patch, watch", "the names of pods"),
];

/// How long gateways may take to notice that a unit left service, by default.
const SETTLE: Duration = Duration::from_secs(5);

/// How long requests may take to finish where they are counted, by default.
const DRAIN_DEADLINE: Duration = Duration::from_mins(1);

/// A pod of a unit, and what is known of it beside itself.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) pod: Arc<Pod>,
    /// What its gate says, where it has one.
    pub(crate) gate: Option<Gate>,
    /// When it was made.
    pub(crate) created_at: Option<Time>,
    /// Since when its containers are not ready.
    pub(crate) unready_since: Option<Time>,
    /// When a container of it last ended.
    pub(crate) ended_at: Option<Time>,
    /// When it is given up because its node does not report.
    pub(crate) given_up_at: Option<Time>,
    /// What it still works on, where that is known and it gets no more.
    in_flight: Option<u64>,
}

impl Member {
    pub(crate) fn observe(inputs: &Inputs<'_>, pod: &Arc<Pod>) -> Self {
        let times = inputs.times;
        let unready = condition(pod, "ContainersReady").filter(|it| it.status != "True");
        let ended = containers(pod).filter_map(|container| {
            let last = [container.state.as_ref(), container.last_state.as_ref()];
            let ended = last.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
            ended.filter_map(|ended| ended.finished_at.as_ref()).map(|time| times.moment(time.0)).max()
        });
        Self {
            gate: Gate::of(pod, times),
            created_at: pod.metadata.creation_timestamp.as_ref().map(|time| times.moment(time.0)),
            unready_since: unready
                .and_then(|it| it.last_transition_time.as_ref())
                .map(|it| times.moment(it.0)),
            ended_at: ended.max(),
            given_up_at: nodes::given_up_at(pod, inputs.cache, times),
            in_flight: in_flight(inputs, pod),
            pod: Arc::clone(pod),
        }
    }

    /// The pod in the planner's words.
    pub(crate) fn read(&self, index: u32, revision: Revision, now: Time) -> units::Pod {
        let Self { pod, .. } = self;
        let status = pod.status.as_ref();
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
            restarts: restarts(pod),
            restarts_baseline: baseline(pod).unwrap_or_default(),
            terminating: is_going(pod),
            node_lost: self.is_lost(now),
        }
    }

    /// Whether it is given up: its node is lost, and will never say that it is gone.
    pub(crate) fn is_lost(&self, now: Time) -> bool {
        self.given_up_at.is_some_and(|at| at <= now)
    }
}

/// What the gate of a leader says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    pub(crate) is_open: bool,
    pub(crate) reason: Option<String>,
    pub(crate) since: Option<Time>,
}

impl Gate {
    fn of(pod: &Pod, times: &Times) -> Option<Self> {
        let gate = condition(pod, labels::IN_SERVICE)?;
        let since = gate.last_transition_time.as_ref().map(|time| times.moment(time.0));
        Some(Self { is_open: gate.status == "True", reason: gate.reason.clone(), since })
    }

    /// Whether it was closed in order to go.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_open && is_leaving(self.reason.as_deref())
    }
}

/// Whether this is why a leader is out of service that goes.
pub(crate) fn is_leaving(reason: Option<&str>) -> bool {
    matches!(reason, Some(labels::LEAVING | labels::GROUP_LEAVING))
}

/// What a leader still works on. Unknown as long as the data plane sends it more, and where nothing that reaches it
/// passes the data plane: a decode that prefills find by its name has requests that are not counted.
fn in_flight(inputs: &Inputs<'_>, leader: &Pod) -> Option<u64> {
    let address: Option<IpAddr> =
        leader.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
    let known = inputs.data_plane?.endpoints.get(&address?).copied();
    let endpoint =
        known.or_else(|| endpoints::has_an_address(leader, inputs.cache).then(Endpoint::default))?;
    (!endpoint.in_service || !inputs.protections.settle).then_some(endpoint.in_flight)
}

/// A time that an annotation gives in seconds.
pub(crate) fn seconds(annotations: &BTreeMap<String, String>, name: &str) -> Option<Duration> {
    annotations.get(name).and_then(|text| text.parse().ok()).map(Duration::from_secs)
}

/// How long a unit may finish what it has, as the annotations of its owner say.
pub(crate) fn drain(annotations: &BTreeMap<String, String>, protections: Protections) -> Drain {
    let none = Duration::ZERO;
    if !protections.drain {
        return Drain { settle: none, drain: none, deadline: none };
    }
    let drain = seconds(annotations, labels::DRAIN_SECONDS);
    let settle = seconds(annotations, labels::SETTLE_SECONDS).unwrap_or(SETTLE);
    Drain {
        settle: if protections.settle { settle } else { none },
        drain: drain.unwrap_or(none),
        deadline: drain.unwrap_or(DRAIN_DEADLINE),
    }
}

/// A unit of these pods. `leaving` says that something larger goes, and the unit with it.
pub(crate) fn unit(
    revision: Revision,
    pods: Vec<units::Pod>,
    (leader, members): (Option<&Member>, &[Member]),
    leaving: bool,
    remembered: Remembered,
) -> Unit {
    let gate = leader.and_then(|leader| leader.gate.as_ref());
    let in_service = gate.is_some_and(|gate| gate.is_open);
    let leaving = leaving || gate.is_some_and(Gate::is_leaving);
    let since = gate.and_then(|gate| gate.since);
    let marked = |member: &Member| baseline(&member.pod).is_some();
    let started = leader.map_or_else(|| members.iter().any(marked), marked);
    Unit {
        revision,
        pods,
        in_service,
        leaving,
        draining_since: since.filter(|_| leaving && !in_service),
        in_flight: leader.filter(|_| leaving).and_then(|leader| leader.in_flight),
        history: History {
            incarnation: remembered.incarnation,
            recreations: remembered.recreations,
            last_recreation: remembered.last_recreation,
            started,
            ready_since: since.filter(|_| in_service),
            served: gate.is_some() || remembered.served,
        },
    }
}

/// What the planner of sets sees of a unit. One whose node has not noticed yet that it is in service is not: no data
/// plane has.
pub(crate) fn state(spec: &UnitSpec, unit: &Unit, leader: Option<&Member>, now: Time) -> State {
    let state = units::state(spec, unit, now);
    let noticed = leader.is_some_and(|leader| is_true(condition(&leader.pod, "Ready")));
    if state == State::Ready && !noticed { State::Lapsed } else { state }
}

/// What is known of every container of a pod, the initial ones last.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        status.container_statuses.iter().flatten().chain(init)
    })
}

/// How often containers of a pod have restarted.
pub(crate) fn restarts(pod: &Pod) -> u32 {
    containers(pod).map(|status| count(status.restart_count)).sum()
}

/// How often they had when the unit had started, where that was recorded.
pub(crate) fn baseline(pod: &Pod) -> Option<u32> {
    pod.annotations().get(labels::RESTARTS_AT_START).map(|text| text.parse().unwrap_or_default())
}

/// Whether a pod is being deleted.
pub(crate) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a pod can serve, whatever our own gate says: that one says whether it should.
pub(crate) fn can_serve(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let mut theirs = gates.filter(|gate| gate.condition_type != labels::IN_SERVICE);
    is_true(condition(pod, "ContainersReady"))
        && theirs.all(|gate| is_true(condition(pod, &gate.condition_type)))
}

/// Since when the scheduler finds no node for a pod.
pub(crate) fn unschedulable_since(pod: &Pod, times: &Times) -> Option<Time> {
    let told = condition(pod, "PodScheduled").filter(|_| !is_going(pod))?;
    let is_told = told.status == "False" && told.reason.as_deref() == Some("Unschedulable");
    told.last_transition_time.as_ref().filter(|_| is_told).map(|time| times.moment(time.0))
}

pub(crate) fn condition<'a>(pod: &'a Pod, ty: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == ty)
}

pub(crate) fn is_true(condition: Option<&PodCondition>) -> bool {
    condition.is_some_and(|condition| condition.status == "True")
}

/// The incarnation of its unit that a pod was made for.
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
    use crate::{outside::DataPlane, runtime::Cache};

    /// What a leader at 10.0.0.1 works on, behind a Service with such an address.
    fn in_flight_behind(service: Option<&str>, endpoint: Option<Endpoint>) -> Option<u64> {
        let meta = |labels: Value| json!({"name": "x", "namespace": "n", "labels": labels});
        let pod = json!({"metadata": meta(json!({"role": "decode"})), "status": {"podIP": "10.0.0.1"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let service = service.map(|address| {
            let spec = json!({"clusterIP": address, "selector": {"role": "decode"}});
            let mut meta = meta(json!({}));
            meta["resourceVersion"] = "1".into();
            serde_json::from_value::<Service>(json!({"metadata": meta, "spec": spec})).unwrap()
        });
        let mut data_plane = DataPlane::default();
        data_plane.endpoints.extend(endpoint.map(|it| ("10.0.0.1".parse().unwrap(), it)));
        Inputs::at(&Cache::with(service), Time::ZERO, |inputs| {
            in_flight(&Inputs { data_plane: Some(&data_plane), ..*inputs }, &pod)
        })
    }

    #[test]
    fn requests_that_are_not_counted_are_not_over() {
        assert_eq!(in_flight_behind(None, None), None);
        assert_eq!(in_flight_behind(Some("None"), None), None, "who knows its name goes straight to it");
        assert_eq!(in_flight_behind(Some("127.64.0.1"), None), Some(0), "it never had a request");
        let works = |in_service| Some(Endpoint { in_service, in_flight: 3 });
        assert_eq!(in_flight_behind(Some("None"), works(false)), Some(3));
        assert_eq!(in_flight_behind(Some("127.64.0.1"), works(true)), None, "it gets more");
    }
}
