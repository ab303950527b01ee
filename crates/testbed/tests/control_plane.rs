//! What a test may rely on when it asks for a real control plane.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Namespace, Node, Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{Cluster, Versions, eventually};

const SOON: Duration = Duration::from_mins(1);

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn the_server_says_the_version_of_go_mod() {
    let version = Cluster::shared().await.client().apiserver_version().await.unwrap();
    let pinned = Versions::pinned().unwrap().kubernetes;
    assert_eq!(version.git_version, pinned);
    assert_eq!(format!("v{}.{}", version.major, version.minor), pinned.rsplit_once('.').unwrap().0);
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_wrong_token_is_unauthorized_and_no_token_is_forbidden() {
    let mut config = Cluster::shared().await.config();
    config.auth_info.token = Some("wrong".to_owned().into());
    let wrong: Api<Namespace> = Api::all(Client::try_from(config.clone()).unwrap());
    assert_eq!(code(wrong.get("default").await.unwrap_err()), 401);

    config.auth_info.token = None;
    let none: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    assert_eq!(code(none.get("default").await.unwrap_err()), 403);
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_ready_pod_behind_a_service_gets_an_endpoint() {
    let cluster = Cluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("endpoints").await.unwrap());
    let create = PostParams::default();
    // A node must exist: the endpoint controller skips a pod whose node it does not know.
    let node: Node = object(json!({"metadata": {"name": namespace}}));
    Api::all(client.clone()).create(&create, &node).await.unwrap();
    let service: Service = object(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }));
    Api::namespaced(client.clone(), &namespace).create(&create, &service).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pod = object(json!({
        "metadata": {"name": "web-0", "labels": {"app": "web"}},
        "spec": {"nodeName": namespace, "containers": [{"name": "web", "image": "web"}]},
    }));
    pods.create(&create, &pod).await.unwrap();
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.244.0.5", "podIPs": [{"ip": "10.244.0.5"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    pods.patch_status("web-0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();

    let slices: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    let ready = eventually("a ready endpoint", SOON, async || {
        let slices = slices.list(&of_service).await.unwrap();
        let mut endpoints = slices.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        endpoints.find(|it| it.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true))
    });
    assert_eq!(ready.await.unwrap().addresses, ["10.244.0.5"]);
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_dependent_is_collected_after_its_owner() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("owners").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let create = PostParams::default();
    let owner = maps.create(&create, &object(json!({"metadata": {"name": "owner"}}))).await.unwrap();
    let reference = owner.owner_ref(&()).unwrap();
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    maps.create(&create, &object(dependent)).await.unwrap();
    let stranger = json!({"metadata": {"name": "stranger"}});
    maps.create(&create, &object(stranger)).await.unwrap();

    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    eventually("the dependent gone", SOON, async || {
        maps.get_opt("dependent").await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
    assert!(maps.get_opt("stranger").await.unwrap().is_some());
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn the_gateway_api_is_established_in_the_version_of_go_mod() {
    let definitions: Api<CustomResourceDefinition> = Api::all(Cluster::shared().await.client());
    let pinned = Versions::pinned().unwrap().gateway_api;
    for kind in ["gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants"] {
        let definition = definitions.get(&format!("{kind}.gateway.networking.k8s.io")).await.unwrap();
        let version = &definition.metadata.annotations.unwrap()["gateway.networking.k8s.io/bundle-version"];
        assert_eq!(*version, pinned, "{kind}");
        let conditions = definition.status.unwrap().conditions.unwrap();
        assert!(conditions.iter().any(|it| it.type_ == "Established" && it.status == "True"), "{kind}");
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn kubectl_lists_namespaces_and_leaves_the_home_of_the_user_alone() {
    let cluster = Cluster::shared().await;
    let output = cluster.kubectl().args(["get", "ns", "-o", "name"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    assert!(names.lines().any(|line| line == "namespace/kube-system"), "{names}");
    assert!(cluster.directory().join("state/.kube/cache").is_dir());
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn every_namespace_is_a_new_one() {
    let cluster = Cluster::shared().await;
    let (one, other) = (cluster.namespace("same").await.unwrap(), cluster.namespace("same").await.unwrap());
    assert!(one.starts_with("same-") && other.starts_with("same-"));
    assert_ne!(one, other);
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_dropped_cluster_leaves_nothing() {
    let cluster = Cluster::start().await.unwrap();
    let place = Place { directory: cluster.directory().to_owned(), processes: cluster.processes() };
    assert!(place.all_there(), "{place:?}");
    drop(cluster);
    assert!(place.nothing_there(), "{place:?}");
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_killed_process_leaves_nothing() {
    let (mut child, place) = control_plane();
    child.kill().unwrap();
    child.wait().unwrap();
    place.is_cleared().await;
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn a_process_that_ends_with_its_shared_cluster_leaves_nothing() {
    let (mut child, place) = control_plane();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    place.is_cleared().await;
}

/// Another process with a shared cluster, up and running.
fn control_plane() -> (Child, Place) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let printed: Value = serde_json::from_str(&line).unwrap();
    let processes = object(printed["processes"].clone());
    let place = Place { directory: object(printed["directory"].clone()), processes };
    assert!(place.all_there(), "{place:?}");
    (child, place)
}

/// What a cluster occupies.
#[derive(Debug)]
struct Place {
    directory: PathBuf,
    processes: Vec<u32>,
}

impl Place {
    /// Three programs, each with its supervisor.
    fn all_there(&self) -> bool {
        self.directory.is_dir() && self.processes.len() == 6 && self.processes.iter().all(|id| alive(*id))
    }

    fn nothing_there(&self) -> bool {
        !self.directory.exists() && !self.processes.iter().any(|id| alive(*id))
    }

    async fn is_cleared(&self) {
        let what = format!("an end of {self:?}");
        eventually(&what, SOON, async || self.nothing_there().then_some(())).await.unwrap();
    }
}

/// Runs still. A zombie does not: in a container nobody may be there to collect an orphan.
fn alive(id: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
