//! Events: the reasons of the contract, once for each thing that happens.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    set,
    stage::{Stage, ready_groups, updated_groups},
};

/// What was told, by reason, action and words: how often.
async fn recorded(stage: &Stage) -> BTreeMap<(String, String, String), u64> {
    let events = stage.list("Event").await.into_iter().map(|event| {
        assert_eq!(event.data["regarding"]["kind"], "LeaderWorkerSet");
        assert_eq!(event.data["type"], "Normal");
        let text = |field: &str| event.data[field].as_str().unwrap().to_owned();
        let count = event.data["series"]["count"].as_u64().unwrap_or(1);
        ((text("reason"), text("action"), text("note")), count)
    });
    events.collect()
}

fn row(reason: &str, action: &str, note: &str) -> (String, String, String) {
    (reason.to_owned(), action.to_owned(), note.to_owned())
}

/// Rows of 1.4 that have the same moment here; what speaks of `StatefulSets` there speaks of groups. Each thing that
/// happens has an event of its own: events of one reason are not merged into the first of them.
#[tokio::test(start_paused = true)]
async fn everything_that_happens_to_a_set_is_recorded_once() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.eventually("it is available", || stage.true_condition("x", "Available")).await;
    stage.quiet().await;
    let stored =
        |set: &Value| format!("stored revision {}", set["status"]["updateRevision"].as_str().unwrap());
    let first = stored(&stage.get("LeaderWorkerSet", "x").await.unwrap());
    let available = "All replicas are ready, with 2 groups ready of total 2 groups";
    let rows = [
        row("CreatingRevision", "Create", &first),
        row("GroupsProgressing", "Create", "created groups 0, 1"),
        row("GroupsProgressing", "Update", "Replicas are progressing, with 0 groups ready of total 2 groups"),
        row("AllGroupsReady", "Update", available),
    ];
    assert_eq!(recorded(&stage).await, rows.into_iter().map(|row| (row, 1)).collect());

    stage.apply(&set("x", 2, 2, "two")).await;
    stage.eventually("both are updated", updated_groups(&stage, "x", 2)).await;
    let second = stored(&stage.get("LeaderWorkerSet", "x").await.unwrap());
    stage.apply(&set("x", 1, 2, "two")).await;
    stage.eventually("one is removed", || async { (stage.pods("x").await.len() == 2).then_some(()) }).await;
    stage.quiet().await;
    let then = recorded(&stage).await;
    let updating = "Rolling Upgrade is in progress, with 2 groups ready of total 2 groups";
    for row in [
        row("CreatingRevision", "Create", &second),
        row("GroupsUpdating", "Update", updating),
        row("GroupsUpdating", "Update", "replacing group 1"),
        row("GroupsUpdating", "Update", "replacing group 0"),
        row("GroupsProgressing", "Delete", "removing group 1"),
    ] {
        assert_eq!(then.get(&row), Some(&1), "{row:?} of {then:#?}");
    }
    assert_eq!(then[&row("AllGroupsReady", "Update", available)], 2, "what happens again counts");
    stage.fail("x-0-1").await;
    let is_it = |(reason, action, note): &(String, String, String)| {
        reason == "RecreateGroup" && action == "Delete" && note.contains("group 0")
    };
    stage.eventually("it is told", || async { recorded(&stage).await.keys().any(is_it).then_some(()) }).await;
}

/// Row 1.4, `FailedUpdate`: a change that the API refuses is told, once, and tried again until it is taken.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_refused_is_reported_and_tried_again() {
    let mut stage = Stage::start().await;
    let refusal = stage.refuse(|method, path| *method == Method::PATCH && path.contains("/pods/x-0?")).await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage
        .eventually("it was tried again", || async {
            (stage.failures("LeaderWorkerSet", "refused") > 2).then_some(())
        })
        .await;
    let events = stage.list("Event").await.into_iter().map(|it| serde_json::to_value(it).unwrap());
    let told: Vec<Value> = events.filter(|event| event["reason"] == "FailedUpdate").collect();
    let [event] = &told[..] else { panic!("{} events", told.len()) };
    assert_eq!((&event["type"], &event["action"]), (&json!("Warning"), &json!("Update")));
    assert!(event["note"].as_str().unwrap().contains("not this one"), "{event}");
    refusal.store(false, SeqCst);
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
}

/// Decision 3: one that runs without a Lease is seen by what it writes, and one that stopped is not waited for for
/// ever.
#[tokio::test(start_paused = true)]
async fn a_set_that_another_operator_works_on_is_left_alone_as_long_as_it_does() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    let manifest = set("x", 1, 1, "two");
    let theirs = PatchParams { field_manager: Some("lws".to_owned()), ..PatchParams::default() };
    let status = Patch::Merge(json!({"status": {"replicas": 7}}));
    stage.api(&manifest).patch_status("x", &theirs, &status).await.unwrap();
    stage.apply(&manifest).await;
    stage
        .eventually("it is told", || async {
            let events = stage.list("Event").await;
            events.iter().any(|it| it.data["reason"] == "AnotherOperator").then_some(())
        })
        .await;
    stage.quiet().await;
    let image = |pods: &[Pod]| pods[0].spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    assert_eq!(image(&stage.all_pods("x").await), "one");
    assert_eq!(stage.get("LeaderWorkerSet", "x").await.unwrap()["status"]["replicas"], 7);

    stage.eventually("it goes on", updated_groups(&stage, "x", 1)).await;
    assert_eq!(image(&stage.all_pods("x").await), "two");
}
