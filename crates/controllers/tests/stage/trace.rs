//! What a watch of pods saw, judged event by event.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// A watch of pods that goes on until it is ended.
pub struct Trace {
    stop: oneshot::Sender<()>,
    judging: JoinHandle<Seen>,
}

/// What was seen.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The fewest leaders that were Ready at once.
    pub least_serving: usize,
    /// The most groups that existed at once, those on their way out included.
    pub most_groups: usize,
    /// Pods that were deleted while they were in service.
    pub deleted_in_service: Vec<String>,
    /// Leaders that were Ready beside a pod of another revision.
    pub mixed_groups_ready: Vec<String>,
    pods: Pods,
}

#[derive(Default, Clone)]
struct Pods(BTreeMap<String, Pod>);

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.keys().fmt(f)
    }
}

impl Trace {
    pub fn begin(client: Client) -> Self {
        let (stop, stopped) = oneshot::channel();
        let judging = tokio::spawn(follow(client, stopped));
        Self { stop, judging }
    }

    pub async fn end(self) -> Seen {
        self.stop.send(()).unwrap();
        self.judging.await.unwrap()
    }
}

async fn follow(client: Client, mut stopped: oneshot::Receiver<()>) -> Seen {
    let api: Api<Pod> = Api::default_namespaced(client);
    let list = api.list(&kube::api::ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let mut seen = Seen { least_serving: usize::MAX, ..Seen::default() };
    for pod in list.items {
        seen.pods.0.insert(pod.name_any(), pod);
    }
    seen.judge();
    let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    loop {
        let event = tokio::select! {
            _ = &mut stopped => return seen,
            event = events.next() => event.unwrap().unwrap(),
        };
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => seen.learn(pod),
            WatchEvent::Deleted(pod) => drop(seen.pods.0.remove(&pod.name_any())),
            _ => {}
        }
        seen.judge();
    }
}

fn is(pod: &Pod, ty: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
}

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.labels().get(name).map(String::as_str).unwrap_or_default()
}

const GROUP: &str = "leaderworkerset.sigs.k8s.io/group-key";
const WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";

impl Seen {
    fn learn(&mut self, pod: Pod) {
        let name = pod.name_any();
        let before = self.pods.0.get(&name);
        let is_new = before.is_none_or(|before| before.metadata.deletion_timestamp.is_none());
        let is_going = pod.metadata.deletion_timestamp.is_some();
        if is_going && is_new && is(&pod, "segue.dev/in-service") {
            self.deleted_in_service.push(name.clone());
        }
        self.pods.0.insert(name, pod);
    }

    fn judge(&mut self) {
        let groups: BTreeSet<&str> = self.pods.0.values().map(|pod| label(pod, GROUP)).collect();
        self.most_groups = self.most_groups.max(groups.len());
        let serves = |pod: &&Pod| {
            label(pod, WORKER) == "0" && is(pod, "Ready") && pod.metadata.deletion_timestamp.is_none()
        };
        let serving: Vec<&Pod> = self.pods.0.values().filter(serves).collect();
        self.least_serving = self.least_serving.min(serving.len());
        for leader in serving {
            let mixed = |pod: &&Pod| {
                label(pod, GROUP) == label(leader, GROUP) && label(pod, REVISION) != label(leader, REVISION)
            };
            if self.pods.0.values().any(|pod| mixed(&pod)) {
                self.mixed_groups_ready.push(leader.name_any());
            }
        }
    }
}
