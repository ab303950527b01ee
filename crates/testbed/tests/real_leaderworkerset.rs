//! Sets on a real kube-apiserver, with its defaults, its kube-controller-manager, and a kubelet that runs nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

mod real;

use api::leaderworkerset::LeaderWorkerSet;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Cluster, eventually};

use self::real::{SOON, Stage};

impl Stage {
    async fn pods(&self) -> Vec<String> {
        let pods = self.api::<Pod>().list(&ListParams::default()).await.unwrap();
        pods.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits until these are the pods.
    async fn see_pods(&self, wanted: &[&str]) {
        let what = format!("{wanted:?}");
        let seen = eventually(&what, SOON, async || (self.pods().await == wanted).then_some(()));
        if let Err(late) = seen.await {
            panic!("{late}: {:?}", self.pods().await);
        }
    }

    async fn status(&self) -> Value {
        let set = self.api::<LeaderWorkerSet>().get("x").await.unwrap();
        serde_json::to_value(set.status).unwrap()
    }

    /// Waits until a group waits for this.
    async fn see_wait(&self, group: i64, words: &str) {
        let seen = eventually(words, SOON, async || {
            let status = self.status().await;
            let mut groups = status["groups"].as_array().into_iter().flatten();
            let group = groups.find(|it| it["index"] == group)?;
            group["waitingFor"]["subject"].as_str()?.contains(words).then_some(())
        });
        if let Err(late) = seen.await {
            panic!("{late}: {}", self.status().await);
        }
    }

    async fn see_ready(&self, groups: i64) {
        eventually("ready groups", SOON, async || {
            (self.status().await["readyReplicas"] == groups).then_some(())
        })
        .await
        .unwrap();
    }
}

/// Two groups of a leader and two workers.
fn set(name: &str, policy: &str) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "startupPolicy": policy,
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod, "workerTemplate": pod},
        },
    })
}

const WAITS: &str = "waiting for the leader to be ready";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_group_has_no_workers_until_its_own_leader_is_ready() {
    let stage = Stage::start().await;
    stage.kubelet.ready_if(|_| false);
    stage.apply::<LeaderWorkerSet>(&stage.namespace, &set("x", "LeaderReady")).await;
    for group in [0, 1] {
        stage.see_wait(group, WAITS).await;
    }
    assert_eq!(stage.pods().await, ["x-0", "x-1"], "no leader is ready");

    stage.kubelet.ready_if(|pod| pod.name_any() == "x-1");
    stage.see_pods(&["x-0", "x-1", "x-1-1", "x-1-2"]).await;
    stage.see_wait(0, WAITS).await;

    stage.kubelet.ready_if(|_| true);
    stage.see_ready(2).await;
    stage.see_pods(&["x-0", "x-0-1", "x-0-2", "x-1", "x-1-1", "x-1-2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn a_leader_that_waits_for_its_workers_is_named_and_can_be_helped() {
    let stage = Stage::start().await;
    // Workers are ready, leaders without workers never are.
    stage.kubelet.ready_if(|pod| pod.name_any().matches('-').count() == 2);
    stage.apply::<LeaderWorkerSet>(&stage.namespace, &set("x", "LeaderReady")).await;
    stage.see_wait(0, "use startupPolicy LeaderHasAddress").await;
    assert_eq!(stage.pods().await, ["x-0", "x-1"]);

    stage.apply::<LeaderWorkerSet>(&stage.namespace, &set("x", "LeaderHasAddress")).await;
    stage.see_pods(&["x-0", "x-0-1", "x-0-2", "x-1", "x-1-1", "x-1-2"]).await;
    stage.kubelet.ready_if(|_| true);
    stage.see_ready(2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn what_is_as_it_should_be_is_not_written_however_often_it_is_read() {
    let mut stage = Stage::start().await;
    stage.apply::<LeaderWorkerSet>(&stage.namespace, &set("x", "LeaderReady")).await;
    stage.see_ready(2).await;
    let elsewhere = Cluster::shared().await.namespace("other").await.unwrap();
    stage.restart_and_wait(&elsewhere, 0).await;
    stage.asked.forget();
    for round in 1..=10 {
        stage.restart_and_wait(&elsewhere, round).await;
        assert_eq!(stage.writes(), Vec::<String>::new(), "round {round}");
    }

    // It is looked at, for what is wrong is made right.
    let wrong = json!({"status": {"readyReplicas": 7}});
    let sets = stage.api::<LeaderWorkerSet>();
    sets.patch_status("x", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    stage.see_ready(2).await;
    assert!(!stage.writes().is_empty());
}

impl Stage {
    /// New controllers, and a new set elsewhere: when that is ready, all that was there before has been looked at.
    async fn restart_and_wait(&mut self, elsewhere: &str, round: u32) {
        self.restart().await;
        let name = format!("after-{round}");
        self.apply::<LeaderWorkerSet>(elsewhere, &set(&name, "LeaderCreated")).await;
        let sets: Api<LeaderWorkerSet> = Api::namespaced(self.client.clone(), elsewhere);
        eventually(&name, SOON, async || {
            let status = sets.get(&name).await.unwrap().status?;
            (serde_json::to_value(status).unwrap()["readyReplicas"] == 2).then_some(())
        })
        .await
        .unwrap();
    }
}
