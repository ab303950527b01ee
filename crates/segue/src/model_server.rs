use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args as ClapArgs;

use crate::{
    output::{Answer, Error},
    signals::Signals,
};

/// Serve a model that is none: for demonstrations, examples and tests
#[derive(ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "Examples:
  segue model-server --version v1 --load-seconds 2
  curl http://127.0.0.1:8000/v1/completions?stream=10
  segue model-server --join $LWS_LEADER_ADDRESS:8000
  segue model-server --decode pd-0-decode:8000 --protocol 2

Listens on $POD_IP, or on 127.0.0.1 without one. /ready says 503 while it loads; /v1/completions answers with the
version, with ?stream=N as N events, with ?status=500 as an error; /stats counts. With --join it is the worker of a group: ready
once its leader has taken it up, which counts it as a member, and at an end when its leader is. With --decode it is a prefill: each
request is answered by one of the decodes, the next one where one is away or speaks another --protocol, and with 503 where
none is left. On SIGTERM it refuses new connections, finishes what it has and ends."
)]
pub(crate) struct Args {
    /// What it says it is
    #[arg(long, value_name = "NAME", default_value = "v1")]
    version: String,
    /// How long it loads before it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    load_seconds: u64,
    /// How long an answer takes, or its first token
    #[arg(long, value_name = "MILLIS", default_value_t = 20)]
    latency_millis: u64,
    /// The time between two tokens
    #[arg(long, value_name = "MILLIS", default_value_t = 200)]
    token_gap_millis: u64,
    /// The port; 0 takes any that is free
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Keep its counts in a file of its own in this directory, which outlives it
    #[arg(long, value_name = "DIR")]
    counts: Option<PathBuf>,
    /// The leader to join, if this is a worker of a group
    #[arg(long, value_name = "HOST:PORT")]
    join: Option<String>,
    /// A decode that answers what this prefill takes, or a name for many; may be given again
    #[arg(long = "decode", value_name = "HOST:PORT")]
    decodes: Vec<String>,
    /// What prefill and decode speak with each other; those of another protocol are refused
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    protocol: u32,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let address = address(env::var("POD_IP").ok().as_deref())?;
    let settings = sample::Settings {
        address: SocketAddr::new(address, args.port),
        version: args.version.clone(),
        load: Duration::from_secs(args.load_seconds),
        latency: Duration::from_millis(args.latency_millis),
        token_gap: Duration::from_millis(args.token_gap_millis),
        counts: args.counts.as_deref().map(file_of_this_process),
        join: args.join.clone(),
        decodes: args.decodes.clone(),
        protocol: args.protocol,
    };
    // It has little to do, and there are many on one machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: sample::Settings) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let version = settings.version.clone();
    let failed = |error: sample::Error| Error::up("serve", &error);
    let server = sample::Server::bind(settings).await.map_err(failed)?;
    eprintln!("{version} listens on http://{}", server.address());
    let counts = server.serve(signals.told_to_stop()).await.map_err(failed)?;
    eprintln!("{version} answered {} requests and ends", counts.requests);
    Ok(Answer::Yes)
}

/// The pod's address, so that each of many pods on one machine can have the port.
fn address(pod: Option<&str>) -> Result<IpAddr, Error> {
    let Some(pod) = pod.filter(|pod| !pod.is_empty()) else { return Ok(Ipv4Addr::LOCALHOST.into()) };
    pod.parse()
        .map_err(|_| Error::Up { what: "serve", why: format!("POD_IP is {pod:?}, which is no address") })
}

/// A file that no other process has: also not the one that this one replaces in its pod.
fn file_of_this_process(directory: &Path) -> PathBuf {
    directory.join(format!("{}.json", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_an_address_and_a_person_has_this_machine() {
        assert_eq!(address(None).unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(address(Some("127.64.0.7")).unwrap(), Ipv4Addr::new(127, 64, 0, 7));
        assert!(address(Some("nonsense")).is_err());
    }
}
