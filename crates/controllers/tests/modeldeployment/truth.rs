//! A rollout that failed is told, with its cause, until a person answers it.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{broken, condition, deployment, idle, notes};
use crate::stage::Stage;

const LOST: &str = "weights not found: /models/two";

/// A version that is given up after two seconds.
fn second(on_failure: &str) -> Value {
    let mut second = deployment("two", &json!({"type": "Rolling"}), false);
    second["spec"]["version"] = json!("v2");
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 2, "onFailure": on_failure});
    second["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    second
}

/// The container of every pod of this image crashes.
async fn crash(stage: &Stage, image: &str, restarts: u32) {
    let pods: Api<DynamicObject> = stage.api(&json!({"apiVersion": "v1", "kind": "Pod"}));
    let crashing = stage
        .eventually("a pod that runs", || async {
            let all = stage.list("Pod").await.into_iter();
            let of_image = all.filter(|pod| {
                pod.data["spec"]["containers"][0]["image"] == image
                    && pod.data["status"]["phase"] == "Running"
            });
            let found: Vec<DynamicObject> = of_image.collect();
            (!found.is_empty()).then_some(found)
        })
        .await;
    for pod in crashing {
        let status = json!({"status": {"containerStatuses": [{
            "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": restarts,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": format!("loading\n{LOST}\n")}},
        }]}});
        let name = pod.metadata.name.unwrap();
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }
}

/// The pods of the version before, by their uids.
async fn pods_of_one(stage: &Stage) -> Vec<String> {
    let all = stage.list("Pod").await.into_iter();
    let mut uids: Vec<String> = all
        .filter(|pod| pod.data["spec"]["containers"][0]["image"] == "one")
        .filter_map(|pod| pod.metadata.uid)
        .collect();
    uids.sort();
    uids
}

async fn fails(stage: &Stage, on_failure: &str) {
    broken(stage, "two");
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), false)).await;
    idle(stage, "r1").await;
    stage.apply(&second(on_failure)).await;
    crash(stage, "two", 2).await;
}

fn is_true(status: &Value, ty: &str) -> bool {
    status["conditions"].as_array().unwrap().iter().any(|it| it["type"] == ty && it["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_failed_names_version_and_cause_when_its_pods_are_gone() {
    let stage = Stage::start().await;
    fails(&stage, "Rollback").await;
    let before: Vec<String> = pods_of_one(&stage).await;
    let degraded = condition(&stage, "Degraded").await;
    assert_eq!(degraded["reason"], "RolloutFailed");
    stage
        .eventually("the new version is gone", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["phase"] == "Idle" && status["history"][0]["outcome"] == "RolledBack").then_some(())
        })
        .await;
    stage.quiet().await;
    let status = stage.observed("ModelDeployment", "chat").await.unwrap();
    assert_eq!(status["versions"].as_array().unwrap().len(), 1, "{status}");
    let message = status["message"].as_str().unwrap();
    for part in ["version v2 failed: 0 of 4 replicas ready", "exit code 3", LOST, "rolled back to r1"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("of the wanted version"), "{message}");
    assert_eq!(pods_of_one(&stage).await, before, "only what was being deployed is taken back");
    assert!(is_true(&status, "Degraded") && is_true(&status, "Ready"), "{status}");
    let record = &status["history"][0];
    assert!(record["reason"].as_str().unwrap().starts_with("version v2 failed"), "{record}");
    assert!(record["evidence"].as_str().unwrap().contains(LOST), "{record}");
    assert_eq!(status["rollout"]["failure"]["reason"], "ProgressDeadlineExceeded");
    let told = notes(&stage, "RolloutFailed").await;
    assert!(told.len() == 1 && told[0].contains(LOST) && told[0].contains("rolling back to r1"), "{told:?}");
    assert_eq!(notes(&stage, "RolledBack").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_answered_by_another_version_or_by_the_one_before() {
    for (image, current) in [("one", "r1"), ("three", "r3")] {
        let stage = Stage::start().await;
        fails(&stage, "Rollback").await;
        condition(&stage, "Degraded").await;
        stage.apply(&deployment(image, &json!({"type": "Rolling"}), false)).await;
        idle(&stage, current).await;
        stage.quiet().await;
        let status = idle(&stage, current).await;
        assert!(!is_true(&status, "Degraded"), "{status}");
        assert!(status["rollout"]["failure"].is_null(), "{status}");
        assert_eq!(status["message"], "every replica has the version of the spec");
        let told = status["history"]
            .as_array()
            .unwrap()
            .iter()
            .any(|record| record["reason"].as_str().unwrap().contains("version v2 failed"));
        assert!(told, "the history keeps it: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_pauses_moves_nothing_and_says_so() {
    let stage = Stage::start().await;
    fails(&stage, "Pause").await;
    condition(&stage, "Paused").await;
    stage.quiet().await;
    let status = stage.observed("ModelDeployment", "chat").await.unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("version v2 failed") && message.contains("paused: nothing moves"), "{message}");
    assert_eq!(status["versions"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!((&status["phase"], &status["health"]), (&json!("Paused"), &json!("Healthy")));
    assert!(is_true(&status, "Degraded"), "{status}");
}

/// A version that crashes again and again is given up long before its deadline.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_is_rolled_back_before_the_deadline() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    stage.apply(&deployment("one", &json!({"type": "Rolling"}), false)).await;
    idle(&stage, "r1").await;
    let mut second = deployment("two", &json!({"type": "Rolling"}), false);
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 600_000, "maxRestarts": 3});
    stage.apply(&second).await;
    crash(&stage, "two", 3).await;
    stage.quiet().await;
    let status = stage.observed("ModelDeployment", "chat").await.unwrap();
    assert!(status["rollout"]["failure"].is_null(), "as often as it may: {status}");
    crash(&stage, "two", 4).await;
    let status = stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(status)
        })
        .await;
    assert_eq!(status["rollout"]["failure"]["reason"], "CrashLoop");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("restarted 4 times") && message.contains(LOST), "{message}");
}

/// The first version has none to go back to: that it fails is told, and it serves when what it needs is there.
#[tokio::test(start_paused = true)]
async fn a_first_version_that_fails_is_told_and_serves_later() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    stage.apply(&second("Rollback")).await;
    crash(&stage, "two", 2).await;
    let degraded = stage
        .eventually("a failure", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let mut all = status["conditions"].as_array()?.iter();
            all.find(|it| it["type"] == "Degraded" && it["reason"] == "RolloutFailed").cloned()
        })
        .await;
    let message = degraded["message"].as_str().unwrap();
    for part in
        ["version v2 failed: waiting for replicas", "no progress for 2 s", LOST, "no version to go back to"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    stage.quiet().await;
    assert_eq!(notes(&stage, "RolloutFailed").await.len(), 1);
    stage.kubelet.ready_if(|_| true);
    let status = idle(&stage, "v2").await;
    assert!(!is_true(&status, "Degraded") && status["rollout"]["failure"].is_null(), "{status}");
}
