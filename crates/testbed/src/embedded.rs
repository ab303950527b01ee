//! The embedded API in the test's own process, behind both of its fronts.
use std::{io, path::Path, process::Command, sync::Arc};

use apiserver::{Credentials, InProcess, Limits, Listener, Server, environment::SystemEnvironment, store};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

use crate::{Binaries, Error};

/// An embedded server in memory, with its collector at work and its kubeconfig written.
///
/// # Guarantees
/// What it runs ends and its directory goes when it is dropped.
#[derive(Debug)]
pub struct Embedded {
    server: Server,
    directory: TempDir,
    collector: AbortHandle,
    stop: watch::Sender<bool>,
    listening: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts a server of its own on a free port.
    pub async fn start() -> Result<Self, Error> {
        Self::over(store::Store::memory(store::History::default()), Limits::default()).await
    }

    /// The same over a given store, with given limits.
    pub async fn over(store: store::Store, limits: Limits) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let server = Server::new(store, Arc::new(SystemEnvironment), Vec::new());
        server.bootstrap().await.map_err(|refusal| other("furnish the server")(refusal.message()))?;
        let credentials = Credentials::load(directory.path(), &SystemEnvironment)
            .map_err(|error| other("make credentials")(error))?;
        let listener = Listener::bind(0, server.clone(), credentials.clone(), limits)
            .await
            .map_err(|error| other("listen")(error))?;
        credentials
            .write_kubeconfig(&directory.path().join("kubeconfig"), listener.address())
            .map_err(|error| other("write the kubeconfig")(error))?;
        let (stop, stopped) = watch::channel(false);
        let listening = Some(tokio::spawn(listener.serve(stopped)));
        let collector = tokio::spawn(server.clone().run_garbage_collector()).abort_handle();
        Ok(Self { server, directory, collector, stop, listening })
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A client in process.
    pub fn client(&self) -> Client {
        Client::new(InProcess::new(self.server.clone()), "default")
    }

    /// A client over TLS, as any other program has it.
    pub async fn client_over_tls(&self) -> Result<Client, Error> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The library takes one from the environment, for loopback too.
        config.proxy_url = None;
        Client::try_from(config).map_err(Error::kube("make a client"))
    }

    /// The kubeconfig, readable by us alone.
    pub fn kubeconfig(&self) -> std::path::PathBuf {
        self.directory().join("kubeconfig")
    }

    /// Where its credentials are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// kubectl for this server. It sees no file of the user's.
    pub fn kubectl(&self, binaries: &Binaries) -> Command {
        let mut command = Command::new(binaries.kubectl());
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory()).env("KUBERC", "off");
        command
    }

    /// Stops listening and returns when the last request is answered.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        if let Some(listening) = self.listening.take() {
            // It ended, however it did.
            drop(listening.await);
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.collector.abort();
    }
}

fn other<E: Into<Box<dyn std::error::Error + Send + Sync>>>(action: &str) -> impl FnOnce(E) -> Error {
    move |error| Error::io(action.to_owned())(io::Error::other(error))
}
