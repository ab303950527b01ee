//! A kind that was added by a folder and one line has every command about rollouts, by its description alone.

use clap::Parser;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use testbed::Embedded;
use tokio::runtime::Runtime;

use super::rollout::history;
use crate::{
    Cli, Command,
    output::{Answer, Error},
    toy,
};

/// An API with one note, two revisions of it, and a pod that another operator made.
struct Notes {
    runtime: Runtime,
    api: Embedded,
}

impl Notes {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let api = runtime.block_on(Embedded::start()).unwrap();
        let notes = Self { runtime, api };
        notes.create(&toy::SERVED.kind.crd());
        let spec = |text: &str| json!({"text": text, "template": {"spec": {"containers": [{"name": "c", "image": text}]}}});
        let note = notes.create(&json!({
            "apiVersion": "test.segue.dev/v1", "kind": "Note", "metadata": {"name": "x"}, "spec": spec("two"),
        }));
        let status =
            json!({"status": {"currentRevision": "a", "updateRevision": "b", "observedGeneration": 1}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&status));
        notes.runtime.block_on(notes.of(&note).patch_status("x", &parameters, &patch)).unwrap();
        let owner = json!({"apiVersion": note["apiVersion"], "kind": "Note", "name": "x", "uid": note["metadata"]["uid"]});
        for (number, key, text) in [(1, "a", "one"), (2, "b", "two")] {
            notes.create(&json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
                "metadata": {
                    "name": format!("x-{key}"), "ownerReferences": [owner],
                    "labels": {"test.segue.dev/note": "x", "test.segue.dev/revision": key},
                },
                "data": {"spec": spec(text)},
            }));
        }
        notes.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"test.segue.dev/theirs": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }));
        notes
    }

    fn of(&self, object: &Value) -> Api<DynamicObject> {
        let version = object["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&gvk);
        let _inside = self.runtime.enter();
        if gvk.kind == "CustomResourceDefinition" {
            return Api::all_with(self.api.client(), &resource);
        }
        Api::namespaced_with(self.api.client(), "default", &resource)
    }

    fn create(&self, object: &Value) -> Value {
        let typed = serde_json::from_value(object.clone()).unwrap();
        let created = self.runtime.block_on(self.of(object).create(&PostParams::default(), &typed));
        json!(created.unwrap())
    }

    fn get(&self, version: &str, kind: &str, name: &str) -> Value {
        let api = self.of(&json!({"apiVersion": version, "kind": kind}));
        json!(self.runtime.block_on(api.get(name)).unwrap())
    }

    fn note(&self) -> Value {
        self.get("test.segue.dev/v1", "Note", "x")
    }

    fn parsed(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.api.kubeconfig();
        let all = ["segue"].into_iter().chain(arguments.iter().copied());
        Cli::try_parse_from(all.chain(["--kubeconfig", kubeconfig.to_str().unwrap()])).unwrap().command
    }

    /// Runs a command as a person does.
    fn segue(&self, arguments: &[&str]) -> Result<Answer, Error> {
        crate::run(self.parsed(arguments))
    }
}

#[test]
fn a_kind_that_was_added_has_a_history_and_goes_back() {
    let notes = Notes::start();
    let Command::History(args) = notes.parsed(&["history", "note/x"]) else { panic!("it is a history") };
    let Ok(rows) = notes.runtime.block_on(history::rows(&args)) else { panic!("there is no history") };
    let told: Vec<Value> =
        rows.iter().map(|row| json!([row["revision"], row["is"], row["images"]])).collect();
    assert_eq!(told, [json!([2, ["wanted"], "two"]), json!([1, ["current"], "one"])]);
    assert_eq!(notes.segue(&["undo", "note/x"]).unwrap(), Answer::Yes);
    assert_eq!(notes.note()["spec"]["text"], "one");
    assert_eq!(notes.segue(&["undo", "note/x", "--to", "7"]).unwrap(), Answer::No);
}

#[test]
fn a_kind_that_was_added_is_restarted_paused_and_resumed() {
    let notes = Notes::start();
    assert_eq!(notes.segue(&["restart", "note/x"]).unwrap(), Answer::Yes);
    let annotations = notes.note()["spec"]["template"]["metadata"]["annotations"].clone();
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "{annotations}");
    let partition = |note: Value| {
        let strategy = note["spec"]["rolloutStrategy"].clone();
        (strategy["type"].clone(), strategy["rollingUpdateConfiguration"]["partition"].clone())
    };
    assert_eq!(notes.segue(&["pause", "note/x"]).unwrap(), Answer::Yes);
    assert_eq!(partition(notes.note()), (json!("Rewrite"), json!(1)));
    assert_eq!(notes.segue(&["why", "note/x"]).unwrap(), Answer::No, "it is paused");
    assert_eq!(notes.segue(&["resume", "note/x"]).unwrap(), Answer::Yes);
    assert_eq!(partition(notes.note()), (json!("Rewrite"), json!(0)));
}

#[test]
fn a_kind_that_was_added_is_adopted() {
    let notes = Notes::start();
    let labels = || notes.get("v1", "Pod", "p")["metadata"]["labels"].clone();
    assert_eq!(notes.segue(&["adopt", "note/x", "--dry-run"]).unwrap(), Answer::Yes);
    assert_eq!(labels(), json!({"test.segue.dev/theirs": "x"}), "nothing is written");
    assert_eq!(notes.segue(&["adopt", "note/x"]).unwrap(), Answer::Yes);
    assert_eq!(labels(), json!({"test.segue.dev/note": "x"}));
}
