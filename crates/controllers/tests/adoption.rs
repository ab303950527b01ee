//! Sets that another operator made, on the embedded API.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use std::collections::BTreeMap;

use controllers::adopt::Step;
use kube::ResourceExt;
use serde_json::{Value, json};
use testbed::inherited;

use crate::stage::{Stage, ready_groups};

fn set(image: &str) -> Value {
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "x", "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"}},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 2,
                "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}},
            },
        },
    })
}

/// A stage on which another operator has made a set, and ours has not begun.
async fn inherited() -> Stage {
    let mut stage = Stage::start().await;
    stage.kill().await;
    inherited::inherit(&stage.client, "default", &set("one")).await.unwrap();
    stage
        .eventually("the pods are ready", || async {
            let pods = stage.all_pods("x").await;
            let ready = |pod: &k8s_openapi::api::core::v1::Pod| {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
            };
            (pods.len() == 4 && pods.iter().all(ready)).then_some(())
        })
        .await;
    stage
}

async fn uids(stage: &Stage) -> BTreeMap<String, String> {
    stage.all_pods("x").await.iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect()
}

async fn writes(stage: &Stage) -> Vec<Step> {
    stage.adoption("LeaderWorkerSet").await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_a_set_of_another_operator() {
    let mut stage = inherited().await;
    let before = stage.revision().await;
    stage.run();
    stage
        .eventually("it is told why nothing is done", || async {
            let events = stage.api(&json!({"apiVersion": "events.k8s.io/v1", "kind": "Event"}));
            let events = events.list(&kube::api::ListParams::default()).await.unwrap();
            events.items.iter().any(|event| event.data["reason"] == "NotAdopted").then_some(())
        })
        .await;
    stage.quiet().await;
    // The endpoints of its Service are nobody else's to write here.
    let mut changed = stage.changed_since(before).await;
    changed.retain(|object| !object.ends_with("EndpointSlice"));
    assert_eq!(changed, Vec::<String>::new());
}

/// Whoever takes over may stop after any write, with our controllers at work: no pod is ever made again.
#[tokio::test(start_paused = true)]
async fn adoption_keeps_every_pod_wherever_it_stops() {
    let all = writes(&inherited().await).await.len();
    assert_eq!(all, 5, "a Service and four pods");
    for stop in 0..all {
        let mut stage = inherited().await;
        let before = uids(&stage).await;
        stage.run();
        for write in writes(&stage).await.iter().take(stop) {
            stage.adopt(write).await;
        }
        stage.quiet().await;
        assert_eq!(uids(&stage).await, before, "stopped after {stop} writes");
        for write in &writes(&stage).await {
            stage.adopt(write).await;
        }
        stage.eventually("both groups are ready", ready_groups(&stage, "x", 2)).await;
        stage.quiet().await;
        assert_eq!(uids(&stage).await, before, "taken over after {stop} writes");
        assert_eq!(writes(&stage).await, []);
        let status = stage.observed("LeaderWorkerSet", "x").await.unwrap();
        assert_eq!(
            (&status["updatedReplicas"], &status["updateRevision"]),
            (&json!(2), &json!(inherited::KEY))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_set_is_updated_as_any_other() {
    let mut stage = inherited().await;
    stage.run();
    for write in &writes(&stage).await {
        stage.adopt(write).await;
    }
    stage.eventually("both groups are ready", ready_groups(&stage, "x", 2)).await;
    let trace = stage.trace();
    stage.apply(&set("two")).await;
    stage
        .eventually("every group is of the new template", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            (status["updatedReplicas"] == 2 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
    let seen = trace.end().await;
    assert!(seen.least_serving >= 1 && seen.most_groups <= 2, "{seen:?}");
}
