use std::sync::Arc;

use clap::Args as ClapArgs;
use controllers::{Nothing, Settings};
use tokio::sync::watch;

use crate::{
    output::{self, Answer, Error},
    signals::Signals,
    verbs::{self, Reach},
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
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(args))
}

async fn operate(args: &Args) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let (client, server) = verbs::connect(&args.reach).await?;
    output::print(&format!("Looks after LeaderWorkerSets and ModelDeployments of {server}\n"))?;
    let (stop, stopped) = watch::channel(false);
    let settings =
        Settings { on_error: |error| eprintln!("note: {error}; it is tried again"), ..Settings::default() };
    let running = tokio::spawn(controllers::run(client, settings, Arc::new(Nothing::default()), stopped));
    signals.told_to_stop().await;
    stop.send_replace(true);
    running.await.map_err(|error| Error::up("stop", &error))?;
    Ok(Answer::Yes)
}
