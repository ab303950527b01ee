//! Pods that this node cannot run, told before anything of them is started. Pure.
use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::volume;

/// A reason for machines and a message for people, who learn what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub reason: &'static str,
    pub message: String,
}

pub(crate) fn refusal(spec: &PodSpec) -> Option<Refused> {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let refuse = |reason, message| Some(Refused { reason, message });
    if let Some(sidecar) = init.iter().find(|c| c.restart_policy.is_some()) {
        let message =
            format!("init container {} is a sidecar; this node runs none: make it a container", sidecar.name);
        return refuse("SidecarNotSupported", message);
    }
    let mut all = init.iter().chain(&spec.containers);
    if let Some(imageonly) = all.clone().find(|c| c.command.as_deref().unwrap_or_default().is_empty()) {
        let message = format!(
            "container {} has no command; this node runs programs of this machine and no images (here {:?} is only a \
             name): set `command` to a program",
            imageonly.name,
            imageonly.image.as_deref().unwrap_or_default(),
        );
        return refuse("ImageNotRunnable", message);
    }
    if let Some(hooked) = all.find(|container| has_post_start(container)) {
        let message = format!("container {} has a postStart hook; this node knows only preStop", hooked.name);
        return refuse("HookNotSupported", message);
    }
    let volume = volume::unsupported(spec)?;
    let message = format!(
        "volume {volume} needs a mount; this node knows emptyDir, hostPath, configMap, secret, downwardAPI and projected"
    );
    refuse("VolumeNotSupported", message)
}

fn has_post_start(container: &Container) -> bool {
    container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.post_start.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reason(spec: Value) -> Option<&'static str> {
        refusal(&serde_json::from_value(spec).unwrap()).map(|refused| refused.reason)
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
