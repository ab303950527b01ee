//! A real control plane for one test, or for all tests of one binary.
use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::OnceCell,
    time::Instant,
};

use crate::{
    Binaries, Error, certificates, certificates::Certificates, crds, daemons::Daemons, eventually,
    flags::Layout,
};

/// Generous: a loaded machine is no reason to fail, and a process that ends is noticed at once.
const START: Duration = Duration::from_mins(2);

/// What a control plane consists of. The default is what a test wants.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// etcd waits for the disk, as in production. Of no use to a test: its data never outlives it.
    pub fsync: bool,
    /// kube-controller-manager and the Gateway API, beside etcd and kube-apiserver.
    pub controllers: bool,
    /// kube-apiserver writes down who asked for what, and whether it was allowed.
    pub audit: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self { fsync: false, controllers: true, audit: false }
    }
}

/// etcd, kube-apiserver and kube-controller-manager, with the Gateway API installed.
///
/// # Guarantees
/// Its processes end and its directory goes when it is dropped, and also when the test process exits, panics or is
/// killed. After a panic the logs stay, and their path is printed.
#[derive(Debug)]
pub struct Cluster {
    daemons: Daemons,
    binaries: Binaries,
    layout: Layout,
    config: Config,
    ready_in: Duration,
    /// Held so that no other process gets these ports.
    _ports: [TcpSocket; 2],
}

impl Cluster {
    /// Starts a control plane of its own. The first call on a machine builds the programs, which takes minutes.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Parts::default()).await
    }

    /// The same, with other parts.
    pub async fn start_with(parts: Parts) -> Result<Self, Error> {
        let binaries = blocking(Binaries::locate).await?;
        let mut daemons = Daemons::new()?;
        match boot(&binaries, &mut daemons, parts).await {
            Ok(Booted { layout, config, ready_in, ports }) => {
                Ok(Self { daemons, binaries, layout, config, ready_in, _ports: ports })
            }
            Err(error) => {
                daemons.keep_logs();
                Err(error)
            }
        }
    }

    /// The control plane that the tests of this binary share. It ends with the process.
    ///
    /// # Panics
    /// When it cannot start: then no test of the binary can say anything.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<Cluster, String>> = OnceCell::const_new();
        let start = async || {
            let cluster = Self::start().await.map_err(|error| error.chain())?;
            cluster.keep_logs_on_any_panic();
            Ok(cluster)
        };
        #[expect(
            clippy::panic,
            reason = "called by tests; a failed start is kept, so that each fails at once"
        )]
        SHARED.get_or_init(start).await.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new client with all rights. New each time, because a client belongs to the runtime it is made in and each
    /// test has its own.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn client(&self) -> Client {
        Client::try_from(self.config())
            .expect("should be a client: start made one from the same configuration")
    }

    /// How to reach the server, for a client that differs from [`Self::client`].
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// The administrator's kubeconfig, readable by us alone.
    pub fn kubeconfig(&self) -> &Path {
        &self.layout.kubeconfig
    }

    /// kubectl as administrator. It sees no file of the user's: its home is in the cluster's directory.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.binaries.kubectl());
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.daemons.state()).env("KUBERC", "off");
        command
    }

    /// Creates a namespace with a name of its own that begins with `prefix`, ready for pods.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let client = self.client();
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
            .await
            .map_err(Error::kube("create a namespace"))?;
        let name = namespace.metadata.name.unwrap_or_default();
        ready_for_pods(&client, &name, &self.daemons).await?;
        Ok(name)
    }

    /// Installs definitions and waits until they are served.
    pub async fn install(&self, definitions: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        let definitions: Vec<_> = definitions.into_iter().collect();
        crds::install(&self.client(), &definitions).await
    }

    /// Runs another program beside the control plane: it ends when the cluster does, and its log is kept with the others.
    pub fn run<A: AsRef<OsStr>>(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), Error> {
        self.daemons.spawn(name, program, arguments)
    }

    /// An error if one of its processes has ended by itself.
    pub fn check(&self) -> Result<(), Error> {
        self.daemons.check()
    }

    /// For a cluster in a static, which is never dropped: after a panic anywhere the logs stay.
    pub fn keep_logs_on_any_panic(&self) {
        self.daemons.keep_logs_on_any_panic();
    }

    /// The numbers of all its processes.
    pub fn processes(&self) -> Vec<u32> {
        self.daemons.processes()
    }

    /// The numbers of etcd and kube-apiserver alone.
    pub fn servers(&self) -> Vec<u32> {
        self.daemons.named(&["etcd", "kube-apiserver"])
    }

    /// How long it took from the start of etcd until kube-apiserver said that it is ready.
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }

    /// What [`Parts::audit`] wrote down so far, one event each.
    pub fn audit(&self) -> Result<Vec<Value>, Error> {
        let text = fs::read_to_string(self.layout.audit_log()).map_err(Error::io("read the audit log"))?;
        // The last line may be half written.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The directory with everything it wrote.
    pub fn directory(&self) -> &Path {
        self.daemons.directory()
    }
}

struct Booted {
    layout: Layout,
    config: Config,
    ready_in: Duration,
    ports: [TcpSocket; 2],
}

/// One after the other, each when the one it depends on answers.
async fn boot(binaries: &Binaries, daemons: &mut Daemons, wanted: Parts) -> Result<Booted, Error> {
    let ports = [reserve()?, reserve()?];
    let layout = lay_out(daemons.state(), port(&ports[0])?, port(&ports[1])?)?;
    if wanted.audit {
        certificates::write_private(&layout.state, "audit.json", &audit_policy())?;
    }
    let began = Instant::now();
    daemons.spawn("etcd", &binaries.etcd(), layout.etcd(wanted.fsync))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, layout.etcd_port));
    ready("etcd listening", daemons, async || TcpStream::connect(address).await.is_ok()).await?;

    daemons.spawn("kube-apiserver", &binaries.apiserver(), layout.apiserver(wanted.audit))?;
    let config = load(&layout.kubeconfig).await?;
    let client = Client::try_from(config.clone()).map_err(Error::kube("make a client"))?;
    ready("kube-apiserver ready", daemons, async || answers(&client, "/readyz").await).await?;
    let ready_in = began.elapsed();
    if !wanted.controllers {
        return Ok(Booted { layout, config, ready_in, ports });
    }

    let folder = binaries.gateway_crds().to_owned();
    let definitions = blocking(move || crds::read(&folder)).await?;
    // Before the controllers: the garbage collector looks for new kinds only every 30 seconds.
    crds::install(&client, &definitions).await?;
    daemons.spawn("kube-controller-manager", &binaries.controller_manager(), layout.controller_manager())?;
    ready_for_pods(&client, "default", daemons).await?;
    Ok(Booted { layout, config, ready_in, ports })
}

/// Asks until the answer is yes, or one of the processes has ended.
async fn ready(what: &str, daemons: &Daemons, mut probe: impl AsyncFnMut() -> bool) -> Result<(), Error> {
    eventually(what, START, async || match daemons.check() {
        Err(error) => Some(Err(error)),
        Ok(()) => probe().await.then_some(Ok(())),
    })
    .await?
}

/// The server refuses a pod until a controller has made the namespace's service account.
async fn ready_for_pods(client: &Client, namespace: &str, daemons: &Daemons) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let what = format!("the service account of namespace {namespace}");
    ready(&what, daemons, async || accounts.get("default").await.is_ok()).await
}

async fn answers(client: &Client, path: &str) -> bool {
    let request = http::Request::get(path).body(Vec::new()).expect("should be a request: the path is ours");
    client.request_text(request).await.is_ok()
}

/// Writes every file that the programs are started with.
fn lay_out(state: PathBuf, etcd_port: u16, apiserver_port: u16) -> Result<Layout, Error> {
    let certificates = Certificates::write(&state)?;
    let token = certificates::random_token()?;
    let tokens = format!("{token},admin,admin,\"system:masters\"\n");
    let tokens = certificates::write_private(&state, "tokens.csv", &tokens)?;
    // JSON is YAML.
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{apiserver_port}"),
            "certificate-authority": certificates.ca,
        }}],
        "users": [{"name": "admin", "user": {"token": token}}],
    });
    let kubeconfig = certificates::write_private(&state, "kubeconfig", &kubeconfig.to_string())?;
    Ok(Layout { state, etcd_port, apiserver_port, certificates, tokens, kubeconfig })
}

/// Every request, once it is answered; a watch once it has begun.
fn audit_policy() -> String {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    });
    policy.to_string()
}

async fn load(kubeconfig: &Path) -> Result<Config, Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // The library takes one from the environment, for loopback too.
    config.proxy_url = None;
    Ok(config)
}

/// A free port on loopback that stays ours: the socket is bound but never listens, and the program that is given the
/// port shares it. Closing it first would let any other process take the port in between.
fn reserve() -> Result<TcpSocket, Error> {
    let bound = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(socket)
    };
    bound().map_err(Error::io("reserve a port"))
}

fn port(socket: &TcpSocket) -> Result<u16, Error> {
    socket.local_addr().map(|address| address.port()).map_err(Error::io("read the number of a port"))
}

/// Off the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|join| Err(Error::io("finish a blocking task")(std::io::Error::other(join))))
}
