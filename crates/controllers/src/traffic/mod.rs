//! How traffic reaches a service of any kind: its Services, its Gateway, and a route for each protocol with the weights of
//! its backends.
//!
//! A kind describes what it needs ([`Traffic`]); what there is of it is observed here ([`Observed`]), and made what it
//! should be. A weight counts when the data plane has confirmed it, or has had its time.

mod route;

use std::{sync::Arc, time::Duration};

use api::{
    ParentRef,
    gateway::{GRPCRoute, Gateway, HTTPRoute},
};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt;
use planner::Time;
use serde_json::{Value, json};

use self::route::Route;
use crate::{
    labels,
    pipeline::{Executor, Inputs},
    runtime::{Apply, Error, Key, Watched, timestamp},
};

/// What is wanted of the traffic of a service.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) namespace: String,
    /// What its objects belong to.
    pub(crate) owner: OwnerReference,
    /// What its objects are labelled with.
    pub(crate) labels: Value,
    /// One for each port.
    pub(crate) ports: Vec<TrafficPort>,
    /// Where traffic comes in; nothing where Services are all there is.
    pub(crate) gateway: Option<Parents>,
    /// How long a gateway of others may take to do what it has confirmed.
    pub(crate) settle: Duration,
}

/// One way in: a listener of the Gateway, a route, and the port of every backend.
#[derive(Clone, Debug)]
pub(crate) struct TrafficPort {
    /// The name of the listener and of the port of Services.
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// The name of the route.
    pub(crate) route: String,
    /// The port of the listener.
    pub(crate) listens: i32,
    /// The port of the backends.
    pub(crate) port: i32,
}

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

/// The fields of a route that are ours as a whole.
const OURS: &[&str] = &["rules", "parentRefs", "hostnames"];

/// The fields of a Service that are ours as a whole. Requests go to ready pods alone, and each finds one by itself: a user who
/// wants it otherwise makes a Service of their own.
const OURS_OF_SERVICES: &[&str] =
    &["selector", "ports", "publishNotReadyAddresses", "sessionAffinity", "sessionAffinityConfig"];

/// What routes attach to.
#[derive(Clone, Debug)]
pub(crate) struct Parents {
    /// The name of a Gateway of the service's own, with its class.
    pub(crate) own: Option<(String, String)>,
    /// Gateways that exist.
    pub(crate) existing: Option<Vec<ParentRef>>,
    pub(crate) hostnames: Vec<String>,
    /// Prefixes of paths, for HTTP; none means all.
    pub(crate) paths: Vec<String>,
}

/// The weights of backends, by the names of their Services.
pub(crate) type BackendWeights = Vec<(String, u32)>;

/// What there is of the traffic of a service.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) services: Vec<Arc<Service>>,
    gateway: Option<Arc<Gateway>>,
    routes: Vec<Route>,
}

/// What routes say, and since when it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteWeights {
    pub(crate) shares: BackendWeights,
    /// When the data plane does what they say; unknown until it says so.
    pub(crate) applied_at: Option<Time>,
}

impl Observed {
    /// Observes what an object controls, and the Services of these other owners.
    pub(crate) fn observe(inputs: &Inputs<'_>, owner: &str, others: impl Iterator<Item = String>) -> Self {
        let owners: Vec<String> = others.chain([owner.to_owned()]).collect();
        Self {
            services: owners.iter().flat_map(|it| inputs.cache.owned_by::<Service>(it)).cloned().collect(),
            gateway: inputs.cache.owned_by::<Gateway>(owner).next().cloned(),
            routes: Route::of(owner, inputs.cache),
        }
    }

    /// The Service of a name.
    pub(crate) fn service(&self, name: &str) -> Option<&Arc<Service>> {
        self.services.iter().find(|service| service.name_any() == name)
    }

    /// What the routes say of a service, and when it counts. All of them must say the same, and all must be there.
    pub(crate) fn route_weights(&self, inputs: &Inputs<'_>, traffic: &Traffic) -> Option<RouteWeights> {
        let routes: Vec<&Route> = self.routes.iter().filter(|route| traffic.wants(route)).collect();
        let shares: Vec<BackendWeights> = routes.iter().map(|route| route.shares()).collect();
        let Some(first) = shares.first().cloned() else {
            // One that lost its owner still has the traffic, and cannot be changed: what it says is not confirmed.
            let shares = traffic.route_without_owner(inputs)?.shares();
            return Some(RouteWeights { shares, applied_at: None });
        };
        if !inputs.protections.settle {
            return Some(RouteWeights { shares: first, applied_at: Some(Time::ZERO) });
        }
        let ours = inputs.data_plane.map(|data_plane| data_plane.controller.as_str());
        let acknowledged_at = |route: &&Route| route.acknowledged_at(ours, traffic.settle, inputs.times);
        let acknowledged_at: Option<Vec<Time>> = routes.iter().map(acknowledged_at).collect();
        let agree = shares.iter().all(|other| *other == first) && routes.len() == traffic.ports.len();
        let applied_at = acknowledged_at.and_then(|times| times.into_iter().max()).filter(|_| agree);
        Some(RouteWeights { shares: first, applied_at })
    }
}

/// A Service that is wanted.
#[derive(Debug)]
pub(crate) struct Backend<'a> {
    pub(crate) name: &'a str,
    pub(crate) selector: Value,
    pub(crate) labels: Value,
    pub(crate) annotations: Value,
    pub(crate) owner: OwnerReference,
}

impl Traffic {
    fn key(&self, name: &str) -> Key {
        Key::new(self.namespace.clone(), name)
    }

    /// Makes a Service what it should be.
    pub(crate) async fn keep_service<K: Watched>(
        &self,
        executor: &Executor<'_, K>,
        observed: &Observed,
        backend: Backend<'_>,
    ) -> Result<(), Error> {
        let owner = backend.owner.uid.clone();
        let live = observed.service(backend.name);
        let wanted = Apply::new(self.service(backend), live.map(AsRef::as_ref));
        executor.apply_for(&owner, wanted.exactly(OURS_OF_SERVICES)).await.map(drop)
    }

    fn service(&self, backend: Backend<'_>) -> (Key, Value) {
        let Backend { name, selector, labels, annotations, owner } = backend;
        let port = |traffic_port: &TrafficPort| {
            let port = traffic_port.port;
            let mut entry =
                json!({"name": traffic_port.name, "port": port, "targetPort": port, "protocol": "TCP"});
            if traffic_port.protocol == Protocol::Grpc {
                entry["appProtocol"] = "kubernetes.io/h2c".into();
            }
            entry
        };
        let ports: Vec<Value> = self.ports.iter().map(port).collect();
        let mut metadata = self.metadata(name, &owner);
        metadata["labels"] = labels;
        if annotations.is_object() {
            metadata["annotations"] = annotations;
        }
        // What the API would fill in is said: it is compared as a whole.
        let spec = json!({"selector": selector, "ports": ports, "sessionAffinity": "None"});
        let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        (self.key(name), body)
    }

    fn metadata(&self, name: &str, owner: &OwnerReference) -> Value {
        let labels = &self.labels;
        json!({"name": name, "namespace": self.namespace, "labels": labels, "ownerReferences": [owner]})
    }

    /// Makes the Gateway of a service that asks for one of its own: a listener for each port.
    pub(crate) async fn keep_gateway<K: Watched>(
        &self,
        executor: &Executor<'_, K>,
        observed: &Observed,
    ) -> Result<(), Error> {
        let Some((name, class)) = self.gateway.as_ref().and_then(|gateway| gateway.own.as_ref()) else {
            return Ok(());
        };
        let listener = |traffic_port: &TrafficPort| {
            let mut allowed = json!({"namespaces": {"from": "Same"}});
            if traffic_port.protocol == Protocol::Grpc {
                allowed["kinds"] = json!([{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute"}]);
            }
            let TrafficPort { name, listens, .. } = traffic_port;
            json!({"name": name, "port": listens, "protocol": "HTTP", "allowedRoutes": allowed})
        };
        let listeners: Vec<Value> = self.ports.iter().map(listener).collect();
        let body = json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": self.metadata(name, &self.owner),
            "spec": {"gatewayClassName": class, "listeners": listeners},
        });
        let live = observed.gateway.as_deref();
        let wanted = Apply::new((self.key(name), body), live).exactly(&["listeners"]);
        executor.apply(wanted).await.map(drop)
    }

    /// Takes routes and the Gateway away that the service no longer asks for. Nothing else would: they belong to it.
    pub(crate) async fn forget<K: Watched>(
        &self,
        executor: &Executor<'_, K>,
        observed: &Observed,
    ) -> Result<(), Error> {
        for route in observed.routes.iter().filter(|route| !self.wants(route)) {
            match route {
                Route::Http(route) => executor.delete(route.as_ref(), true).await?,
                Route::Grpc(route) => executor.delete(route.as_ref(), true).await?,
            }
        }
        let own = self.gateway.as_ref().and_then(|gateway| gateway.own.as_ref());
        match &observed.gateway {
            Some(gateway) if own.is_none() => executor.delete(gateway.as_ref(), true).await,
            _ => Ok(()),
        }
    }

    /// A route with the name of one that is wanted. It is looked for where the service controls none.
    fn route_without_owner(&self, inputs: &Inputs<'_>) -> Option<Route> {
        self.gateway.as_ref()?;
        self.ports.iter().find_map(|traffic_port| {
            Route::named(&self.key(&traffic_port.route), traffic_port.protocol, inputs.cache)
        })
    }

    /// Whether one of the ports has this route.
    fn wants(&self, route: &Route) -> bool {
        self.gateway.is_some() && self.ports.iter().any(|traffic_port| route.is_of(traffic_port))
    }

    /// Makes every route say these weights. `moves` says that they are other ones than before: their time counts from
    /// now. Returns whether every route says them: one whose name is taken does not.
    pub(crate) async fn keep_routes<K: Watched>(
        &self,
        executor: &Executor<'_, K>,
        observed: &Observed,
        shares: &BackendWeights,
        moves: bool,
    ) -> Result<bool, Error> {
        let Some(gateway) = &self.gateway else { return Ok(true) };
        let mut all = true;
        let before = observed.routes.iter().filter_map(Route::weighed_at).max().filter(|_| !moves);
        let weighed_at = before.unwrap_or_else(|| timestamp(executor.now())).to_string();
        for traffic_port in &self.ports {
            let wanted = self.route(gateway, traffic_port, shares, &weighed_at);
            let live = observed.routes.iter().find(|route| route.is_of(traffic_port));
            all &= match (traffic_port.protocol, live) {
                (_, Some(Route::Http(live))) => {
                    executor.apply(Apply::new(wanted, Some(live.as_ref())).exactly(OURS)).await?
                }
                (_, Some(Route::Grpc(live))) => {
                    executor.apply(Apply::new(wanted, Some(live.as_ref())).exactly(OURS)).await?
                }
                (Protocol::Http, None) => executor.apply::<HTTPRoute>(Apply::new(wanted, None)).await?,
                (Protocol::Grpc, None) => executor.apply::<GRPCRoute>(Apply::new(wanted, None)).await?,
            };
        }
        Ok(all)
    }

    /// A route, with everything said that the API would fill in: what we own is compared as a whole.
    fn route(
        &self,
        gateway: &Parents,
        traffic_port: &TrafficPort,
        shares: &BackendWeights,
        weighed_at: &str,
    ) -> (Key, Value) {
        let own = gateway.own.as_ref().map(|(name, _)| name.as_str()).unwrap_or_default();
        let parents = gateway.existing.as_ref().map_or_else(
            || json!([{"name": own, "sectionName": traffic_port.name}]),
            |parents| json!(parents),
        );
        let parent = |mut parent: Value| {
            fill(&mut parent, "group", "gateway.networking.k8s.io");
            fill(&mut parent, "kind", "Gateway");
            parent
        };
        let parents: Vec<Value> =
            parents.as_array().cloned().unwrap_or_default().into_iter().map(parent).collect();
        let backend = |(service, weight): &(String, u32)| json!({"group": "", "kind": "Service", "name": service, "port": traffic_port.port, "weight": weight});
        let mut rule = json!({"backendRefs": shares.iter().map(backend).collect::<Vec<_>>()});
        if traffic_port.protocol == Protocol::Http {
            let all = ["/".to_owned()];
            let paths = if gateway.paths.is_empty() { &all[..] } else { &gateway.paths };
            let path = |path: &String| json!({"path": {"type": "PathPrefix", "value": path}});
            rule["matches"] = paths.iter().map(path).collect();
        }
        let mut spec = json!({"parentRefs": parents, "rules": [rule]});
        if !gateway.hostnames.is_empty() {
            spec["hostnames"] = json!(gateway.hostnames);
        }
        let kind = match traffic_port.protocol {
            Protocol::Http => "HTTPRoute",
            Protocol::Grpc => "GRPCRoute",
        };
        let mut metadata = self.metadata(&traffic_port.route, &self.owner);
        metadata["annotations"] = json!({labels::WEIGHED_AT: weighed_at});
        let body = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        (self.key(&traffic_port.route), body)
    }
}

fn fill(object: &mut Value, field: &str, value: &str) {
    if object[field].is_null() {
        object[field] = value.into();
    }
}

/// Weights as an annotation says them, where no route does.
pub(crate) fn to_text(shares: &BackendWeights) -> String {
    let entries: Vec<String> = shares.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
    entries.join(",")
}

/// The opposite of [`to_text`].
pub(crate) fn from_text(text: &str) -> BackendWeights {
    let entry = |entry: &str| {
        let (name, weight) = entry.split_once('=')?;
        Some((name.to_owned(), weight.parse().ok()?))
    };
    text.split(',').filter_map(entry).collect()
}
