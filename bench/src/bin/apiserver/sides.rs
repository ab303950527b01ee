//! The servers under comparison.
use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver::{
    Credentials, InProcess, Limits, Listener, Server,
    environment::SystemEnvironment,
    store::{History, Settings, Store},
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use testbed::{Cluster, Parts};
use tokio::sync::watch;

use crate::{
    Failure,
    load::{self, ready},
};

pub const NAMES: [&str; 5] =
    ["memoryInProcess", "memoryTls", "durableTls", "etcdWithFsync", "etcdWithoutFsync"];

pub struct Side {
    reach: Reach,
    /// Its own processes; ours where it has none.
    processes: Vec<u32>,
    /// What was ours before it began.
    resident_before: f64,
    /// Until the first answer.
    pub ready_in: Duration,
    _running: Running,
}

enum Reach {
    InProcess(Server),
    Tls(Box<Config>),
}

/// Ends with the side.
enum Running {
    Nothing,
    Process { _serving: Serving },
    Cluster { _cluster: Box<Cluster> },
}

struct Serving {
    process: Child,
    _directory: TempDir,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It ends by itself when its input does; nobody can be told if not.
        drop(self.process.stdin.take());
        drop(self.process.wait());
    }
}

impl Side {
    pub async fn start(name: &str) -> Result<Self, Failure> {
        match name {
            "memoryInProcess" => Self::in_process().await,
            "memoryTls" => Self::process("memory").await,
            "durableTls" => Self::process("durable").await,
            "etcdWithFsync" => Self::cluster(true).await,
            _ => Self::cluster(false).await,
        }
    }

    async fn in_process() -> Result<Self, Failure> {
        let processes = vec![std::process::id()];
        let resident_before = resident(&processes)?;
        let began = Instant::now();
        let server = Server::new(Store::memory(History::default()), Arc::new(SystemEnvironment), Vec::new());
        tokio::spawn(server.clone().run_garbage_collector());
        let reach = Reach::InProcess(server);
        let mut side =
            Self { reach, processes, resident_before, ready_in: Duration::ZERO, _running: Running::Nothing };
        ready(&side.client()?).await?;
        side.ready_in = began.elapsed();
        Ok(side)
    }

    /// This program again, as a server.
    async fn process(mode: &str) -> Result<Self, Failure> {
        let directory = TempDir::new()?;
        let began = Instant::now();
        let mut process = Command::new(env::current_exe()?)
            .args(["serve".as_ref(), directory.path().as_os_str(), mode.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let kubeconfig = Kubeconfig::read_from(line.trim())?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        let mut side = Self {
            reach: Reach::Tls(Box::new(config)),
            processes: vec![process.id()],
            resident_before: 0.0,
            ready_in: Duration::ZERO,
            _running: Running::Process { _serving: Serving { process, _directory: directory } },
        };
        ready(&side.client()?).await?;
        side.ready_in = began.elapsed();
        Ok(side)
    }

    async fn cluster(fsync: bool) -> Result<Self, Failure> {
        let cluster = Cluster::start_with(Parts { fsync, controllers: false, ..Parts::default() }).await?;
        Ok(Self {
            reach: Reach::Tls(Box::new(cluster.config())),
            processes: cluster.servers(),
            resident_before: 0.0,
            ready_in: cluster.ready_in(),
            _running: Running::Cluster { _cluster: Box::new(cluster) },
        })
    }

    /// A client with a connection of its own.
    pub fn client(&self) -> Result<Client, Failure> {
        match &self.reach {
            Reach::InProcess(server) => Ok(Client::new(InProcess::new(server.clone()), "default")),
            Reach::Tls(config) => Ok(Client::try_from(Config::clone(config))?),
        }
    }

    /// Clients whose connections are open.
    pub async fn clients(&self, count: usize) -> Result<Vec<Client>, Failure> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let client = self.client()?;
            load::ready(&client).await?;
            clients.push(client);
        }
        Ok(clients)
    }

    /// How many seconds its processes have been busy: a figure that other work on the machine does not change.
    pub fn busy(&self) -> Result<f64, Failure> {
        busy(&self.processes)
    }

    /// What its processes hold, in bytes.
    pub fn resident(&self) -> Result<f64, Failure> {
        Ok(resident(&self.processes)? - self.resident_before)
    }
}

/// How long they have been on a processor, in the kernel's hundredths of a second.
fn busy(processes: &[u32]) -> Result<f64, Failure> {
    let one = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // Behind the name, which may hold anything.
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
        Ok(ticks / 100.0)
    };
    processes.iter().map(one).sum()
}

/// `VmRSS` of processes, in bytes.
fn resident(processes: &[u32]) -> Result<f64, Failure> {
    let one = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
    };
    processes.iter().map(one).sum()
}

/// Serves until standard input ends, and says where its kubeconfig is.
pub async fn serve(directory: &Path, mode: &str) -> Result<(), Failure> {
    let store = match mode {
        "durable" => Store::open(&directory.join("store"), Settings::default())?.store,
        _ => Store::memory(History::default()),
    };
    let server = Server::new(store, Arc::new(SystemEnvironment), Vec::new());
    tokio::spawn(server.clone().run_garbage_collector());
    let credentials = Credentials::load(directory, &SystemEnvironment)?;
    let listener = Listener::bind(0, server, credentials.clone(), Limits::default()).await?;
    let kubeconfig = directory.join("kubeconfig");
    credentials.write_kubeconfig(&kubeconfig, listener.address())?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(listener.serve(stopped));
    writeln!(io::stdout(), "{}", kubeconfig.display())?;
    tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    stop.send_replace(true);
    serving.await?;
    Ok(())
}
