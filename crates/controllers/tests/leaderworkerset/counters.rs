//! The numbers of a set, also while its groups change their size.

use serde_json::{Value, json};

use crate::{
    rolling, set,
    stage::{Stage, ready_groups, updated_groups},
};

/// Rows of 1.2.
#[tokio::test(start_paused = true)]
async fn leaders_are_what_the_autoscaler_sees() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    let status = stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let selector = "leaderworkerset.sigs.k8s.io/name=x,leaderworkerset.sigs.k8s.io/worker-index=0";
    assert_eq!(status["hpaPodSelector"], selector);
    let scale = stage.scale("x").await;
    assert_eq!((&scale["status"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!(selector)));
    stage.scale_to("x", 3).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
}

fn least_ready(record: &[Value]) -> u64 {
    record.iter().filter_map(|object| object["status"]["readyReplicas"].as_u64()).min().unwrap()
}

/// Bug 6.8: while groups grow from one pod to more, or shrink to one, those of the old size are not counted, or counted
/// without their workers.
#[tokio::test(start_paused = true)]
async fn groups_of_the_old_size_count_until_they_are_replaced() {
    for (from, to) in [(1, 2), (2, 1)] {
        let stage = Stage::start().await;
        stage.apply(&rolling(set("x", 2, from, "one"), 1, 0)).await;
        stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
        stage.quiet().await;
        let record = stage.record("LeaderWorkerSet").await;
        let trace = stage.trace();
        stage.apply(&rolling(set("x", 2, to, "one"), 1, 0)).await;
        stage.eventually("both have the new size", updated_groups(&stage, "x", 2)).await;
        assert_eq!(least_ready(&record.end().await), 1, "{from} to {to}");
        assert!(trace.end().await.least_serving >= 1, "{from} to {to}");
        assert_eq!(stage.pods("x").await.len(), 2 * usize::try_from(to).unwrap());
    }
    // One whose worker is not ready is not ready, whatever the size will be.
    let stage = Stage::start().await;
    stage.kubelet.ready_if(|pod| pod.metadata.name.as_deref() != Some("x-0-1"));
    stage.apply(&rolling(set("x", 2, 2, "one"), 1, 0)).await;
    stage.eventually("one group is ready", ready_groups(&stage, "x", 1)).await;
    stage.kubelet.ready_if(|pod| {
        let size =
            pod.metadata.annotations.as_ref().and_then(|it| it.get("leaderworkerset.sigs.k8s.io/size"));
        size.is_some_and(|size| size == "2") && pod.metadata.name.as_deref() != Some("x-0-1")
    });
    stage.apply(&rolling(set("x", 2, 1, "one"), 1, 0)).await;
    stage
        .eventually("the one that is not ready goes first", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            (status["updatedReplicas"] == 1 && status["readyReplicas"] == 1).then_some(())
        })
        .await;
}

/// Bug 6.2: the groups of the surge are reclaimed by their number, though they are the ones that serve.
#[tokio::test(start_paused = true)]
async fn surge_that_serves_stays_until_the_members_do() {
    let stage = Stage::start().await;
    stage.apply(&rolling(set("x", 4, 1, "one"), 2, 3)).await;
    stage.eventually("four groups are ready", ready_groups(&stage, "x", 4)).await;
    let trace = stage.trace();
    let ready = |new: &'static [&'static str]| {
        move |pod: &k8s_openapi::api::core::v1::Pod| {
            let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
            image == Some("one") || new.contains(&pod.metadata.name.as_deref().unwrap_or_default())
        }
    };
    stage.kubelet.ready_if(ready(&["x-5", "x-6"]));
    stage.apply(&rolling(set("x", 4, 1, "two"), 2, 3)).await;
    stage
        .eventually("two groups of the surge carry the service", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            (status["updatedReplicas"] == 7 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
    stage.kubelet.ready_if(ready(&["x-5", "x-6", "x-0"]));
    stage.eventually("a member is ready too", ready_groups(&stage, "x", 3)).await;
    stage.quiet().await;
    stage.kubelet.ready_if(|_| true);
    stage.eventually("all are updated", updated_groups(&stage, "x", 4)).await;
    assert!(trace.end().await.least_serving >= 2);
}
