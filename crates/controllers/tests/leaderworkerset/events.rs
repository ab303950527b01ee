//! Events: the reasons of the contract, once for each thing that happens.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    api::{Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};
use tower::service_fn;

use crate::{
    set,
    stage::{Stage, ready_groups, updated_groups},
};

/// What was told, by reason and action: how often, and in which words the first time. Kubernetes counts events of one
/// reason and one action together.
async fn told(stage: &Stage) -> BTreeMap<(String, String), (u64, String)> {
    let events = stage.list("Event").await.into_iter().map(|event| {
        assert_eq!(event.data["regarding"]["kind"], "LeaderWorkerSet");
        assert_eq!(event.data["type"], "Normal");
        let text = |field: &str| event.data[field].as_str().unwrap().to_owned();
        let count = event.data["series"]["count"].as_u64().unwrap_or(1);
        ((text("reason"), text("action")), (count, text("note")))
    });
    events.collect()
}

fn row(reason: &str, action: &str, count: u64, note: &str) -> ((String, String), (u64, String)) {
    ((reason.to_owned(), action.to_owned()), (count, note.to_owned()))
}

/// Rows of 1.4 that have the same moment here; what speaks of `StatefulSets` there speaks of groups.
#[tokio::test(flavor = "multi_thread")]
async fn everything_that_happens_to_a_set_is_told_once() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.eventually("it is available", || stage.true_condition("x", "Available")).await;
    stage.quiet().await;
    let first = told(&stage).await;
    let key = stage.get("LeaderWorkerSet", "x").await.unwrap()["status"]["updateRevision"].clone();
    let stored = format!("stored revision {}", key.as_str().unwrap());
    let wanted = BTreeMap::from([
        row("CreatingRevision", "Create", 1, &stored),
        row("GroupsProgressing", "Create", 1, "made: groups 0, 1"),
        row(
            "GroupsProgressing",
            "Update",
            1,
            "Replicas are progressing, with 0 groups ready of total 2 groups",
        ),
        row("AllGroupsReady", "Update", 1, "All replicas are ready, with 2 groups ready of total 2 groups"),
    ]);
    assert_eq!(first, wanted);

    stage.apply(&set("x", 2, 2, "two")).await;
    stage.eventually("both are updated", updated_groups(&stage, "x", 2)).await;
    stage.apply(&set("x", 1, 2, "two")).await;
    stage.eventually("one is removed", || async { (stage.pods("x").await.len() == 2).then_some(()) }).await;
    stage.quiet().await;
    let then = told(&stage).await;
    let note = "Rolling Upgrade is in progress, with 2 groups ready of total 2 groups";
    // The condition, and each of the two groups.
    let (what, updating) = row("GroupsUpdating", "Update", 3, note);
    assert_eq!(then[&what], updating);
    let (what, removed) = row("GroupsProgressing", "Delete", 1, "removed: group 1");
    assert_eq!(then[&what], removed);
    let (what, _) = row("CreatingRevision", "Create", 2, "");
    assert_eq!(then[&what].0, 2);
    stage.fail("x-0-1").await;
    let (what, _) = row("RecreateGroup", "Delete", 1, "");
    let (count, note) = stage.eventually("it is told", || async { told(&stage).await.remove(&what) }).await;
    assert!(count == 1 && note.contains("group 0"), "{note}");
}

/// Row 1.4, `FailedUpdate`: a change that the API refuses is told, once, and tried again until it is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_refused_is_told_and_tried_again() {
    let mut stage = Stage::start().await;
    stage.kill().await;
    let (api, refuses) = (stage.client.clone(), Arc::new(AtomicBool::new(true)));
    let refusing = {
        let refuses = Arc::clone(&refuses);
        service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let is_it = request.method() == Method::PATCH && path.ends_with("/pods/x-0");
            let (api, says_no) = (api.clone(), is_it && refuses.load(SeqCst));
            async move {
                if !says_no {
                    return api.send(request).await;
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid",
                    "message": "not this one",
                });
                let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
                Ok(answer)
            }
        })
    };
    stage.client = Client::new(refusing, "default");
    stage.run();
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
    refuses.store(false, SeqCst);
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
}

/// Decision 3: one that runs without a Lease is seen by what it writes, and one that stopped is not waited for for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_another_operator_works_on_is_left_alone_as_long_as_it_does() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    stage.quiet().await;
    let manifest = set("x", 1, 1, "two");
    let theirs = PatchParams { field_manager: Some("manager".to_owned()), ..PatchParams::default() };
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
