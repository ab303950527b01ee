//! Manifests, and what a watch of pods saw.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::stage::Stage;

/// What a revision and the pods of it are labelled with.
pub const REVISION: &str = "modelserving.volcano.sh/revision";

/// A ModelServing called `pd` with these roles: name, replicas, workers, image.
pub fn serving(groups: u32, roles: &[(&str, u32, u32, &str)]) -> Value {
    let pod = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    let role = |(name, replicas, workers, image): &(&str, u32, u32, &str)| {
        let mut role = json!({
            "name": name, "replicas": replicas, "workerReplicas": workers, "entryTemplate": pod(image),
        });
        if *workers > 0 {
            role["workerTemplate"] = pod(image);
        }
        role
    };
    json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": "pd", "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"}},
        "spec": {
            "replicas": groups,
            "schedulerName": "default-scheduler",
            "template": {"roles": roles.iter().map(role).collect::<Vec<_>>()},
        },
    })
}

/// Prefill and decode of one pod each, four replicas of both, with the proposal's steps.
pub fn pd(prefill: &str, decode: &str) -> Value {
    let mut serving = serving(1, &[("prefill", 4, 0, prefill), ("decode", 4, 0, decode)]);
    serving["spec"]["rolloutStrategy"] = json!({
        "type": "ServingGroupRollingUpdate",
        "rollingUpdateConfiguration": {"partition": 0, "roleUpgrade": {"steps": [
            {"role": "decode", "updateTo": 1},
            {"role": "prefill", "updateTo": 1},
            {"role": "prefill", "updateTo": "100%"},
            {"role": "decode", "updateTo": "100%"},
        ]}},
    });
    serving
}

/// Groups are replaced so.
pub fn rolling(mut serving: Value, configuration: &Value) -> Value {
    serving["spec"]["rolloutStrategy"] =
        json!({"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": configuration});
    serving
}

/// Waits until a pod is made from this image.
pub async fn made_from(stage: &Stage, pod: &str, image: &str) {
    stage
        .eventually("a pod is made from another template", || async {
            images(stage).await.get(pod).is_some_and(|it| it == image).then_some(())
        })
        .await;
}

/// Waits until a pod is another one than before, and so many groups serve again. What is missing is told
/// before anything is made in its place, so nobody counts what is gone.
pub async fn returned(stage: &Stage, pod: &str, before: &BTreeMap<String, String>, groups: u64) {
    stage
        .eventually("it is back, and the groups serve", || async {
            let now = uids(stage).await;
            let is_back = now.get(pod).is_some_and(|uid| before.get(pod) != Some(uid));
            (is_back && status(stage).await["availableReplicas"] == groups).then_some(())
        })
        .await;
}

/// Waits until so many groups serve and nothing is left to do.
pub async fn settled(stage: &Stage, groups: u64) -> Value {
    stage
        .eventually("every group serves and nothing is left to do", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            let whole = status["availableReplicas"] == groups && status["replicas"] == groups;
            (whole && status["message"].is_null() && status["currentRevision"] == status["updateRevision"])
                .then_some(status)
        })
        .await
}

pub async fn status(stage: &Stage) -> Value {
    stage.get("ModelServing", "pd").await.unwrap()["status"].clone()
}

/// What is said of a condition.
pub fn message(status: &Value, ty: &str) -> String {
    let found = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == ty);
    found.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned()
}

pub fn condition(status: &Value, ty: &str) -> String {
    let found = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == ty);
    found.map_or_else(|| "absent".to_owned(), |it| it["status"].as_str().unwrap().to_owned())
}

pub async fn pods(stage: &Stage) -> Vec<Pod> {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let ours = ListParams::default().labels("modelserving.volcano.sh/name=pd");
    api.list(&ours).await.unwrap().items
}

/// The names of all pods.
pub async fn names(stage: &Stage) -> Vec<String> {
    pods(stage).await.iter().map(ResourceExt::name_any).collect()
}

/// The uid of each pod.
pub async fn uids(stage: &Stage) -> BTreeMap<String, String> {
    pods(stage).await.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect()
}

/// The image of each pod.
pub async fn images(stage: &Stage) -> BTreeMap<String, String> {
    pods(stage).await.iter().map(|pod| (pod.name_any(), image(pod))).collect()
}

pub fn image(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

/// The reasons and notes of the events so far.
pub async fn events(stage: &Stage) -> Vec<(String, String)> {
    let api: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(stage.client.clone());
    let events = api.list(&ListParams::default()).await.unwrap();
    events.items.into_iter().map(|it| (it.reason.unwrap_or_default(), it.note.unwrap_or_default())).collect()
}

/// Changes fields of the ModelServing, as the autoscaler does.
pub async fn patch(stage: &Stage, patch: &Value) {
    let api =
        stage.api(&json!({"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing"}));
    api.patch(
        "pd",
        &PatchParams::default(),
        &Patch::Json::<()>(serde_json::from_value(patch.clone()).unwrap()),
    )
    .await
    .unwrap();
}

pub async fn delete_pod(stage: &Stage, name: &str) {
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

pub fn incarnation(pod: &Pod) -> &str {
    pod.annotations().get("segue.dev/incarnation").map_or("", String::as_str)
}

pub fn label(pod: &Pod, name: &str) -> String {
    pod.labels().get(&format!("modelserving.volcano.sh/{name}")).cloned().unwrap_or_default()
}

fn is(pod: &Pod, ty: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
}

/// A watch of pods that goes on until it is ended.
pub struct Watch {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<History>,
}

/// What was seen, event by event.
#[derive(Debug, Default)]
pub struct History {
    /// The fewest entries of each role of each group that served at once.
    pub fewest: BTreeMap<(String, String), usize>,
    /// The most role replicas of each role of each group that existed at once.
    pub most: BTreeMap<(String, String), usize>,
    /// The most groups that existed at once.
    pub most_groups: usize,
    /// The names and images of entries, as they were made.
    pub made: Vec<(String, String)>,
    /// Entries that were deleted while they were in service.
    pub deleted_in_service: Vec<String>,
    /// Entries that were Ready beside a pod of their replica that was made from something else.
    pub mixed: Vec<String>,
}

pub async fn watch(stage: &Stage) -> Watch {
    let (stop, stopped) = oneshot::channel();
    let api: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let pods = list.items.into_iter().map(|pod| (pod.name_any(), pod)).collect();
    let watching = tokio::spawn(follow(stage.client.clone(), version, pods, stopped));
    Watch { stop, watching }
}

impl Watch {
    pub async fn end(self) -> History {
        self.stop.send(()).unwrap();
        self.watching.await.unwrap()
    }
}

async fn follow(
    client: Client,
    version: String,
    mut pods: BTreeMap<String, Pod>,
    mut stopped: oneshot::Receiver<()>,
) -> History {
    let api: Api<Pod> = Api::default_namespaced(client);
    let mut history = History::default();
    history.judge(&pods);
    let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    loop {
        let event = tokio::select! {
            _ = &mut stopped => return history,
            event = events.next() => event.unwrap().unwrap(),
        };
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let before = pods.get(&pod.name_any()).filter(|before| before.uid() == pod.uid());
                let going = pod.metadata.deletion_timestamp.is_some();
                let was_there = before.is_some_and(|before| before.metadata.deletion_timestamp.is_none());
                if going && was_there && is(&pod, "segue.dev/in-service") {
                    history.deleted_in_service.push(pod.name_any());
                }
                if before.is_none() && label(&pod, "entry") == "true" {
                    history.made.push((pod.name_any(), image(&pod)));
                }
                pods.insert(pod.name_any(), pod);
            }
            WatchEvent::Deleted(pod) => drop(pods.remove(&pod.name_any())),
            _ => {}
        }
        history.judge(&pods);
    }
}

impl History {
    fn judge(&mut self, pods: &BTreeMap<String, Pod>) {
        let entries = || pods.values().filter(|pod| label(pod, "entry") == "true");
        let mut serving: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut there: BTreeMap<(String, String), usize> = BTreeMap::new();
        for pod in entries() {
            let role = (label(pod, "group-name"), label(pod, "role"));
            let serves = is(pod, "Ready") && pod.metadata.deletion_timestamp.is_none();
            *serving.entry(role.clone()).or_default() += usize::from(serves);
            *there.entry(role).or_default() += 1;
            let other = |it: &&Pod| {
                label(it, "role-id") == label(pod, "role-id")
                    && label(it, "group-name") == label(pod, "group-name")
                    && label(it, "role-template-hash") != label(pod, "role-template-hash")
            };
            if serves && pods.values().any(|it| other(&it)) {
                self.mixed.push(pod.name_any());
            }
        }
        let groups: std::collections::BTreeSet<String> =
            pods.values().map(|pod| label(pod, "group-name")).collect();
        self.most_groups = self.most_groups.max(groups.len());
        for (role, fewest) in &mut self.fewest {
            *fewest = (*fewest).min(serving.get(role).copied().unwrap_or_default());
        }
        for (role, count) in serving {
            self.fewest.entry(role).or_insert(count);
        }
        for (role, count) in there {
            let most = self.most.entry(role).or_default();
            *most = count.max(*most);
        }
    }

    pub fn fewest_of(&self, group: &str, role: &str) -> usize {
        self.fewest[&(group.to_owned(), role.to_owned())]
    }

    /// Nothing served while it was mixed, and nothing was deleted in service.
    pub fn is_clean(&self) {
        assert_eq!(self.mixed, Vec::<String>::new());
        assert_eq!(self.deleted_in_service, Vec::<String>::new());
    }
}
