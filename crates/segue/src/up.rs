use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use apiserver::{
    Admission, Cause, Credentials, InProcess, Limits, Listener, Refusal, Server,
    store::{Cut, Settings, Store},
    world::Machine,
};
use bytes::Bytes;
use clap::Args as ClapArgs;
use gateway::Gateway;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use kube::Client;
use node::{Node, Resources};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::output::{self, Answer, Error, Format};

/// Run everything on this machine: a Kubernetes API, a node that runs pods as processes, a gateway.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue up
  segue up --directory /tmp/try --port 6443
  kubectl --kubeconfig ~/.local/state/segue/kubeconfig get leaderworkersets

Listens on loopback only. A pod's command runs as a process of this machine, as the user who started segue, without
isolation; it ends when segue ends. The state stays in the directory.")]
pub(crate) struct Args {
    /// Where the state is kept; by default `segue` below the state directory of XDG, or ~/.local/state
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The port on 127.0.0.1; 0 takes any that is free
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// How long requests under way may take after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { directory, port, output } = args;
    let directory = directory.clone().or_else(default_directory).ok_or(Error::NoDirectory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(directory, *port, *output))
}

fn default_directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".local/state"));
    state.or_else(home).map(|state| state.join("segue"))
}

async fn serve(directory: PathBuf, port: u16, format: Format) -> Result<Answer, Error> {
    let failed = |what: &'static str| move |error: &dyn std::error::Error| Error::up(what, error);
    let opened = Store::open(&directory.join("api"), Settings::default())
        .map_err(|error| failed("open the stored objects")(&error))?;
    let server = Server::new(opened.store, Arc::new(Machine), vec![Arc::new(OurKinds)]);
    furnish(&server).await?;
    let credentials = Credentials::load(&directory, &Machine)
        .map_err(|error| failed("load the keys of the API")(&error))?;
    let listener = Listener::bind(port, server.clone(), credentials.clone(), Limits::default())
        .await
        .map_err(|error| failed("listen")(&error))?;
    let kubeconfig = directory.join("kubeconfig");
    credentials
        .write_kubeconfig(&kubeconfig, listener.address())
        .map_err(|error| failed("write the kubeconfig")(&error))?;
    let mut signals = Signals::listen()?;
    announce(&listener, &kubeconfig, opened.cut.as_ref(), format)?;

    let (stop, stopped) = watch::channel(false);
    let client = Client::new(InProcess::new(server.clone()), "default");
    let mut parts = JoinSet::new();
    parts.spawn(run_node(client.clone(), directory.join("node"), stopped.clone()));
    parts.spawn(run_gateway(client, stopped.clone()));
    let collecting = tokio::spawn(server.keep_collecting());
    let serving = tokio::spawn(listener.serve(stopped));
    let ended = tokio::select! {
        () = signals.told_to_stop() => Ok(()),
        // None of them ends by itself unless something is wrong.
        Some(ended) = parts.join_next() => ended.unwrap_or_else(|error| Err(failed("go on")(&error))),
    };
    // Pods and requests first, then the API that they are written to.
    stop.send_replace(true);
    while parts.join_next().await.is_some() {}
    serving.await.map_err(|error| failed("stop")(&error))?;
    collecting.abort();
    ended.map(|()| Answer::Yes)
}

async fn run_node(client: Client, directory: PathBuf, stop: watch::Receiver<bool>) -> Result<(), Error> {
    // Volumes hold secrets.
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut settings = node::Settings::new("this-machine", directory);
    settings.capacity = capacity();
    Node::new(client, settings).run(stop).await.map_err(|error| Error::up("run the node", &error))
}

async fn run_gateway(client: Client, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
    let settings = gateway::Settings { drain: DRAIN, ..gateway::Settings::default() };
    Gateway::new(settings).run(client, async move { drop(stop.wait_for(|stop| *stop).await) }).await;
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

fn announce(
    listener: &Listener,
    kubeconfig: &std::path::Path,
    cut: Option<&Cut>,
    format: Format,
) -> Result<(), Error> {
    let (address, kubeconfig) = (listener.address(), kubeconfig.display());
    if let Some(cut) = cut {
        eprintln!(
            "note: the last write before the stop was not finished and not acknowledged; {} bytes at the end of {} were \
             dropped",
            cut.bytes, cut.file
        );
    }
    match format {
        Format::Json => {
            let line = json!({"server": format!("https://{address}"), "kubeconfig": kubeconfig.to_string()});
            output::print(&format!("{line}\n"))
        }
        Format::Table => output::print(&format!(
            "A Kubernetes API, a node and a gateway, for this machine alone: https://{address}\n\
             Real: the processes of pods and their sockets. Not real: images, isolation, more than one node.\n\
             \n  kubectl --kubeconfig {kubeconfig} get namespaces\n\
             \nCtrl-C ends it and its pods; the state stays.\n"
        )),
    }
}

/// The ways to be told to stop, heard from when this is made.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn told_to_stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What every cluster has, and the kinds that we serve.
async fn furnish(server: &Server) -> Result<(), Error> {
    let refused = |refusal: Refusal| Error::Up { what: "furnish the API", why: refusal.message().to_owned() };
    server.furnish().await.map_err(refused)?;
    let definitions = api::KINDS.iter().map(|kind| kind.crd()).chain(gateway::crds());
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        apply(server, &path, &definition).await?;
    }
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "segue"},
        "spec": {"controllerName": gateway::Settings::default().controller},
    });
    apply(server, "/apis/gateway.networking.k8s.io/v1/gatewayclasses/segue", &class).await
}

async fn apply(server: &Server, path: &str, object: &Value) -> Result<(), Error> {
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager=segue&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(Full::new(Bytes::from(object.to_string())))
        .map_err(|error| Error::up("make a request", &error))?;
    let answer = server.answer(request).await;
    if answer.status() == StatusCode::OK || answer.status() == StatusCode::CREATED {
        return Ok(());
    }
    let bytes = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(Error::Up { what: "furnish the API", why: format!("{path}: {}", status["message"]) })
}

/// Judges objects of our kinds with the rules that a schema cannot hold.
#[derive(Debug)]
struct OurKinds;

impl Admission for OurKinds {
    fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Vec<String>, Refusal> {
        let Ok(kind) = api::Kind::of(object) else { return Ok(Vec::new()) };
        let verdict = api::validate(object, old);
        if verdict.accepted() {
            return Ok(verdict.warnings);
        }
        let causes: Vec<Cause> = verdict
            .violations
            .iter()
            .map(|violation| Cause {
                reason: "FieldValueInvalid",
                field: violation.field.clone(),
                message: without_field(violation),
            })
            .collect();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(Refusal::invalid(kind.group, kind.name, name, &causes))
    }
}

/// The sentence of a violation; its field is told apart.
fn without_field(violation: &api::Violation) -> String {
    let text = violation.to_string();
    text.strip_prefix(&format!("{}: ", violation.field)).unwrap_or(&text).to_owned()
}
