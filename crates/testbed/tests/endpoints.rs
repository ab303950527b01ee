//! The slices that our controller wants are those that kube-controller-manager writes.
#![allow(clippy::unwrap_used, reason = "clippy.toml allows them in tests, not in helpers of tests")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Node, Pod, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testbed::{Cluster, eventually};

const SOON: Duration = Duration::from_mins(1);

fn services() -> Value {
    json!({
        "plain": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        "several": {"selector": {"app": "web"}, "ports": [
            {"name": "http", "port": 80, "targetPort": "web", "appProtocol": "kubernetes.io/h2c"},
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
            {"name": "same", "port": 81},
        ]},
        "named": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "web"}]},
        "all": {"selector": {"app": "web"}, "publishNotReadyAddresses": true, "ports": [{"port": 80}]},
        "headless": {"selector": {"app": "web"}, "clusterIP": "None"},
        "hosts": {"selector": {"app": "web"}, "clusterIP": "None", "ports": [{"port": 80}]},
        "nobody": {"selector": {"app": "nobody"}, "ports": [{"port": 80}]},
        "by-hand": {"ports": [{"port": 80}]},
        "elsewhere": {"type": "ExternalName", "externalName": "example.org", "selector": {"app": "web"}},
    })
}

/// Name, what is special about its spec, and its status.
fn pods(node: &str) -> Vec<(&'static str, Value, Value)> {
    let bound = json!({"nodeName": node});
    let status = |number: u8, conditions: Value| {
        let address = format!("10.244.0.{number}");
        json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions})
    };
    let ready = || json!([{"type": "Ready", "status": "True"}]);
    let ports = |web: u16, dns: &str| {
        json!({"nodeName": node, "containers": [{"name": "main", "image": "main", "ports": [
            {"name": "web", "containerPort": web},
            {"name": "dns", "containerPort": 5353, "protocol": dns},
        ]}]})
    };
    let sidecar = json!({"nodeName": node, "initContainers": [
        {"name": "early", "image": "main", "ports": [{"name": "dns", "containerPort": 1, "protocol": "UDP"}]},
        {"name": "beside", "image": "main", "restartPolicy": "Always", "ports": [
            {"name": "web", "containerPort": 8000},
        ]},
    ]});
    let gated = json!({"nodeName": node, "readinessGates": [{"conditionType": "segue.dev/in-service"}]});
    let gate_closed = json!([
        {"type": "ContainersReady", "status": "True"},
        {"type": "segue.dev/in-service", "status": "False"},
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
    ]);
    let mut ended = status(9, ready());
    ended["phase"] = json!("Failed");
    vec![
        ("ready", bound.clone(), status(1, ready())),
        ("gated", gated, status(2, gate_closed)),
        ("going", bound.clone(), status(3, ready())),
        ("eight", ports(8000, "UDP"), status(4, ready())),
        ("eight-too", ports(8000, "UDP"), status(5, ready())),
        ("nine", ports(9000, "TCP"), status(6, ready())),
        ("sidecar", sidecar, status(7, ready())),
        ("host", json!({"nodeName": node, "hostname": "leader", "subdomain": "hosts"}), status(8, ready())),
        ("ended", bound.clone(), ended),
        ("early", bound, json!({"phase": "Pending"})),
        ("unbound", json!({}), status(10, ready())),
    ]
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn namespaced<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

async fn make(client: &Client, namespace: &str) {
    let (all_pods, all_services) = (namespaced::<Pod>(client, namespace), namespaced(client, namespace));
    // A node must exist: the controller skips a pod whose node it does not know.
    create(&Api::<Node>::all(client.clone()), json!({"metadata": {"name": namespace}})).await;
    for (name, spec) in services().as_object().unwrap() {
        // A label that is not the Service's to say is not copied.
        let labels = json!({"team": "a", "service.kubernetes.io/headless": "no", "name": name});
        create::<Service>(&all_services, json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            .await;
    }
    for (name, special, status) in pods(namespace) {
        let mut spec = json!({"containers": [{"name": "main", "image": "main"}]});
        spec.as_object_mut().unwrap().extend(special.as_object().unwrap().clone());
        create(&all_pods, json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})).await;
        let patch = Patch::Merge(json!({"status": status}));
        all_pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
    // Nobody runs it, so nobody says that it has ended.
    all_pods.delete("going", &DeleteParams::default()).await.unwrap();
}

/// What two slices are compared by: all that a reader reads. Names are made up by each; lists are sets.
fn masked(mut slice: EndpointSlice) -> String {
    let metadata = &mut slice.metadata;
    (metadata.name, metadata.generate_name, metadata.uid) = (None, None, None);
    (metadata.resource_version, metadata.managed_fields, metadata.generation) = (None, None, None);
    metadata.creation_timestamp = None;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
    let name = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| endpoint.target_ref.clone()?.name;
    slice.endpoints.get_or_insert_default().sort_by_key(name);
    slice.ports.get_or_insert_default().sort_by_key(|port| port.name.clone());
    serde_json::to_string_pretty(&slice).unwrap()
}

/// The slices by Service.
fn by_service(slices: impl IntoIterator<Item = EndpointSlice>) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for slice in slices {
        all.entry(slice.labels()["kubernetes.io/service-name"].clone()).or_default().push(masked(slice));
    }
    for slices in all.values_mut() {
        slices.sort();
    }
    all
}

async fn list<K>(api: &Api<K>) -> Vec<K>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    api.list(&ListParams::default()).await.unwrap().items
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn our_slices_are_those_of_kube_controller_manager() {
    let cluster = Cluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("slices").await.unwrap());
    make(&client, &namespace).await;
    let pods: Vec<Arc<Pod>> =
        list(&namespaced(&client, &namespace)).await.into_iter().map(Arc::new).collect();
    let services: Vec<Service> = list(&namespaced(&client, &namespace)).await;
    let wanted = services.iter().flat_map(|service| controllers::endpoints::wanted_slices(service, &pods));
    let wanted = by_service(wanted);
    assert_eq!((services.len(), wanted.len()), (9, 7), "two are left alone");
    let written = async || by_service(list(&namespaced(&client, &namespace)).await);
    let same = eventually("the same slices", SOON, async || (written().await == wanted).then_some(())).await;
    if same.is_err() {
        for (service, slices) in written().await {
            assert_eq!(slices.join("\n"), wanted[&service].join("\n"), "{service}");
        }
    }
    same.unwrap();
}
