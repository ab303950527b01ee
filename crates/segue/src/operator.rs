use std::{env, fs, path::Path, sync::Arc};

use clap::Args as ClapArgs;
use controllers::{Claim, Nothing, Settings};
use tokio::{sync::watch, task::JoinError};

use crate::{
    log::{self, Loudness},
    output::{self, Answer, Error},
    signals::Signals,
    verbs::{self, Connected, Reach},
};

/// Run the controllers on a cluster that exists, with its own data plane
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue operator
  segue operator --kubeconfig ~/.kube/config --context staging

In a pod without a kubeconfig it uses its service account. The kinds must be installed (`segue crds`). Ctrl-C stops it;
what it made goes on serving, and whoever runs it next goes on where it stopped.")]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The Lease by which one of several leads, in the namespace of --namespace
    #[arg(long, value_name = "NAME", default_value = "segue-operator")]
    lease: String,
    /// What is said of its work on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log: Loudness,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(args))
}

async fn operate(args: &Args) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let Connected { client, server, namespace } = verbs::connect(&args.reach).await?;
    log::begin(args.log);
    let settings = Settings::default();
    let (stop, stopped) = watch::channel(false);
    let claim = Claim::new(client.clone(), &namespace, &args.lease, &identity(), settings.clock);
    let claim = claim.unless_gone(is_gone);
    output::print(&format!("Waits for the Lease {namespace}/{} of {server}\n", args.lease))?;
    let mut never = stopped.clone();
    let leads = tokio::select! {
        leads = claim.acquire(&mut never) => leads,
        () = signals.told_to_stop() => false,
    };
    if !leads {
        return Ok(Answer::Yes);
    }
    output::print(&format!("Looks after LeaderWorkerSets and ModelDeployments of {server}\n"))?;
    let mut running = tokio::spawn(controllers::run(client, settings, Arc::new(Nothing::default()), stopped));
    // The lease is kept until the controllers have ended, so that nobody begins beside them.
    let (hand_in, mut over) = watch::channel(false);
    let mut keeping = tokio::spawn(async move { claim.keep(&mut over).await });
    tokio::select! {
        () = signals.told_to_stop() => {}
        _ = &mut keeping => {
            running.abort();
            return Err(Error::Up { what: "go on", why: "the lease is lost: another may lead".to_owned() });
        }
        ended = &mut running => return Err(ended_by_itself(ended)),
    }
    stop.send_replace(true);
    running.await.map_err(|error| Error::up("stop", &error))?;
    hand_in.send_replace(true);
    keeping.await.map_err(|error| Error::up("give the lease back", &error))?;
    Ok(Answer::Yes)
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
