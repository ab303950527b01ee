//! A kind with nothing to it: a `Note` keeps a ConfigMap with its text, and tells the text to somebody outside.

mod object;

use std::sync::Arc;

use controllers::{
    Answer, Call, Error, Expects, Key, Requeue, Select, Watches,
    adopt::{Adoptable, Step},
    conditions::modeldeployment::PAUSED,
    kind::{Progress, Revisioned, Right, Served},
    pipeline::{Controller, Executor, Found, Inputs, Pipeline},
    rehearsal::NoPlan,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use planner::Time;
use serde_json::{Value, json};

pub use self::object::KIND;
use self::object::{Note, NoteStatus};

/// The kind.
pub static SERVED: Served = Served {
    kind: &KIND,
    label: LABEL,
    needs: &[],
    rights: &[&[Right::new("", "configmaps", "create, list, watch", "keep the text")]],
    other: None,
    progress: Progress { noted: &[PAUSED], paused: Some(PAUSED), ..Progress::WAITS },
    revisions: Some(Revisioned { label: REVISION, pods, back, marked, rolls: Some("Rewrite") }),
    requests: Notes::REQUESTS,
    adoptable: Some(|client, namespace| Box::pin(adoptable(client, namespace))),
    adoptable_named: None,
    plan: |_, _, _| Err(NoPlan::Nothing("a note is not rolled out".to_owned())),
    fits: None,
    not_acted_on: |_| Vec::new(),
    reconciler: &Pipeline::<Notes>::new(),
};

const LABEL: &str = "test.segue.dev/note";
const REVISION: &str = "test.segue.dev/revision";

/// The label of a pod that another operator made for a note.
const THEIRS: &str = "test.segue.dev/theirs";

fn pods(data: &Value) -> Vec<&Value> {
    vec![&data["spec"]["template"]]
}

fn back(data: &Value, _: &Value) -> Value {
    json!({"spec": data["spec"]})
}

fn marked(_: &Value, mark: &Value) -> Value {
    json!({"spec": {"template": mark}})
}

/// The pods that another operator made: they get the label of the note.
async fn adoptable(client: Client, namespace: String) -> Result<Vec<Adoptable>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let theirs = pods.list(&ListParams::default().labels(THEIRS)).await?;
    let adoptable = |pod: Pod| {
        let name = pod.labels()[THEIRS].clone();
        let labels = json!({"uid": pod.uid(), "labels": {THEIRS: null, LABEL: name}});
        let step = Step::Own { name: pod.name_any(), patch: json!({"metadata": labels}) };
        Adoptable { kind: &KIND, name, steps: Ok(vec![step]), outdated: Vec::new() }
    };
    Ok(theirs.into_iter().map(adoptable).collect())
}

struct Notes;

struct Observed {
    note: Arc<Note>,
    kept: Option<String>,
}

impl Controller for Notes {
    type Object = Note;
    type Observed = Observed;
    type Decision = bool;

    const REQUESTS: &'static [(&'static str, &'static str)] = &[("read", "it was read aloud")];
    const HAS_OTHER_OPERATORS: bool = true;

    fn kind() -> &'static api::Kind {
        &KIND
    }

    fn watches(watches: &mut Watches<'_>) {
        watches.own::<Note>();
        watches.controlled::<ConfigMap>(&KIND, Select::all());
    }

    fn observe(inputs: &Inputs<'_>, note: &Arc<Note>) -> Result<Found<Observed>, Error> {
        if note.spec.text == "secret" {
            return Ok(Found::NotServed("secrets are not kept in notes"));
        }
        let uid = note.uid().unwrap_or_default();
        let kept = inputs.cache.owned_by::<ConfigMap>(&uid).next().map(|map| map.name_any());
        Ok(Found::Observed(Observed { note: Arc::clone(note), kept }))
    }

    /// Whether it must be kept.
    fn decide(observed: &Observed, _: Time) -> bool {
        observed.kept.is_none()
    }

    fn needs_current_spec(_: &bool) -> bool {
        false
    }

    fn status(observed: &Observed, _: &bool, heard: &[Answer], _: Time) -> NoteStatus {
        let before = observed.note.status.clone().unwrap_or_default();
        let mut answered = heard.iter().filter_map(|answer| answer.result.as_ref().ok()?.as_str());
        NoteStatus {
            observed_generation: observed.note.metadata.generation.unwrap_or_default(),
            kept: observed.kept.clone(),
            answered: answered.next_back().map(ToOwned::to_owned).or(before.answered),
            conditions: before.conditions,
        }
    }

    fn calls(observed: &Observed, _: &bool) -> Vec<Call> {
        let text = &observed.note.spec.text;
        vec![Call {
            target: "reader".to_owned(),
            id: text.clone(),
            url: "http://reader".to_owned(),
            method: "PUT",
            body: Some(json!(text)),
            expects: Expects::Json,
        }]
    }

    async fn act(executor: &Executor<'_, Note>, observed: &Observed, must: &bool) -> Result<(), Error> {
        if !*must {
            return Ok(());
        }
        let note = &observed.note;
        let key = Key::of(note.as_ref()).beside(format!("{}-note", note.name_any()));
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {LABEL: note.spec.text},
                "ownerReferences": [kube::Resource::controller_owner_ref(note.as_ref(), &())],
            },
        });
        executor.create::<ConfigMap>(&key, &body).await.map(|_| ())
    }

    fn requeue(_: &Observed, _: &bool, _: Time) -> Requeue {
        Requeue::default()
    }
}
