//! The verbs against a `segue up` of their own, as a person uses them without kubectl.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::Value;

use self::support::up::Up;

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn pod(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  restartPolicy: Never\n  \
         containers:\n  - {{name: main, image: none, command: [sh, -c, {script:?}]}}\n"
    )
}

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value:?}}}\n---\n")
}

const BAD: &str = "
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: chat}
spec:
  replicas: -1
  leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: a, image: b}]}}}
";

#[tokio::test]
async fn a_pod_is_applied_seen_heard_and_deleted() {
    let up = Up::start();
    let file = up.file("pod.yaml", &pod("hello", "echo one; echo two; exec sleep 1000"));
    assert_eq!(up.says(&["apply", "-f", &file, "--dry-run"]), "pod/hello created (dry run)\n");
    assert_eq!(up.says(&["apply", "-f", &file]), "pod/hello created\n");
    up.see("a running pod", &["get", "po/hello"], |said| said.contains("Running")).await;
    let table = up.says(&["get", "pods"]);
    assert!(table.starts_with("NAME    READY   STATUS"), "{table}");
    let wide = up.says(&["get", "Pod", "hello", "-o", "wide"]);
    assert!(wide.contains("NODE") && wide.contains("this-machine"), "{wide}");
    assert!(up.says(&["get", "pods", "-A"]).starts_with("NAMESPACE"));
    assert_eq!(up.says(&["get", "pods", "-o", "name", "-l", "app=hello"]), "pod/hello\n");
    up.see("its output", &["logs", "hello"], |said| said == "one\ntwo\n").await;
    assert_eq!(up.says(&["logs", "pod/hello", "--tail", "1"]), "two\n");
    let line: Value =
        serde_json::from_str(&up.says(&["logs", "hello", "--tail", "1", "-o", "json"])).unwrap();
    assert_eq!(line["line"], "two");
    assert_eq!(up.says(&["apply", "-f", &file]), "pod/hello unchanged\n");

    let output = up.run(&["delete", "-f", &file]);
    assert_eq!((code(&output), support::stdout(&output).as_str()), (0, "pod/hello deleted\n"));
    assert!(support::stderr(&output).contains("waiting for its deletion"), "{output:?}");
    let output = up.run(&["get", "pod/hello"]);
    assert_eq!(code(&output), 1);
    assert_eq!(support::stderr(&output), "error: pod/hello not found in namespace default\n");
}

#[test]
fn output_is_followed_until_the_container_ends() {
    let up = Up::start();
    let go = up.directory.path().join("go");
    let script = format!("echo before; while [ ! -e {} ]; do sleep 0.02; done; echo after", go.display());
    let file = up.file("pod.yaml", &pod("talker", &script));
    up.says(&["apply", "-f", &file]);
    // It may be yet to start: who follows waits.
    let mut following =
        up.command(&["logs", "talker", "-f", "-c", "main"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "before");
    fs::write(&go, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "after");
    assert!(lines.next().is_none());
    assert!(following.wait().unwrap().success());
    for (arguments, says) in [
        (["logs", "talker", "-c", "x"], "container x is not valid for pod talker"),
        (["logs", "talker", "-c", "main"], ""),
        (["logs", "nobody", "--tail", "1"], "pods \"nobody\" not found; see: segue get pods"),
    ] {
        let output = up.run(&arguments);
        assert_eq!(code(&output), i32::from(!says.is_empty()), "{arguments:?}");
        assert!(support::stderr(&output).contains(says), "{output:?}");
    }
    let output = up.run(&["logs", "talker", "--previous"]);
    assert_eq!(code(&output), 1);
    assert!(support::stderr(&output).contains("previous terminated container"), "{output:?}");
}

#[test]
fn if_one_document_is_bad_nothing_is_written() {
    let up = Up::start();
    let output = up.with_input(&["apply", "-f", "-"], &(map("first", "x") + BAD));
    assert_eq!(code(&output), 1);
    let said = support::stderr(&output);
    let why = "standard input, document 2 (LeaderWorkerSet chat): spec.replicas: Invalid value: -1: spec.replicas in body \
               should be greater than or equal to 0";
    assert!(said.contains(why) && said.contains("no object was written"), "{said}");
    // What only the server can judge, and a kind that it does not have.
    let unjudged = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 99999}]}\n";
    let unknown = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n";
    let mistyped = BAD.replace("replicas: -1", "replcias: 1");
    for (bad, says) in
        [(unjudged, "99999"), (&mistyped, "replcias"), (unknown, "does not serve Thing (example.com/v1)")]
    {
        let output = up.with_input(&["apply", "-f", "-", "-o", "json"], &(map("first", "x") + bad));
        assert_eq!(code(&output), 1, "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(told[0]["why"].as_str().unwrap().contains(says), "{told}");
        assert_eq!(told[0]["result"], "refused");
    }
    let output = up.run(&["get", "configmaps"]);
    assert_eq!((code(&output), support::stdout(&output).as_str()), (0, ""));
    assert_eq!(support::stderr(&output), "no configmaps found in namespace default\n");
}

#[test]
fn folders_namespaces_and_new_kinds_are_applied_in_an_order_that_works() {
    let up = Up::start();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n\
               spec:\n  group: example.com\n  scope: Namespaced\n  names: {kind: Thing, plural: things, shortNames: [th]}\n  \
               versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n";
    let thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t, namespace: there}\n";
    up.file("all/1.yaml", thing);
    up.file("all/2.yml", crd);
    up.file("all/3.json", r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "there"}}"#);
    up.file("all/notes.txt", "not a manifest: [");
    let folder = up.directory.path().join("all");
    let folder = folder.to_str().unwrap();
    let said = up.says(&["apply", "-f", folder]);
    let order =
        ["namespace/there created", "customresourcedefinition/things.example.com created", "thing/t created"];
    assert_eq!(said.lines().collect::<Vec<_>>(), order);
    assert!(up.says(&["get", "th", "-n", "there"]).contains("t "));
    let object: Value =
        serde_json::from_str(&up.says(&["get", "things.example.com/t", "-n", "there", "-o", "json"]))
            .unwrap();
    assert_eq!(object["metadata"]["name"], "t");
    assert!(object["metadata"]["managedFields"].is_null());
    assert!(up.says(&["get", "things", "-A", "-o", "yaml"]).contains("kind: List"));
    let output = up.run(&["apply", "-f", folder, "-n", "elsewhere"]);
    assert_eq!(code(&output), 1);
    assert!(
        support::stderr(&output).contains("metadata.namespace is there, and --namespace is elsewhere"),
        "{output:?}"
    );
    let said = up.says(&["delete", "-f", folder]);
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn a_conflict_is_told_with_its_owner_and_can_be_forced() {
    let up = Up::start();
    up.says(&["apply", "-f", &up.file("a.yaml", &map("shared", "ours"))]);
    let kubeconfig = up.directory.path().join("state/kubeconfig");
    another_manager_sets(&kubeconfig, "theirs");
    let file = up.file("a.yaml", &map("shared", "ours again"));
    let output = up.run(&["apply", "-f", &file]);
    assert_eq!(code(&output), 1);
    let said = support::stderr(&output);
    for part in [".data.key", "\"somebody\"", "--force-conflicts"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(up.says(&["apply", "-f", &file, "--force-conflicts"]), "configmap/shared configured\n");
}

fn another_manager_sets(kubeconfig: &Path, value: &str) {
    use kube::{
        Api, Client, Config,
        api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
        config::{KubeConfigOptions, Kubeconfig},
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.proxy_url = None;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let maps: Api<DynamicObject> = Api::default_namespaced_with(Client::try_from(config).unwrap(), &kind);
        let patch = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"key": value},
        });
        let params = PatchParams::apply("somebody").force();
        maps.patch("shared", &params, &Patch::Apply(patch)).await.unwrap();
    });
}

#[test]
fn what_holds_an_object_is_told_while_it_is_waited_for() {
    let up = Up::start();
    let held = map("held", "x").replace("{name: held}", "{name: held, finalizers: [example.com/hold]}");
    up.says(&["apply", "-f", &up.file("held.yaml", &held)]);
    let output = up.run(&["delete", "configmap/held", "--timeout", "1s"]);
    assert_eq!(code(&output), 1);
    let said = support::stderr(&output);
    assert!(said.contains("finalizers: example.com/hold"), "{said}");
    assert!(said.contains("configmap/held: not deleted after 1 s"), "{said}");

    let mut waiting =
        up.command(&["delete", "cm/held"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("finalizers: "), "{told}");
    up.says(&["apply", "-f", &up.file("held.yaml", &map("held", "x"))]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!((code(&output), support::stdout(&output).as_str()), (0, "configmap/held deleted\n"));
    let output = up.run(&["delete", "configmap", "held"]);
    assert_eq!(code(&output), 1);
    assert!(support::stderr(&output).contains("configmap/held: not found in namespace default"));
    let output = up.run(&["delete", "configmap", "held", "--ignore-not-found"]);
    assert_eq!(code(&output), 0);
}

#[test]
fn changes_are_shown_as_they_come() {
    let up = Up::start();
    let mut watching = up.command(&["get", "cm", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("NAME"));
    up.says(&["apply", "-f", &up.file("a.yaml", &map("news", "x"))]);
    assert!(lines.next().unwrap().starts_with("news"));
    up.says(&["delete", "cm/news"]);
    assert!(lines.any(|line| line.starts_with("news") && line.ends_with("(deleted)")));
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn without_a_server_the_way_to_one_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let segue = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).env("HOME", directory.path()).env("XDG_STATE_HOME", directory.path());
        command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").output().unwrap()
    };
    let output = segue(&["get", "pods"]);
    assert_eq!(code(&output), 2);
    assert!(support::stderr(&output).contains("start a server with `segue up`"), "{output:?}");
    // What a `segue up` that has ended leaves behind.
    let state = directory.path().join("segue");
    fs::create_dir(&state).unwrap();
    let kubeconfig = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}"#;
    fs::write(state.join("kubeconfig"), kubeconfig).unwrap();
    for arguments in [&["get", "pods", "-v"][..], &["logs", "x"], &["delete", "pod/x"]] {
        let output = segue(arguments);
        assert_eq!(code(&output), 2, "{output:?}");
        let said = support::stderr(&output);
        for part in
            ["https://127.0.0.1:1", "(of `segue up`)", "Connection refused", "start a server with `segue up`"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
    let output = segue(&["get", "pods", "--kubeconfig", "/no/such/file"]);
    assert!(
        code(&output) == 2 && support::stderr(&output).contains("/no/such/file (--kubeconfig)"),
        "{output:?}"
    );
}

#[test]
fn a_kind_that_nobody_serves_is_refused_with_those_that_are() {
    let up = Up::start();
    let output = up.run(&["get", "podz"]);
    assert_eq!(code(&output), 1);
    let said = support::stderr(&output);
    assert!(said.contains("podz; allowed are: ") && said.contains("leaderworkersets"), "{said}");
    let output = up.run(&["delete", "pods"]);
    assert!(code(&output) == 2 && support::stderr(&output).contains("as in pods/NAME"), "{output:?}");
}

#[test]
fn the_commands_in_the_documents_work_as_written() {
    let up = Up::start();
    let mut ran = 0;
    for block in support::blocks().iter().filter(|block| block.runner == "segue-up") {
        for command in &block.commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            let [first, arguments @ ..] = words.as_slice() else { continue };
            assert_eq!(*first, "segue", "{}: nobody runs {command:?}", block.file);
            assert!(!up.says(arguments).is_empty(), "{}: {command} says nothing", block.file);
            ran += 1;
        }
    }
    assert!(ran >= 10, "only {ran} commands found");
}

/// A controller writes the status of an object at any moment; a user's verb must not fail because of it.
#[tokio::test]
async fn a_verb_goes_through_while_the_status_is_written_all_the_time() {
    let up = Up::start();
    up.says(&["apply", "-f", "examples/lws-startup-policy/processes.yaml"]);
    let client = up.client().await;
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let name = up.says(&["get", "lws", "-o", "name"]).trim().rsplit('/').next().unwrap().to_owned();
    let written = Arc::new(AtomicU32::new(0));
    let (counter, set) = (Arc::clone(&written), name.clone());
    let writer = tokio::spawn(async move {
        loop {
            let round = counter.fetch_add(1, Ordering::SeqCst);
            let patch = serde_json::json!({"status": {"hpaPodSelector": format!("round={round}")}});
            api.patch_status(&set, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    });
    let restart = ["restart".to_owned(), format!("lws/{name}")];
    for _ in 0..5 {
        let mut command = up.command(&restart.each_ref().map(String::as_str));
        let before = written.load(Ordering::SeqCst);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
        assert!(written.load(Ordering::SeqCst) > before, "nobody wrote meanwhile");
    }
    writer.abort();
}
