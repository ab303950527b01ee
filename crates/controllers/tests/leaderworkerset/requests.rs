//! What people ask for by an annotation.

use serde_json::{Value, json};

use super::set;
use crate::stage::{Stage, ready_groups};

async fn answer_to(stage: &Stage, request: &str) -> Value {
    let mut object = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "x"},
    });
    object["metadata"]["annotations"]["segue.dev/request"] = request.into();
    let api = stage.api(&object);
    let patch = kube::api::Patch::Merge(&object);
    api.patch("x", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let id: Value =
        serde_json::from_str::<Value>(request).map_or_else(|_| request.into(), |it| it["id"].clone());
    let response = stage.eventually("it is answered", || async {
        let set = stage.get("LeaderWorkerSet", "x").await?;
        let text = set["metadata"]["annotations"]["segue.dev/response"].as_str()?;
        let response: Value = serde_json::from_str(text).unwrap();
        (response["id"] == id).then_some(response)
    });
    response.await
}

async fn restarts(stage: &Stage) -> u64 {
    stage.get("LeaderWorkerSet", "x").await.unwrap()["status"]["groups"][0]["restarts"].as_u64().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_the_wait_of_failed_groups() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.fail("x-0").await;
    stage
        .eventually("the group is made again", || async {
            let again = restarts(&stage).await == 1;
            (again && ready_groups(&stage, "x", 1)().await.is_some()).then_some(())
        })
        .await;
    stage.fail("x-0").await;
    stage
        .eventually("it waits", || async {
            let set = stage.get("LeaderWorkerSet", "x").await?;
            let message = set["status"]["groups"][0]["waitingFor"]["subject"].as_str()?.to_owned();
            message.contains("backing off").then_some(())
        })
        .await;
    assert_eq!(restarts(&stage).await, 1);
    let response = answer_to(&stage, r#"{"id": "1", "verb": "retry", "actor": "me"}"#).await;
    assert_eq!((&response["done"], restarts(&stage).await), (&json!(true), 2), "{response}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_answered_with_the_reason_and_once() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let response = answer_to(&stage, r#"{"id": "1", "verb": "explode"}"#).await;
    assert_eq!(response["done"], json!(false));
    let message = response["message"].as_str().unwrap();
    assert!(message.contains("explode") && message.contains("retry"), "{message}");
    let response = answer_to(&stage, "please retry").await;
    assert_eq!(response["done"], json!(false), "{response}");
    stage.quiet().await;
    let before = stage.revision().await;
    stage.quiet().await;
    assert_eq!(stage.changed_since(before).await, Vec::<String>::new());
}
