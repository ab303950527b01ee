//! Writes what the agent knows of a pod into the API, when it differs from what is there.
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
    status::differs,
};

/// One pod in the API, as it was last seen.
#[derive(Debug)]
pub(crate) struct Journal {
    pods: Api<Pod>,
    known: Arc<Pod>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// The pod is gone, or another one has its name.
    Gone,
    /// The API did not take it; to be tried again.
    No,
}

impl Journal {
    pub fn new(client: &Client, pod: Arc<Pod>) -> Self {
        Self { pods: Api::namespaced(client.clone(), key(&pod).0), known: pod }
    }

    pub fn known(&self) -> &Arc<Pod> {
        &self.known
    }

    /// Takes what the watch brings, unless an answer to an own write was newer.
    pub fn learn(&mut self, pod: &Arc<Pod>) {
        if version(pod) >= version(&self.known) {
            self.known = Arc::clone(pod);
        }
    }

    pub async fn write(&mut self, status: Value) -> Written {
        if !differs(&status, self.known.status.as_ref()) {
            return Written::Yes;
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid(&self.known)}, "status": status}));
        let params = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        match self.pods.patch_status(key(&self.known).1, &params, &patch).await {
            Ok(pod) => {
                self.known = Arc::new(pod);
                Written::Yes
            }
            Err(error) => judge(&error),
        }
    }

    /// Takes the pod out of the API: nothing of it runs any more.
    pub async fn delete(&self) -> Written {
        let uid = self.known.metadata.uid.clone();
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match self.pods.delete(key(&self.known).1, &params).await {
            Ok(_) => Written::Yes,
            Err(error) => judge(&error),
        }
    }
}

fn judge(error: &kube::Error) -> Written {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Written::Gone,
        _ => Written::No,
    }
}

/// Versions of one object are numbers that grow.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}
