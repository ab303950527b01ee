//! The node under a real control plane, which judges every write and takes a node without a Lease for dead.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use node::{Node, Settings, Shim};
use serde_json::json;
use testbed::{Cluster, eventually};
use tokio::sync::watch;

const SOON: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_pod_becomes_ready_and_goes_after_its_processes() {
    let cluster = Cluster::shared().await;
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        shim: Shim { program: PathBuf::from(env!("CARGO_BIN_EXE_pod-shim")) },
        heartbeat: Some(Duration::from_secs(10)),
        ..Settings::new("segue-node", directory.path())
    };
    let (stop, stopped) = watch::channel(false);
    let agent = tokio::spawn(Node::new(cluster.client(), settings).run(stopped));
    let namespace = cluster.namespace("node").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "none", "command": ["sleep", "1000"]}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    eventually("a pod accepted", SOON, async || pods.create(&PostParams::default(), &pod).await.ok())
        .await
        .unwrap();
    let ready = eventually("the pod ready", SOON, async || {
        let status = pods.get("p").await.unwrap().status?;
        let ready = status.conditions?.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        ready.then_some(status.pod_ip?)
    });
    assert!(ready.await.unwrap().starts_with("127.64."));
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    eventually("the pod gone", SOON, async || pods.get_opt("p").await.unwrap().is_none().then_some(()))
        .await
        .unwrap();
    stop.send_replace(true);
    agent.await.unwrap().unwrap();
}
