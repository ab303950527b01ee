//! Weak points of the public operator, by their numbers in the notes of the design: status tells what is, nothing that
//! fails is given up, and what is foreign is left alone.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    kit::{self, serving, settled, status},
    stage::Stage,
};

/// 1, 11, 12: readiness that is lost is seen at once, of the generation that was looked at, and conditions exclude each
/// other.
#[tokio::test(start_paused = true)]
async fn readiness_that_is_lost_is_reported() {
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
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_controlled_by_us_changes_nothing() {
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
#[tokio::test(start_paused = true)]
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
#[tokio::test(start_paused = true)]
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
#[tokio::test(start_paused = true)]
async fn the_reason_of_an_unready_pod_is_reported() {
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
    let waits = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    stage
        .eventually("it is said, whatever else is written at the same time", || async {
            let mut pod = pods.get("pd-0-decode-3-0").await.unwrap();
            let containers = pod.status.as_mut()?.container_statuses.as_mut()?;
            containers[0].state = serde_json::from_value(waits.clone()).unwrap();
            pods.replace_status("pd-0-decode-3-0", &PostParams::default(), &pod).await.ok()
        })
        .await;
    stage
        .eventually("the reason is told", || async {
            let status = status(&stage).await;
            let reason = status["groups"][0]["step"]["reason"].as_str()?.to_owned();
            reason.contains("ImagePullBackOff: no such image").then_some(())
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
    let status = status(&stage).await;
    assert_eq!(kit::condition(&status, "Stalled"), "True", "this does not pass by itself: {status}");
}

/// 25: a pod that only takes its time holds nobody up until its time is over, and then it does nothing but say so.
#[tokio::test(start_paused = true)]
async fn a_step_is_stalled_when_its_pod_has_had_its_time() {
    let stage = Stage::start().await;
    let pd = |image: &str, seconds: &str| {
        let mut serving = kit::pd("one", image);
        serving["metadata"]["annotations"]["segue.dev/progress-seconds"] = seconds.into();
        serving
    };
    stage.apply(&pd("one", "600")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    stage.apply(&pd("two", "600")).await;
    let message = stage
        .eventually("the step waits for the canary", || async {
            let status = status(&stage).await;
            let waits = status["groups"][0]["step"]["blockingPod"] == "pd-0-decode-3-0";
            waits.then(|| status["groups"][0]["waitingFor"].clone())
        })
        .await;
    assert!(
        message["deadline"].is_string()
            && message["onExpiry"].as_str().unwrap().starts_with("the step counts as stalled"),
        "{message}"
    );
    stage.quiet().await;
    assert_eq!(kit::condition(&status(&stage).await, "Stalled"), "absent");
    let told = kit::events(&stage).await;
    assert!(!told.iter().any(|(reason, _)| reason == "StepWaits"), "{told:?}");

    stage.apply(&pd("two", "1")).await;
    stage
        .eventually("the step is stalled", || async {
            (kit::condition(&status(&stage).await, "Stalled") == "True").then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(kit::images(&stage).await.values().filter(|image| *image == "two").count(), 1);
    stage.kubelet.ready_if(|_| true);
    let status = settled(&stage, 1).await;
    assert_eq!(kit::condition(&status, "Stalled"), "absent");
}

/// On a node: a pod that has none goes as soon as it is told to.
fn placed(mut serving: Value) -> Value {
    serving["spec"]["template"]["roles"][0]["entryTemplate"]["spec"]["nodeName"] = "n".into();
    serving
}

/// Whole groups, of which those below the partition stay.
fn grouped(partition: u32, max_unavailable: u32, image: &str) -> Value {
    let mut serving = serving(3, &[("decode", 1, 0, image)]);
    let rolling = json!({"partition": partition, "maxUnavailable": max_unavailable});
    serving["spec"]["rolloutStrategy"] =
        json!({"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": rolling});
    placed(serving)
}

/// 13: a group below the partition that does not serve is missing like any other.
#[tokio::test(start_paused = true)]
async fn a_protected_group_that_does_not_serve_counts_as_missing() {
    let stage = Stage::start().await;
    stage.apply(&grouped(1, 1, "one")).await;
    settled(&stage, 3).await;
    stage.kubelet.ready_if(|pod| kit::label(pod, "group-name") != "pd-0");
    stage
        .eventually("one group is not available", || async {
            (stage.observed("ModelServing", "pd").await?["availableReplicas"] == 2).then_some(())
        })
        .await;
    stage.apply(&grouped(1, 1, "two")).await;
    stage
        .eventually("the new template is seen", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            (status["currentRevision"] != status["updateRevision"]).then_some(())
        })
        .await;
    // Quiet for longer than any wait that there is here.
    for _ in 0..8 {
        stage.quiet().await;
    }
    assert!(
        kit::images(&stage).await.values().all(|image| image == "one"),
        "two of three may not be missing"
    );
    stage.kubelet.ready_if(|_| true);
    stage
        .eventually("the others are replaced when it serves again", || async {
            let images = kit::images(&stage).await;
            (images.len() == 3 && images.values().filter(|image| *image == "two").count() == 2).then_some(())
        })
        .await;
}

/// 14: a partition counts places, also where a group between them is away.
#[tokio::test(start_paused = true)]
async fn a_partition_counts_places_and_not_groups() {
    let stage = Stage::start().await;
    stage.apply(&grouped(2, 2, "one")).await;
    settled(&stage, 3).await;
    // The pod of group 0 goes, and keeps its name all the time.
    stage.kubelet.gone_if(|pod| kit::label(pod, "group-name") != "pd-0");
    kit::delete_pod(&stage, "pd-0-decode-0-0").await;
    stage.apply(&grouped(2, 2, "two")).await;
    stage
        .eventually("the third group is replaced", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            let images = kit::images(&stage).await;
            (images.get("pd-2-decode-0-0")? == "two" && status["availableReplicas"] == 2).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(kit::images(&stage).await["pd-1-decode-0-0"], "one");
    let pods = kit::pods(&stage).await;
    let goes = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    assert_eq!(pods.iter().filter(goes).count(), 1, "group 0 was away all the time");
}

/// 17: a name that a predecessor still has is waited for, and taken when it is free.
#[tokio::test(start_paused = true)]
async fn a_predecessor_that_takes_its_time_is_waited_for() {
    let stage = Stage::start().await;
    stage.apply(&placed(serving(1, &[("decode", 2, 0, "d")]))).await;
    settled(&stage, 1).await;
    let before = kit::uids(&stage).await;
    stage.kubelet.gone_if(|_| false);
    kit::delete_pod(&stage, "pd-0-decode-1-0").await;
    stage
        .eventually("it is missed", || async {
            (stage.observed("ModelServing", "pd").await?["availableReplicas"] == 0).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(kit::uids(&stage).await, before, "nobody takes its name, and nothing else is touched");
    stage.kubelet.gone_if(|_| true);
    settled(&stage, 1).await;
    let after = kit::uids(&stage).await;
    assert_eq!(after["pd-0-decode-0-0"], before["pd-0-decode-0-0"]);
    assert_ne!(after["pd-0-decode-1-0"], before["pd-0-decode-1-0"]);
}

/// 20: two controllers with memories of their own make nothing twice, and take nothing away twice.
#[tokio::test(start_paused = true)]
async fn two_controllers_do_what_one_does() {
    let mut stage = Stage::start().await;
    let first = stage.running.take();
    stage.run();
    stage.apply(&kit::pd("one", "one")).await;
    settled(&stage, 1).await;
    let watching = kit::watch(&stage).await;
    stage.apply(&kit::pd("two", "two")).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    let mut made: Vec<&String> = history.made.iter().map(|(name, _)| name).collect();
    made.sort();
    made.dedup();
    assert_eq!((made.len(), history.made.len()), (8, 8), "each replica once: {:?}", history.made);
    assert!(
        history.fewest_of("pd-0", "decode") >= 3 && history.fewest_of("pd-0", "prefill") >= 3,
        "{history:?}"
    );
    drop(first);
}

/// 21: whoever scales counts one pod of each group, also where the first replica of a role did not stay.
#[tokio::test(start_paused = true)]
async fn every_group_is_counted_once_whichever_replicas_it_has() {
    let mut stage = Stage::start().await;
    stage.apply(&serving(2, &[("decode", 3, 0, "d")])).await;
    let told = settled(&stage, 2).await;
    let chosen = ListParams::default().labels(told["labelSelector"].as_str().unwrap());
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let counted = || async {
        let found = pods.list(&chosen).await.unwrap();
        found.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert_eq!(counted().await, ["pd-0-decode-0-0", "pd-1-decode-0-0"]);
    stage.kill().await;
    let cheap = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-9"}}});
    pods.patch("pd-0-decode-0-0", &PatchParams::default(), &Patch::Merge(cheap)).await.unwrap();
    stage.apply(&serving(2, &[("decode", 2, 0, "d")])).await;
    stage.run();
    let moved = ["pd-0-decode-1-0", "pd-1-decode-0-0"];
    stage.eventually("another one counts", || async { (counted().await == moved).then_some(()) }).await;
    stage.apply(&serving(2, &[("decode", 3, 0, "d")])).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    assert_eq!(counted().await, moved, "one that comes back is not counted beside it");
}

/// What a step waits for is the pod that it made, also when an old one of the role fails after it.
#[tokio::test(start_paused = true)]
async fn the_pod_that_a_step_waits_for_is_one_that_it_made() {
    let stage = Stage::start().await;
    stage.apply(&kit::pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    stage.apply(&kit::pd("two", "two")).await;
    let waits = || async {
        let status = status(&stage).await;
        let (ready, step) = (&status["roles"][1]["readyReplicas"], &status["groups"][0]["step"]);
        (ready.as_u64(), step["blockingPod"].as_str().unwrap_or_default().to_owned())
    };
    let canary = |ready: u64| (Some(ready), "pd-0-decode-3-0".to_owned());
    stage
        .eventually("the canary is waited for", || async { (waits().await == canary(3)).then_some(()) })
        .await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two" && kit::label(pod, "role-id") != "decode-0");
    stage.eventually("an old one fails", || async { (waits().await.0 == Some(2)).then_some(()) }).await;
    stage.quiet().await;
    assert_eq!(waits().await, canary(2));
}

/// 22: what happens a second time is told a second time.
#[tokio::test(start_paused = true)]
async fn an_upgrade_soon_after_another_one_is_recorded_as_well() {
    let stage = Stage::start().await;
    let told = || async {
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(stage.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap();
        let entered = events.items.into_iter().filter(|it| {
            let note = it.note.as_deref().unwrap_or_default();
            it.reason.as_deref() == Some("StepEntered") && note.contains("step 1 of 4")
        });
        entered.map(|it| it.series.map_or(1, |series| series.count)).sum::<i32>()
    };
    for (times, image) in [(0, "one"), (1, "two"), (2, "three")] {
        stage.apply(&kit::pd(image, image)).await;
        stage
            .eventually("all of it is updated", || async {
                let images = kit::images(&stage).await;
                (images.len() == 8 && images.values().all(|it| it == image)).then_some(())
            })
            .await;
        settled(&stage, 1).await;
        assert_eq!(told().await, times);
    }
}

/// What waits for a quota waits since it began, and the status is not written with every attempt.
#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_made_waits_since_the_first_attempt() {
    let mut stage = Stage::start().await;
    let refusal = stage.refuse(|method, path| *method == http::Method::POST && path.contains("/pods?")).await;
    stage.apply(&serving(1, &[("prefill", 1, 0, "one")])).await;
    let waiting = || async {
        let serving = stage.get("ModelServing", "pd").await?;
        let told = serving["status"]["conditions"].as_array()?.iter().any(|it| it["type"] == "WritesRefused");
        let wait = serving["status"]["groups"][0]["waitingFor"].clone();
        (told && wait.is_object()).then(|| (wait, serving["metadata"]["resourceVersion"].clone()))
    };
    let before = stage.eventually("the refusal is told", waiting).await;
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    assert_eq!(waiting().await.unwrap(), before, "nothing has changed in five minutes");
    refusal.store(false, std::sync::atomic::Ordering::SeqCst);
    settled(&stage, 1).await;
}
