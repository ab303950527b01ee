//! What all parts of an agent share.
use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use crate::{events::Events, log::Outputs, names::Names, settings::Settings};

#[derive(Clone)]
pub(crate) struct Context {
    pub client: Client,
    pub settings: Settings,
    pub events: Events,
    pub outputs: Outputs,
    pub names: Arc<Names>,
}

impl Context {
    /// Where the volumes and working directories of a pod are.
    pub fn directory_of(&self, uid: &str) -> PathBuf {
        self.settings.directory.join("pods").join(uid)
    }
}

/// Namespace and name.
pub(crate) fn key(pod: &Pod) -> (&str, &str) {
    let meta = &pod.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// It has run and will not run again.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
