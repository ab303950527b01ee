//! Serving groups on a real kube-apiserver, counted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod real;

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst, time::Duration};

use api::modelserving::ModelServing;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, ResourceExt,
    api::{EvictParams, ListParams},
};
use serde_json::{Value, json};
use testbed::{Cluster, eventually};

use self::real::Stage;

/// For eight hundred pods on a busy machine.
const LONG: Duration = Duration::from_mins(10);

/// So many groups of two roles, each of an entry and three workers.
fn serving(name: &str, groups: u32) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let role = |name: &str| json!({"name": name, "replicas": 1, "workerReplicas": 3, "entryTemplate": pod, "workerTemplate": pod});
    json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": name},
        "spec": {
            "replicas": groups,
            "schedulerName": "default-scheduler",
            "template": {"roles": [role("prefill"), role("decode")]},
        },
    })
}

async fn available(servings: Api<ModelServing>, name: &str, groups: u32) {
    eventually(&format!("{groups} groups of {name}"), LONG, async || {
        let status = servings.get(name).await.unwrap().status?;
        let status = serde_json::to_value(status).unwrap();
        (status["availableReplicas"] == groups && status["message"].is_null()).then_some(())
    })
    .await
    .unwrap();
}

/// How often each method was used on each resource.
fn counted(writes: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        let (method, path) = write.split_once(' ').unwrap();
        let resource = path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').nth(1)).unwrap();
        let part = if path.ends_with("/status") { "/status" } else { "" };
        *counts.entry(format!("{method} {resource}{part}")).or_default() += 1;
    }
    counts
}

/// The same takes Kthena 1,200 requests one after the other, at five a second.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn eight_hundred_pods_are_made_side_by_side_each_once_and_then_nothing_is_written() {
    let mut stage = Stage::start().await;
    stage.apply::<ModelServing>(&stage.namespace, &serving("pd", 100)).await;
    available(stage.api(), "pd", 100).await;
    let (counts, most) = (counted(&stage.writes()), stage.asked.most.load(SeqCst));
    println!("{}", json!({"pods": 800, "mostAtOnce": most, "requests": counts}));
    assert_eq!((counts["POST pods"], counts["POST services"]), (800, 200), "{counts:?}");
    assert!(!counts.contains_key("DELETE pods"), "{counts:?}");
    assert!((8..=AT_MOST).contains(&most), "{most} at once");

    let elsewhere = Cluster::shared().await.namespace("other").await.unwrap();
    stage.restart_and_wait(&elsewhere, 0).await;
    stage.asked.forget();
    for round in 1..=3 {
        stage.restart_and_wait(&elsewhere, round).await;
        assert_eq!(stage.writes(), Vec::<String>::new(), "round {round}");
    }
}

/// Sixteen groups at once, and in each as many replicas as it has roles here; the watches begin besides.
const AT_MOST: usize = 16 * 2 + 16;

impl Stage {
    /// New controllers, and a new serving elsewhere: when that serves, all that was there before has been looked at.
    async fn restart_and_wait(&mut self, elsewhere: &str, round: u32) {
        self.restart().await;
        let name = format!("after-{round}");
        self.apply::<ModelServing>(elsewhere, &serving(&name, 1)).await;
        available(Api::namespaced(self.client.clone(), elsewhere), &name, 1).await;
    }
}

/// Whoever drains a node asks this, pod by pod. The answer is the status of one try.
async fn evict(stage: &Stage, pod: &str) -> u16 {
    let mut config = Cluster::shared().await.config();
    // Else a refusal is tried again for minutes.
    config.default_retry = false;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config).unwrap(), &stage.namespace);
    match pods.evict(pod, &EvictParams::default()).await {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{pod}: {error}"),
    }
}

/// Decodes of two pods; two of three stay, whichever pods a drain chooses.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_drain_takes_one_replica_and_the_next_when_that_one_is_back() {
    let stage = Stage::start().await;
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let role = json!({"name": "decode", "replicas": 3, "workerReplicas": 1, "entryTemplate": pod, "workerTemplate": pod});
    let wanted = json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": "pd"},
        "spec": {
            "replicas": 1,
            "schedulerName": "default-scheduler",
            "rolloutStrategy": {"evictionStrategy": {"protectionLevel": "Role", "roleMinAvailable": {"decode": 2}}},
            "template": {"roles": [role]},
        },
    });
    stage.apply::<ModelServing>(&stage.namespace, &wanted).await;
    available(stage.api(), "pd", 1).await;
    let budgets: Api<PodDisruptionBudget> = stage.api();
    let one_may_go = async || {
        eventually("one may go", LONG, async || {
            let status = budgets.get("pd-0-decode-eviction").await.unwrap().status?;
            (status.disruptions_allowed == Some(1) && status.expected_pods == Some(6)).then_some(())
        })
        .await
        .unwrap();
    };
    one_may_go().await;
    // Nothing new becomes ready for now: what goes stays away.
    let pods: Api<Pod> = stage.api();
    let known: Vec<Option<String>> =
        pods.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::uid).collect();
    stage.kubelet.ready_if(move |pod| known.contains(&pod.uid()));
    assert_eq!(evict(&stage, "pd-0-decode-2-1").await, 201);
    for pod in ["pd-0-decode-0-0", "pd-0-decode-1-1"] {
        assert_eq!(evict(&stage, pod).await, 429, "{pod} must stay");
    }
    stage.kubelet.ready_if(|_| true);
    available(stage.api(), "pd", 1).await;
    one_may_go().await;
    assert_eq!(evict(&stage, "pd-0-decode-0-0").await, 201);
}
