//! Deployments on the embedded API, with a kubelet that runs nothing and a gateway that nobody asks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod capacity;
mod checks;
mod clock;
mod deadlines;
mod foreign;
mod nodes;
mod outside_checks;
mod retained;
mod scaling;
#[path = "../stage/mod.rs"]
mod stage;
mod strategies;
mod traffic_ports;
mod truth;
mod verbs;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
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

/// A condition of the deployment, once it is true.
async fn condition(stage: &Stage, ty: &str) -> Value {
    stage
        .eventually(ty, || async {
            let status = stage.get("ModelDeployment", "chat").await?["status"].clone();
            let mut all = status["conditions"].as_array()?.iter();
            all.find(|it| it["type"] == ty && it["status"] == "True").cloned()
        })
        .await
}

/// The notes of the events of one reason.
async fn notes(stage: &Stage, reason: &str) -> Vec<String> {
    let events = stage.list("Event").await.into_iter().filter(|event| event.data["reason"] == reason);
    events.map(|event| event.data["note"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
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
    let mut promoted = notes(&stage, "Promoted").await;
    promoted.sort();
    assert_eq!(promoted, ["version r1 carries all traffic", "version r2 carries all traffic"]);
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

/// Another spelling of the same quantity is no other version; another quantity is.
#[tokio::test(start_paused = true)]
async fn a_quantity_in_other_words_is_no_new_version() {
    let stage = Stage::start().await;
    let with_cpu = |cpu: &str| {
        let mut chat = deployment("one", &json!({"type": "Rolling"}), false);
        chat["spec"]["workload"]["pod"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": cpu}});
        chat
    };
    stage.apply(&with_cpu("10m")).await;
    idle(&stage, "r1").await;
    let pods = stage.uids("Pod").await;
    stage.apply(&with_cpu("0.01")).await;
    stage
        .eventually("the new spec is observed", || async { stage.observed("ModelDeployment", "chat").await })
        .await;
    stage.quiet().await;
    let status = idle(&stage, "r1").await;
    assert_eq!((status["history"].as_array().unwrap().len(), &status["targetVersion"]), (1, &json!("r1")));
    assert_eq!(stage.uids("Pod").await, pods);
    stage.apply(&with_cpu("20m")).await;
    idle(&stage, "r2").await;
}

/// A version of this image is never ready, until somebody mends what it needs.
fn broken(stage: &Stage, image: &'static str) {
    stage.kubelet.ready_if(move |pod| !is_of(pod, image));
}

fn is_of(pod: &Pod, image: &str) -> bool {
    pod.spec.iter().any(|spec| spec.containers[0].image.as_deref() == Some(image))
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

#[tokio::test(start_paused = true)]
async fn a_version_that_was_called_off_can_be_wanted_again() {
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
    assert_eq!(
        status["rollout"]["furthest"]["ready"], 0,
        "units of the old version are no progress of the new one"
    );

    stage.kubelet.ready_if(|_| true);
    stage.apply(&deployment("two", &rolling, false)).await;
    let status = idle(&stage, "r2").await;
    let outcomes: Vec<&Value> =
        status["history"].as_array().unwrap().iter().map(|record| &record["outcome"]).collect();
    assert_eq!(outcomes, ["Promoted", "RolledBack", "Promoted"]);
}

/// One replica that is ready and fails, again and again, brings the rollout no further than it was: its deadline comes.
#[tokio::test(start_paused = true)]
async fn what_is_lost_and_won_back_is_no_progress() {
    let stage = Stage::start().await;
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    let mut second = deployment("two", &rolling, false);
    second["spec"]["rollback"] = json!({"progressDeadlineSeconds": 4});
    second["spec"]["health"] = json!({"readyDeadlineSeconds": 1});
    broken(&stage, "two");
    stage.apply(&second).await;
    waits_for_units(&stage).await;
    let first = stage
        .eventually("a pod of the new version", || async {
            let pods = stage.list("Pod").await;
            let new = pods.into_iter().find(|pod| pod.data["spec"]["containers"][0]["image"] == "two")?;
            Some(new.name_any())
        })
        .await;
    let ends = stage.eventually("the way back", || async {
        let status = stage.observed("ModelDeployment", "chat").await?;
        (status["history"][0]["outcome"] == "RolledBack").then_some(())
    });
    let flaps = async {
        for is_up in [true, false].into_iter().cycle() {
            let first = first.clone();
            stage.kubelet.ready_if(move |pod| is_of(pod, "one") || is_up && pod.name_any() == first);
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    };
    tokio::select! {
        () = ends => {}
        () = flaps => {}
    }
}

/// A number names one version for ever: also one that is gone, and was the last.
#[tokio::test(start_paused = true)]
async fn a_number_is_never_given_twice() {
    let stage = Stage::start().await;
    broken(&stage, "two");
    let rolling = json!({"type": "Rolling"});
    stage.apply(&deployment("one", &rolling, false)).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("two", &rolling, false)).await;
    waits_for_units(&stage).await;
    stage.apply(&deployment("one", &rolling, false)).await;
    let status = idle(&stage, "r1").await;
    assert_eq!(status["versions"].as_array().unwrap().len(), 1, "the second one is gone");
    stage.apply(&deployment("three", &rolling, false)).await;
    let status = idle(&stage, "r3").await;
    assert_eq!((&status["versions"][0]["revision"], &status["latestRevision"]), (&json!(3), &json!(3)));
}

#[tokio::test(start_paused = true)]
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
