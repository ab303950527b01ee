//! Admission: which pods this node cannot run, known before a container starts. Pure.
use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::volume;

/// Why a pod is rejected: a reason for programs, and a message that names the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub reason: &'static str,
    pub message: String,
}

pub(crate) fn rejection(spec: &PodSpec) -> Option<Rejection> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let reject = |reason, message| Some(Rejection { reason, message });
    if let Some(sidecar) = init.iter().find(|c| c.restart_policy.is_some()) {
        let message =
            format!("init container {} is a sidecar; this node runs none: make it a container", sidecar.name);
        return reject("SidecarNotSupported", message);
    }
    let mut all = init.iter().chain(&spec.containers);
    if let Some(imageonly) = all.clone().find(|c| c.command.as_deref().unwrap_or_default().is_empty()) {
        let message = format!(
            "container {} has no command; this node runs programs of this machine, not the image {}: set `command`",
            imageonly.name,
            imageonly.image.as_deref().unwrap_or_default(),
        );
        return reject("ImageNotRunnable", message);
    }
    if let Some(hooked) = all.find(|container| has_post_start(container)) {
        let message = format!("container {} has a postStart hook; this node knows only preStop", hooked.name);
        return reject("HookNotSupported", message);
    }
    let volume = volume::unsupported(spec)?;
    let message = format!(
        "volume {volume} needs a mount; this node knows emptyDir, hostPath, configMap, secret, downwardAPI and projected"
    );
    reject("VolumeNotSupported", message)
}

fn has_post_start(container: &Container) -> bool {
    container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.post_start.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reason(spec: Value) -> Option<&'static str> {
        rejection(&serde_json::from_value(spec).unwrap()).map(|rejected| rejected.reason)
    }

    #[test]
    fn only_what_can_be_run_as_processes_is_taken() {
        let runs = json!({"name": "c", "command": ["sh"]});
        assert_eq!(reason(json!({"containers": [runs]})), None);
        assert_eq!(reason(json!({"containers": [{"name": "c", "image": "x"}]})), Some("ImageNotRunnable"));
        let sidecar = json!({"name": "s", "command": ["sh"], "restartPolicy": "Always"});
        let spec = json!({"initContainers": [sidecar], "containers": [runs]});
        assert_eq!(reason(spec), Some("SidecarNotSupported"));
        let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "x"}});
        let spec = json!({"containers": [runs], "volumes": [{"name": "a", "emptyDir": {}}, claim]});
        assert_eq!(reason(spec), Some("VolumeNotSupported"));
    }
}
