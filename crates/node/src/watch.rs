//! One list and one watch of a kind, for ever: what is there, then every change.
use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::sync::mpsc;

/// How long to wait when the API does not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// A change, in the order of the API.
#[derive(Debug)]
pub(crate) enum Change {
    /// All that there is; what is not in it is gone.
    All(Vec<Pod>),
    Here(Box<Pod>),
    Gone(Box<Pod>),
}

/// Sends every change until nobody listens.
pub(crate) async fn follow(pods: Api<Pod>, changes: mpsc::Sender<Change>) {
    while !changes.is_closed() {
        let Ok(list) = pods.list(&ListParams::default()).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let version = list.metadata.resource_version.unwrap_or_default();
        if changes.send(Change::All(list.items)).await.is_err() {
            return;
        }
        follow_from(&pods, version, &changes).await;
    }
}

/// Watches from a version until that version is too old or the API fails in another way.
async fn follow_from(pods: &Api<Pod>, mut version: String, changes: &mpsc::Sender<Change>) {
    loop {
        let Ok(events) = pods.watch(&WatchParams::default(), &version).await else {
            tokio::time::sleep(AGAIN).await;
            return;
        };
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            let change = match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => Change::Here(Box::new(pod)),
                Ok(WatchEvent::Deleted(pod)) => Change::Gone(Box::new(pod)),
                Ok(WatchEvent::Bookmark(mark)) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(_)) | Err(_) => return,
            };
            let (Change::Here(pod) | Change::Gone(pod)) = &change else { continue };
            version = pod.metadata.resource_version.clone().unwrap_or(version);
            if changes.send(change).await.is_err() {
                return;
            }
        }
    }
}
