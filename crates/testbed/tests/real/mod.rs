//! Controllers on a real kube-apiserver, with its defaults, its kube-controller-manager, and a kubelet that runs nothing.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use controllers::{Calls, Settings};
use http::{Method, Request};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    client::{Body, ClientBuilder},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::{Cluster, Kubelet};
use tokio::{
    sync::{MutexGuard, watch},
    task::JoinHandle,
};
use tower::{Service, layer::layer_fn};

/// Long enough for a busy machine; nothing waits for it that works.
pub const SOON: Duration = Duration::from_mins(2);

/// A kind of this test.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned> Kind for K {}

/// What was asked of the API.
#[derive(Debug, Default)]
pub struct Asked {
    /// Other than to read: method and path.
    writes: Mutex<Vec<String>>,
    waiting: AtomicUsize,
    /// The most requests that waited for an answer at once.
    pub most: AtomicUsize,
}

impl Asked {
    /// The writes to a namespace: method and path.
    pub fn writes(&self, namespace: &str) -> Vec<String> {
        let here = format!("/namespaces/{namespace}/");
        self.writes.lock().unwrap().iter().filter(|write| write.contains(&here)).cloned().collect()
    }

    pub fn forget(&self) {
        self.writes.lock().unwrap().clear();
        self.most.store(0, SeqCst);
    }
}

/// The controllers and a kubelet on the control plane of all tests.
pub struct Stage {
    pub client: Client,
    pub namespace: String,
    pub kubelet: Kubelet,
    pub asked: Arc<Asked>,
    controllers: JoinHandle<()>,
    /// A kubelet has an opinion on every pod of the cluster, so there is one at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Stage {
    pub async fn start() -> Self {
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let alone = ALONE.lock().await;
        let cluster = Cluster::shared().await;
        let client = cluster.client();
        cluster.install(api::KINDS.iter().map(|kind| kind.crd())).await.unwrap();
        let namespace = cluster.namespace("stage").await.unwrap();
        let asked = Arc::<Asked>::default();
        let controllers = run(cluster, &asked);
        let kubelet = Kubelet::start(client.clone());
        Self { client, namespace, kubelet, asked, controllers, _alone: alone }
    }

    /// The controllers end wherever they are, and others read everything anew.
    pub async fn restart(&mut self) {
        self.controllers.abort();
        drop((&mut self.controllers).await);
        self.controllers = run(Cluster::shared().await, &self.asked);
    }

    pub fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn apply<K: Kind + std::fmt::Debug>(&self, namespace: &str, object: &Value) {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let name = object["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    /// What was written here.
    pub fn writes(&self) -> Vec<String> {
        self.asked.writes(&self.namespace)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

/// The controllers, whose requests are counted.
fn run(cluster: &Cluster, asked: &Arc<Asked>) -> JoinHandle<()> {
    let asked = Arc::clone(asked);
    let counting = layer_fn(move |inner| Counted { inner, asked: Arc::clone(&asked) });
    let client = ClientBuilder::try_from(cluster.config()).unwrap().with_layer(&counting).build();
    tokio::spawn(async move {
        let (_running, stop) = watch::channel(false);
        controllers::run(client, Settings::default(), Arc::new(Calls::default()), stop).await;
    })
}

/// A way to the API whose requests are counted.
struct Counted<S> {
    inner: S,
    asked: Arc<Asked>,
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Future: Send + 'static>,
{
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;
    type Response = S::Response;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Arc::clone(&self.asked);
        if request.method() != Method::GET {
            asked.writes.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let waiting = asked.waiting.fetch_add(1, SeqCst) + 1;
            asked.most.fetch_max(waiting, SeqCst);
            let answer = answer.await;
            asked.waiting.fetch_sub(1, SeqCst);
            answer
        })
    }
}
