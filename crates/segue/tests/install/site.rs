//! A cluster with Segue installed, and operators that run as its service account.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};
use testbed::{Cluster, Kubelet, Parts, eventually, free_port};

/// Generous: a loaded machine is no reason to fail.
const LONG: Duration = Duration::from_mins(3);

pub struct Site {
    pub cluster: Cluster,
    _kubelet: Kubelet,
}

impl Site {
    /// A control plane that writes down who asks for what, and a kubelet that runs nothing; with our kinds, as the
    /// documents have it: `segue crds --check`, then `segue crds | segue apply -f -`.
    pub async fn start() -> Self {
        let cluster = Cluster::start_with(Parts { audit: true, ..Parts::default() }).await.unwrap();
        let kubelet = Kubelet::start(cluster.client());
        let site = Self { cluster, _kubelet: kubelet };
        let check = || run(&mut site.segue_on(&["crds", "--check"]), "");
        assert_eq!(check().status.code(), Some(1), "nothing is installed yet");
        let crds = pipe(Command::new(segue()).arg("crds"), "");
        site.segue_apply(&crds);
        let checked = check();
        let said = String::from_utf8(checked.stdout).unwrap();
        assert!(checked.status.success() && said.contains("installed by segue-cli, complete"), "{said}");
        site
    }

    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    fn segue_apply(&self, manifests: &str) {
        pipe(&mut self.segue_on(&["apply", "-f", "-"]), manifests);
    }

    /// `segue` as the administrator.
    fn segue_on(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(segue());
        command.args(arguments).arg("--kubeconfig").arg(self.cluster.kubeconfig());
        command
    }

    /// `segue manifests --image registry.example/segue:0.1.0 | segue apply -f -`, with flags; what was applied.
    pub fn install(&self, flags: &[&str]) -> Vec<Value> {
        let said = pipe(
            Command::new(segue())
                .args(["manifests", "-o", "json", "--image", "registry.example/segue:0.1.0"])
                .args(flags),
            "",
        );
        self.segue_apply(&said);
        let list: Value = serde_json::from_str(&said).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Deletes all of it, as a person does.
    pub fn uninstall(&self, manifests: &[Value]) {
        let mut delete = self.segue_on(&["delete", "-f", "-", "--timeout", "2m"]);
        pipe(&mut delete, &json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string());
    }

    /// Applies an object as the administrator.
    pub fn apply(&self, object: &Value) {
        let mut apply = self.cluster.kubectl();
        pipe(apply.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]), &object.to_string());
    }

    pub fn replace(&self, object: &Value) {
        pipe(self.cluster.kubectl().args(["replace", "-f", "-"]), &object.to_string());
    }

    /// What an operator answers to the bearer of a token who asks for its metrics.
    pub fn metrics(&self, operator: &Operator, token: &str) -> Output {
        let server = format!("https://127.0.0.1:{}", operator.webhook);
        let mut kubectl = self.cluster.kubectl();
        // A kubeconfig would bring the certificate of a person who may do everything.
        kubectl.env("KUBECONFIG", "/dev/null");
        run(
            kubectl.args([
                "get",
                "--raw=/metrics",
                "--insecure-skip-tls-verify",
                "--server",
                &server,
                "--token",
                token,
            ]),
            "",
        )
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        pipe(self.cluster.kubectl().args(arguments), "")
    }

    pub fn get(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[&["get", "-o", "json"], arguments].concat())).unwrap()
    }

    /// Rehearses a creation; what was said about it.
    pub fn try_create(&self, object: &Value, flags: &[&str]) -> String {
        let mut create = self.cluster.kubectl();
        create.args(["create", "--dry-run=server", "-f", "-"]).args(flags);
        let output = run(&mut create, &object.to_string());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits until an object is refused; what was said.
    pub async fn refused(&self, object: &Value) -> String {
        eventually("a refusal", LONG, async || {
            Some(self.try_create(object, &[])).filter(|said| !said.is_empty())
        })
        .await
        .unwrap()
    }

    /// Whether a set has so many ready groups, all of this image.
    pub fn is_ready(&self, name: &str, groups: u64, image: &str) -> bool {
        let set = self.get(&["-n", "default", "leaderworkerset", name]);
        let status = &set["status"];
        let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0];
        template["image"] == image
            && status["observedGeneration"] == set["metadata"]["generation"]
            && status["readyReplicas"] == groups
            && status["updatedReplicas"] == groups
            && status["replicas"] == groups
    }

    pub async fn ready(&self, name: &str, groups: u64, image: &str) {
        eventually(&format!("{name} is ready as {image}"), LONG, async || {
            self.cluster.check().unwrap();
            self.is_ready(name, groups, image).then_some(())
        })
        .await
        .unwrap();
    }

    /// Waits until the API has taken a right away.
    pub async fn forbidden(&self, resource: &str, verb: &str) {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let group = match resource {
            "leaderworkersets" => "leaderworkersets.leaderworkerset.x-k8s.io",
            "controllerrevisions" => "controllerrevisions.apps",
            other => other,
        };
        eventually(&format!("no right to {verb} {resource}"), LONG, async || {
            let mut can = self.cluster.kubectl();
            can.args(["auth", "can-i", verb, group, "-n", "default"]);
            can.args(["--as", "system:serviceaccount:segue-system:segue"]);
            if !sub.is_empty() {
                can.args(["--subresource", sub]);
            }
            (!run(&mut can, "").status.success()).then_some(())
        })
        .await
        .unwrap();
    }

    /// Has the API ask this operator: it listens on loopback, where a Service cannot lead.
    pub fn ask_webhooks_at(&self, operator: &Operator) {
        let mut live = self.get(&["validatingwebhookconfiguration", "segue.segue-system"]);
        for hook in live["webhooks"].as_array_mut().unwrap() {
            let bundle = hook["clientConfig"]["caBundle"].clone();
            let url = format!("https://127.0.0.1:{}/validate", operator.webhook);
            hook["clientConfig"] = json!({"url": url, "caBundle": bundle});
        }
        live["metadata"].as_object_mut().unwrap().remove("managedFields");
        self.replace(&live);
    }

    /// Runs `segue operator` with a token of the service account, and nothing else. It answers webhooks where they are
    /// installed.
    pub fn operate(&self, flags: &[&str]) -> Operator {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let installed = self.get(&["validatingwebhookconfigurations"]);
        let webhooks = installed["items"].as_array().is_some_and(|items| !items.is_empty());
        let state = self.cluster.directory().join("state");
        let number = NUMBER.fetch_add(1, Relaxed);
        let token = self.kubectl(&["-n", "segue-system", "create", "token", "segue"]);
        let mut kubeconfig: Value =
            serde_json::from_str(&fs::read_to_string(self.cluster.kubeconfig()).unwrap()).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
        let path = state.join(format!("segue-{number}.kubeconfig"));
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let log = self.cluster.directory().join(format!("logs/segue-{number}.log"));
        let [webhook, health] = [free_port(), free_port()];
        let out = File::create(&log).unwrap();
        let child = Command::new("setpriv")
            .arg("--pdeathsig=KILL")
            .arg(segue())
            .args(["operator", "--namespace", "segue-system", "--kubeconfig"])
            .arg(&path)
            .args(webhooks.then(|| format!("--webhook-port={webhook}")))
            .arg(format!("--health-port={health}"))
            .args(flags)
            // The tests may run in a pod themselves.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Operator { child, log, webhook, health }
    }
}

pub struct Operator {
    child: Child,
    log: PathBuf,
    pub webhook: u16,
    health: u16,
}

impl Operator {
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has said a line with all of these.
    pub async fn says(&self, words: &[&str]) {
        eventually(&format!("{words:?}"), LONG, async || {
            let said = self.said();
            said.lines().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", self.said()));
    }

    /// Waits until its probe says that it is ready.
    pub async fn is_ready(&self) {
        let address = format!("127.0.0.1:{}", self.health);
        eventually("ready", LONG, async || {
            let mut stream = std::net::TcpStream::connect(&address).ok()?;
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
            let answer = std::io::read_to_string(stream).ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", self.said()));
    }

    /// Tells it to stop, and waits until it has.
    pub async fn stop(mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let status = self.end().await;
        assert_eq!(status, Some(0), "{}", self.said());
    }

    /// Waits until it has ended by itself: its exit code, and what it said.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let code = self.end().await;
        (code, self.said())
    }

    async fn end(&mut self) -> Option<i32> {
        let child = &mut self.child;
        eventually("its end", LONG, async || child.try_wait().unwrap()).await.unwrap().code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A set of pairs.
pub fn set(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"},
        },
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": 2,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}},
            },
        },
    })
}

fn segue() -> PathBuf {
    env!("CARGO_BIN_EXE_segue").into()
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever does not read may close it.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    child.wait_with_output().unwrap()
}

/// Runs a command to its good end; what it said.
fn pipe(command: &mut Command, input: &str) -> String {
    let output = run(command, input);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
