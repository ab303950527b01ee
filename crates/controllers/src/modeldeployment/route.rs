//! Where traffic goes: the Services, the Gateway and the routes of a deployment.

use std::{sync::Arc, time::Duration};

use api::{
    gateway::{GRPCRoute, HTTPRoute},
    modeldeployment::{Gateway as Wish, ModelDeployment, Port, Protocol},
};
use kube::{Resource, ResourceExt};
use planner::{Time, handover::VersionId};
use serde_json::{Value, json};

use super::version::labels_of;
use crate::{
    labels, owner,
    runtime::{Key, World, moment},
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

    fn parts(&self) -> (&Value, Option<&Value>, Option<i64>, Option<&String>) {
        let metadata = match self {
            Self::Http(route) => route.meta(),
            Self::Grpc(route) => route.meta(),
        };
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

    /// Whether a data plane has taken it up as it is now, and when that counts: at once where it is known that it does
    /// what it says, and after a while where it is not.
    pub(super) fn taken_up(&self, ours: Option<&str>, settle: Duration) -> Option<Time> {
        let (_, status, generation, _) = self.parts();
        let parents = status.and_then(|status| status["parents"].as_array()).into_iter().flatten();
        let mut took = parents.filter(|parent| {
            let conditions = parent["conditions"].as_array();
            let is = |ty: &str| {
                conditions.into_iter().flatten().any(|condition| {
                    condition["type"] == ty
                        && condition["status"] == "True"
                        && condition["observedGeneration"].as_i64() >= generation
                })
            };
            is("Accepted") && is("ResolvedRefs")
        });
        let parent = took.next()?;
        if ours.is_some_and(|ours| parent["controllerName"] == ours) {
            return Some(Time::ZERO);
        }
        Some(self.weighed_at().unwrap_or_default() + settle)
    }
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
            "ownerReferences": [owner(deployment)],
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
