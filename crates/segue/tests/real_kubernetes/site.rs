//! What the tests share: a control plane, one node, two data planes and the operator.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use gateway::Gateway;
use node::{Node, Range, Shim};
use serde_json::{Value, json};
use testbed::Cluster;
use tokio::{runtime::Runtime, sync::watch};

/// The data planes, by their `GatewayClass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Segue,
    Traefik,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Self::Segue => "segue",
            Self::Traefik => "traefik",
        }
    }

    fn controller(self) -> &'static str {
        match self {
            Self::Segue => "segue.dev/gateway",
            Self::Traefik => "traefik.io/gateway-controller",
        }
    }
}

/// How `segue operator` fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Steady,
    /// With `kill -9`, again and again.
    Killed,
}

/// How long an operator lives that is killed: less than any wait of a handover.
const LIFE_SECONDS: u32 = 4;

/// The ports of the Gateways that Traefik serves: it has to be told of each before.
const TRAEFIK_PORTS: std::ops::RangeInclusive<u16> = 8101..=8105;

/// How many pods there may be: what they ask for is of no interest here.
const CAPACITY: [(&str, &str); 3] = [("cpu", "100"), ("memory", "100Gi"), ("pods", "1000")];

pub struct Site {
    pub runtime: Runtime,
    pub cluster: Cluster,
    _stop: watch::Sender<bool>,
}

impl Site {
    /// The one of this process. It ends with it.
    pub fn shared(operator: Operator) -> &'static Self {
        static SITE: OnceLock<Site> = OnceLock::new();
        SITE.get_or_init(|| Self::start(operator))
    }

    fn start(operator: Operator) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (stop, stopped) = watch::channel(false);
        let mut cluster = runtime.block_on(Cluster::start()).unwrap();
        cluster.keep_logs_on_any_panic();
        install(&cluster);
        let entered = runtime.enter();
        let node = node::Settings {
            shim: Shim { program: segue() },
            heartbeat: Some(Duration::from_secs(10)),
            addresses: Range { first: Ipv4Addr::new(10, 244, 0, 0), prefix: 16 },
            capacity: node::Resources::of(CAPACITY),
            // Below `state`, which goes in every case.
            ..node::Settings::new("this-machine", cluster.directory().join("state/node"))
        };
        runtime.spawn(Node::new(cluster.client(), node).run(stopped.clone()));
        let (client, mut stopping) = (cluster.client(), stopped);
        runtime.spawn(async move {
            let stop = async move { drop(stopping.wait_for(|stop| *stop).await) };
            Gateway::new(gateway::Settings::default()).run(client, stop).await;
        });
        drop(entered);
        run_traefik(&mut cluster);
        run_operator(&mut cluster, operator);
        Self { runtime, cluster, _stop: stop }
    }

    /// How often an operator was started.
    pub fn operators(&self) -> usize {
        let log = fs::read_to_string(self.cluster.directory().join("logs/operator.log")).unwrap();
        log.matches("Reconciling").count()
    }

    /// Applies a manifest as a user does; what was stored.
    pub fn apply(&self, manifest: &Value) -> Value {
        let said = pipe(
            self.cluster.kubectl().args(["apply", "--server-side", "-o", "json", "-f", "-"]),
            &manifest.to_string(),
        );
        serde_json::from_str(&said).unwrap()
    }

    pub fn get(&self, arguments: &[&str]) -> Value {
        let said = pipe(self.cluster.kubectl().arg("get").args(arguments).args(["-o", "json"]), "");
        serde_json::from_str(&said).unwrap()
    }
}

pub fn segue() -> PathBuf {
    env!("CARGO_BIN_EXE_segue").into()
}

/// Our kinds, and the classes of both data planes.
fn install(cluster: &Cluster) {
    let crds = pipe(Command::new(segue()).arg("crds"), "");
    pipe(cluster.kubectl().args(["apply", "--server-side", "-f", "-"]), &crds);
    pipe(
        cluster.kubectl().args(["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]),
        "",
    );
    for class in [Class::Segue, Class::Traefik] {
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": class.name()},
            "spec": {"controllerName": class.controller()},
        });
        pipe(cluster.kubectl().args(["apply", "-f", "-"]), &class.to_string());
    }
}

/// `segue operator`. One that is killed is started again, as by a Deployment, and goes with the shell that does that.
fn run_operator(cluster: &mut Cluster, operator: Operator) {
    let (segue, kubeconfig) = (segue(), cluster.kubeconfig().to_owned());
    let kinds = "--kinds=leaderworkerset,modeldeployment";
    let command = [
        segue.as_os_str(),
        "operator".as_ref(),
        kinds.as_ref(),
        "--kubeconfig".as_ref(),
        kubeconfig.as_os_str(),
    ];
    match operator {
        Operator::Steady => cluster.run("operator", &segue, &command[1..]),
        Operator::Killed => {
            let bound = "setpriv --pdeathsig=KILL";
            let again =
                format!(r#"while :; do {bound} timeout -s KILL {LIFE_SECONDS} {bound} "$@"; sleep 1; done"#);
            let shell = ["-c".as_ref(), again.as_ref(), "operator".as_ref()];
            cluster.run("operator", Path::new("/bin/sh"), shell.into_iter().chain(command))
        }
    }
    .unwrap();
}

/// Traefik as it comes, but for where the API and its own doors are. It collects changes for 2 seconds, by default.
fn run_traefik(cluster: &mut Cluster) {
    let kubeconfig: Value = serde_json::from_str(&fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let server = &kubeconfig["clusters"][0]["cluster"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let token = cluster.directory().join("state/traefik.token");
    fs::write(&token, text(&kubeconfig["users"][0]["user"]["token"])).unwrap();
    let mut arguments = vec![
        "--log.level=INFO".to_owned(),
        "--global.checkNewVersion=false".to_owned(),
        "--global.sendAnonymousUsage=false".to_owned(),
        format!("--providers.kubernetesGateway.endpoint={}", text(&server["server"])),
        format!("--providers.kubernetesGateway.token={}", token.display()),
        format!("--providers.kubernetesGateway.certAuthFilePath={}", text(&server["certificate-authority"])),
        "--providers.kubernetesGateway.statusAddress.ip=127.0.0.1".to_owned(),
    ];
    for port in TRAEFIK_PORTS {
        arguments.push(format!("--entryPoints.e{port}.address=127.0.0.1:{port}"));
    }
    let program = testbed::traefik().unwrap();
    cluster.run("traefik", Path::new(&program), arguments).unwrap();
}

/// Runs a command to its good end; what it said.
pub fn pipe(command: &mut Command, input: &str) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
