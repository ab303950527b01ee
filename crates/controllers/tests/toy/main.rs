//! A kind is a folder, and one line in a list: this one has what every kind has, and none of it is its own.
#![allow(clippy::unwrap_used, clippy::panic)]

mod note;
#[path = "../stage/mod.rs"]
mod stage;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use controllers::{Answer, Call, DataPlane, ObjectId, Outside, Settings, kind::Served};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use stage::Stage;
use tokio::sync::{broadcast, watch};

/// Every kind.
static KINDS: &[&Served] = &[&note::SERVED];

/// Somebody outside who answers what is told with the same words, when the test lets him.
#[derive(Debug)]
struct Reader {
    changes: watch::Sender<u64>,
    answers: broadcast::Sender<ObjectId>,
    told: Mutex<BTreeMap<ObjectId, Vec<Call>>>,
    heard: Mutex<BTreeMap<ObjectId, Vec<Answer>>>,
}

impl Default for Reader {
    fn default() -> Self {
        let (changes, answers) = (watch::channel(0).0, broadcast::channel(16).0);
        Self { changes, answers, told: Mutex::default(), heard: Mutex::default() }
    }
}

impl Reader {
    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().values().flatten().map(|call| call.id.clone()).collect()
    }

    /// Answers everything that was told.
    fn answer(&self) {
        for (id, calls) in self.told.lock().unwrap().iter() {
            let answer = |call: &Call| Answer {
                target: call.target.clone(),
                id: call.id.clone(),
                at: Duration::from_secs(1),
                result: Ok(call.body.clone().unwrap_or_default()),
            };
            self.heard.lock().unwrap().insert(id.clone(), calls.iter().map(answer).collect());
            self.answers.send(id.clone()).unwrap();
        }
    }
}

impl Outside for Reader {
    fn data_plane(&self) -> Option<DataPlane> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self, object: &ObjectId, calls: &[Call]) {
        self.told.lock().unwrap().insert(object.clone(), calls.to_vec());
    }

    fn forget(&self, controller: &'static str, key: &controllers::Key) {
        let is_other = |id: &ObjectId| (id.controller, &id.key) != (controller, key);
        self.told.lock().unwrap().retain(|id, _| is_other(id));
        self.heard.lock().unwrap().retain(|id, _| is_other(id));
    }

    fn heard(&self, object: &ObjectId) -> Vec<Answer> {
        self.heard.lock().unwrap().get(object).cloned().unwrap_or_default()
    }

    fn answers(&self) -> Option<broadcast::Receiver<ObjectId>> {
        Some(self.answers.subscribe())
    }
}

async fn stage() -> (Stage, Arc<Reader>) {
    let reader = Arc::new(Reader::default());
    let settings = Settings { kinds: KINDS.to_vec(), ..stage::settings() };
    let stage = Stage::with(Arc::clone(&reader) as Arc<dyn Outside>, settings).await;
    for served in KINDS {
        stage.apply(&served.kind.crd()).await;
    }
    (stage, reader)
}

fn wanted(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "test.segue.dev/v1",
        "kind": "Note",
        "metadata": {"name": name},
        "spec": {"text": text},
    })
}

/// The status of a note, when it says this.
async fn says(stage: &Stage, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    stage
        .eventually(what, || async {
            let note = stage.get("Note", name).await?;
            let is_observed = note["status"]["observedGeneration"] == note["metadata"]["generation"];
            (is_observed && is_so(&note["status"])).then(|| note["status"].clone())
        })
        .await
}

fn holds<'a>(status: &'a Value, ty: &str) -> Option<&'a Value> {
    let mut all = status["conditions"].as_array()?.iter();
    all.find(|it| it["type"] == ty && it["status"] == "True")
}

async fn event(stage: &Stage, reason: &str) -> String {
    stage
        .eventually(reason, || async {
            let mut events = stage.list("Event").await.into_iter().map(|it| json!(it));
            events
                .find(|event| event["reason"] == reason)
                .map(|event| event["note"].as_str().unwrap().to_owned())
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_added_runs() {
    let (stage, _) = stage().await;
    stage.apply(&wanted("x", "hello")).await;
    says(&stage, "x", "it is kept", |status| status["kept"] == "x-note").await;
    // Nothing changes, nothing is written.
    stage.quiet().await;
    let version = stage.revision().await;
    stage.quiet().await;
    assert_eq!(stage.changed_since(version).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_the_api_refuses_is_a_condition_and_an_event_until_it_is_over() {
    let (stage, _) = stage().await;
    stage.apply(&wanted("x", "no value of a label")).await;
    let status = says(&stage, "x", "it says so", |it| holds(it, "WritesRefused").is_some()).await;
    let condition = holds(&status, "WritesRefused").unwrap();
    assert_eq!(condition["reason"], "FailedCreate");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("ConfigMap default/x-note"), "{message}");
    assert_eq!(event(&stage, "FailedCreate").await, message);
    stage.apply(&wanted("x", "value")).await;
    let over = |status: &Value| status["kept"] == "x-note" && holds(status, "WritesRefused").is_none();
    says(&stage, "x", "it is over", over).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_a_condition_and_an_event() {
    let (stage, _) = stage().await;
    stage.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x-note"}})).await;
    let before = stage.get("ConfigMap", "x-note").await.unwrap();
    stage.apply(&wanted("x", "hello")).await;
    let status = says(&stage, "x", "it says so", |it| holds(it, "NamesTaken").is_some()).await;
    let message = holds(&status, "NamesTaken").unwrap()["message"].as_str().unwrap();
    assert!(message.contains("ConfigMap default/x-note"), "{message}");
    assert_eq!(event(&stage, "NamesTaken").await, message);
    assert_eq!(stage.get("ConfigMap", "x-note").await.unwrap(), before, "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_says_so_and_nothing_of_before() {
    let (stage, _) = stage().await;
    stage.apply(&wanted("x", "no value of a label")).await;
    says(&stage, "x", "it is refused", |it| holds(it, "WritesRefused").is_some()).await;
    stage.apply(&wanted("x", "secret")).await;
    let status = says(&stage, "x", "it is not served", |it| holds(it, "NotServed").is_some()).await;
    assert!(holds(&status, "WritesRefused").is_none(), "nothing is written any more: {status}");
    stage.apply(&wanted("x", "hello")).await;
    let served = |status: &Value| status["kept"] == "x-note" && holds(status, "NotServed").is_none();
    says(&stage, "x", "it is served", served).await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_and_those_that_there_are_not_refused() {
    let (stage, _) = stage().await;
    for (verb, answer) in
        [("read", "it was read aloud"), ("sing", "unknown verb sing for a Note (known: read)")]
    {
        let mut note = wanted("x", "hello");
        let request = json!({"id": verb, "verb": verb}).to_string();
        note["metadata"]["annotations"] = json!({"segue.dev/request": request});
        stage.apply(&note).await;
        stage
            .eventually("it is answered", || async {
                let note = stage.get("Note", "x").await?;
                let text = note["metadata"]["annotations"]["segue.dev/response"].as_str()?.to_owned();
                text.contains(answer).then_some(())
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_another_operator_works_on_it_nothing_is_done() {
    let (stage, _) = stage().await;
    stage.apply(&wanted("x", "hello")).await;
    says(&stage, "x", "it is kept", |status| status["kept"] == "x-note").await;
    let note = wanted("x", "");
    let theirs = json!({"status": {"answered": "theirs"}});
    let parameters = PatchParams { field_manager: Some("another".to_owned()), ..PatchParams::default() };
    stage.api(&note).patch_status("x", &parameters, &Patch::Merge(&theirs)).await.unwrap();
    assert!(event(&stage, "AnotherOperator").await.contains("(another)"));
    stage.delete("ConfigMap", "x-note").await;
    stage.quiet().await;
    assert_eq!(stage.get("ConfigMap", "x-note").await, None);
}

/// What is told is told by itself; what is answered counts when it is in the status.
#[tokio::test(start_paused = true)]
async fn calls_go_outside_and_their_answers_are_in_the_status() {
    let (stage, reader) = stage().await;
    stage.apply(&wanted("x", "hello")).await;
    let status = says(&stage, "x", "it is kept", |status| status["kept"] == "x-note").await;
    assert_eq!(status["answered"], Value::Null, "nobody waits for an answer");
    assert_eq!(reader.told(), ["hello"]);
    reader.answer();
    says(&stage, "x", "it was heard", |status| status["answered"] == "hello").await;
    // What is not wanted any more is not told any more.
    stage.delete("Note", "x").await;
    stage.eventually("it is forgotten", || async { reader.told().is_empty().then_some(()) }).await;
}
