//! The endpoints of a Service, by its pods: the same as `podToEndpoint` and its neighbours in `k8s.io/endpointslice`
//! 0.36 make of them.
//!
//! # Limits
//! Nodes are not read: an endpoint has no zone and no hints, and a node that a pod names is taken to be there.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Container, ObjectReference, Pod, PodSpec, PodStatus, Service, ServicePort, ServiceSpec},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;

/// What a port is told from others by.
pub(super) type PortKey = (Option<String>, Option<i32>, Option<String>, Option<String>);

/// Endpoints that may be in one slice: of one family, and with the same ports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// `IPv4` or `IPv6`.
    pub(super) address_type: String,
    pub(super) ports: Vec<EndpointPort>,
    /// In the order of the names of their pods.
    pub(super) endpoints: Vec<Endpoint>,
}

/// The endpoints of a Service, of these pods that it selects. None at all if its endpoints are not ours to write; of a
/// Service that has no pods, one group without endpoints for each family, because a slice without endpoints tells
/// readers that the Service was reconciled.
pub(super) fn groups(service: &Service, pods: &[Arc<Pod>]) -> Vec<Group> {
    let Some(spec) = service.spec.as_ref().filter(|spec| is_ours(spec)) else { return Vec::new() };
    families(spec).into_iter().flat_map(|family| of_family(service, spec, pods, &family)).collect()
}

/// A Service that is a name elsewhere, or that selects nothing, has no endpoints or foreign ones.
fn is_ours(spec: &ServiceSpec) -> bool {
    let elsewhere = spec.type_.as_deref() == Some("ExternalName");
    !elsewhere && spec.selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

/// The API fills them in; an object that never went through it is of the family that every cluster has.
fn families(spec: &ServiceSpec) -> Vec<String> {
    let families = spec.ip_families.as_deref().unwrap_or_default();
    if families.is_empty() { vec!["IPv4".to_owned()] } else { families.to_vec() }
}

fn of_family(service: &Service, spec: &ServiceSpec, pods: &[Arc<Pod>], family: &str) -> Vec<Group> {
    let empty = |ports| Group { address_type: family.to_owned(), ports, endpoints: Vec::new() };
    let mut groups: BTreeMap<Vec<PortKey>, Group> = BTreeMap::new();
    let mut pods: Vec<&Arc<Pod>> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.name_any());
    for pod in pods {
        let Some(endpoint) = endpoint(service, spec, pod, family) else { continue };
        let ports = ports(spec, pod.spec.as_ref());
        groups.entry(port_keys(&ports)).or_insert_with(|| empty(ports)).endpoints.push(endpoint);
    }
    if groups.is_empty() { vec![empty(Vec::new())] } else { groups.into_values().collect() }
}

/// The ports of a slice, to compare: their order says nothing.
pub(super) fn port_keys(ports: &[EndpointPort]) -> Vec<PortKey> {
    let key = |port: &EndpointPort| {
        (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
    };
    let mut keys: Vec<PortKey> = ports.iter().map(key).collect();
    keys.sort_unstable();
    keys
}

/// A pod as an endpoint, if it has an address of the family and is one still.
fn endpoint(service: &Service, spec: &ServiceSpec, pod: &Pod, family: &str) -> Option<Endpoint> {
    let (pod_spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    // Its containers have ended, and do not start again.
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let addresses = addresses(status, family);
    let publish_all = spec.publish_not_ready_addresses == Some(true);
    let node_name = pod_spec.node_name.clone().filter(|node| !node.is_empty());
    if addresses.is_empty() || (node_name.is_none() && !publish_all) {
        return None;
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    // Readiness gates count: a pod is Ready when its containers and all its gates are.
    let serving = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let is_named_here = pod_spec.subdomain.as_deref() == Some(&service.name_any());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            // As upstream: a Service that publishes all of them wants those that terminate, too.
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: pod_spec.hostname.clone().filter(|hostname| is_named_here && !hostname.is_empty()),
        node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            namespace: pod.namespace(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// The addresses of a pod that are of a family, in the form in which all of them are written.
fn addresses(status: &PodStatus, family: &str) -> Vec<String> {
    let listed = status.pod_ips.iter().flatten().map(|address| address.ip.as_str());
    let mut all: Vec<&str> = listed.collect();
    if all.is_empty() {
        all.extend(status.pod_ip.as_deref());
    }
    let parsed = all.into_iter().filter_map(|address| address.parse::<IpAddr>().ok());
    parsed
        .filter(|address| address.is_ipv6() == (family == "IPv6"))
        .map(|address| address.to_string())
        .collect()
}

/// The ports of a Service as a pod has them. A port without a container port is left out.
fn ports(spec: &ServiceSpec, pod: Option<&PodSpec>) -> Vec<EndpointPort> {
    let ports = spec.ports.iter().flatten();
    let resolved = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(target(port, pod?)?),
            protocol: Some(protocol(port.protocol.as_ref()).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}

/// The number that a port of a Service has in a pod.
fn target(port: &ServicePort, pod: &PodSpec) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            // A sidecar is an init container that goes on.
            let goes_on = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
            let sidecars = pod.init_containers.iter().flatten().filter(goes_on);
            let containers = pod.containers.iter().chain(sidecars);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let wanted = protocol(port.protocol.as_ref());
            let found = ports
                .find(|port| port.name.as_ref() == Some(name) && protocol(port.protocol.as_ref()) == wanted);
            found.map(|port| port.container_port)
        }
    }
}

fn protocol(protocol: Option<&String>) -> &str {
    protocol.map_or("TCP", String::as_str)
}
