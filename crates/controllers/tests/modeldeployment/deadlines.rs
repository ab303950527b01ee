//! What the progress deadline counts, and what it does not: waits that a person, a time or an old replica ends.

use std::time::Duration;

use serde_json::{Value, json};

use super::{broken, deployment, idle, verbs::ask};
use crate::stage::Stage;

/// A version with a deadline of three seconds, whose pods are on a node: others are gone as soon as they are deleted.
fn short(image: &str, strategy: &Value, gateway: bool) -> Value {
    let mut chat = deployment(image, strategy, gateway);
    chat["spec"]["workload"]["pod"]["spec"]["nodeName"] = json!("n");
    chat["spec"]["rollback"] = json!({"progressDeadlineSeconds": 3});
    chat["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    chat
}

/// The status, once the rollout waits for this.
async fn waits(stage: &Stage, reason: &str) -> Value {
    for _ in 0..3_000 {
        let status = stage.observed("ModelDeployment", "chat").await.unwrap_or_default();
        if status["rollout"]["waitingFor"]["reason"] == reason {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no wait {reason}: {:#}", stage.get("ModelDeployment", "chat").await.unwrap()["status"]);
}

/// A new version that is healthy is not to blame for the grace of the pods that it replaces.
#[tokio::test(start_paused = true)]
async fn an_old_pod_that_takes_long_to_end_fails_no_new_version() {
    for strategy in [
        json!({"type": "Rolling"}),
        json!({"type": "Canary", "canary": {"steps": [{"weight": 50}, {"weight": 100}]}}),
        json!({"type": "Recreate"}),
    ] {
        let stage = Stage::start().await;
        stage.route().await;
        stage.apply(&short("one", &strategy, true)).await;
        idle(&stage, "r1").await;
        stage.kubelet.gone_if(|pod| !super::is_of(pod, "one"));
        stage.apply(&short("two", &strategy, true)).await;
        let is_recreated = strategy["type"] == "Recreate";
        let reason = if is_recreated { "WaitingForGone" } else { "WaitingForRoom" };
        let status = waits(&stage, reason).await;
        assert!(status["rollout"]["waitingFor"]["deadline"].is_null(), "{status}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let status = waits(&stage, reason).await;
        assert_eq!(status["rollout"]["direction"], "Forward", "{strategy}: {status}");
        stage.kubelet.gone_if(|_| true);
        let status = idle(&stage, "r2").await;
        assert_eq!(status["history"][0]["outcome"], "Promoted", "{strategy}");
    }
}

/// What was not waited for counts on: after the wait the version has the rest of its time, and no more.
#[tokio::test(start_paused = true)]
async fn after_an_old_pod_has_ended_the_deadline_runs_on() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&short("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    stage.kubelet.gone_if(|pod| !super::is_of(pod, "one"));
    stage.apply(&short("two", &rolling, false)).await;
    waits(&stage, "WaitingForRoom").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let first: Vec<String> = stage.names("Pod").await;
    stage
        .kubelet
        .ready_if(move |pod| !super::is_of(pod, "two") || first.contains(&kube::ResourceExt::name_any(pod)));
    stage.kubelet.gone_if(|_| true);
    let status = waits(&stage, "WaitingForReady").await;
    let wait = &status["rollout"]["waitingFor"];
    assert_eq!(wait["onExpiry"], "the rollout fails and goes back", "{wait}");
    stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(())
        })
        .await;
}

/// A preview is there to be looked at: neither its time nor the loss of a replica at its end fails the version.
#[tokio::test(start_paused = true)]
async fn a_preview_that_waits_for_a_person_has_no_deadline() {
    for preview in [json!("25%"), json!("100%")] {
        let stage = Stage::start().await;
        let options = json!({"autoPromote": false, "previewReplicas": preview, "retainSeconds": 0});
        let strategy = json!({"type": "BlueGreen", "blueGreen": options});
        stage.apply(&short("one", &strategy, false)).await;
        idle(&stage, "r1").await;
        stage.apply(&short("two", &strategy, false)).await;
        waits(&stage, "Previewing").await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        waits(&stage, "Previewing").await;
        broken(&stage, "two");
        let status = waits(&stage, "WaitingForReady").await;
        assert_eq!(status["rollout"]["direction"], "Forward", "{preview}: {status}");
        stage.kubelet.ready_if(|_| true);
        waits(&stage, "Previewing").await;
        let (done, what) = ask(&stage, json!({"id": "1", "verb": "promote"})).await;
        assert!(done, "{what}");
        idle(&stage, "r2").await;
    }
}

/// An interval that is longer than the deadline is no standstill, and its end fails nothing.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_interval_fails_nothing_and_says_what_comes() {
    let stage = Stage::start().await;
    stage.route().await;
    let options = json!({"maxSurgePercent": 25, "stepSizePercent": 25, "intervalSeconds": 60});
    let strategy = json!({"type": "Incremental", "incremental": options});
    stage.apply(&short("one", &strategy, true)).await;
    idle(&stage, "r1").await;
    stage.apply(&short("two", &strategy, true)).await;
    let record = stage.record("ModelDeployment").await;
    idle(&stage, "r2").await;
    for seen in record.end().await {
        let wait = &seen["status"]["rollout"]["waitingFor"];
        let expiry = wait["onExpiry"].as_str().unwrap_or_default();
        if wait["reason"] == "WaitingForInterval" {
            assert!(expiry.contains("% of the traffic"), "{wait}");
        }
        assert!(!expiry.contains("fails") || wait["deadline"].is_string(), "{wait}");
        assert_ne!(seen["status"]["rollout"]["direction"], "Back", "{seen}");
    }
    // What is lost after the promotion is made again, and fails nothing.
    broken(&stage, "two");
    let status = waits(&stage, "WaitingForReady").await;
    let wait = &status["rollout"]["waitingFor"];
    assert_eq!((&wait["deadline"], &wait["onExpiry"]), (&Value::Null, &Value::Null), "{wait}");
}
