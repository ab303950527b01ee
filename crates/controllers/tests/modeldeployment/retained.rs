//! The version before stays for a while after a blue-green rollout, ready to take over again.

use serde_json::{Value, json};

use super::{deployment, idle, verbs::ask};
use crate::stage::Stage;

fn blue_green(retain: u64) -> Value {
    json!({"type": "BlueGreen", "blueGreen": {"promoteDelaySeconds": 0, "retainSeconds": retain}})
}

/// (version, replicas asked for, ready, traffic) of each version.
fn versions(status: &Value) -> Vec<(String, i64, i64, i64)> {
    let number = |value: &Value| value.as_i64().unwrap();
    let version = |it: &Value| {
        let name = it["name"].as_str().unwrap().to_owned();
        let capacity = &it["capacity"];
        (name, number(&capacity["asked"]), number(&capacity["ready"]), number(&it["traffic"]["desired"]))
    };
    status["versions"].as_array().unwrap().iter().map(version).collect()
}

#[tokio::test(start_paused = true)]
async fn the_version_before_is_kept_and_takes_over_again_as_it_is() {
    let stage = Stage::start().await;
    stage.route().await;
    let strategy = blue_green(3_600);
    stage.apply(&deployment("one", &strategy, true)).await;
    idle(&stage, "r1").await;
    let first = stage.uids("Pod").await;
    stage.apply(&deployment("two", &strategy, true)).await;
    idle(&stage, "r2").await;
    stage.quiet().await;
    let status = idle(&stage, "r2").await;
    let expected = [("r1".to_owned(), 4, 4, 0), ("r2".to_owned(), 4, 4, 100)];
    assert_eq!(versions(&status), expected);
    let wait = &status["rollout"]["waitingFor"];
    assert_eq!(
        (&wait["reason"], &wait["onExpiry"]),
        (&json!("Retaining"), &json!("it is removed")),
        "{wait}"
    );
    assert!(wait["deadline"].is_string(), "{wait}");
    let conditions = status["conditions"].as_array().unwrap();
    let progressing = conditions.iter().find(|it| it["type"] == "Progressing").unwrap();
    assert_eq!(progressing["status"], "False", "the rollout is over");

    stage.apply(&deployment("one", &strategy, true)).await;
    let status = idle(&stage, "r1").await;
    assert_eq!(status["history"][0]["outcome"], "Promoted");
    let now = stage.uids("Pod").await;
    assert!(first.iter().all(|(name, uid)| now.get(name) == Some(uid)), "no pod of it was made anew");
}

/// What users had a minute ago is not previewed, checked and promoted once more: whoever asks for it wants it back.
#[tokio::test(start_paused = true)]
async fn the_version_that_is_kept_takes_over_at_once_where_others_wait_for_a_promotion() {
    let stage = Stage::start().await;
    stage.route().await;
    let strategy = json!({"type": "BlueGreen", "blueGreen": {"autoPromote": false, "retainSeconds": 3_600}});
    stage.apply(&deployment("one", &strategy, true)).await;
    idle(&stage, "r1").await;
    let first = stage.uids("Pod").await;
    stage.apply(&deployment("two", &strategy, true)).await;
    stage
        .eventually("a preview", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["waitingFor"]["reason"] == "Previewing").then_some(())
        })
        .await;
    let (done, what) = ask(&stage, json!({"id": "1", "verb": "promote"})).await;
    assert!(done, "{what}");
    idle(&stage, "r2").await;
    // Nobody can be asked whether it is any good.
    let mut back = deployment("one", &strategy, true);
    back["spec"]["health"] = json!({"probe": {"http": {"path": "/answers/nothing"}}});
    stage.apply(&back).await;
    let status = idle(&stage, "r1").await;
    assert_eq!(status["history"][0]["outcome"], "Promoted");
    let now = stage.uids("Pod").await;
    assert!(first.iter().all(|(name, uid)| now.get(name) == Some(uid)), "no pod of it was made anew");
}

#[tokio::test(start_paused = true)]
async fn the_version_before_goes_when_its_time_is_up() {
    let stage = Stage::start().await;
    let strategy = blue_green(2);
    stage.apply(&deployment("one", &strategy, false)).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("two", &strategy, false)).await;
    stage
        .eventually("it is gone", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let is_alone = versions(&status) == [("r2".to_owned(), 4, 4, 100)];
            (is_alone && status["phase"] == "Idle").then_some(())
        })
        .await;
    assert_eq!(stage.names("LeaderWorkerSet").await.len(), 1);
}

/// Capacity is scarce: a third version takes the place of the one that is kept.
#[tokio::test(start_paused = true)]
async fn a_third_version_does_not_wait_for_the_one_that_is_kept() {
    let stage = Stage::start().await;
    let strategy = blue_green(3_600);
    for (image, version) in [("one", "r1"), ("two", "r2"), ("three", "r3")] {
        stage.apply(&deployment(image, &strategy, false)).await;
        idle(&stage, version).await;
    }
    stage.quiet().await;
    let status = idle(&stage, "r3").await;
    assert_eq!(versions(&status), [("r2".to_owned(), 4, 4, 0), ("r3".to_owned(), 4, 4, 100)]);
}
