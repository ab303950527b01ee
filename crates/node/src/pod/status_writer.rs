//! Writes the status of a pod to the API when it differs from the stored one.
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{
    context::{key, uid},
    events::COMPONENT,
    pod::status::differs,
};

/// One pod in the API, with its last known state.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    pods: Api<Pod>,
    known: Arc<Pod>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    Yes,
    /// The pod is gone, or another one has its name.
    Gone,
    /// The write failed and must be tried again.
    No,
}

impl StatusWriter {
    pub fn new(client: &Client, pod: Arc<Pod>) -> Self {
        Self { pods: Api::namespaced(client.clone(), key(&pod).0), known: pod }
    }

    pub fn known(&self) -> &Arc<Pod> {
        &self.known
    }

    /// Stores the pod from the watch, unless the answer to an own write was newer.
    pub fn observe(&mut self, pod: &Arc<Pod>) {
        if version(pod) >= version(&self.known) {
            self.known = Arc::clone(pod);
        }
    }

    pub async fn write(&mut self, status: Value) -> WriteResult {
        if !differs(&status, self.known.status.as_ref()) {
            return WriteResult::Yes;
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid(&self.known)}, "status": status}));
        let params = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        match self.pods.patch_status(key(&self.known).1, &params, &patch).await {
            Ok(pod) => {
                self.known = Arc::new(pod);
                WriteResult::Yes
            }
            Err(error) => judge(&error),
        }
    }

    /// Deletes the pod with a grace period of 0. To be called when none of its processes runs.
    pub async fn delete(&self) -> WriteResult {
        let uid = self.known.metadata.uid.clone();
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match self.pods.delete(key(&self.known).1, &params).await {
            Ok(_) => WriteResult::Yes,
            Err(error) => judge(&error),
        }
    }
}

fn judge(error: &kube::Error) -> WriteResult {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => WriteResult::Gone,
        _ => WriteResult::No,
    }
}

/// The resourceVersion as a number: those of one object grow.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}
