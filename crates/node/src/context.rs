//! The client, settings and stores that all parts of an agent share.
use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use crate::{
    container::log::LogStore,
    events::Events,
    network::{hosts::HostsFiles, pod::Bridge},
    settings::Settings,
};

#[derive(Clone)]
pub(crate) struct Context {
    pub client: Client,
    pub settings: Settings,
    pub events: Events,
    pub logs: LogStore,
    pub hosts: Arc<HostsFiles>,
    /// Where pods have networks of their own.
    pub bridge: Option<Bridge>,
}

impl Context {
    /// The directory of a pod's volumes and of its containers' working directories.
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

/// Whether the pod is in a terminal phase.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
