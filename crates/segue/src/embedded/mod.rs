//! The embedded mode: API, node, gateway and controllers in one process.

mod bootstrap;
mod data_plane;
mod pod_logs;

use std::{
    fs::{self, DirBuilder},
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use apiserver::{
    Credentials, InProcess, Limits, Listener, Server, environment,
    store::{Health, Settings as StoreSettings, Store, TornWrite},
};
use gateway::Gateway;
use kube::Client;
use node::{Node, Resources};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use self::{
    data_plane::{GatewayDataPlane, GatewayMetrics},
    pod_logs::NodePodLogs,
};
use crate::{
    admission::KindAdmission,
    logging::{self, LogLevel},
    output::Error,
};

/// How long requests in flight may take after the stop.
const DRAIN: Duration = Duration::from_secs(10);

/// How the embedded mode runs.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The directory of the state. One process uses it at a time.
    pub(crate) directory: PathBuf,
    /// The port of the API on 127.0.0.1; 0 takes any that is free.
    pub(crate) port: u16,
    /// Whether every pod gets a network of its own.
    pub(crate) pod_networks: bool,
    pub(crate) gateway: gateway::Settings,
    pub(crate) protections: controllers::Protections,
}

impl Settings {
    pub(crate) fn new(directory: PathBuf, port: u16) -> Self {
        let gateway = gateway::Settings { drain: DRAIN, ..gateway::Settings::default() };
        let protections = controllers::Protections::default();
        Self { directory, port, pod_networks: false, gateway, protections }
    }
}

/// The running parts. Call `stop`: when this is dropped instead, pods are killed without a grace period.
pub(crate) struct Embedded {
    pub(crate) client: Client,
    pub(crate) gateway: Gateway,
    /// The address of the API.
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    /// The unfinished, unacknowledged write that was cut off the end of the stored log, if there was one.
    pub(crate) cut: Option<TornWrite>,
    stop: watch::Sender<bool>,
    parts: JoinSet<Result<(), Error>>,
    serving: JoinHandle<()>,
    collecting: JoinHandle<()>,
}

impl Embedded {
    /// Starts every part. When this returns, the API answers.
    pub(crate) async fn start(settings: Settings) -> Result<Self, Error> {
        let Settings { directory, port, pod_networks, gateway, protections } = settings;
        let failed = |what: &'static str| move |error: &dyn std::error::Error| Error::failed_to(what, error);
        let opened = Store::open(&directory.join("api"), StoreSettings::default())
            .map_err(|error| failed("open the stored objects")(&error))?;
        let health = opened.store.health();
        let server = Server::new(
            opened.store,
            Arc::new(environment::SystemEnvironment),
            vec![Arc::new(KindAdmission)],
        );
        bootstrap::bootstrap(&server).await?;
        let credentials = Credentials::load(&directory, &environment::SystemEnvironment)
            .map_err(|error| failed("load the keys of the API")(&error))?;
        let listener = Listener::bind(port, server.clone(), credentials.clone(), Limits::default())
            .await
            .map_err(|error| failed("listen")(&error))?;
        let (address, kubeconfig) = (listener.address(), directory.join("kubeconfig"));
        credentials
            .write_kubeconfig(&kubeconfig, address)
            .map_err(|error| failed("write the kubeconfig")(&error))?;

        let (stop, stopped) = watch::channel(false);
        let client = Client::new(InProcess::new(server.clone()), "default");
        let gateway = Gateway::new(gateway);
        server.set_metrics(Arc::new(GatewayMetrics(gateway.clone())));
        let mut parts = JoinSet::new();
        let mut node = node::Settings::new("this-machine", directory.join("node"));
        node.capacity = capacity();
        node.pod_networks = pod_networks;
        parts.spawn(run_node(client.clone(), server.clone(), node, stopped.clone()));
        parts.spawn(run_gateway(gateway.clone(), client.clone(), stopped.clone()));
        parts.spawn(run_controllers(gateway.clone(), client.clone(), protections, stopped.clone()));
        tokio::spawn(log_health(health));
        let collecting = tokio::spawn(server.run_garbage_collector());
        let serving = tokio::spawn(listener.serve(stopped));
        let cut = opened.cut;
        Ok(Self { client, gateway, address, kubeconfig, cut, stop, parts, serving, collecting })
    }

    /// Waits until a part fails. No part ends by itself otherwise.
    pub(crate) async fn failed(&mut self) -> Error {
        match self.parts.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => Error::failed_to("go on", &error),
            Some(Ok(Ok(()))) | None => {
                Error::FailedTo { what: "go on", why: "a part ended without being told to".to_owned() }
            }
        }
    }

    /// Stops pods and requests first, then the API that their end is written to.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        while self.parts.join_next().await.is_some() {}
        self.serving.await.map_err(|error| Error::failed_to("stop", &error))?;
        self.collecting.abort();
        Ok(())
    }
}

async fn run_node(
    client: Client,
    server: Server,
    settings: node::Settings,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    // Volumes hold secrets.
    DirBuilder::new().recursive(true).mode(0o700).create(&settings.directory)?;
    let node = Node::new(client, settings);
    server.set_log_source(Arc::new(NodePodLogs(node.logs())));
    node.run(stop).await.map_err(|error| Error::failed_to("run the node", &error))
}

async fn run_gateway(gateway: Gateway, client: Client, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
    gateway.run(client, async move { drop(stop.wait_for(|stop| *stop).await) }).await;
    Ok(())
}

async fn run_controllers(
    gateway: Gateway,
    client: Client,
    protections: controllers::Protections,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    logging::init(LogLevel::Warn);
    let settings = controllers::Settings { embedded: true, protections, ..controllers::Settings::default() };
    controllers::run(client, settings, Arc::new(GatewayDataPlane::new(gateway)), stop).await;
    Ok(())
}

/// Logs when the store refuses writes, and when it takes them again.
async fn log_health(mut health: watch::Receiver<Health>) {
    let mut was_full = false;
    while health.changed().await.is_ok() {
        let Health { read_only, full, uncompacted } = health.borrow_and_update().clone();
        if let Some(why) = read_only {
            tracing::error!("the API stores nothing any more: {why}; restart segue once the disk works");
        } else if let Some(why) = &full {
            tracing::error!("the API stores nothing until there is room on the disk: {why}");
        } else if was_full {
            tracing::warn!("there is room on the disk: the API stores again");
        }
        if let Some(why) = uncompacted {
            tracing::warn!("the log of the API grows: {why}");
        }
        was_full = full.is_some();
    }
}

/// The resources of this machine. They are what the scheduler counts with; no limit is enforced.
fn capacity() -> Resources {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let memory = fs::read_to_string("/proc/meminfo").ok();
    let memory = memory.as_deref().and_then(|text| text.lines().next()?.split_whitespace().nth(1));
    let memory = memory.map_or_else(|| "1Gi".to_owned(), |kilobytes| format!("{kilobytes}Ki"));
    Resources::of([("cpu", processors.as_str()), ("memory", &memory), ("pods", "1000")])
}
