//! `segue up` as a person runs it.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{DynamicObject, GroupVersionKind, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::ApiResource,
};
use serde_json::{Value, json};
use testbed::eventually;

fn up(directory: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["up", "-o", "json", "--directory"])
        .arg(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The line that says where it is; it comes when everything answers.
fn announced(child: &mut Child) -> Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn it_says_where_it_is_and_ends_when_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = up(directory.path());
    let said = announced(&mut child);
    assert!(said["server"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{said}");
    let kubeconfig = fs::read_to_string(said["kubeconfig"].as_str().unwrap()).unwrap();
    assert!(kubeconfig.contains(said["server"].as_str().unwrap()));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn nobody_else_can_read_its_files_and_they_stay_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let token = || fs::read_to_string(directory.path().join("token")).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut child = up(directory.path());
        announced(&mut child);
        for file in fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
            let mode = file.metadata().unwrap().permissions().mode() & 0o077;
            assert_eq!(mode, 0, "{}", file.path().display());
        }
        tokens.push(token());
        interrupt(&child);
        child.wait().unwrap();
    }
    assert_eq!(tokens[0], tokens[1]);
}

#[test]
fn a_second_one_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = up(directory.path());
    announced(&mut first);
    let mut second = up(directory.path());
    assert_eq!(second.wait().unwrap().code(), Some(2));
    let mut said = String::new();
    second.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("open the stored objects"), "{said}");
    interrupt(&first);
    first.wait().unwrap();
}

/// How many processes have this argument. It is a number that nobody else sleeps for.
fn sleeping(seconds: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    commands.filter(|command| command.split(|byte| *byte == 0).any(|word| word == seconds.as_bytes())).count()
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // The library takes one from the environment, for loopback too.
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn the_counts_of_the_gateway_are_at_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = up(directory.path());
    let said = announced(&mut child);
    let client = client(said["kubeconfig"].as_str().unwrap()).await;
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    for line in ["# TYPE segue_gateway_request_seconds histogram", "segue_gateway_unrouted_total 0"] {
        assert!(text.lines().any(|said| said == line), "{line} is not in\n{text}");
    }
    interrupt(&child);
    child.wait().unwrap();
}

#[tokio::test]
async fn a_pod_runs_as_a_process_and_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = up(directory.path());
    let said = announced(&mut child);
    let client = client(said["kubeconfig"].as_str().unwrap()).await;
    let seconds = (1_000_000 + child.id()).to_string();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let pod: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"},
        "spec": {"containers": [{"name": "main", "image": "none", "command": ["sleep", seconds]}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("a running pod", Duration::from_mins(1), async || {
        let pod = pods.get("sleeper").await.unwrap();
        (pod.data["status"]["phase"] == "Running").then_some(())
    })
    .await
    .unwrap();
    assert!(sleeping(&seconds) > 0);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sleeping(&seconds), 0);
}
