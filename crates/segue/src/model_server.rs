use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args as ClapArgs;
use planner::counted;

use crate::{
    output::{Answer, Error},
    signals::Signals,
};

/// Serve a simulated model, for demonstrations, examples and tests
#[derive(ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "Examples:
  segue model-server --version v1 --load-seconds 2
  curl http://127.0.0.1:8000/v1/completions?stream=10
  segue model-server --join $LWS_LEADER_ADDRESS:8000
  segue model-server --decode pd-0-decode:8000 --protocol 2

Listens on $POD_IP, or on 127.0.0.1. /ready returns 503 while it loads; /v1/completions returns the version, with ?stream=N \
as N events, with ?status=500 as an error; /stats returns counts. With --join it is ready once its leader has registered it, \
and exits with its leader. With --decode each request goes to the next decode server that is up and has the same protocol; \
without one the response is 503. On SIGTERM it refuses new connections, finishes its requests and exits."
)]
pub(crate) struct Args {
    /// The version in its responses
    #[arg(long, value_name = "NAME", default_value = "v1")]
    version: String,
    /// The seconds that it loads before it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    load_seconds: u64,
    /// The latency of a response, or of its first token
    #[arg(long, value_name = "MILLIS", default_value_t = 20)]
    latency_millis: u64,
    /// The time between two tokens
    #[arg(long, value_name = "MILLIS", default_value_t = 200)]
    token_gap_millis: u64,
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Write request counts into a file in this directory
    #[arg(long, value_name = "DIR")]
    counts: Option<PathBuf>,
    /// The leader to join, for a worker of a group
    #[arg(long, value_name = "HOST:PORT")]
    join: Option<String>,
    /// The decode server that this prefill server forwards to; may be repeated
    #[arg(long = "decode", value_name = "HOST:PORT")]
    decodes: Vec<String>,
    /// The protocol between prefill and decode; servers of another one are refused
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
    let failed = |error: sample::Error| Error::failed_to("serve", &error);
    let server = sample::Server::bind(settings).await.map_err(failed)?;
    eprintln!("{version} listens on http://{}", server.address());
    let counts = server.serve(signals.stopped()).await.map_err(failed)?;
    eprintln!("{version} answered {} and exits", counted(counts.requests, "request"));
    Ok(Answer::Yes)
}

/// The pod's address, so that each of many pods on one machine can have the port.
fn address(pod: Option<&str>) -> Result<IpAddr, Error> {
    let Some(pod) = pod.filter(|pod| !pod.is_empty()) else { return Ok(Ipv4Addr::LOCALHOST.into()) };
    pod.parse().map_err(|_| Error::FailedTo {
        what: "serve",
        why: format!("POD_IP is {pod}, which is not an IP address"),
    })
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
