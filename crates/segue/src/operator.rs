use std::{env, fs, path::Path, sync::Arc, time::Duration};

use api::Kind;
use clap::Args as ClapArgs;
use controllers::{Claim, Nothing, Settings};
use kube::Client;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use crate::{
    doors,
    log::{self, Loudness},
    manifests,
    numbers::Numbers,
    others,
    output::{self, Answer, Error},
    selection::Selection,
    signals::Signals,
    verbs::{self, Connected, Reach},
    webhook::{Keeper, Terms},
};

/// Run the controllers on a cluster that exists, with its own data plane
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue operator --kinds leaderworkerset,modeldeployment
  segue operator --kinds leaderworkerset --namespaces team-a --kubeconfig ~/.kube/config --context staging

Nothing is looked after that is not named. In a pod without a kubeconfig it uses its service account; `segue manifests`
prints what installs it so. The kinds must be installed (`segue crds`). Ctrl-C stops it; what it made goes on serving, and
whoever runs it next goes on where it stopped. Exit code 1 when another operator of the same kinds is alive.")]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    selection: Selection,
    /// The Lease by which one of several leads, in the namespace of --namespace
    #[arg(long, value_name = "NAME", default_value = manifests::LEASE)]
    lease: String,
    /// What is said of its work on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log: Loudness,
    /// Answer the API's questions about objects of our kinds on this port, and /metrics to those who may read it; in a pod
    /// to everybody, else on loopback
    #[arg(long, value_name = "PORT")]
    webhook_port: Option<u16>,
    /// Answer /healthz and /readyz on this port; in a pod to everybody, else on loopback
    #[arg(long, value_name = "PORT")]
    health_port: Option<u16>,
}

/// How often other operators are looked for while we lead.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let kinds = args.selection.kinds()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(args, kinds))
}

async fn operate(args: &Args, kinds: Vec<&'static Kind>) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let Connected { client, server, namespace } = verbs::connect(&args.reach).await?;
    log::begin(args.log);
    let settings = Settings { kinds, namespaces: args.selection.namespaces.clone(), ..Settings::default() };
    // Dropped at the end: whoever is asked until then answers.
    let _answering = answer(args, &client, &namespace, &settings).await?;
    let guest = Guest { client: client.clone(), settings, splits: args.selection.split_with_others };
    if let Some(why) = guest.not_welcome().await {
        return Ok(refuse(&why));
    }
    guest.name_leftovers().await;
    let claim = Claim::new(client, &namespace, &args.lease, &identity(), guest.settings.clock);
    let claim = claim.unless_gone(is_gone);
    output::print(&format!("Waits for the Lease {namespace}/{} of {server}\n", args.lease))?;
    let (_stop, mut never) = watch::channel(false);
    let leads = tokio::select! {
        leads = claim.acquire(&mut never) => leads,
        () = signals.told_to_stop() => false,
    };
    if leads { lead(guest, claim, signals, &server).await } else { Ok(Answer::Yes) }
}

/// Keeps the lease until the controllers have ended, so that nobody begins beside them.
async fn lead(guest: Guest, claim: Claim, mut signals: Signals, server: &str) -> Result<Answer, Error> {
    let (hand_in, mut over) = watch::channel(false);
    guest.settings.metrics.leads(true);
    let mut keeping = tokio::spawn(async move { claim.keep(&mut over).await });
    let answer = tokio::select! {
        answer = guest.work(&mut signals, server) => answer?,
        _ = &mut keeping => {
            return Err(Error::Up { what: "go on", why: "the lease is lost: another may lead".to_owned() });
        }
    };
    hand_in.send_replace(true);
    keeping.await.map_err(|error| Error::up("give the lease back", &error))?;
    Ok(answer)
}

fn refuse(why: &str) -> Answer {
    eprintln!("error: {why}");
    Answer::No
}

/// Who looks whether it is alone with its kinds.
struct Guest {
    client: Client,
    settings: Settings,
    /// A person has seen to it that others leave our namespaces alone.
    splits: bool,
}

impl Guest {
    /// Another operator that is in our way, in a sentence. Who may not look goes on, and says so.
    async fn not_welcome(&self) -> Option<String> {
        if self.splits {
            return None;
        }
        let found = others::alive(&self.client, &self.settings.kinds, (self.settings.clock)()).await;
        found.unwrap_or_else(|error| {
            eprintln!("note: failed to look for other operators of the same kinds: {error}");
            None
        })
    }

    /// Runs the controllers until somebody says stop, or another operator appears. Dropped, it ends them at once.
    async fn work(&self, signals: &mut Signals, server: &str) -> Result<Answer, Error> {
        if let Some(why) = self.not_welcome().await {
            return Ok(refuse(&why));
        }
        output::print(&format!("Looks after {} of {server}\n", self.what()))?;
        let (stop, stopped) = watch::channel(false);
        let (client, settings) = (self.client.clone(), self.settings.clone());
        // A set of one: it is ended when this is dropped.
        let mut running = JoinSet::new();
        running.spawn(controllers::run(client, settings, Arc::new(Nothing::default()), stopped));
        let answer = tokio::select! {
            () = signals.told_to_stop() => Answer::Yes,
            why = self.until_not_welcome() => refuse(&why),
            Some(ended) = running.join_next() => return Err(ended_by_itself(ended)),
        };
        stop.send_replace(true);
        while let Some(ended) = running.join_next().await {
            ended.map_err(|error| Error::up("stop", &error))?;
        }
        Ok(answer)
    }

    async fn until_not_welcome(&self) -> String {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if let Some(why) = self.not_welcome().await {
                return why;
            }
        }
    }

    async fn name_leftovers(&self) {
        match others::left_behind(&self.client, &self.settings.kinds).await {
            Ok(lines) => lines.iter().for_each(|line| eprintln!("note: {line}")),
            // An API that has no webhooks has none left behind.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => eprintln!("note: failed to look for webhooks that others left behind: {error}"),
        }
    }

    /// What it looks after, for people.
    fn what(&self) -> String {
        let kinds: Vec<String> = self.settings.kinds.iter().map(|kind| format!("{}s", kind.name)).collect();
        let namespaces = &self.settings.namespaces;
        let place =
            if namespaces.is_empty() { String::new() } else { format!(" in {}", namespaces.join(", ")) };
        format!("{}{place}", kinds.join(" and "))
    }
}

/// Answers probes and the API, whether we lead or not.
async fn answer(
    args: &Args,
    client: &Client,
    namespace: &str,
    settings: &Settings,
) -> Result<JoinSet<()>, Error> {
    let mut answering = JoinSet::new();
    let mut shown = None;
    if let Some(port) = args.webhook_port {
        let listener = doors::listen(port).await?;
        let on_loopback = !doors::is_in_a_pod();
        let keeper = Keeper::new(client.clone(), namespace, on_loopback, Terms::default(), settings.clock);
        shown = Some(keeper.shown());
        let numbers = Numbers { client: client.clone(), metrics: settings.metrics.clone() };
        answering.spawn(doors::reviews(listener, keeper.tls()?, numbers));
        answering.spawn(keeper.keep());
    }
    if let Some(port) = args.health_port {
        let ready = move || match &shown {
            Some(shown) if !shown.any() => Err("the webhook has no certificate yet"),
            _ => Ok(()),
        };
        answering.spawn(doors::health(doors::listen(port).await?, ready));
    }
    Ok(answering)
}

fn ended_by_itself(ended: Result<(), JoinError>) -> Error {
    let why = ended.err().map_or_else(|| "the controllers ended".to_owned(), |error| error.to_string());
    Error::Up { what: "go on", why }
}

/// A name that no other process has.
fn identity() -> String {
    format!("{}_{}", host(), std::process::id())
}

/// In a pod, the pod's name.
fn host() -> String {
    let host = env::var("HOSTNAME").ok().or_else(|| fs::read_to_string("/etc/hostname").ok());
    host.map_or_else(|| "segue".to_owned(), |host| host.trim().to_owned())
}

/// Whether a holder was a process of this host that is no more: whoever follows it need not wait.
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
