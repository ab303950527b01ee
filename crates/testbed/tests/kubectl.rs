//! What a person types works on the embedded API as on a cluster: the same lines to the real kubectl, the same output.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use regex::Regex;
use serde_json::{Value, json};
use testbed::{Binaries, Cluster, Embedded, eventually};

/// The lines that give the same on both. A line is given to the shell.
const SAME: &str = include_str!("kubectl/same.sh");

/// Lines for the embedded API alone, each followed by what its output must hold.
const OURS: &str = include_str!("kubectl/ours.sh");

const SOON: Duration = Duration::from_mins(1);

/// What kubectl printed, without what is accidental.
#[derive(Debug, PartialEq)]
struct Said {
    code: Option<i32>,
    text: String,
}

/// One server, and a directory with the files that the lines name.
struct Side {
    kubeconfig: PathBuf,
    programs: PathBuf,
    folder: tempfile::TempDir,
}

impl Side {
    fn new(kubeconfig: &Path, binaries: &Binaries) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        copy(&here.join("tests/kubectl/files"), folder.path());
        copy(&here.join("../../examples"), &folder.path().join("examples"));
        fs::create_dir(folder.path().join("crds")).unwrap();
        for kind in api::KINDS {
            let path = folder.path().join("crds").join(format!("{}.json", kind.plural));
            fs::write(path, kind.crd().to_string()).unwrap();
        }
        let programs = binaries.kubectl().parent().unwrap().to_owned();
        Self { kubeconfig: kubeconfig.to_owned(), programs, folder }
    }

    async fn run(&self, line: &str) -> Said {
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(["-c", line])
            .current_dir(self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.folder.path())
            .env("KUBERC", "off")
            .env("PATH", format!("{}:{path}", self.programs.display()));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        Said { code: output.status.code(), text: masked(&text) }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Ages, uids, times, revisions, ports and the widths of columns differ between any two runs.
fn masked(text: &str) -> String {
    let masks = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( \+0000|Z)?", "TIME"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
        (r"/tmp/(LIVE|MERGED)-\d+/", "$1/"),
        (r"https://127\.0\.0\.1:\d+", "SERVER"),
        (r#"(?i)(resource ?version"?:? *"?)\d+"#, "${1}REVISION"),
        (r"(\s)(\d+(ms|s|m|h|d))+(\s)", "${1}AGE${4}"),
        (r"[ \t]+", " "),
    ];
    let mask = |text: String, (pattern, name): (&str, &str)| {
        Regex::new(pattern).unwrap().replace_all(&text, name).into_owned()
    };
    masks.into_iter().fold(text.to_owned(), mask)
}

/// A namespace as pods need it. Controllers make the account on a cluster; nobody does here.
async fn prepare(client: Client, controllers: bool) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "script");
    let make = |value: Value| serde_json::from_value(value).unwrap();
    let namespace: Namespace = make(json!({"metadata": {"name": "script"}}));
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    if !controllers {
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
    eventually("the service account", SOON, async || accounts.get("default").await.ok()).await.unwrap();
}

fn lines(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn kubectl_says_the_same_of_the_embedded_api_as_of_a_cluster() {
    let cluster = Cluster::shared().await;
    let embedded = Embedded::start().await.unwrap();
    let binaries = tokio::task::spawn_blocking(Binaries::locate).await.unwrap().unwrap();
    prepare(cluster.client(), true).await;
    prepare(embedded.client(), false).await;
    let real = Side::new(cluster.kubeconfig(), &binaries);
    let ours = Side::new(&embedded.kubeconfig(), &binaries);
    let mut differing = Vec::new();
    for line in lines(SAME) {
        let (expected, found) = tokio::join!(real.run(line), ours.run(line));
        if expected != found {
            differing.push(format!("$ {line}\n--- cluster\n{expected:#?}\n+++ embedded\n{found:#?}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n\n").replace("\\n", "\n"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn what_the_embedded_api_does_not_have_is_refused_in_words() {
    let embedded = Embedded::start().await.unwrap();
    let binaries = tokio::task::spawn_blocking(Binaries::locate).await.unwrap().unwrap();
    prepare(embedded.client(), false).await;
    let side = Side::new(&embedded.kubeconfig(), &binaries);
    let mut last = (String::new(), Said { code: None, text: String::new() });
    for line in lines(OURS) {
        match line.strip_prefix("> ") {
            None => last = (line.to_owned(), side.run(line).await),
            Some(expected) => {
                assert!(last.1.text.contains(expected), "$ {}\n{}\nlacks {expected:?}", last.0, last.1.text);
            }
        }
    }
}
