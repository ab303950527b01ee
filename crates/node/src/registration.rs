//! The Node object and its Lease.
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{events::COMPONENT, network::address::HOST, settings::Settings};

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";

/// The labels that pods can select by.
pub(crate) fn labels(settings: &Settings) -> std::collections::BTreeMap<String, String> {
    let mut labels = settings.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), settings.name.clone());
    labels.insert("kubernetes.io/os".to_owned(), std::env::consts::OS.to_owned());
    labels.insert("kubernetes.io/arch".to_owned(), std::env::consts::ARCH.to_owned());
    labels
}

/// Creates the Node or brings it up to date.
pub(crate) async fn register(client: &Client, settings: &Settings) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": settings.name, "labels": labels(settings)},
    });
    let apply = PatchParams::apply(COMPONENT).force();
    let node = nodes.patch(&settings.name, &apply, &Patch::Apply(node)).await?;
    let status = json!({"status": status(settings, &node, (settings.now)())});
    nodes.patch_status(&settings.name, &PatchParams::default(), &Patch::Strategic(status)).await.map(drop)
}

fn status(settings: &Settings, node: &Node, now: Timestamp) -> Value {
    let capacity = settings.capacity.written();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let before =
        conditions.into_iter().find(|condition| condition.type_ == "Ready" && condition.status == "True");
    let since = before.and_then(|ready| ready.last_transition_time.clone()).unwrap_or(Time(now));
    json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": HOST.to_string()},
            {"type": "Hostname", "address": settings.name},
        ],
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "AgentReady",
            "message": "the agent runs pods as processes of this machine",
            "lastTransitionTime": since,
            "lastHeartbeatTime": Time(now),
        }],
        "nodeInfo": {
            "architecture": std::env::consts::ARCH,
            "operatingSystem": std::env::consts::OS,
            "osImage": "",
            "kernelVersion": "",
            "bootID": "",
            "machineID": "",
            "systemUUID": "",
            "containerRuntimeVersion": "segue-processes://1",
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "+segue-node"),
            "kubeProxyVersion": "",
        },
    })
}

/// Renews the node's Lease every `heartbeat`; returns at once if there is none.
pub(crate) async fn renew_lease(client: Client, settings: Settings) {
    let Some(period) = settings.heartbeat else { return };
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let mut beats = tokio::time::interval(period);
    loop {
        beats.tick().await;
        let lease = Lease {
            metadata: ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(settings.name.clone()),
                lease_duration_seconds: Some(40),
                renew_time: Some(MicroTime((settings.now)())),
                ..LeaseSpec::default()
            }),
        };
        let apply = PatchParams::apply(COMPONENT).force();
        // A renewal that fails is followed by the next one.
        drop(leases.patch(&settings.name, &apply, &Patch::Apply(&lease)).await);
    }
}
