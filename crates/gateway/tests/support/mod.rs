//! An embedded API with the Gateway API's kinds, a gateway on it, and objects to route by.
#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_methods, reason = "a helper of tests")]

pub mod echo;
pub mod grpc;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use apiserver::{
    InProcess, Server,
    environment::SystemEnvironment,
    store::{History, Store},
};
use gateway::{Gateway, Settings, Snapshot, load};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};

const GATEWAYS: &str = "gateway.networking.k8s.io/v1";

/// Long enough for a busy machine; nothing waits for it that works.
pub const SOON: Duration = Duration::from_mins(1);

/// The rigs of one test binary run side by side, each in a /16 of its own.
static RIGS: AtomicU8 = AtomicU8::new(0);

pub struct Rig {
    pub client: Client,
    pub gateway: Gateway,
    /// The second number of every address here.
    net: u8,
    /// A port that was free a moment ago. On the addresses of this rig no other process takes it.
    pub port: u16,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    collecting: JoinHandle<()>,
}

impl Rig {
    pub async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let gateway_response = u8::try_from(std::process::id() % 8).unwrap() * 16;
        let net = 100 + (gateway_response + RIGS.fetch_add(1, Relaxed)) % 150;
        let server = Server::new(Store::memory(History::default()), Arc::new(SystemEnvironment), vec![]);
        let client = Client::new(InProcess::new(server.clone()), "default");
        let collecting = tokio::spawn(server.run_garbage_collector());
        let gateway = Gateway::new(Settings { addresses: [127, net], ..settings });
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn({
            let (gateway, client) = (gateway.clone(), client.clone());
            async move { gateway.run(client, async { drop(stopped.await) }).await }
        });
        let port = testbed::free_port();
        let rig = Self { client, gateway, net, port, stop: Some(stop), running, collecting };
        for crd in gateway::crds() {
            let crd: DynamicObject = serde_json::from_value(crd).unwrap();
            let api = rig.api(&serde_json::to_value(&crd).unwrap());
            api.create(&PostParams::default(), &crd).await.unwrap();
        }
        let _ = rig
            .try_apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}))
            .await;
        rig.apply(json!({
            "apiVersion": GATEWAYS, "kind": "GatewayClass", "metadata": {"name": "segue"},
            "spec": {"controllerName": "segue.dev/gateway"},
        }))
        .await;
        rig.apply(json!({
            "apiVersion": GATEWAYS, "kind": "Gateway", "metadata": {"name": "front", "namespace": "default"},
            "spec": {"gatewayClassName": "segue", "listeners": [{"name": "http", "port": rig.port, "protocol": "HTTP"}]},
        }))
        .await;
        rig
    }

    pub async fn stop(mut self) {
        self.stop.take().map(|stop| stop.send(()));
        (&mut self.running).await.unwrap();
    }

    /// Where the n-th replica of a version is.
    pub fn endpoint(&self, version: u8, replica: u8) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(127, self.net, 200 + version, replica + 1).into(), self.port)
    }

    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (group, version) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&kind);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub async fn try_apply(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.api(&object).patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await
    }

    pub async fn apply(&self, object: Value) -> DynamicObject {
        self.try_apply(object).await.unwrap()
    }

    /// A Service, and its endpoints as an `EndpointSlice`.
    pub async fn service(&self, name: &str, endpoints: &[SocketAddr]) -> Ipv4Addr {
        self.service_of(name, None, endpoints).await
    }

    /// A Service whose port says what its servers speak.
    pub async fn service_of(&self, name: &str, protocol: Option<&str>, endpoints: &[SocketAddr]) -> Ipv4Addr {
        let mut port = json!({"name": "http", "port": self.port, "protocol": "TCP", "targetPort": self.port});
        if let Some(protocol) = protocol {
            port["appProtocol"] = json!(protocol);
        }
        let service = self
            .apply(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
                "spec": {"ports": [port]},
            }))
            .await;
        self.endpoints(name, endpoints).await;
        service.data["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()
    }

    pub async fn endpoints(&self, service: &str, endpoints: &[SocketAddr]) {
        let all: Vec<Value> = endpoints
            .iter()
            .map(|address| json!({"addresses": [address.ip().to_string()], "conditions": {"ready": true}}))
            .collect();
        self.slice(service, json!(all)).await;
        let mut wanted = endpoints.to_vec();
        wanted.sort_unstable();
        let known = eventually("the endpoints to be known", SOON, async || {
            let mut ready = self.snapshot().ready.into_iter();
            ready.find(|(key, ready)| key.service.name == service && *ready == wanted)
        });
        known.await.unwrap();
    }

    pub async fn slice(&self, service: &str, endpoints: Value) {
        self.apply(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": service, "namespace": "default", "labels": {"kubernetes.io/service-name": service},
            },
            "ports": [{"name": "http", "port": self.port, "protocol": "TCP"}],
            "endpoints": endpoints,
        }))
        .await;
    }

    /// The one route, by weights; its generation.
    pub async fn route(&self, weights: &[(&str, u32)]) -> i64 {
        let backends: Vec<Value> = weights
            .iter()
            .map(|(name, weight)| json!({"name": name, "port": self.port, "weight": weight}))
            .collect();
        self.route_of(json!([{"backendRefs": backends}])).await
    }

    pub async fn route_of(&self, rules: Value) -> i64 {
        let route = self
            .apply(json!({
                "apiVersion": GATEWAYS, "kind": "HTTPRoute", "metadata": {"name": "main", "namespace": "default"},
                "spec": {"parentRefs": [{"name": "front"}], "rules": rules},
            }))
            .await;
        route.metadata.generation.unwrap()
    }

    pub async fn read(&self, kind: &str, name: &str) -> Value {
        let namespaced = kind != "GatewayClass";
        let mut what = json!({"apiVersion": GATEWAYS, "kind": kind, "metadata": {}});
        if namespaced {
            what["metadata"]["namespace"] = json!("default");
        }
        serde_json::to_value(self.api(&what).get(name).await.unwrap()).unwrap()
    }

    /// Waits until the route's status says that this generation is served, and gives the conditions.
    pub async fn acknowledged(&self, generation: i64) -> Value {
        let acknowledged = eventually("the acknowledgement", SOON, async || {
            let route = self.read("HTTPRoute", "main").await;
            let parent = route["status"]["parents"][0].clone();
            let all = parent["conditions"].as_array()?.iter().all(|c| c["observedGeneration"] == generation);
            all.then_some(parent["conditions"].clone())
        });
        acknowledged.await.unwrap()
    }

    pub async fn routed(&self, weights: &[(&str, u32)]) {
        let generation = self.route(weights).await;
        self.acknowledged(generation).await;
    }

    /// Where the Gateway is, once it is served.
    pub async fn front(&self) -> SocketAddr {
        let address = eventually("the Gateway's address", SOON, async || {
            let gateway = self.read("Gateway", "front").await;
            let programmed = gateway["status"]["conditions"]
                .as_array()?
                .iter()
                .any(|condition| condition["type"] == "Programmed" && condition["status"] == "True");
            let address = gateway["status"]["addresses"][0]["value"].as_str()?.parse::<Ipv4Addr>().ok()?;
            programmed.then_some(address)
        });
        SocketAddr::new(address.await.unwrap().into(), self.port)
    }

    pub async fn load(&self, path: &str) -> load::Client {
        load_at(self.front().await, path, false)
    }

    pub fn snapshot(&self) -> Snapshot {
        self.gateway.snapshot(SystemTime::now())
    }

    pub async fn drained(&self, endpoint: SocketAddr) {
        let drained =
            eventually("the drain", SOON, async || self.gateway.drained(endpoint).then_some(())).await;
        drained.unwrap();
    }

    /// Waits until so many requests are in flight at an endpoint.
    pub async fn in_flight(&self, endpoint: SocketAddr, requests: u64) {
        let reached = eventually("requests in flight", SOON, async || {
            let snapshot = self.snapshot();
            (snapshot.endpoints.get(&endpoint)?.counts.in_flight == requests).then_some(())
        });
        reached.await.unwrap();
    }

    pub async fn idle(&self, endpoint: SocketAddr) {
        self.in_flight(endpoint, 0).await;
    }

    /// Waits until a connection is open at an endpoint.
    pub async fn busy(&self, endpoint: SocketAddr) {
        let open = eventually("a connection", SOON, async || {
            (self.snapshot().endpoints.get(&endpoint)?.counts.connections > 0).then_some(())
        });
        open.await.unwrap();
    }
}

/// Sends a request of one's own wording and reads the whole answer. The request must close its connection.
pub async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

pub fn load_at(address: SocketAddr, path: &str, fresh: bool) -> load::Client {
    load::Client::new(load::Target { address, host: "front".to_owned(), path: path.to_owned(), fresh })
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.running.abort();
        self.collecting.abort();
    }
}
