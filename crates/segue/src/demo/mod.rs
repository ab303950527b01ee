mod counts;
mod load;
mod manifest;
mod screen;
mod stage;
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
use gateway::{routes::ServicePort, world::Name};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::Value;

use self::{
    counts::{ByGateway, ByServers, Counts},
    load::Doors,
    manifest::{NAME, REPLICAS, Service, Strategy},
    stage::Stage,
    summary::Summary,
    view::doing,
    watch::{ended, serves},
};
use crate::{
    machine::{Machine, Settings},
    output::{self, Answer, Error, Format},
    signals::Signals,
};

/// Watch a model service go from one version to the next under load, on this machine
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue demo
  segue demo --strategy incremental
  segue demo --without drain
  segue demo -o json 2>/dev/null

Takes about a minute, needs nothing but Linux, and leaves nothing behind. Exit codes: 0 the new version took over and
nothing was dropped, 1 something was, 2 it could not be shown.")]
pub(crate) struct Args {
    /// How the new version takes over
    #[arg(long, value_enum, default_value = "rolling")]
    strategy: Strategy,
    /// How long the new version may take to take over
    #[arg(long, value_name = "N", default_value_t = 80)]
    seconds: u64,
    /// Short requests a second, beside the long streams
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(3..=2000))]
    rps: u32,
    /// Take a protection away, to see what it is good for; may be given more than once
    #[arg(long, value_enum, value_name = "PROTECTION")]
    without: Vec<Protection>,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// What can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protection {
    /// A replica that leaves finishes its requests before it is deleted
    Drain,
    /// A version gets traffic only when its replicas are ready
    Gate,
    /// A change of traffic counts only when the gateway has confirmed it
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
    settings.gateway.divert = false;
    settings.protections = protections(&args.without);
    let (protections, fronts) = (settings.protections, settings.gateway.addresses);

    let mut machine = Machine::start(settings).await?;
    let (client, gateway) = (machine.client.clone(), machine.gateway.clone());
    let mut stage = match Stage::open(heading(&machine), &client, gateway, args.output) {
        Ok(stage) => stage,
        Err(error) => {
            drop(machine.stop().await);
            return Err(error);
        }
    };
    let played = tokio::select! {
        played = play(&mut stage, &client, &service, fronts, args) => played,
        () = signals.told_to_stop() => Err(Error::Interrupted),
        error = machine.failed() => Err(error),
    };
    let Played { outcome, took } = match played {
        Ok(played) => played,
        Err(error) => {
            // The terminal first: its owner waits for it.
            drop(stage);
            drop(machine.stop().await);
            return Err(error);
        }
    };
    stage.act("every pod is told to end")?;
    let (load, gateway) = (stage.tallied(), ByGateway::of(&stage.snapshot()));
    let (peak, steps) = (stage.known().peak, stage.steps().to_vec());
    drop(stage);
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

/// How the handover went.
struct Played {
    outcome: Option<Outcome>,
    took: Duration,
}

/// The demonstration, act by act.
async fn play(
    stage: &mut Stage,
    client: &Client,
    service: &Service,
    fronts: [u8; 2],
    args: &Args,
) -> Result<Played, Error> {
    stage.act(&format!("{REPLICAS} replicas of v1 start"))?;
    let generation = apply(client, &service.manifest("v1")).await?;
    let before = stage
        .look_until(START, |stage| {
            let status = stage.known().status;
            serves(&status, generation).then(|| status.current_version.unwrap_or_default())
        })
        .await?
        .ok_or_else(|| not_serving(stage))?;
    let cluster = cluster_address(client, service.port).await?;
    let doors = stage
        .look_until(START, |stage| doors(stage, cluster, fronts))
        .await?
        .ok_or_else(|| not_serving(stage))?;

    stage.act("v1 serves, and users come")?;
    stage.let_users_in(doors, args.rps);
    stage.look_until(BEFORE, |_| None::<()>).await?;

    stage.act("v2 is applied")?;
    let began = stage.elapsed();
    let generation = apply(client, &service.manifest("v2")).await?;
    let limit = Duration::from_secs(args.seconds);
    let outcome = stage.look_until(limit, |stage| ended(&stage.known().status, generation, &before)).await?;
    let took = stage.elapsed().saturating_sub(began);
    stage.act(&match outcome {
        Some(outcome) => format!("v2 is {outcome:?}; users stay a while"),
        None => format!("v2 did not take over within {} s", args.seconds),
    })?;
    stage.look_until(AFTER, |_| None::<()>).await?;

    stage.act("users ask nothing new and wait for their last answers")?;
    if !stage.let_users_go(LAST_ANSWERS).await? {
        stage.act("some answers never came")?;
    }
    Ok(Played { outcome, took })
}

/// What is real, and what is not; in lines that a narrow terminal does not cut.
fn heading(machine: &Machine) -> String {
    format!(
        "Real: processes, sockets, every request. Not real: an embedded API, no model.\n\
         Nothing leaves this machine. To look on from another terminal:\n  \
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

fn not_serving(stage: &Stage) -> Error {
    let why = doing(&stage.known().status).unwrap_or_else(|| "its status says nothing".to_owned());
    Error::Up { what: "bring the first version into service", why }
}

/// Applies a manifest; its generation.
async fn apply(client: &Client, manifest: &Value) -> Result<i64, Error> {
    let kind = ApiResource::erase::<ModelDeployment>(&());
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let applied = api.patch(NAME, &PatchParams::apply("segue-demo"), &Patch::Apply(manifest)).await;
    let applied = applied.map_err(|error| Error::up("apply the service", &error))?;
    Ok(applied.metadata.generation.unwrap_or_default())
}

/// Where the stable Service is.
async fn cluster_address(client: &Client, port: u16) -> Result<SocketAddr, Error> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let found = api.get(NAME).await.map_err(|error| Error::up("find the Service", &error))?;
    let address = found.data["spec"]["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
    let missing = || Error::Up { what: "find the Service", why: "it has no cluster address".to_owned() };
    Ok(SocketAddr::new(address.ok_or_else(missing)?.into(), port))
}

/// Where users come in, once the gateway serves every replica there: its table may be behind the status.
fn doors(stage: &Stage, cluster: SocketAddr, fronts: [u8; 2]) -> Option<Doors> {
    let places = stage.gateway().places();
    let is_front = |at: &SocketAddr| matches!(at, SocketAddr::V4(at) if at.ip().octets()[..2] == fronts);
    let gateway = places.iter().find(|(asked, _)| is_front(asked))?.1.as_ref().ok()?;
    let service = places.get(&cluster)?.as_ref().ok()?;
    let ready = stage.snapshot().ready;
    let stable = ServicePort { service: Name::new("default", NAME), port: cluster.port() };
    let complete = |key: &ServicePort| ready.get(key).is_some_and(|endpoints| endpoints.len() == REPLICAS);
    let mut versions = ready.keys().filter(|key| key.port == cluster.port() && **key != stable).peekable();
    let served = versions.peek().is_none() || versions.any(complete);
    (complete(&stable) && served).then_some(Doors { gateway: *gateway, service: *service })
}
