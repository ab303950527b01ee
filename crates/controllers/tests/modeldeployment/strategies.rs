//! What users and people see of each strategy.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{broken, deployment, idle, notes, verbs::ask};
use crate::stage::Stage;

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Green is whole, can be looked at and has no traffic until its delay is over, which runs from when it is whole. Then it
/// has everything at once.
#[tokio::test(start_paused = true)]
async fn green_is_looked_at_from_when_it_is_whole_and_gets_everything_at_once() {
    let stage = Stage::start().await;
    stage.route().await;
    let strategy = json!({"type": "BlueGreen", "blueGreen": {"promoteDelaySeconds": 60, "retainSeconds": 0}});
    stage.apply(&deployment("one", &strategy, true)).await;
    idle(&stage, "r1").await;
    broken(&stage, "two");
    let record = stage.record("ModelDeployment").await;
    stage.apply(&deployment("two", &strategy, true)).await;
    // Longer than the delay: it does not run while green is not whole.
    tokio::time::sleep(Duration::from_secs(100)).await;
    stage.kubelet.ready_if(|_| true);
    stage
        .eventually("a whole preview", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["rollout"]["waitingFor"]["reason"] == "Previewing").then_some(())
        })
        .await;
    assert!(stage.get("Service", "chat-preview").await.is_some(), "it can be looked at");
    let status = idle(&stage, "r2").await;
    let began = time(&status["rollout"]["startedAt"]);
    let mut previews = 0;
    for seen in record.end().await {
        let status = &seen["status"];
        let versions = status["versions"].as_array().cloned().unwrap_or_default();
        let Some(green) = versions.iter().find(|it| it["name"] == "r2") else { continue };
        let desired = green["traffic"]["desired"].as_i64().unwrap();
        assert!(desired == 0 || desired == 100, "no shares: {green}");
        if status["rollout"]["waitingFor"]["reason"] == "Previewing" {
            previews += 1;
            assert_eq!((desired, &green["readyReplicas"]), (0, &json!(4)), "{green}");
            let wait = &status["rollout"]["waitingFor"];
            let looked_at = time(&wait["deadline"]).duration_since(time(&wait["since"]));
            assert_eq!(looked_at.as_secs(), 60, "{wait}");
            assert!(time(&wait["since"]).duration_since(began).as_secs() >= 100, "{wait}");
        }
    }
    assert!(previews > 0);
    let finished = time(&status["history"][0]["finishedAt"]);
    assert!(finished.duration_since(began).as_secs() >= 160, "{status}");
    assert_eq!(
        (&status["health"], &status["history"][0]["outcome"]),
        (&json!("Healthy"), &json!("Promoted"))
    );
}

/// A pause says at which percent, until when, and what comes then.
#[tokio::test(start_paused = true)]
async fn a_pause_of_a_canary_says_where_until_when_and_what_then() {
    let stage = Stage::start().await;
    stage.route().await;
    let steps =
        json!([{"weight": 25}, {"pause": {"seconds": 30}}, {"weight": 50}, {"pause": {}}, {"weight": 100}]);
    let strategy = json!({"type": "Canary", "canary": {"maxSurge": 1, "steps": steps}});
    stage.apply(&deployment("one", &strategy, true)).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("two", &strategy, true)).await;
    let paused_at = |step: u64| {
        let stage = &stage;
        async move {
            stage
                .eventually("a pause", || async {
                    let status = stage.observed("ModelDeployment", "chat").await?;
                    let wait = status["rollout"]["waitingFor"].clone();
                    (status["rollout"]["step"] == step && wait["reason"] == "Paused").then_some(wait)
                })
                .await
        }
    };
    let timed = paused_at(1).await;
    assert_eq!(timed["subject"], "paused with 25% of the traffic moved, at step 2 of 5");
    assert_eq!(time(&timed["deadline"]).duration_since(time(&timed["since"])).as_secs(), 30, "{timed}");
    assert_eq!(timed["onExpiry"], "50% of the traffic moves");
    let open = paused_at(3).await;
    assert_eq!(open["subject"], "paused with 50% of the traffic moved, at step 4 of 5");
    assert_eq!(
        (&open["deadline"], &open["onExpiry"]),
        (&Value::Null, &json!("100% of the traffic moves, once it is promoted"))
    );
    let status = stage.observed("ModelDeployment", "chat").await.unwrap();
    let paused =
        status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Paused").unwrap().clone();
    assert_eq!(paused["status"], "False", "no person holds it");
    let (done, what) = ask(&stage, json!({"id": "1", "verb": "promote"})).await;
    assert!(done, "{what}");
    idle(&stage, "r2").await;
    let mut entered = notes(&stage, "StepEntered").await;
    entered.sort();
    let steps = (2..=5).map(|step| format!("the rollout enters step {step} of 5"));
    let expected: Vec<String> =
        ["5 steps of the rollout are done".to_owned()].into_iter().chain(steps).collect();
    assert_eq!(entered, expected);
}

/// A change of the environment alone is a version of its own, and nobody restates the workload for it.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_environment_alone_is_rolled_out() {
    for strategy in
        [json!({"type": "Rolling"}), json!({"type": "BlueGreen", "blueGreen": {"retainSeconds": 0}})]
    {
        let stage = Stage::start().await;
        let mut chat = deployment("one", &strategy, false);
        for (value, version) in [("32", "r1"), ("64", "r2")] {
            chat["spec"]["env"] = json!([{"name": "MAX_BATCH", "value": value}]);
            stage.apply(&chat).await;
            idle(&stage, version).await;
        }
        stage.quiet().await;
        let pods = stage.list("Pod").await;
        assert_eq!(pods.len(), 4);
        for pod in pods {
            let container = &pod.data["spec"]["containers"][0];
            let env = container["env"].as_array().unwrap();
            assert!(env.contains(&json!({"name": "MAX_BATCH", "value": "64"})), "{container}");
            assert_eq!(container["image"], "one");
        }
    }
}
