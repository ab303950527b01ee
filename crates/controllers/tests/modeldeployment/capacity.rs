//! What the cluster does not hold: refused before it begins, and taken back where that could not be known.

use serde_json::{Value, json};

use super::{
    condition, deployment, idle,
    nodes::{ANOTHER, node, occupy, requests, schedule},
    notes,
};
use crate::stage::Stage;

/// A deployment of which each replica needs one accelerator.
fn chat(image: &str, strategy: &Value) -> Value {
    let mut chat = deployment(image, strategy, false);
    chat["spec"]["workload"]["pod"]["spec"]["containers"][0]["resources"] = requests(1);
    chat
}

fn surge() -> Value {
    json!({"type": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 0}})
}

/// Four replicas on a node for so many.
async fn serving(gpus: u32) -> Stage {
    let stage = Stage::start().await;
    node(&stage, "one", gpus).await;
    schedule(&stage);
    stage.apply(&chat("one", &surge())).await;
    idle(&stage, "r1").await;
    stage
}

async fn refused(stage: &Stage) -> Value {
    stage
        .eventually("a refusal", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["outcome"] == "Refused").then_some(status)
        })
        .await
}

fn outcomes(status: &Value) -> Vec<String> {
    let history = status["history"].as_array().unwrap();
    history.iter().map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
}

/// Nothing begins, also after a restart; what is refused is told once, with its numbers; and it begins by itself.
#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_fit_is_refused_and_begins_when_there_is_room() {
    let mut stage = serving(4).await;
    let before = stage.uids("Pod").await;
    stage.apply(&chat("two", &surge())).await;
    let status = refused(&stage).await;
    let numbers = &status["rollout"]["capacity"];
    assert_eq!((&numbers["needed"], &numbers["room"]), (&json!(1), &json!(0)), "{status}");
    let message = status["message"].as_str().unwrap();
    for part in [
        "version r2 is refused: the rollout needs 1 more replica at its peak, and none fits",
        "a surge of 0 with 1 unavailable would fit",
        "a replica requests gpu.example/one 1",
        "r1 serves",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(status["rollout"]["failure"]["reason"], "InsufficientCapacity");
    let degraded = condition(&stage, "Degraded").await;
    assert_eq!(degraded["reason"], "RolloutRefused");
    assert_eq!((&status["phase"], &status["health"]), (&json!("Idle"), &json!("Healthy")));

    stage.kill().await;
    stage.run();
    occupy(&stage, "other", "one", 0).await;
    stage.quiet().await;
    let status = refused(&stage).await;
    assert_eq!(outcomes(&status), ["Refused", "Promoted"]);
    assert_eq!(notes(&stage, "RolloutRefused").await.len(), 1);
    assert_eq!(stage.names("LeaderWorkerSet").await.len(), 1);
    let mut after = stage.uids("Pod").await;
    after.remove("other");
    assert_eq!(after, before);

    node(&stage, "two", 1).await;
    let status = idle(&stage, "r2").await;
    assert_eq!(outcomes(&status), ["Promoted", "Refused", "Promoted"]);
    assert!(status["rollout"]["capacity"].is_null() && status["rollout"]["failure"].is_null(), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_first_version_that_does_not_fit_starts_when_another_pod_goes() {
    let stage = Stage::start().await;
    node(&stage, "one", 4).await;
    schedule(&stage);
    occupy(&stage, "other", "one", 2).await;
    stage.apply(&chat("one", &surge())).await;
    let status = refused(&stage).await;
    assert_eq!(status["rollout"]["capacity"]["needed"], 4, "a first version needs no surge: {status}");
    assert_eq!(status["rollout"]["capacity"]["room"], 2);
    assert!(status["message"].as_str().unwrap().contains("nothing is started"), "{status}");
    stage.quiet().await;
    assert!(stage.names("LeaderWorkerSet").await.is_empty());
    stage.delete("Pod", "other").await;
    idle(&stage, "r1").await;
}

/// While a version is refused the service is kept and scaled, and another version, policy or strategy is judged anew.
#[tokio::test(start_paused = true)]
async fn what_serves_is_scaled_while_a_version_is_refused() {
    let stage = serving(4).await;
    stage.apply(&chat("two", &surge())).await;
    refused(&stage).await;
    let mut fewer = chat("two", &surge());
    fewer["spec"]["replicas"] = json!(3);
    stage.apply(&fewer).await;
    // One replica less is the room that the surge needs.
    let status = idle(&stage, "r2").await;
    assert_eq!((&status["readyReplicas"], outcomes(&status).len()), (&json!(3), 3), "{status}");
    let mut third = chat("three", &json!({"type": "BlueGreen"}));
    third["spec"]["replicas"] = json!(3);
    stage.apply(&third).await;
    let status = refused(&stage).await;
    assert_eq!(status["rollout"]["capacity"]["needed"], 3, "{status}");
    let smaller = json!({"type": "Rolling", "rolling": {"maxSurge": 0, "maxUnavailable": 1}});
    third["spec"]["strategy"] = smaller;
    stage.apply(&third).await;
    idle(&stage, "r3").await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_fit_starts_where_that_is_allowed_and_says_so() {
    for (policy, told) in [("Warn", 1), ("Off", 0)] {
        let stage = serving(4).await;
        let mut second = chat("two", &surge());
        second["spec"]["capacity"] = json!(policy);
        second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 100});
        second["spec"]["health"] = json!({"readyDeadlineSeconds": 10});
        stage.apply(&second).await;
        let status = stage
            .eventually("a pod without a node", || async {
                let status = stage.observed("ModelDeployment", "chat").await?;
                status["rollout"]["evidence"].as_str()?.contains("insufficient gpu").then_some(status)
            })
            .await;
        if told == 1 {
            let short = condition(&stage, "CapacityShort").await;
            assert!(short["message"].as_str().unwrap().contains("needs 1 more replica"), "{short}");
        }
        assert_eq!(notes(&stage, "InsufficientCapacity").await.len(), told, "{status}");
        // No node comes: the deadline of the rollout ends it, and not the scheduler's word alone.
        let status = stage
            .eventually("the way back", || async {
                let status = stage.observed("ModelDeployment", "chat").await?;
                (status["history"][0]["outcome"] == "RolledBack").then_some(status)
            })
            .await;
        assert_eq!(status["rollout"]["failure"]["reason"], "ProgressDeadlineExceeded");
        assert!(status["message"].as_str().unwrap().contains("not scheduled: 0/1 nodes"), "{status}");
    }
}

/// A rollout whose pods the scheduler does not place is taken back long before its deadline.
#[tokio::test(start_paused = true)]
async fn resources_that_are_not_to_be_had_are_rolled_back_before_the_deadline() {
    let stage = serving(5).await;
    // By its requests it fits; what else its scheduler knows is not counted here.
    let mut second = chat("two", &surge());
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 600_000});
    second["spec"]["workload"]["pod"]["spec"]["schedulerName"] = json!(ANOTHER);
    stage.apply(&second).await;
    let status = stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(status)
        })
        .await;
    assert_eq!(status["rollout"]["failure"]["reason"], "InsufficientCapacity");
    let message = status["message"].as_str().unwrap();
    for part in ["version r2 failed: 0 of 4 replicas ready, and no node has room", "not scheduled: 0/1 nodes"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(status["readyReplicas"], 4);
}
