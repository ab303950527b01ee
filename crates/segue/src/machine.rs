//! Everything that runs on this machine, in one process: the embedded API, the node, the gateway, the controllers.

use std::{
    fs::{self, DirBuilder},
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use apiserver::{
    Credentials, InProcess, Limits, Listener, Server,
    store::{Cut, Settings as StoreSettings, Store},
    world,
};
use gateway::Gateway;
use kube::Client;
use node::{Node, Resources};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::{
    furnish::{OurKinds, furnish},
    log::{self, Loudness},
    node_logs::NodeLogs,
    output::Error,
    outside::GatewayWindow,
};

/// How long requests under way may take after the stop.
const DRAIN: Duration = Duration::from_secs(10);

/// What a machine is told.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where everything is kept. One machine at a time.
    pub(crate) directory: PathBuf,
    /// The port of the API on 127.0.0.1; 0 takes any that is free.
    pub(crate) port: u16,
    pub(crate) gateway: gateway::Settings,
    pub(crate) protections: controllers::Protections,
}

impl Settings {
    pub(crate) fn new(directory: PathBuf, port: u16) -> Self {
        let gateway = gateway::Settings { drain: DRAIN, ..gateway::Settings::default() };
        Self { directory, port, gateway, protections: controllers::Protections::default() }
    }
}

/// A machine that runs. It must be stopped: dropped, it leaves its pods to die without a grace period.
pub(crate) struct Machine {
    pub(crate) client: Client,
    pub(crate) gateway: Gateway,
    /// Where the API listens.
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    /// What was lost of the last write of an earlier run: it was never acknowledged.
    pub(crate) cut: Option<Cut>,
    stop: watch::Sender<bool>,
    parts: JoinSet<Result<(), Error>>,
    serving: JoinHandle<()>,
    collecting: JoinHandle<()>,
}

impl Machine {
    /// Starts everything. When this returns, the API answers.
    pub(crate) async fn start(settings: Settings) -> Result<Self, Error> {
        let Settings { directory, port, gateway, protections } = settings;
        let failed = |what: &'static str| move |error: &dyn std::error::Error| Error::up(what, error);
        let opened = Store::open(&directory.join("api"), StoreSettings::default())
            .map_err(|error| failed("open the stored objects")(&error))?;
        let server = Server::new(opened.store, Arc::new(world::Machine), vec![Arc::new(OurKinds)]);
        furnish(&server).await?;
        let credentials = Credentials::load(&directory, &world::Machine)
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
        let mut parts = JoinSet::new();
        parts.spawn(run_node(client.clone(), server.clone(), directory.join("node"), stopped.clone()));
        parts.spawn(run_gateway(gateway.clone(), client.clone(), stopped.clone()));
        parts.spawn(run_controllers(gateway.clone(), client.clone(), protections, stopped.clone()));
        let collecting = tokio::spawn(server.keep_collecting());
        let serving = tokio::spawn(listener.serve(stopped));
        let cut = opened.cut;
        Ok(Self { client, gateway, address, kubeconfig, cut, stop, parts, serving, collecting })
    }

    /// Waits until a part ends, which none does by itself unless something is wrong.
    pub(crate) async fn failed(&mut self) -> Error {
        match self.parts.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => Error::up("go on", &error),
            Some(Ok(Ok(()))) | None => {
                Error::Up { what: "go on", why: "a part ended without being told to".to_owned() }
            }
        }
    }

    /// Ends everything: pods and requests first, then the API that they are written to.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        while self.parts.join_next().await.is_some() {}
        self.serving.await.map_err(|error| Error::up("stop", &error))?;
        self.collecting.abort();
        Ok(())
    }
}

async fn run_node(
    client: Client,
    server: Server,
    directory: PathBuf,
    stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    // Volumes hold secrets.
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut settings = node::Settings::new("this-machine", directory);
    settings.capacity = capacity();
    let node = Node::new(client, settings);
    server.read_logs_from(Arc::new(NodeLogs(node.logs())));
    node.run(stop).await.map_err(|error| Error::up("run the node", &error))
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
    log::begin(Loudness::Warn);
    let settings = controllers::Settings { embedded: true, protections, ..controllers::Settings::default() };
    controllers::run(client, settings, Arc::new(GatewayWindow::new(gateway)), stop).await;
    Ok(())
}

/// What this machine has. Nothing is taken away for others: it is a promise, not a wall.
fn capacity() -> Resources {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let memory = fs::read_to_string("/proc/meminfo").ok();
    let memory = memory.as_deref().and_then(|text| text.lines().next()?.split_whitespace().nth(1));
    let memory = memory.map_or_else(|| "1Gi".to_owned(), |kilobytes| format!("{kilobytes}Ki"));
    Resources::of([("cpu", processors.as_str()), ("memory", &memory), ("pods", "1000")])
}
