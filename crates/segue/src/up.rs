use std::{env, io, path::PathBuf, sync::Arc};

use apiserver::{
    Admission, Cause, Credentials, Limits, Listener, Refusal, Server,
    store::{Cut, Settings, Store},
    world::Machine,
};
use bytes::Bytes;
use clap::Args as ClapArgs;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::output::{self, Answer, Error, Format};

/// Run the embedded Kubernetes API on this machine.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue up
  segue up --directory /tmp/try --port 6443
  kubectl --kubeconfig ~/.local/state/segue/kubeconfig get leaderworkersets

Listens on loopback only. The state stays in the directory; nothing else on this machine is touched.")]
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
    announce(&listener, &kubeconfig, opened.cut.as_ref(), format)?;

    let (stop, stopped) = watch::channel(false);
    let collecting = tokio::spawn(server.keep_collecting());
    let serving = tokio::spawn(listener.serve(stopped));
    told_to_stop().await?;
    stop.send_replace(true);
    serving.await.map_err(|error| failed("stop")(&error))?;
    collecting.abort();
    Ok(Answer::Yes)
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
            "The embedded Kubernetes API is at https://{address}, for this machine alone.\n\
             \n  kubectl --kubeconfig {kubeconfig} get namespaces\n\
             \nCtrl-C stops it; the state stays.\n"
        )),
    }
}

async fn told_to_stop() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// What every cluster has, and the kinds that we serve.
async fn furnish(server: &Server) -> Result<(), Error> {
    let refused = |refusal: Refusal| Error::Up { what: "furnish the API", why: refusal.message().to_owned() };
    server.furnish().await.map_err(refused)?;
    for kind in api::KINDS {
        let definition = kind.crd();
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        apply(server, &path, &definition).await?;
    }
    Ok(())
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
