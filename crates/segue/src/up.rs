use std::{env, path::PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use crate::{
    machine::{Machine, Settings},
    output::{self, Answer, Error, Format},
    signals::Signals,
};

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

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { directory, port, output } = args;
    let directory = directory.clone().or_else(default_directory).ok_or(Error::NoDirectory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(directory, *port, *output))
}

pub(crate) fn default_directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".local/state"));
    state.or_else(home).map(|state| state.join("segue"))
}

async fn serve(directory: PathBuf, port: u16, format: Format) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let mut machine = Machine::start(Settings::new(directory, port)).await?;
    let ended = match announce(&machine, format) {
        Ok(()) => tokio::select! {
            () = signals.told_to_stop() => Ok(()),
            error = machine.failed() => Err(error),
        },
        Err(error) => Err(error),
    };
    let stopped = machine.stop().await;
    ended.and(stopped).map(|()| Answer::Yes)
}

fn announce(machine: &Machine, format: Format) -> Result<(), Error> {
    let (address, kubeconfig) = (machine.address, machine.kubeconfig.display());
    if let Some(cut) = &machine.cut {
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
