//! Weak points of the public operator, by their numbers in the notes of the design: status tells what is, nothing that
//! fails is given up, and what is foreign is left alone.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{
    kit::{self, serving, settled, status},
    stage::Stage,
};

/// 1, 11, 12: readiness that is lost is seen at once, of the generation that was looked at, and conditions exclude each
/// other.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_that_is_lost_is_told() {
    let stage = Stage::start().await;
    stage.apply(&serving(2, &[("decode", 1, 0, "d")])).await;
    settled(&stage, 2).await;
    stage.kubelet.ready_if(|pod| kit::label(pod, "group-name") != "pd-1");
    let told = stage
        .eventually("one group is not available", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            (status["availableReplicas"] == 1).then_some(status)
        })
        .await;
    assert_eq!(
        (kit::condition(&told, "Available"), kit::condition(&told, "Progressing")),
        ("False".into(), "True".into())
    );
    assert_eq!(told["roles"][0]["readyReplicas"], 1);
    let group = &told["groups"][0];
    assert_eq!(group["index"], 1, "the index of the group, not its place in a list");
    stage.kubelet.ready_if(|_| true);
    let told = settled(&stage, 2).await;
    assert_eq!(kit::condition(&told, "Progressing"), "False");
    let over = told["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Progressing").unwrap();
    assert_eq!(over["message"], "", "what is over leaves no message behind");
}

/// 7: a pod with our labels and no owner is somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_only_looks_like_ours_changes_nothing() {
    let stage = Stage::start().await;
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let stranger = serde_json::from_value(json!({
        "metadata": {"name": "stranger", "labels": {
            "modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/group-name": "pd-7",
            "modelserving.volcano.sh/role": "decode", "modelserving.volcano.sh/role-id": "decode-0",
        }},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &stranger).await.unwrap();
    stage.apply(&serving(1, &[("decode", 1, 0, "d")])).await;
    settled(&stage, 1).await;
    assert!(kit::names(&stage).await.contains(&"stranger".to_owned()));
}

/// 2 and 18: a pod that cannot be made because its name is taken is tried again until it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_tried_again() {
    let stage = Stage::start().await;
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let other = serde_json::from_value(json!({
        "metadata": {"name": "pd-0-decode-1-0"}, "spec": {"containers": [{"name": "c", "image": "x"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &other).await.unwrap();
    stage.apply(&serving(1, &[("decode", 2, 0, "d")])).await;
    stage
        .eventually("the other replica serves", || async {
            (status(&stage).await["roles"][0]["readyReplicas"] == 1).then_some(())
        })
        .await;
    kit::delete_pod(&stage, "pd-0-decode-1-0").await;
    settled(&stage, 1).await;
}

/// 3, 4 and 8: a restart of the operator in the middle of an upgrade strands nothing and claims nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_an_upgrade_strands_nothing() {
    let mut stage = Stage::start().await;
    stage.apply(&kit::pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two" || kit::label(pod, "role-id") == "decode-3");
    stage.apply(&kit::pd("two", "two")).await;
    stage
        .eventually("the prefill canary is on its way", || async {
            (status(&stage).await["groups"][0]["step"]["index"] == 1).then_some(())
        })
        .await;
    stage.quiet().await;
    let told = status(&stage).await;
    assert_eq!((&told["updatedReplicas"], &told["currentReplicas"]), (&json!(0), &json!(1)));
    assert_ne!(told["currentRevision"], told["updateRevision"]);
    stage.kill().await;
    stage.run();
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
    assert!(kit::images(&stage).await.values().all(|image| image == "two"));
}

/// The scheduler of every pod is named by the spec; where there is none, that is said.
#[tokio::test(flavor = "multi_thread")]
async fn why_a_pod_is_not_ready_is_told() {
    let stage = Stage::start().await;
    stage.apply(&kit::pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    stage.apply(&kit::pd("two", "two")).await;
    stage
        .eventually("the canary is on its way", || async {
            status(&stage).await["groups"][0]["step"]["blockingPod"].as_str().map(ToOwned::to_owned)
        })
        .await;
    // What a kubelet says of an image that cannot be pulled.
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let mut pod = pods.get("pd-0-decode-3-0").await.unwrap();
    pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].state = serde_json::from_value(
        json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
    )
    .unwrap();
    pods.replace_status("pd-0-decode-3-0", &PostParams::default(), &pod).await.unwrap();
    stage
        .eventually("the reason is told", || async {
            let status = status(&stage).await;
            let reason = status["groups"][0]["step"]["reason"].as_str()?.to_owned();
            reason.contains("ImagePullBackOff no such image").then_some(())
        })
        .await;
    stage
        .eventually("and in an event", || async {
            let events = kit::events(&stage).await;
            events
                .iter()
                .any(|(reason, note)| reason == "StepWaits" && note.contains("ImagePullBackOff"))
                .then_some(())
        })
        .await;
}
