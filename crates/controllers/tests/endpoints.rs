//! The endpoints of Services on the embedded API, from the pods to what a gateway reads.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

use std::{sync::Arc, time::Duration};

use apiserver::{
    InProcess, Server,
    store::{History, Store},
};
use controllers::{Calls, Clock, Settings};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{eventually, virtual_time};
use tokio::{sync::watch, task::JoinHandle};

/// Long enough for a busy machine; nothing waits for it that works.
const SOON: Duration = Duration::from_mins(1);

/// The controllers on an API of their own.
struct Machines {
    client: Client,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Machines {
    async fn new() -> Self {
        let server = Server::new(Store::memory(History::default()), virtual_time::begin(1), vec![]);
        let client = Client::new(InProcess::new(server), "default");
        let (stop, stopped) = watch::channel(false);
        let settings =
            Settings { embedded: true, clock: Clock::single(virtual_time::now), ..Settings::default() };
        let running = controllers::run(client.clone(), settings, Arc::new(Calls::default()), stopped);
        let machines = Self { running: tokio::spawn(running), client, stop };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        drop(
            Api::<k8s_openapi::api::core::v1::Namespace>::all(machines.client.clone())
                .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
                .await,
        );
        machines
    }

    fn api<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    async fn pod(&self, name: &str, address: &str) {
        let pods = self.api::<Pod>();
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "node", "containers": [{"name": "main", "image": "main"}]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        self.status(name, json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]})).await;
        self.ready(name, true).await;
    }

    async fn ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.status(name, json!({"conditions": [{"type": "Ready", "status": status}]})).await;
    }

    async fn status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn slices(&self) -> Vec<EndpointSlice> {
        let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
        self.api().list(&of_service).await.unwrap().items
    }

    /// Waits until the endpoints are these, each with whether it is ready.
    async fn become_endpoints(&self, wanted: &[(&str, bool)]) {
        let wanted: Vec<_> = wanted.iter().map(|(name, ready)| ((*name).to_owned(), *ready)).collect();
        let reached = eventually("the endpoints", SOON, async || {
            let slices = self.slices().await;
            let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
            let endpoints: Vec<_> = endpoints
                .map(|it| {
                    (
                        it.target_ref.clone().unwrap().name.unwrap(),
                        it.conditions.clone().unwrap().ready.unwrap(),
                    )
                })
                .collect();
            (!slices.is_empty() && endpoints == wanted).then_some(())
        });
        reached.await.unwrap();
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        self.running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slice_follows_the_pods_of_its_service() {
    let machines = Machines::new().await;
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let services = machines.api::<Service>();
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    machines.become_endpoints(&[]).await;
    machines.pod("b", "10.1.0.2").await;
    machines.pod("a", "10.1.0.1").await;
    machines.become_endpoints(&[("a", true), ("b", true)]).await;
    machines.ready("a", false).await;
    machines.become_endpoints(&[("a", false), ("b", true)]).await;

    // Another selector, and the pods of the old one are gone; and back.
    let select = async |app: &str| {
        let patch = Patch::Merge(json!({"spec": {"selector": {"app": app}}}));
        services.patch("web", &PatchParams::default(), &patch).await.unwrap();
    };
    select("other").await;
    machines.become_endpoints(&[]).await;
    select("web").await;
    machines.become_endpoints(&[("a", false), ("b", true)]).await;

    machines.api::<Pod>().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    machines.become_endpoints(&[("b", true)]).await;

    // One slice all the while. What is no change of the endpoints is no write: the next change is the next generation.
    let [before] = machines.slices().await.try_into().unwrap();
    let note = json!({"metadata": {"annotations": {"note": "x"}}});
    machines.api::<Pod>().patch("b", &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
    machines.ready("b", false).await;
    machines.become_endpoints(&[("b", false)]).await;
    let [after] = machines.slices().await.try_into().unwrap();
    assert_eq!(after.name_any(), before.name_any());
    assert_eq!(after.metadata.generation.unwrap(), before.metadata.generation.unwrap() + 1);
    machines.stop().await;
}
