use std::{env, path::PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use crate::{
    embedded::{Embedded, Settings},
    output::{self, Answer, Error, Format},
    signals::Signals,
};

/// Run a Kubernetes API, the controllers, a node and a gateway on this machine, in one process
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue up
  segue up --directory /tmp/try --port 6443
  kubectl --kubeconfig ~/.local/state/segue/kubeconfig get leaderworkersets

Listens on loopback only. The commands of pods run as processes of this machine, as the user who started segue, without \
isolation and without images; they end when segue ends. The state stays in the directory.")]
pub(crate) struct Args {
    /// The directory of the state [default: `$XDG_STATE_HOME/segue`, or `~/.local/state/segue`]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The port of the API on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Give every pod a network of its own, so that pods may listen on the same port; needs root
    #[arg(long)]
    pod_networks: bool,
    /// The output format of the first lines
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { directory, port, pod_networks, output } = args;
    let directory = directory.clone().or_else(default_directory).ok_or(Error::NoDirectory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let settings = Settings { pod_networks: *pod_networks, ..Settings::new(directory, *port) };
    runtime.block_on(serve(settings, *output))
}

pub(crate) fn default_directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".local/state"));
    state.or_else(home).map(|state| state.join("segue"))
}

async fn serve(settings: Settings, format: Format) -> Result<Answer, Error> {
    let mut signals = Signals::listen()?;
    let mut machine = Embedded::start(settings).await?;
    let ended = match announce(&machine, format) {
        Ok(()) => tokio::select! {
            () = signals.stopped() => Ok(()),
            error = machine.failed() => Err(error),
        },
        Err(error) => Err(error),
    };
    let stopped = machine.stop().await;
    ended.and(stopped).map(|()| Answer::Yes)
}

fn announce(machine: &Embedded, format: Format) -> Result<(), Error> {
    let (address, kubeconfig) = (machine.address, machine.kubeconfig.display());
    if let Some(cut) = &machine.cut {
        eprintln!(
            "note: the last write before the stop was unfinished and unacknowledged; {} bytes at the end of {} were dropped",
            cut.bytes, cut.file
        );
    }
    match format {
        Format::Json => {
            let line = json!({"server": format!("https://{address}"), "kubeconfig": kubeconfig.to_string()});
            output::print(&format!("{line}\n"))
        }
        Format::Table => output::print(&format!(
            "Kubernetes API, node and gateway of this machine: https://{address}\n\
             Pods run as real processes with real sockets, without images, isolation or a second node.\n\
             \n  kubectl --kubeconfig {kubeconfig} get namespaces\n\
             \nCtrl-C stops it and its pods; the state stays.\n"
        )),
    }
}
