//! Deployments on the embedded API, with a kubelet that runs nothing and a gateway that nobody asks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use serde_json::{Value, json};

use crate::stage::Stage;

fn deployment(image: &str, strategy: &Value, gateway: bool) -> Value {
    let mut traffic = json!({
        "ports": [{"name": "http", "port": 8000}], "drainSeconds": 0, "settleSeconds": 0,
    });
    if gateway {
        traffic["gateway"] = json!({"className": "segue"});
    }
    json!({
        "apiVersion": "segue.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "chat"},
        "spec": {
            "replicas": 4,
            "workload": {"type": "Pod", "pod": {"spec": {"containers": [{"name": "c", "image": image}]}}},
            "traffic": traffic,
            "strategy": strategy,
        },
    })
}

async fn idle(stage: &Stage, version: &str) -> Value {
    stage
        .eventually(&format!("idle at {version}"), || async {
            let chat = stage.get("ModelDeployment", "chat").await?;
            let status = chat["status"].clone();
            (status["phase"] == "Idle" && status["currentVersion"] == version).then_some(status)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_gateway_services_lead_to_the_current_version() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    let status = idle(&stage, "r1").await;
    assert_eq!((&status["readyReplicas"], &status["health"]), (&json!(4), &json!("Healthy")));
    let first = stage.get("Service", "chat").await.unwrap()["spec"]["selector"]["segue.dev/version"].clone();
    stage.apply(&deployment("two", &rolling, false)).await;
    let status = idle(&stage, "r2").await;
    assert_eq!(status["history"][0]["outcome"], "Promoted");
    assert_eq!(status["versions"].as_array().unwrap().len(), 1);
    let second = stage.get("Service", "chat").await.unwrap()["spec"]["selector"]["segue.dev/version"].clone();
    assert_ne!(first, second);
    assert!(stage.get("Service", "chat-preview").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_gateway_weights_move_as_units_become_ready() {
    for strategy in [
        json!({"type": "Rolling"}),
        json!({"type": "Incremental", "incremental": {
            "maxSurgePercent": 25, "stepSizePercent": 50, "intervalSeconds": 1,
        }}),
    ] {
        let stage = Stage::start().await;
        stage.route().await;
        stage.apply(&deployment("one", &strategy, true)).await;
        idle(&stage, "r1").await;
        let mut second = deployment("two", &strategy, true);
        second["spec"]["version"] = json!("two");
        stage.apply(&second).await;
        let status = idle(&stage, "two").await;
        assert_eq!(status["rollout"]["outcome"], "Promoted");
        let route = stage.get("HTTPRoute", "chat-http").await.unwrap();
        let backends = route["spec"]["rules"][0]["backendRefs"].as_array().unwrap().clone();
        assert_eq!(backends.len(), 1, "{backends:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deployment_says_of_waits_holds_for_versions_that_exist() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    let mut chat = deployment("one", &rolling, false);
    stage.apply(&chat).await;
    idle(&stage, "r1").await;
    chat["spec"]["traffic"]["drainSeconds"] = 7.into();
    stage.apply(&chat).await;
    let selector = stage.get("Service", "chat").await.unwrap()["spec"]["selector"].clone();
    let set = format!("chat-{}", selector["segue.dev/version"].as_str().unwrap());
    stage
        .eventually("the new drain at the old version", || async {
            let annotations = stage.get("LeaderWorkerSet", &set).await?["metadata"]["annotations"].clone();
            (annotations["segue.dev/drain-seconds"] == "7" && annotations["segue.dev/settle-seconds"] == "0")
                .then_some(())
        })
        .await;
    assert_eq!(stage.get("ModelDeployment", "chat").await.unwrap()["status"]["currentVersion"], "r1");
}

/// A version of this image is never ready, until somebody mends what it needs.
fn broken(stage: &Stage, image: &'static str) {
    stage.kubelet.ready_if(move |pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.into_iter().all(|container| container.image.as_deref() != Some(image))
    });
}

async fn waits_for_units(stage: &Stage) -> Value {
    stage
        .eventually("a wait", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            let wait = &status["rollout"]["waitingFor"];
            (status["phase"] == "Waiting" && !wait.is_null()).then_some(status)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_called_off_can_be_asked_for_again() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("two", &rolling, false)).await;
    waits_for_units(&stage).await;
    stage.apply(&deployment("one", &rolling, false)).await;
    let status = idle(&stage, "r1").await;
    assert_eq!(status["history"][0]["outcome"], "RolledBack");
    assert_eq!(status["rollout"]["mostReady"], 0, "units of the old version are no progress of the new one");

    stage.kubelet.ready_if(|_| true);
    stage.apply(&deployment("two", &rolling, false)).await;
    let status = idle(&stage, "r2").await;
    let outcomes: Vec<&Value> =
        status["history"].as_array().unwrap().iter().map(|record| &record["outcome"]).collect();
    assert_eq!(outcomes, ["Promoted", "RolledBack", "Promoted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_failed_by_itself_is_not_tried_again_by_itself() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    let mut second = deployment("two", &rolling, false);
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 1});
    second["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    stage.apply(&second).await;
    let status = stage
        .eventually("the way back", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["history"][0]["outcome"] == "RolledBack" && status["phase"] == "Idle").then_some(status)
        })
        .await;
    stage.quiet().await;
    // Another number of replicas is no other version, and no reason to try.
    second["spec"]["replicas"] = json!(3);
    stage.apply(&second).await;
    let after = stage
        .eventually("three units", || async {
            let status = stage.observed("ModelDeployment", "chat").await?;
            (status["replicas"] == 3 && status["phase"] == "Idle").then_some(status)
        })
        .await;
    assert_eq!(after["history"], status["history"]);
    assert_eq!(after["currentVersion"], "r1");
}
