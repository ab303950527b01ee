//! The probes of the container that runs Ray: its raylet and, of the head, GCS. Never the proxy of Serve: a worker without
//! a replica of Serve fails that check by design.

use serde_json::{Value, json};

use super::{Node, command};

/// The first version of Ray whose agent answers for the node as a whole.
const UNIFIED: (u32, u32) = (2, 53);

/// Sets the probes that the container does not have.
pub(super) fn set(container: &mut Value, node: Node<'_>) {
    let params = command::params(node, container);
    let port = |name: &str, default: &str| params.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let agent = port("dashboard-agent-listen-port", "52365");
    let is_unified = version(node).is_some_and(|version| version >= UNIFIED);
    let check = if let (true, Ok(number)) = (is_unified, agent.parse::<u16>()) {
        json!({"httpGet": {"path": "/api/healthz", "port": number}})
    } else {
        let mut commands = asks(&agent, "local_raylet_healthz");
        if node.is_head() {
            let gcs = asks(&port("dashboard-port", "8265"), "gcs_healthz");
            commands = format!("{commands} && {gcs}");
        }
        json!({"exec": {"command": ["bash", "-c", commands]}})
    };
    let timeout = if node.is_head() { 5 } else { 2 };
    for (name, delay, failures) in [("livenessProbe", 30, 120), ("readinessProbe", 10, 10)] {
        if container[name].is_null() {
            let mut probe = check.clone();
            probe["initialDelaySeconds"] = delay.into();
            probe["timeoutSeconds"] = timeout.into();
            probe["periodSeconds"] = 5.into();
            probe["successThreshold"] = 1.into();
            probe["failureThreshold"] = failures.into();
            container[name] = probe;
        }
    }
}

fn asks(port: &str, what: &str) -> String {
    format!("wget --tries 1 -T 2 -q -O- http://localhost:{port}/api/{what} | grep success")
}

/// The version of Ray in the images, as two numbers.
fn version(node: Node<'_>) -> Option<(u32, u32)> {
    let text = node.cluster.spec.ray_version.as_deref()?;
    let mut numbers = text.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
