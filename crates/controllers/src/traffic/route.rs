//! A route that exists: the weights that it says, and when the data plane does what it says.

use std::{sync::Arc, time::Duration};

use api::gateway::{GRPCRoute, HTTPRoute};
use jiff::Timestamp;
use kube::{Resource, api::ObjectMeta};
use planner::Time;
use serde_json::Value;

use super::{BackendWeights, Protocol, TrafficPort};
use crate::{
    labels,
    runtime::{Cache, Key, Times},
    settled_at,
};

/// A route that exists, of either kind.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    Http(Arc<HTTPRoute>),
    Grpc(Arc<GRPCRoute>),
}

impl Route {
    /// The routes that an object controls.
    pub(super) fn of(uid: &str, cache: &Cache) -> Vec<Self> {
        let http = cache.owned_by::<HTTPRoute>(uid).cloned().map(Self::Http);
        http.chain(cache.owned_by::<GRPCRoute>(uid).cloned().map(Self::Grpc)).collect()
    }

    /// The route of a name, under any controller.
    pub(super) fn named(key: &Key, protocol: Protocol, cache: &Cache) -> Option<Self> {
        match protocol {
            Protocol::Http => cache.get::<HTTPRoute>(key).cloned().map(Self::Http),
            Protocol::Grpc => cache.get::<GRPCRoute>(key).cloned().map(Self::Grpc),
        }
    }

    /// Whether this is the route of a port.
    pub(super) fn is_of(&self, traffic_port: &TrafficPort) -> bool {
        let protocol = match self {
            Self::Http(_) => Protocol::Http,
            Self::Grpc(_) => Protocol::Grpc,
        };
        protocol == traffic_port.protocol && self.meta().name.as_deref() == Some(traffic_port.route.as_str())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Http(route) => route.meta(),
            Self::Grpc(route) => route.meta(),
        }
    }

    fn spec(&self) -> &Value {
        match self {
            Self::Http(route) => &route.spec,
            Self::Grpc(route) => &route.spec,
        }
    }

    fn status(&self) -> Option<&Value> {
        match self {
            Self::Http(route) => route.status.as_ref(),
            Self::Grpc(route) => route.status.as_ref(),
        }
    }

    /// The weights that it says. All its rules say the same.
    pub(super) fn shares(&self) -> BackendWeights {
        let backends = self.spec()["rules"][0]["backendRefs"].as_array().into_iter().flatten();
        let share = |backend: &Value| {
            let name = backend["name"].as_str()?.to_owned();
            let weight = backend["weight"].as_u64().unwrap_or(1);
            Some((name, u32::try_from(weight).unwrap_or(u32::MAX)))
        };
        backends.filter_map(share).filter(|(_, weight)| *weight > 0).collect()
    }

    /// When its weights were written, as it says.
    pub(super) fn weighed_at(&self) -> Option<Timestamp> {
        self.meta().annotations.as_ref()?.get(labels::WEIGHED_AT)?.parse().ok()
    }

    /// When it counts as taken up as it is now, if it is: at once where it is known that the data plane does what it
    /// says, and a while after it said so where it is not.
    ///
    /// Every parent that answers for it has to, since each of them may get traffic; but not those that refuse it.
    pub(super) fn acknowledged_at(
        &self,
        ours: Option<&str>,
        settle: Duration,
        times: &Times,
    ) -> Option<Time> {
        let (spec, status, generation) = (self.spec(), self.status(), self.meta().generation);
        let answers = || status.and_then(|status| status["parents"].as_array()).into_iter().flatten();
        let mut took = Vec::new();
        for parent in spec["parentRefs"].as_array().into_iter().flatten() {
            let answers: Vec<&Value> = answers().filter(|answer| is_of(answer, parent)).collect();
            let waits = !answers.iter().any(|answer| is_refused(answer, generation));
            match answers.iter().find(|answer| is_taken_up(answer, generation)) {
                Some(answer) => took.push(*answer),
                None if waits && !answers.is_empty() => return None,
                None => {}
            }
        }
        let is_ours = |answer: &&Value| ours.is_some_and(|ours| answer["controllerName"] == ours);
        match took.iter().all(is_ours) {
            _ if took.is_empty() => None,
            true => Some(Time::ZERO),
            false => {
                let answered = self.answered_at(times).map(|second| settled_at(second, settle));
                let route_weights =
                    self.weighed_at().map(|route_weights| times.moment(route_weights) + settle);
                answered.max(route_weights).or(Some(Time::ZERO))
            }
        }
    }

    /// When a data plane last said something new. The times of conditions do not tell: they stay from one generation to
    /// the next.
    fn answered_at(&self, times: &Times) -> Option<Time> {
        let writes = self.meta().managed_fields.iter().flatten();
        let answers = writes.filter(|write| write.subresource.as_deref() == Some("status"));
        answers.filter_map(|write| Some(times.moment(write.time.as_ref()?.0))).max()
    }
}

/// Whether an answer is for this parent. What a parent leaves out may be filled in.
fn is_of(answer: &Value, parent: &Value) -> bool {
    let same = |field: &str| answer["parentRef"][field] == parent[field];
    let namespaces = (&answer["parentRef"]["namespace"], &parent["namespace"]);
    let beside = namespaces.0.is_null() || namespaces.1.is_null() || namespaces.0 == namespaces.1;
    beside && ["name", "sectionName", "port"].into_iter().all(same)
}

/// What an answer says of this generation.
fn says(answer: &Value, ty: &str, status: &str, generation: Option<i64>) -> bool {
    answer["conditions"].as_array().into_iter().flatten().any(|condition| {
        condition["type"] == ty
            && condition["status"] == status
            && condition["observedGeneration"].as_i64() >= generation
    })
}

fn is_taken_up(answer: &Value, generation: Option<i64>) -> bool {
    ["Accepted", "ResolvedRefs"].into_iter().all(|ty| says(answer, ty, "True", generation))
}

fn is_refused(answer: &Value, generation: Option<i64>) -> bool {
    says(answer, "Accepted", "False", generation)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SETTLE: Duration = Duration::from_secs(5);
    const WEIGHED: &str = "1970-01-01T00:01:40.5Z";

    /// A route of generation 2 to these parents, weighted at 100.5 s, with these answers, the last of them at 130 s.
    fn route(parents: &[&str], answers: &[Value]) -> Route {
        let parents: Vec<Value> = parents.iter().map(|parent| json!({"name": parent})).collect();
        let write = |subresource: &str, time: &str| json!({"manager": "m", "operation": "Update", "subresource": subresource, "time": time});
        let route = json!({
            "metadata": {
                "name": "chat-http", "namespace": "ns", "generation": 2,
                "annotations": {labels::WEIGHED_AT: WEIGHED},
                "managedFields": [
                    write("status", "1970-01-01T00:02:10Z"),
                    write("status", "1970-01-01T00:00:10Z"),
                    write("", "1970-01-01T00:09:00Z"),
                ],
            },
            "spec": {"parentRefs": parents},
            "status": {"parents": answers},
        });
        Route::Http(Arc::new(serde_json::from_value(route).unwrap()))
    }

    fn answer(parent: &str, controller: &str, accepted: &str, generation: i64) -> Value {
        let condition =
            |ty: &str, status: &str| json!({"type": ty, "status": status, "observedGeneration": generation});
        json!({
            "parentRef": {"name": parent, "namespace": "ns"},
            "controllerName": controller,
            "conditions": [condition("Accepted", accepted), condition("ResolvedRefs", "True")],
        })
    }

    fn acknowledged_at(parents: &[&str], answers: &[Value]) -> Option<u64> {
        let times = Times::at(Duration::from_hours(1));
        route(parents, answers).acknowledged_at(Some("us"), SETTLE, &times).map(|time| time.as_secs())
    }

    #[test]
    fn a_gateway_of_others_has_its_time_from_when_it_accepted() {
        assert_eq!(acknowledged_at(&["a"], &[answer("a", "they", "True", 2)]), Some(136));
        assert_eq!(acknowledged_at(&["a"], &[answer("a", "they", "True", 1)]), None);
        assert_eq!(acknowledged_at(&["a"], &[answer("a", "they", "False", 2)]), None);
        assert_eq!(acknowledged_at(&["a"], &[]), None);
    }

    #[test]
    fn our_gateway_needs_no_time() {
        assert_eq!(acknowledged_at(&["a"], &[answer("a", "us", "True", 2)]), Some(0));
    }

    #[test]
    fn every_gateway_that_may_get_traffic_is_waited_for() {
        let both = |other: Value| acknowledged_at(&["a", "b"], &[answer("a", "us", "True", 2), other]);
        assert_eq!(both(answer("b", "they", "True", 1)), None);
        assert_eq!(both(answer("b", "they", "True", 2)), Some(136));
        assert_eq!(both(answer("b", "they", "False", 2)), Some(0), "it refuses");
        assert_eq!(both(answer("c", "they", "True", 1)), Some(0), "nobody asked it");
        let gone = answer("a", "before", "True", 1);
        assert_eq!(
            acknowledged_at(&["a"], &[gone, answer("a", "us", "True", 2)]),
            Some(0),
            "somebody else took over"
        );
    }
}
