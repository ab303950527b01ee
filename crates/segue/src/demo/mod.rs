mod counts;
mod load;
mod manifest;
mod progress;
mod screen;
mod summary;
mod view;
mod watch;

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use api::modeldeployment::{ModelDeployment, Outcome};
use clap::{Args as ClapArgs, ValueEnum};
use controllers::Protections;
use gateway::{cache::Name, routes::ServicePort};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::Value;

use self::{
    counts::{ByGateway, ByServers, Counts},
    load::Addresses,
    manifest::{NAME, REPLICAS, Service, Strategy},
    progress::Progress,
    summary::Summary,
    view::doing,
    watch::{ended, serves},
};
use crate::{
    embedded::{Embedded, Settings},
    output::{self, Answer, Error, Format},
    signals::Signals,
};

/// Upgrade a sample service under load on this machine, and count the requests that fail
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue demo
  segue demo --strategy incremental
  segue demo --without drain
  segue demo -o json 2>/dev/null

Takes about a minute, needs Linux, and leaves nothing behind. Exit codes: 0 the upgrade finished and no request failed, 1 it \
did not finish or a request failed, 2 it could not run.")]
pub(crate) struct Args {
    /// The strategy of the upgrade
    #[arg(long, value_enum, default_value = "rolling")]
    strategy: Strategy,
    /// The most seconds that the upgrade may take
    #[arg(long, value_name = "N", default_value_t = 80)]
    seconds: u64,
    /// Short requests per second, beside the streams
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(3..=2000))]
    rps: u32,
    /// Switch a protection off, to see what it prevents; may be repeated
    #[arg(long, value_enum, value_name = "PROTECTION")]
    without: Vec<Protection>,
    /// The output format of the summary
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// A protection that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protection {
    /// A replica finishes its requests before it is deleted
    Drain,
    /// A version gets traffic only once its replicas are ready
    Gate,
    /// The old version is scaled down only once the gateway has confirmed the new weights
    Settle,
}

/// How much later than endpoints the gateway takes up routes, as gateways of others do: `docs/data-plane.md` measured 0.1
/// seconds for a change that comes alone and 1.9 for one that follows another.
const LAG: Duration = Duration::from_millis(1500);

/// How long the first version may take to serve: it loads for 3 seconds.
const START: Duration = Duration::from_mins(1);

/// How long the load runs before the new version comes, and after it took over.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(2);

/// How long the last answers may take: a stream takes 4 seconds.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    if !cfg!(target_os = "linux") {
        return Err(Error::NotLinux);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(demonstrate(args))
}

async fn demonstrate(args: &Args) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    // Gone with everything in it when this returns, however it does.
    let directory = tempfile::Builder::new().prefix("segue-demo-").tempdir()?;
    let service = service(args, directory.path().join("counts"))?;
    let mut settings = Settings::new(directory.path().to_owned(), 0);
    settings.gateway.lag = LAG;
    // Nor does it send elsewhere what is meant for a version without a ready replica: others do not.
    settings.gateway.failover = false;
    settings.protections = protections(&args.without);
    let (protections, fronts) = (settings.protections, settings.gateway.addresses);

    let mut machine = Embedded::start(settings).await?;
    let (client, gateway) = (machine.client.clone(), machine.gateway.clone());
    let mut progress = match Progress::open(heading(&machine), &client, gateway, args.output) {
        Ok(progress) => progress,
        Err(error) => {
            drop(machine.stop().await);
            return Err(error);
        }
    };
    let finished = tokio::select! {
        finished = roll_out(&mut progress, &client, &service, fronts, args) => finished,
        () = signals.stopped() => Err(Error::Interrupted),
        error = machine.failed() => Err(error),
    };
    let Finished { outcome, took } = match finished {
        Ok(finished) => finished,
        Err(error) => {
            // The terminal first: its owner waits for it.
            drop(progress);
            drop(machine.stop().await);
            return Err(error);
        }
    };
    progress.phase("all pods stop")?;
    let (load, gateway) = (progress.totals(), ByGateway::of(&progress.snapshot()));
    let (peak, steps) = (progress.known().peak, progress.steps().to_vec());
    drop(progress);
    machine.stop().await?;
    // Not before: what a server has counted is final when it has ended.
    let counts = Counts { load, gateway, servers: ByServers::read(&service.counts)? };
    let strategy = args.strategy;
    let summary = Summary { strategy, protections, counts, peak, took, outcome, steps };
    match args.output {
        Format::Json => output::print(&format!("{}\n", summary.json()))?,
        Format::Table => output::print(&format!("\n{}", summary.text(screen::paint())))?,
    }
    Ok(if summary.is_good() { Answer::Yes } else { Answer::No })
}

/// How the rollout ended, and how long it took.
struct Finished {
    outcome: Option<Outcome>,
    took: Duration,
}

/// Runs the demonstration, phase by phase.
async fn roll_out(
    progress: &mut Progress,
    client: &Client,
    service: &Service,
    fronts: [u8; 2],
    args: &Args,
) -> Result<Finished, Error> {
    progress.phase(&format!("{REPLICAS} replicas of v1 start"))?;
    let generation = apply(client, &service.manifest("v1")).await?;
    let before = progress
        .wait_until(START, |progress| {
            let status = progress.known().status;
            serves(&status, generation).then(|| status.current_version.unwrap_or_default())
        })
        .await?
        .ok_or_else(|| not_serving(progress))?;
    let cluster = cluster_address(client, service.port).await?;
    let addresses = progress
        .wait_until(START, |progress| addresses(progress, cluster, fronts))
        .await?
        .ok_or_else(|| not_serving(progress))?;

    progress.phase("v1 serves, and the load starts")?;
    progress.start_load(addresses, args.rps);
    progress.wait_until(BEFORE, |_| None::<()>).await?;

    progress.phase("v2 is applied")?;
    let began = progress.elapsed();
    let generation = apply(client, &service.manifest("v2")).await?;
    let limit = Duration::from_secs(args.seconds);
    let outcome =
        progress.wait_until(limit, |progress| ended(&progress.known().status, generation, &before)).await?;
    let took = progress.elapsed().saturating_sub(began);
    progress.phase(&match outcome {
        Some(_) => format!("v2 {}; the load continues for {} s", summary::ended(outcome), AFTER.as_secs()),
        None => format!("v2 did not take over within {} s", args.seconds),
    })?;
    progress.wait_until(AFTER, |_| None::<()>).await?;

    progress.phase("the load stops, and the last requests finish")?;
    if !progress.stop_load(LAST_ANSWERS).await? {
        progress.phase("some requests did not finish")?;
    }
    Ok(Finished { outcome, took })
}

/// What is real, and what is not; in lines that a narrow terminal does not cut.
fn heading(machine: &Embedded) -> String {
    format!(
        "Real processes, sockets and requests; an embedded API, and a simulated model.\n\
         Nothing leaves this machine. To watch from another terminal:\n  \
         kubectl --kubeconfig {} get mdep,pods",
        machine.kubeconfig.display()
    )
}

fn service(args: &Args, counts: PathBuf) -> Result<Service, Error> {
    fs::create_dir(&counts)?;
    let program = env::current_exe()?;
    // Free on this machine's main address a moment ago; the addresses of pods and Services have no others.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok(Service { program, counts, port, strategy: args.strategy })
}

fn protections(without: &[Protection]) -> Protections {
    let on = |protection| !without.contains(&protection);
    Protections { drain: on(Protection::Drain), gate: on(Protection::Gate), settle: on(Protection::Settle) }
}

fn not_serving(progress: &Progress) -> Error {
    let why = doing(&progress.known().status).unwrap_or_else(|| "its status has no message".to_owned());
    Error::FailedTo { what: "bring the first version into service", why }
}

/// Applies a manifest, and returns its generation.
async fn apply(client: &Client, manifest: &Value) -> Result<i64, Error> {
    let kind = ApiResource::erase::<ModelDeployment>(&());
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let applied = api.patch(NAME, &PatchParams::apply("segue-demo"), &Patch::Apply(manifest)).await;
    let applied = applied.map_err(|error| Error::failed_to("apply the service", &error))?;
    Ok(applied.metadata.generation.unwrap_or_default())
}

/// Returns the address of the stable Service.
async fn cluster_address(client: &Client, port: u16) -> Result<SocketAddr, Error> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let found = api.get(NAME).await.map_err(|error| Error::failed_to("find the Service", &error))?;
    let address = found.data["spec"]["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
    let missing =
        || Error::FailedTo { what: "find the Service", why: "it has no cluster address".to_owned() };
    Ok(SocketAddr::new(address.ok_or_else(missing)?.into(), port))
}

/// Returns the addresses of the service, once the gateway serves every replica there. Its table may be behind the status.
fn addresses(progress: &Progress, cluster: SocketAddr, fronts: [u8; 2]) -> Option<Addresses> {
    let places = progress.gateway().bindings();
    let is_front = |at: &SocketAddr| matches!(at, SocketAddr::V4(at) if at.ip().octets()[..2] == fronts);
    let gateway = places.iter().find(|(asked, _)| is_front(asked))?.1.as_ref().ok()?;
    let service = places.get(&cluster)?.as_ref().ok()?;
    let ready = progress.snapshot().ready;
    let stable = ServicePort { service: Name::new("default", NAME), port: cluster.port() };
    let complete = |key: &ServicePort| ready.get(key).is_some_and(|endpoints| endpoints.len() == REPLICAS);
    let mut versions = ready.keys().filter(|key| key.port == cluster.port() && **key != stable).peekable();
    let served = versions.peek().is_none() || versions.any(complete);
    (complete(&stable) && served).then_some(Addresses { gateway: *gateway, service: *service })
}
