//! What the API refuses holds back what depends on it, and nothing else; it is told in a condition.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use http::Method;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    set,
    stage::{Stage, ready_groups},
};

/// Another client changes an object.
async fn edit(stage: &Stage, kind: &str, name: &str, patch: &Value) {
    let live = stage.get(kind, name).await.unwrap();
    let parameters = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    stage.api(&live).patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
}

async fn uid(stage: &Stage, pod: &str) -> Option<String> {
    stage.uids("Pod").await.get(pod).cloned()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_repaired_keeps_no_group_from_being_made_again() {
    let mut stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("both groups are ready", ready_groups(&stage, "x", 2)).await;
    let refusal =
        stage.refuse(|method, path| *method == Method::PATCH && path.contains("/services/x?")).await;
    edit(&stage, "Service", "x", &json!({"spec": {"selector": {"more": "than-ours"}}})).await;
    stage.eventually("it is told", || stage.true_condition("x", "WritesRefused")).await;

    let before = uid(&stage, "x-0").await;
    stage.fail("x-0-1").await;
    stage
        .eventually("the group is made again", || async {
            let now = uid(&stage, "x-0").await?;
            (Some(&now) != before.as_ref()).then_some(())
        })
        .await;
    stage.eventually("both groups are ready again", ready_groups(&stage, "x", 2)).await;

    refusal.store(false, SeqCst);
    stage
        .eventually("the Service is repaired, and nothing is told any more", || async {
            let service = stage.get("Service", "x").await?;
            let is_over = stage.true_condition("x", "WritesRefused").await.is_none();
            (service["spec"]["selector"]["more"].is_null() && is_over).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn labels_that_cannot_be_set_back_are_reported() {
    let mut stage = Stage::start().await;
    stage.apply(&set("x", 1, 2, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let label = "leaderworkerset.sigs.k8s.io/group-index";
    let refusal =
        stage.refuse(|method, path| *method == Method::PATCH && path.contains("/pods/x-0-1?")).await;
    edit(&stage, "Pod", "x-0-1", &json!({"metadata": {"labels": {label: null}}})).await;
    let refused = stage.eventually("it is told", || stage.true_condition("x", "WritesRefused")).await;
    assert_eq!(refused["reason"], "FailedUpdate", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("x-0-1"), "{refused}");
    let before = stage.uids("Pod").await;

    refusal.store(false, SeqCst);
    stage
        .eventually("the label is back, and nothing is told any more", || async {
            let pod = stage.get("Pod", "x-0-1").await?;
            let is_over = stage.true_condition("x", "WritesRefused").await.is_none();
            (pod["metadata"]["labels"][label] == "0" && is_over).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(stage.uids("Pod").await, before, "no pod is made again for a label");
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_cannot_be_read_is_named_until_it_can() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let revision = stage.list("ControllerRevision").await.remove(0);
    let label = "leaderworkerset.sigs.k8s.io/template-revision-hash";
    let key = revision.labels()[label].clone();
    let labelled = |key: Value| json!({"metadata": {"labels": {label: key}}});
    edit(&stage, "ControllerRevision", &revision.name_any(), &labelled(Value::Null)).await;
    let told = stage.eventually("it is told", || stage.true_condition("x", "Unreadable")).await;
    assert_eq!(told["reason"], "Malformed", "{told}");
    assert!(told["message"].as_str().unwrap().contains(&revision.name_any()), "{told}");

    edit(&stage, "ControllerRevision", &revision.name_any(), &labelled(key.into())).await;
    stage
        .eventually("nothing is told any more", || async {
            stage.true_condition("x", "Unreadable").await.is_none().then_some(())
        })
        .await;
}

/// An API that lists and does not watch is not listed four times a second.
#[tokio::test(start_paused = true)]
async fn watches_that_are_refused_make_no_hot_loop() {
    let mut stage = Stage::start().await;
    let lists = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&lists);
    let refusal = stage
        .refuse(move |method, path| {
            let watches = path.contains("watch=true");
            if *method == Method::GET && path.starts_with("/api/v1/pods?") && !watches {
                counted.fetch_add(1, SeqCst);
            }
            watches
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    let made = lists.load(SeqCst);
    assert!((10..40).contains(&made), "{made} lists in ten minutes");
    refusal.store(false, SeqCst);
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
}
