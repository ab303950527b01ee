//! What follows a failure.

use serde_json::{Value, json};

use crate::{
    kit::{self, serving, settled, status, uids, watch},
    stage::Stage,
};

fn with_policy(policy: &str, grace: u32) -> Value {
    let mut serving = serving(2, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")]);
    serving["spec"]["recoveryPolicy"] = json!(policy);
    serving["spec"]["template"]["restartGracePeriodSeconds"] = json!(grace);
    serving
}

/// The pods that are others than before, once all serve again.
async fn made_again(stage: &Stage, before: &std::collections::BTreeMap<String, String>) -> Vec<String> {
    stage
        .eventually("all serve again", || async {
            let now = uids(stage).await;
            let changed: Vec<String> = now
                .iter()
                .filter(|(name, uid)| before.get(*name) != Some(uid))
                .map(|it| it.0.clone())
                .collect();
            let status = status(stage).await;
            let whole = now.len() == before.len() && status["availableReplicas"] == 2;
            (whole && !changed.is_empty() && status["message"].is_null()).then_some(changed)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_makes_its_role_replica_again() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("RoleRecreate", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    stage.fail("pd-1-decode-1-1").await;
    assert_eq!(made_again(&stage, &before).await, ["pd-1-decode-1-0", "pd-1-decode-1-1"]);
    let replica = status(&stage).await["groups"][0]["replicas"][0].clone();
    assert_eq!(
        (&replica["role"], &replica["index"], &replica["restarts"], &replica["lastFailure"]["pod"]),
        (&json!("decode"), &json!(1), &json!(1), &json!("pd-1-decode-1-1"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_an_entry_makes_its_role_replica_again() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("RoleRecreate", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    kit::delete_pod(&stage, "pd-1-decode-1-0").await;
    assert_eq!(made_again(&stage, &before).await, ["pd-1-decode-1-0", "pd-1-decode-1-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_makes_its_whole_group_again_and_those_that_serve_drain() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("ServingGroupRecreate", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    let watching = watch(&stage).await;
    stage.fail("pd-1-decode-1-1").await;
    let changed = made_again(&stage, &before).await;
    assert!(changed.len() == 5 && changed.iter().all(|name| name.starts_with("pd-1-")), "{changed:?}");
    watching.end().await.is_clean();
    let group = status(&stage).await["groups"][0].clone();
    assert_eq!((&group["index"], &group["restarts"]), (&json!(1), &json!(1)));
    assert_eq!(group["lastFailure"]["pod"], "pd-1-decode-1-1");
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_single_pod_makes_its_whole_group_again() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("ServingGroupRecreate", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    kit::delete_pod(&stage, "pd-0-prefill-0-0").await;
    let changed = made_again(&stage, &before).await;
    assert!(changed.len() == 5 && changed.iter().all(|name| name.starts_with("pd-0-")), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn with_no_policy_only_the_pod_is_made_again() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("None", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    stage.fail("pd-1-decode-1-1").await;
    stage.quiet().await;
    assert_eq!(uids(&stage).await, before, "a restart is the pod's own affair");
    kit::delete_pod(&stage, "pd-1-decode-1-1").await;
    assert_eq!(made_again(&stage, &before).await, ["pd-1-decode-1-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_within_the_grace_is_forgiven() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("RoleRecreate", 600)).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    let before = uids(&stage).await;
    // It restarts, is not ready for a while, and comes back.
    stage
        .kubelet
        .ready_if(|pod| kit::label(pod, "role-id") != "decode-1" || kit::label(pod, "entry") == "true");
    stage
        .eventually("it is not ready", || async {
            (status(&stage).await["availableReplicas"] == 0).then_some(())
        })
        .await;
    stage.fail("pd-1-decode-1-1").await;
    stage.quiet().await;
    assert_eq!(uids(&stage).await, before, "its grace is not over");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 2).await;
    let forgiven = stage
        .eventually("the restart is written down", || async {
            let pods = kit::pods(&stage).await;
            let pod = pods.into_iter().find(|pod| pod.metadata.name.as_deref() == Some("pd-1-decode-1-1"))?;
            let mark = pod.metadata.annotations?.get("segue.dev/restarts-at-start")?.clone();
            (mark == "1").then_some(())
        })
        .await;
    assert_eq!((forgiven, uids(&stage).await), ((), before));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_fails_again_waits_longer() {
    let stage = Stage::start().await;
    stage.apply(&with_policy("RoleRecreate", 0)).await;
    settled(&stage, 2).await;
    let before = uids(&stage).await;
    stage.fail("pd-1-prefill-0-0").await;
    made_again(&stage, &before).await;
    stage.fail("pd-1-prefill-0-0").await;
    let message = stage
        .eventually("it backs off", || async {
            let replica = status(&stage).await["groups"][0]["replicas"][0].clone();
            let message = replica["waitingFor"]["subject"].as_str()?.to_owned();
            message.contains("backing off").then_some(message)
        })
        .await;
    assert!(message.contains("after 1 recreation"), "{message}");
}
