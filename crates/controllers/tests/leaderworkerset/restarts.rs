//! What a pod that fails means for its group.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::EvictParams};
use serde_json::{Value, json};

use crate::{
    set,
    stage::{Stage, ready_groups},
};

fn with_policy(policy: &str, annotation: Option<&str>) -> Value {
    let mut set = set("x", 1, 2, "one");
    set["spec"]["leaderWorkerTemplate"]["restartPolicy"] = json!(policy);
    if let Some(annotation) = annotation {
        set["metadata"]["annotations"][annotation] = json!("");
    }
    set
}

async fn made_again(stage: &Stage, times: u64) -> Option<()> {
    let set = stage.get("LeaderWorkerSet", "x").await?;
    let status = &set["status"];
    let restarts = status["groups"][0]["restarts"].as_u64().unwrap_or_default();
    (restarts == times && status["readyReplicas"] == set["spec"]["replicas"]).then_some(())
}

/// Bug 6.9: a restart from before the group had started makes a healthy group again later, or not, by the order of
/// events.
#[tokio::test(start_paused = true)]
async fn restarts_from_before_a_group_had_started_never_count() {
    let annotation = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start";
    for (policy, annotation) in
        [("RecreateGroupAfterStart", None), ("RecreateGroupOnPodRestart", Some(annotation))]
    {
        let stage = Stage::start().await;
        stage.kubelet.ready_if(|_| false);
        let mut set = with_policy(policy, annotation);
        set["spec"]["startupPolicy"] = json!("LeaderReady");
        stage.apply(&set).await;
        stage
            .eventually("the leader runs", || async {
                let leader = stage.get("Pod", "x-0").await?;
                (leader["status"]["phase"] == "Running").then_some(())
            })
            .await;
        stage.fail("x-0").await;
        stage.kubelet.ready_if(|_| true);
        stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
        stage.quiet().await;
        assert!(made_again(&stage, 0).await.is_some(), "{policy}");
        let before = stage.uids("Pod").await;
        stage.fail("x-0").await;
        stage.eventually("one more is a failure", || made_again(&stage, 1)).await;
        assert_ne!(stage.uids("Pod").await["x-0-1"], before["x-0-1"], "{policy}");
    }
}

/// The deprecated `Default` is `None`.
#[tokio::test(start_paused = true)]
async fn without_a_restart_policy_a_pod_fails_for_itself() {
    for policy in ["None", "Default"] {
        let stage = Stage::start().await;
        stage.apply(&with_policy(policy, None)).await;
        stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
        stage.quiet().await;
        let before = stage.uids("Pod").await;
        stage.fail("x-0-1").await;
        stage.quiet().await;
        assert_eq!(stage.uids("Pod").await, before, "{policy}");
        stage.delete("Pod", "x-0-1").await;
        stage
            .eventually("only that pod is made again", || async {
                let now = stage.uids("Pod").await;
                (now.get("x-0-1")? != &before["x-0-1"]).then_some(())
            })
            .await;
        assert_eq!(stage.uids("Pod").await["x-0"], before["x-0"], "{policy}");
    }
}

/// Bug 6.22: nobody knows that an evicted pod takes its group with it.
#[tokio::test(start_paused = true)]
async fn a_group_that_loses_a_pod_to_an_eviction_is_made_again_as_one() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.quiet().await;
    let before = stage.uids("Pod").await;
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    pods.evict("x-1-1", &EvictParams::default()).await.unwrap();
    stage.eventually("its group is made again", || made_again(&stage, 1)).await;
    let after = stage.uids("Pod").await;
    let kept = |name: &str| before[name] == after[name];
    assert_eq!(["x-0", "x-0-1", "x-1", "x-1-1"].map(kept), [true, true, false, false]);
}

/// A set whose pods are on a node: one that is not goes at once, without anybody's consent.
fn on_a_node(size: u32) -> Value {
    let mut set = set("x", 1, size, "one");
    set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["nodeName"] = json!("n");
    set
}

/// Bug 6.5: a new leader runs beside workers of the group before, which take it for their own.
#[tokio::test(start_paused = true)]
async fn a_new_leader_never_runs_beside_workers_of_the_group_before() {
    let stage = Stage::start().await;
    stage.apply(&on_a_node(2)).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    let before = stage.uids("Pod").await;
    stage.kubelet.gone_if(|pod| pod.name_any() != "x-0-1");
    stage.delete("Pod", "x-0").await;
    stage
        .eventually("the worker is told to go", || async {
            let worker = stage.get("Pod", "x-0-1").await?;
            worker["metadata"]["deletionTimestamp"].as_str().map(|_| ())
        })
        .await;
    stage.quiet().await;
    assert_eq!(stage.pods("x").await, ["x-0-1"], "nothing new starts beside it");
    stage.kubelet.gone_if(|_| true);
    stage.eventually("the group is made again", || made_again(&stage, 1)).await;
    let after = stage.uids("Pod").await;
    assert!(before.iter().all(|(name, uid)| after[name] != *uid));
}

/// Bug 6.6: the pods of a group go one after the other, and the slowest holds the others up.
#[tokio::test(start_paused = true)]
async fn all_pods_of_a_group_are_deleted_at_once() {
    let stage = Stage::start().await;
    stage.apply(&on_a_node(4)).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    stage.kubelet.gone_if(|_| false);
    stage.fail("x-0-2").await;
    stage
        .eventually("every pod is told to go though none has gone", || async {
            let pods = stage.all_pods("x").await;
            let going = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
            (going == 4).then_some(())
        })
        .await;
}
