//! Where traffic goes: the Services, the Gateway and the routes of a deployment.

use std::{sync::Arc, time::Duration};

use api::{
    gateway::{GRPCRoute, HTTPRoute},
    modeldeployment::{Gateway as Wish, ModelDeployment, Port, Protocol},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt, api::ObjectMeta};
use planner::{Time, handover::VersionId};
use serde_json::{Value, json};

use super::version::labels_of;
use crate::{
    labels, owner,
    runtime::{Key, World, moment},
    settled_at,
};

/// A route that exists, of either kind.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Http(Arc<HTTPRoute>),
    Grpc(Arc<GRPCRoute>),
}

/// The weights of Services, by name.
pub(super) type Shares = Vec<(String, u32)>;

impl Route {
    /// The routes of a deployment that exist.
    pub(super) fn of(uid: &str, world: &World) -> Vec<Self> {
        let http = world.http_routes.owned_by(uid).cloned().map(Self::Http);
        http.chain(world.grpc_routes.owned_by(uid).cloned().map(Self::Grpc)).collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Http(route) => route.name_any(),
            Self::Grpc(route) => route.name_any(),
        }
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Http(route) => route.meta(),
            Self::Grpc(route) => route.meta(),
        }
    }

    fn parts(&self) -> (&Value, Option<&Value>, Option<i64>, Option<&String>) {
        let metadata = self.meta();
        let written = metadata.annotations.as_ref().and_then(|it| it.get(labels::WEIGHED_AT));
        match self {
            Self::Http(route) => (&route.spec, route.status.as_ref(), metadata.generation, written),
            Self::Grpc(route) => (&route.spec, route.status.as_ref(), metadata.generation, written),
        }
    }

    /// The weights that it says. All its rules say the same.
    pub(super) fn shares(&self) -> Shares {
        let backends = self.parts().0["rules"][0]["backendRefs"].as_array().into_iter().flatten();
        let share = |backend: &Value| {
            let name = backend["name"].as_str()?.to_owned();
            let weight = backend["weight"].as_u64().unwrap_or(1);
            Some((name, u32::try_from(weight).unwrap_or(u32::MAX)))
        };
        backends.filter_map(share).filter(|(_, weight)| *weight > 0).collect()
    }

    /// When its weights were written.
    pub(super) fn weighed_at(&self) -> Option<Time> {
        self.parts().3.and_then(|text| text.parse().ok()).map(moment)
    }

    /// When it counts as taken up as it is now, if it is: at once where it is known that the data plane does what it
    /// says, and a while after it said so where it is not.
    ///
    /// Every parent that answers for it has to, since each of them may get traffic; but not those that refuse it.
    pub(super) fn taken_up(&self, ours: Option<&str>, settle: Duration) -> Option<Time> {
        let (spec, status, generation, _) = self.parts();
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
                let answered = self.answered_at().map(|second| settled_at(second, settle));
                answered.max(self.weighed_at().map(|weighed| weighed + settle)).or(Some(Time::ZERO))
            }
        }
    }

    /// When a data plane last said something new. The times of conditions do not tell: they stay from one generation to
    /// the next.
    fn answered_at(&self) -> Option<Time> {
        let writes = self.meta().managed_fields.iter().flatten();
        let answers = writes.filter(|write| write.subresource.as_deref() == Some("status"));
        answers.filter_map(|write| Some(moment(write.time.as_ref()?.0))).max()
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

/// The routes that a deployment should have.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) protocol: Protocol,
    pub(super) body: Value,
}

/// One route for each port, all with the same weights.
pub(super) fn routes(
    deployment: &ModelDeployment,
    wish: &Wish,
    shares: &Shares,
    weighed_at: &str,
) -> Vec<Wanted> {
    let ports = deployment.spec.traffic.ports.iter();
    ports.map(|port| route(deployment, wish, port, shares, weighed_at)).collect()
}

fn route(
    deployment: &ModelDeployment,
    wish: &Wish,
    port: &Port,
    shares: &Shares,
    weighed_at: &str,
) -> Wanted {
    let key = Key::of(deployment).beside(format!("{}-{}", deployment.name_any(), port.name));
    let parents = wish.parent_refs.as_ref().map_or_else(
        || json!([{"name": deployment.name_any(), "sectionName": port.name}]),
        |parents| json!(parents),
    );
    let backends: Vec<Value> = shares
        .iter()
        .map(|(service, weight)| json!({"name": service, "port": port.port, "weight": weight}))
        .collect();
    let mut rule = json!({"backendRefs": backends});
    if port.protocol == Protocol::Http && !wish.paths.is_empty() {
        let path = |path: &String| json!({"path": {"type": "PathPrefix", "value": path}});
        rule["matches"] = wish.paths.iter().map(path).collect();
    }
    let mut spec = json!({"parentRefs": parents, "rules": [rule]});
    if !wish.hostnames.is_empty() {
        spec["hostnames"] = json!(wish.hostnames);
    }
    let kind = match port.protocol {
        Protocol::Http => "HTTPRoute",
        Protocol::Grpc => "GRPCRoute",
    };
    let body = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels_of(deployment, None),
            "annotations": {labels::WEIGHED_AT: weighed_at},
            "ownerReferences": [owner(deployment)],
        },
        "spec": spec,
    });
    Wanted { key, protocol: port.protocol, body }
}

/// The Gateway of a deployment that asks for one of its own: a listener for each port.
pub(super) fn gateway(deployment: &ModelDeployment, class: &str) -> (Key, Value) {
    let key = Key::of(deployment);
    let listener = |port: &Port| {
        let mut allowed = json!({"namespaces": {"from": "Same"}});
        if port.protocol == Protocol::Grpc {
            allowed["kinds"] = json!([{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute"}]);
        }
        json!({"name": port.name, "port": port.port, "protocol": "HTTP", "allowedRoutes": allowed})
    };
    let listeners: Vec<Value> = deployment.spec.traffic.ports.iter().map(listener).collect();
    let body = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels_of(deployment, None),
            "ownerReferences": [owner(deployment)],
        },
        "spec": {"gatewayClassName": class, "listeners": listeners},
    });
    (key, body)
}

/// A Service of a deployment: for one version, or for all of them.
pub(super) fn service(
    deployment: &ModelDeployment,
    name: &str,
    version: Option<&str>,
    weights: Option<&str>,
    owned_by: &OwnerReference,
) -> (Key, Value) {
    let key = Key::of(deployment).beside(name);
    let mut selector = json!({labels::DEPLOYMENT: deployment.name_any(), labels::WORKER_INDEX: "0"});
    if let Some(version) = version {
        selector[labels::VERSION] = version.into();
    }
    let port = |port: &Port| {
        let mut entry =
            json!({"name": port.name, "port": port.port, "targetPort": port.port, "protocol": "TCP"});
        if port.protocol == Protocol::Grpc {
            entry["appProtocol"] = "kubernetes.io/h2c".into();
        }
        entry
    };
    let ports: Vec<Value> = deployment.spec.traffic.ports.iter().map(port).collect();
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels_of(deployment, version),
            "ownerReferences": [owned_by],
        },
        "spec": {"selector": selector, "ports": ports},
    });
    if let Some(weights) = weights {
        body["metadata"]["annotations"][labels::WEIGHTS] = weights.into();
    }
    (key, body)
}

/// Weights as an annotation says them, where no route does.
pub(super) fn to_text(shares: &Shares) -> String {
    let entries: Vec<String> = shares.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
    entries.join(",")
}

/// The opposite of [`to_text`].
pub(super) fn from_text(text: &str) -> Shares {
    let entry = |entry: &str| {
        let (name, weight) = entry.split_once('=')?;
        Some((name.to_owned(), weight.parse().ok()?))
    };
    text.split(',').filter_map(entry).collect()
}

/// Weights in the words of the API.
pub(super) fn shares(
    weights: &planner::handover::Weights,
    name: impl Fn(VersionId) -> Option<String>,
) -> Shares {
    weights.versions().filter_map(|id| Some((name(id)?, weights.of(id)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(5);
    const WEIGHED: &str = "1970-01-01T00:01:40.5Z";

    /// A route of generation 2 to these parents, weighed at 100.5 s, with these answers, the last of them at 130 s.
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

    fn taken_up(parents: &[&str], answers: &[Value]) -> Option<u64> {
        route(parents, answers).taken_up(Some("us"), SETTLE).map(|time| time.as_secs())
    }

    #[test]
    fn a_gateway_of_others_has_its_time_from_when_it_accepted() {
        assert_eq!(taken_up(&["a"], &[answer("a", "they", "True", 2)]), Some(136));
        assert_eq!(taken_up(&["a"], &[answer("a", "they", "True", 1)]), None);
        assert_eq!(taken_up(&["a"], &[answer("a", "they", "False", 2)]), None);
        assert_eq!(taken_up(&["a"], &[]), None);
    }

    #[test]
    fn our_gateway_needs_no_time() {
        assert_eq!(taken_up(&["a"], &[answer("a", "us", "True", 2)]), Some(0));
    }

    #[test]
    fn every_gateway_that_may_get_traffic_is_waited_for() {
        let both = |other: Value| taken_up(&["a", "b"], &[answer("a", "us", "True", 2), other]);
        assert_eq!(both(answer("b", "they", "True", 1)), None);
        assert_eq!(both(answer("b", "they", "True", 2)), Some(136));
        assert_eq!(both(answer("b", "they", "False", 2)), Some(0), "it refuses");
        assert_eq!(both(answer("c", "they", "True", 1)), Some(0), "nobody asked it");
        let gone = answer("a", "before", "True", 1);
        assert_eq!(
            taken_up(&["a"], &[gone, answer("a", "us", "True", 2)]),
            Some(0),
            "somebody else took over"
        );
    }
}
