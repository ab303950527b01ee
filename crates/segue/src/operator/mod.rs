//! `segue operator`: the controllers on a cluster, and what a cluster expects of an operator: a Lease, probes, metrics, a
//! webhook.

mod listeners;
mod metrics;
pub(crate) mod other_operators;
pub(crate) mod selection;
pub(crate) mod webhook;

use std::{env, fs, path::Path, sync::Arc, time::Duration};

use clap::Args as ClapArgs;
use controllers::{Calls, Claim, Settings, kind::Served};
use kube::Client;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use self::{
    metrics::MetricsEndpoint,
    other_operators::{Found, Leases},
    selection::Selection,
    webhook::{Lifetimes, Rotation},
};
use crate::{
    logging::{self, LogLevel},
    manifests,
    output::{self, Answer, Error},
    signals::Signals,
    verbs::{self, Connected, Connection},
};

/// Run the controllers on a Kubernetes cluster
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue operator --kinds leaderworkerset,modeldeployment
  segue operator --kinds leaderworkerset --namespaces team-a --context staging

Kinds that are not named are left alone. The CRDs of the kinds must be installed (`segue crds`). In a pod without a \
kubeconfig it uses the service account of the pod; `segue manifests` prints such an installation. Ctrl-C stops it: pods keep \
serving, and the next operator continues where it stopped. Exit code 1 when another operator reconciles the same kinds.")]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    selection: Selection,
    /// The name of the Lease for leader election, in the namespace of --namespace
    #[arg(long, value_name = "NAME", default_value = manifests::LEASE)]
    lease: String,
    /// The level of the log on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log: LogLevel,
    /// Serve the admission webhook and /metrics on this port, in a pod on all addresses, elsewhere on loopback
    #[arg(long, value_name = "PORT")]
    webhook_port: Option<u16>,
    /// Serve /healthz and /readyz on this port, in a pod on all addresses, elsewhere on loopback
    #[arg(long, value_name = "PORT")]
    health_port: Option<u16>,
}

/// The interval of the checks for other operators while this process leads. Shorter than the term of their Leases: a holder that
/// wrote between two checks is alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let kinds = args.selection.kinds()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(args, kinds))
}

async fn operate(args: &Args, kinds: Vec<&'static Served>) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let Connected { client, server, namespace } = verbs::connect(&args.connection).await?;
    logging::init(args.log);
    let settings = Settings { kinds, namespaces: args.selection.namespaces.clone(), ..Settings::default() };
    // Dropped at the end: probes and reviews are served until then.
    let _listeners = listen(args, &client, &namespace, &settings).await?;
    let splits = args.selection.split_with_others;
    let operator = Operator { client: client.clone(), settings, splits, leases: Leases::default() };
    tokio::select! {
        why = operator.conflict() => if let Some(why) = why {
            return Ok(refuse(&why));
        },
        () = signals.stopped() => return Ok(Answer::Yes),
    }
    operator.warn_of_stale_webhooks().await;
    let claim = Claim::new(client, &namespace, &args.lease, &identity(), operator.settings.clock.wall);
    let claim = claim.unless_gone(is_gone);
    output::print(&format!("Waiting for the Lease {namespace}/{} on {server}\n", args.lease))?;
    let (_stop, mut never) = watch::channel(false);
    let leads = tokio::select! {
        leads = claim.acquire(&mut never) => leads,
        () = signals.stopped() => false,
    };
    if leads { lead(operator, claim, signals, &server).await } else { Ok(Answer::Yes) }
}

/// Keeps the lease until the controllers have ended, so that no other process starts beside them.
async fn lead(operator: Operator, claim: Claim, mut signals: Signals, server: &str) -> Result<Answer, Error> {
    let (release, mut over) = watch::channel(false);
    operator.settings.metrics.leads(true);
    let mut keeping = tokio::spawn(async move { claim.keep(&mut over).await });
    let answer = tokio::select! {
        answer = operator.run(&mut signals, server) => answer?,
        _ = &mut keeping => {
            return Err(Error::FailedTo { what: "continue", why: "the Lease is lost, so another process may lead".to_owned() });
        }
    };
    release.send_replace(true);
    keeping.await.map_err(|error| Error::failed_to("release the Lease", &error))?;
    Ok(answer)
}

fn warn_unchecked(error: &kube::Error) {
    eprintln!("note: failed to look for other operators of the same kinds: {error}");
}

fn refuse(why: &str) -> Answer {
    eprintln!("error: {why}");
    Answer::No
}

/// The controllers, and the check that no other operator reconciles the same kinds.
struct Operator {
    client: Client,
    settings: Settings,
    /// `--split-with-others`: other operators do not act in our namespaces, so there is no check for them.
    splits: bool,
    /// The Leases of other operators.
    leases: Leases,
}

impl Operator {
    /// Returns the sentence about another operator that is alive, once that is decided. Without the right to read Leases
    /// there is none, and a note is printed.
    async fn conflict(&self) -> Option<String> {
        if self.splits {
            return None;
        }
        let found = self.leases.find(&self.client, &self.settings.kinds).await;
        found.unwrap_or_else(|error| {
            warn_unchecked(&error);
            None
        })
    }

    /// Runs the controllers until a signal, or until another operator appears. Dropped, it ends them at once.
    async fn run(&self, signals: &mut Signals, server: &str) -> Result<Answer, Error> {
        tokio::select! {
            why = self.conflict() => if let Some(why) = why {
                return Ok(refuse(&why));
            },
            () = signals.stopped() => return Ok(Answer::Yes),
        }
        output::print(&format!("Reconciling {} on {server}\n", self.scope()))?;
        let (stop, stopped) = watch::channel(false);
        let (client, settings) = (self.client.clone(), self.settings.clone());
        // A set of one: it is ended when this is dropped.
        let mut running = JoinSet::new();
        running.spawn(controllers::run(client, settings, Arc::new(Calls::in_cluster()), stopped));
        let answer = tokio::select! {
            () = signals.stopped() => Answer::Yes,
            why = self.until_conflict() => refuse(&why),
            Some(ended) = running.join_next() => return Err(ended_by_itself(ended)),
        };
        stop.send_replace(true);
        while let Some(ended) = running.join_next().await {
            ended.map_err(|error| Error::failed_to("stop", &error))?;
        }
        Ok(answer)
    }

    async fn until_conflict(&self) -> String {
        let mut wait = CHECK_INTERVAL;
        loop {
            tokio::time::sleep(wait).await;
            if self.splits {
                continue;
            }
            wait = match self.leases.check(&self.client, &self.settings.kinds).await {
                Ok(Found::Alive(why)) => return why,
                Ok(Found::Unknown(_)) => other_operators::POLL_INTERVAL,
                Ok(Found::None) => CHECK_INTERVAL,
                Err(error) => {
                    warn_unchecked(&error);
                    CHECK_INTERVAL
                }
            };
        }
    }

    async fn warn_of_stale_webhooks(&self) {
        match other_operators::stale_webhooks(&self.client, &self.settings.kinds).await {
            Ok(lines) => lines.iter().for_each(|line| eprintln!("note: {line}")),
            // An API that has no webhooks has none left behind.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => eprintln!("note: failed to look for webhooks of other operators: {error}"),
        }
    }

    /// The kinds and namespaces that are reconciled, for people.
    fn scope(&self) -> String {
        let kinds: Vec<String> =
            self.settings.kinds.iter().map(|served| format!("{}s", served.kind.name)).collect();
        let namespaces = &self.settings.namespaces;
        let place =
            if namespaces.is_empty() { String::new() } else { format!(" in {}", namespaces.join(", ")) };
        format!("{}{place}", kinds.join(" and "))
    }
}

/// Serves probes, reviews and metrics, whether this process leads or not.
async fn listen(
    args: &Args,
    client: &Client,
    namespace: &str,
    settings: &Settings,
) -> Result<JoinSet<()>, Error> {
    let mut listening = JoinSet::new();
    let mut resolver = None;
    if let Some(port) = args.webhook_port {
        let listener = listeners::listen(port).await?;
        let on_loopback = !listeners::is_in_a_pod();
        let rotation =
            Rotation::new(client.clone(), namespace, on_loopback, Lifetimes::default(), settings.clock.wall);
        resolver = Some(rotation.resolver());
        let metrics = MetricsEndpoint { client: client.clone(), metrics: settings.metrics.clone() };
        listening.spawn(listeners::reviews(listener, rotation.tls()?, metrics));
        listening.spawn(rotation.run());
    }
    if let Some(port) = args.health_port {
        let ready = move || match &resolver {
            Some(resolver) if !resolver.is_set() => Err("the webhook has no certificate yet"),
            _ => Ok(()),
        };
        listening.spawn(listeners::health(listeners::listen(port).await?, ready));
    }
    Ok(listening)
}

fn ended_by_itself(ended: Result<(), JoinError>) -> Error {
    let why = ended
        .err()
        .map_or_else(|| "the controllers ended without a signal".to_owned(), |error| error.to_string());
    Error::FailedTo { what: "continue", why }
}

/// The name of this process as a holder: no other process has it.
fn identity() -> String {
    format!("{}_{}", host(), std::process::id())
}

/// The name of the host; in a pod, the name of the pod.
fn host() -> String {
    let host = env::var("HOSTNAME").ok().or_else(|| fs::read_to_string("/etc/hostname").ok());
    host.map_or_else(|| "segue".to_owned(), |host| host.trim().to_owned())
}

/// Returns whether a holder was a process of this host that has ended. Its Lease need not be waited out.
fn is_gone(holder: &str) -> bool {
    let process = holder.strip_prefix(&host()).and_then(|rest| rest.strip_prefix('_'));
    let process = process.filter(|id| id.chars().all(|digit| digit.is_ascii_digit()) && !id.is_empty());
    process.is_some_and(|id| Path::new("/proc/self").exists() && !Path::new("/proc").join(id).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_host_is_known_to_be_gone() {
        assert!(!is_gone(&identity()));
        // No process has this number: it is beyond the largest that Linux gives.
        assert!(is_gone(&format!("{}_4194305", host())));
        assert!(!is_gone("elsewhere_4194305"));
        for odd in ["", "_", "nobody", &host(), &format!("{}_", host()), &format!("{}_../1", host())] {
            assert!(!is_gone(odd), "{odd}");
        }
    }
}
