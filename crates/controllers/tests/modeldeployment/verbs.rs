//! What a person asks of a rollout.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{broken, deployment, idle};
use crate::stage::Stage;

/// Asks, and returns whether it was carried out and what was answered.
pub(super) async fn ask(stage: &Stage, request: Value) -> (bool, String) {
    let chat = json!({"apiVersion": "segue.dev/v1alpha1", "kind": "ModelDeployment"});
    let api: kube::Api<DynamicObject> = stage.api(&chat);
    let patch = json!({"metadata": {"annotations": {"segue.dev/request": request.to_string()}}});
    api.patch("chat", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    stage
        .eventually("an answer", || async {
            let chat = stage.get("ModelDeployment", "chat").await?;
            let text = chat["metadata"]["annotations"]["segue.dev/response"].as_str()?.to_owned();
            let response: Value = serde_json::from_str(&text).unwrap();
            let message = response["message"].as_str().unwrap().to_owned();
            (response["id"] == request["id"]).then(|| (response["done"].as_bool().unwrap(), message))
        })
        .await
}

fn canary(image: &str) -> Value {
    let steps = json!([{"weight": 25}, {"pause": {}}, {"weight": 100}]);
    deployment(image, &json!({"type": "Canary", "canary": {"maxSurge": 1, "steps": steps}}), true)
}

/// A canary that waits for a person.
async fn paused() -> (Stage, Value) {
    let stage = Stage::start().await;
    stage.route().await;
    stage.apply(&canary("one")).await;
    idle(&stage, "r1").await;
    stage.apply(&canary("two")).await;
    let status = stage
        .eventually("an open pause", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["waitingFor"]["reason"] == "Paused").then_some(status)
        })
        .await;
    (stage, status)
}

async fn ended(stage: &Stage, outcome: &str) -> Value {
    stage
        .eventually(outcome, || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == outcome && status["phase"] == "Idle").then_some(status)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_promotion_goes_on_from_the_step_that_it_is_meant_for_and_from_no_other() {
    let (stage, status) = paused().await;
    let rollout = &status["rollout"]["id"];
    let (done, why) = ask(&stage, json!({"id": "1", "verb": "promote", "rollout": rollout, "step": 0})).await;
    assert!(!done && why.contains("is at step 2 of 3: "), "{why}");
    let (done, why) = ask(&stage, json!({"id": "2", "verb": "promote", "rollout": "another"})).await;
    assert!(!done, "{why}");
    let (done, what) =
        ask(&stage, json!({"id": "3", "verb": "promote", "rollout": rollout, "step": 1})).await;
    assert!(done && what == "version r2 is promoted", "{what}");
    idle(&stage, "r2").await;
    let (done, why) = ask(&stage, json!({"id": "4", "verb": "promote"})).await;
    assert!(!done && why.starts_with("no step waits for a promotion"), "{why}");
    let (done, why) = ask(&stage, json!({"id": "5", "verb": "explode"})).await;
    assert!(!done && why.contains("promote, abort, retry, pause, resume"), "{why}");
}

/// An abort holds through a restart of the controllers and a change of the policy, until it is retried.
#[tokio::test(start_paused = true)]
async fn an_abort_goes_back_and_stays_back_until_a_retry() {
    let (mut stage, _) = paused().await;
    let request = json!({"id": "1", "verb": "abort", "actor": "me", "reason": "too slow"});
    let (done, what) = ask(&stage, request).await;
    assert!(done, "{what}");
    let status = ended(&stage, "Aborted").await;
    let record = &status["history"][0];
    assert_eq!(
        (&record["actor"], &record["fromName"], &record["toName"]),
        (&json!("me"), &json!("r1"), &json!("r2"))
    );
    assert_eq!(record["reason"], "the rollout of r2 was aborted by me: too slow");
    assert!(status["message"].as_str().unwrap().contains("aborted by me: too slow; r1 serves"), "{status}");
    stage.kill().await;
    stage.run();
    let mut edited = canary("two");
    edited["spec"]["strategy"]["canary"]["steps"] = json!([{"weight": 50}, {"pause": {}}, {"weight": 100}]);
    edited["spec"]["replicas"] = json!(5);
    stage.apply(&edited).await;
    stage
        .eventually("five replicas", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["readyReplicas"] == 5 && status["phase"] == "Idle").then_some(())
        })
        .await;
    stage.quiet().await;
    let status = ended(&stage, "Aborted").await;
    assert_eq!((status["versions"].as_array().unwrap().len(), &status["currentVersion"]), (1, &json!("r1")));
    let (done, what) = ask(&stage, json!({"id": "2", "verb": "retry"})).await;
    assert!(done && what.ends_with("starts again"), "{what}");
    stage
        .eventually("the pause again", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["waitingFor"]["reason"] == "Paused").then_some(())
        })
        .await;
    let (done, what) = ask(&stage, json!({"id": "3", "verb": "promote"})).await;
    assert!(done, "{what}");
    idle(&stage, "r2").await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_a_person_holds_moves_nothing_until_it_is_resumed() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    let (done, why) = ask(&stage, json!({"id": "0", "verb": "pause"})).await;
    assert!(!done && why.starts_with("no rollout moves forward"), "{why}");
    stage.apply(&deployment("two", &rolling, false)).await;
    let (done, what) = ask(&stage, json!({"id": "1", "verb": "pause", "actor": "me"})).await;
    assert!(done, "{what}");
    stage.kubelet.ready_if(|_| true);
    stage.quiet().await;
    let status = stage.observed("ModelDeployment", "chat").await.unwrap();
    assert_eq!((&status["phase"], &status["currentVersion"]), (&json!("Paused"), &json!("r1")), "{status}");
    assert_eq!(
        status["message"],
        "paused by me with 0% of the traffic moved and no time limit: nothing moves until `segue resume` or `segue abort`"
    );
    let (done, what) = ask(&stage, json!({"id": "2", "verb": "resume"})).await;
    assert!(done, "{what}");
    idle(&stage, "r2").await;
}

/// A first version has none to go back to. A retry clears its failure and gives it the whole deadline again.
#[tokio::test(start_paused = true)]
async fn a_first_version_that_failed_is_tried_again_and_a_healthy_one_is_not() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    let mut first = deployment("two", &json!({"type": "Rolling"}), false);
    first["spec"]["rollback"] = json!({"progressDeadlineSeconds": 2});
    first["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    stage.apply(&first).await;
    let failed = || {
        stage.eventually("a failure", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (!status["rollout"]["failure"].is_null()).then_some(status)
        })
    };
    let status = failed().await;
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with("apply another version, or `segue retry`"), "{message}");
    let (done, what) = ask(&stage, json!({"id": "1", "verb": "retry"})).await;
    assert!(done && what == "the rollout of r1 starts again", "{what}");
    stage
        .eventually("another rollout", || async {
            let again = stage.observed("ModelDeployment", "chat").await?;
            (again["rollout"]["id"] != status["rollout"]["id"]).then_some(())
        })
        .await;
    failed().await;
    stage.kubelet.ready_if(|_| true);
    idle(&stage, "r1").await;
    let (done, why) = ask(&stage, json!({"id": "2", "verb": "retry"})).await;
    assert!(!done && why.starts_with("no rollout failed or was aborted"), "{why}");
}
