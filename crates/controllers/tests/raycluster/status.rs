//! What a status says.

use serde_json::json;

use crate::{cluster, condition, pods, ready, stage::Stage};

#[tokio::test(start_paused = true)]
async fn a_status_says_what_is_waited_for_and_then_that_it_is_so() {
    let stage = Stage::start().await;
    stage.kubelet.ready_if(|_| false);
    stage.apply(&cluster(1)).await;
    let status = stage.eventually("the pods run", || async {
        let status = stage.observed("RayCluster", "c").await?;
        (status["availableWorkerReplicas"] == 1).then_some(status)
    });
    let status = status.await;
    assert_eq!(status["state"], json!(null));
    assert_eq!(condition(&status, "HeadPodReady").unwrap()["status"], "False");
    assert_eq!(condition(&status, "RayClusterProvisioned").unwrap()["reason"], "RayClusterPodsProvisioning");
    assert_eq!(status["waitingFor"]["reason"], "WaitingForReady");
    assert_eq!(status["waitingFor"]["subject"], "the head is not ready");
    assert_eq!(status["waitingFor"]["pod"], status["head"]["podName"]);
    stage.kubelet.ready_if(|_| true);
    let status = ready(&stage, 1).await;
    assert_eq!(condition(&status, "HeadPodReady").unwrap()["reason"], "HeadPodRunningAndReady");
    assert_eq!(
        condition(&status, "RayClusterProvisioned").unwrap()["reason"],
        "AllPodRunningAndReadyFirstTime"
    );
    assert!(status["waitingFor"].is_null() && status["message"].is_null());
    assert!(status["stateTransitionTimes"]["ready"].is_string());
}

/// A cluster was provisioned once; that it is not ready now is told by `state` and `HeadPodReady`.
#[tokio::test(start_paused = true)]
async fn provisioned_once_is_provisioned() {
    let stage = Stage::start().await;
    stage.apply(&cluster(1)).await;
    ready(&stage, 1).await;
    stage.kubelet.ready_if(|_| false);
    let status = stage.eventually("the head is not ready", || async {
        let status = stage.observed("RayCluster", "c").await?;
        (condition(&status, "HeadPodReady")?["status"] == "False").then_some(status)
    });
    let status = status.await;
    assert_eq!(condition(&status, "RayClusterProvisioned").unwrap()["status"], "True");
    assert_eq!(status["state"], json!(null));
}

/// What is not served is said, and nothing is done.
#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_said() {
    let stage = Stage::start().await;
    let mut rocksdb = cluster(1);
    rocksdb["spec"]["gcsFaultToleranceOptions"] = json!({"backend": "rocksdb"});
    stage.apply(&rocksdb).await;
    let status = stage.eventually("it is said", || async {
        let status = stage.observed("RayCluster", "c").await?;
        condition(&status, "NotServed").map(|_| status)
    });
    let message = condition(&status.await, "NotServed").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains("rocksdb"), "{message}");
    assert!(pods(&stage).await.is_empty());
}
