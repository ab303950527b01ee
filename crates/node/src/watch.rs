//! One list and one watch of a kind, for ever: what is there, then every change.
use std::{collections::BTreeMap, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// How long to wait when the API does not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// A change, in the order of the API.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// All that there is; what is not in it is gone.
    All(Vec<K>),
    Here(Box<K>),
    Gone(Box<K>),
}

/// All objects of a kind by namespace and name.
pub(crate) type Known<K> = BTreeMap<(String, String), Arc<K>>;

impl<K: Resource> Change<K> {
    pub fn apply(self, known: &mut Known<K>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match self {
            Self::All(objects) => {
                *known = objects.into_iter().map(|object| (key(&object), Arc::new(object))).collect();
            }
            Self::Here(object) => drop(known.insert(key(&object), Arc::from(object))),
            Self::Gone(object) => drop(known.remove(&key(&object))),
        }
    }
}

/// Sends every change until nobody listens.
pub(crate) async fn follow<K>(objects: Api<K>, changes: mpsc::Sender<Change<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    while !changes.is_closed() {
        let Ok(list) = objects.list(&ListParams::default()).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let version = list.metadata.resource_version.unwrap_or_default();
        if changes.send(Change::All(list.items)).await.is_err() {
            return;
        }
        follow_from(&objects, version, &changes).await;
    }
}

/// Watches from a version until that version is too old or the API fails in another way.
async fn follow_from<K>(objects: &Api<K>, mut version: String, changes: &mpsc::Sender<Change<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    loop {
        let Ok(events) = objects.watch(&WatchParams::default(), &version).await else {
            tokio::time::sleep(AGAIN).await;
            return;
        };
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            let change = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    Change::Here(Box::new(object))
                }
                Ok(WatchEvent::Deleted(object)) => Change::Gone(Box::new(object)),
                Ok(WatchEvent::Bookmark(mark)) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(_)) | Err(_) => return,
            };
            let (Change::Here(object) | Change::Gone(object)) = &change else { continue };
            version = object.resource_version().unwrap_or(version);
            if changes.send(change).await.is_err() {
                return;
            }
        }
    }
}
