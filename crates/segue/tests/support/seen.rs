//! What a watch of the pods of a ModelServing saw, event by event.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// What of the name of an entry is its own: `decode-3` of `pd-0-decode-3-0`.
pub fn short(name: &str) -> String {
    name["pd-0-".len()..name.len() - "-0".len()].to_owned()
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Entries in the order in which they were made.
    pub made: Vec<String>,
    /// The fewest of each role that were Ready at once.
    pub fewest: BTreeMap<String, usize>,
    /// The most revisions that had a Ready prefill and a Ready decode in one group at once.
    pub most_pairs: usize,
    /// Prefills that were Ready when no decode of their revision in their group was.
    pub alone: BTreeSet<String>,
}

impl Seen {
    /// Pairs as a router can: by the labels of pods, and by nothing else.
    fn judge(&mut self, pods: &BTreeMap<String, Pod>) {
        let label = |pod: &Pod, name: &str| {
            pod.labels().get(&format!("modelserving.volcano.sh/{name}")).cloned().unwrap_or_default()
        };
        let ready = || pods.values().filter(|pod| is_ready(pod));
        let of_role = |role: &'static str| ready().filter(move |pod| label(pod, "role") == role);
        let revision = |pod: &Pod| (label(pod, "group-name"), label(pod, "revision"));
        let decodes: BTreeSet<_> = of_role("decode").map(revision).collect();
        let prefills: BTreeSet<_> = of_role("prefill").map(revision).collect();
        self.most_pairs = self.most_pairs.max(decodes.intersection(&prefills).count());
        let alone = of_role("prefill").filter(|pod| !decodes.contains(&revision(pod)));
        self.alone.extend(alone.map(ResourceExt::name_any));
        for role in ["prefill", "decode"] {
            let count = of_role(role).count();
            let fewest = self.fewest.entry(role.to_owned()).or_insert(count);
            *fewest = count.min(*fewest);
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
        && pod.metadata.deletion_timestamp.is_none()
}

/// A watch that goes on until it is ended.
pub struct Watch {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<Seen>,
}

impl Watch {
    pub async fn start(client: Client) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let api: Api<Pod> = Api::default_namespaced(client);
        let list = api.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let mut pods: BTreeMap<String, Pod> =
            list.items.into_iter().map(|pod| (pod.name_any(), pod)).collect();
        let watching = tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
            loop {
                seen.judge(&pods);
                let event = tokio::select! {
                    _ = &mut stopped => return seen,
                    event = events.next() => event.unwrap().unwrap(),
                };
                match event {
                    WatchEvent::Added(pod) => {
                        seen.made.push(short(&pod.name_any()));
                        pods.insert(pod.name_any(), pod);
                    }
                    WatchEvent::Modified(pod) => drop(pods.insert(pod.name_any(), pod)),
                    WatchEvent::Deleted(pod) => drop(pods.remove(&pod.name_any())),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(error) => panic!("{error}"),
                }
            }
        });
        Self { stop, watching }
    }

    pub async fn end(self) -> Seen {
        self.stop.send(()).unwrap();
        self.watching.await.unwrap()
    }
}
