//! The event recorder. A repeated event raises the count of the first.
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

/// The field manager and event source of the agent.
pub(crate) const COMPONENT: &str = "segue-node";

/// Records events without waiting. When the API is slow, events are lost.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    host: String,
    now: fn() -> Timestamp,
}

impl Events {
    /// Returns the recorder and the task that writes its events.
    pub fn new(
        client: Client,
        host: &str,
        now: fn() -> Timestamp,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, mut written) = mpsc::channel::<Event>(256);
        let writing = async move {
            while let Some(event) = written.recv().await {
                // An event that cannot be written is lost; pods do not depend on it.
                drop(write(&client, event).await);
            }
        };
        (Self { queue, host: host.to_owned(), now }, writing)
    }

    pub fn normal(&self, pod: &Pod, reason: &str, message: &str) {
        self.send(pod, "Normal", reason, message);
    }

    pub fn warning(&self, pod: &Pod, reason: &str, message: &str) {
        self.send(pod, "Warning", reason, message);
    }

    fn send(&self, pod: &Pod, kind: &str, reason: &str, message: &str) {
        let now = Some(Time((self.now)()));
        let meta = &pod.metadata;
        let pod_name = meta.name.as_deref().unwrap_or_default();
        // The name follows from the content: a repeated event has the same name, after a restart of the agent too.
        let mut hasher = DefaultHasher::new();
        (meta.uid.as_deref(), kind, reason, message).hash(&mut hasher);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{pod_name}.{:016x}", hasher.finish())),
                namespace: meta.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                uid: meta.uid.clone(),
                ..ObjectReference::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: now.clone(),
            last_timestamp: now,
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        };
        drop(self.queue.try_send(event));
    }
}

async fn write(client: &Client, event: Event) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let name = event.metadata.name.clone().unwrap_or_default();
    let Some(before) = events.get_opt(&name).await? else {
        return events.create(&PostParams::default(), &event).await.map(drop);
    };
    let again = json!({"count": before.count.unwrap_or(1) + 1, "lastTimestamp": event.last_timestamp});
    events.patch(&name, &PatchParams::default(), &Patch::Merge(again)).await.map(drop)
}
