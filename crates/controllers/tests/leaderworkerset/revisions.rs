//! Revisions: one for each template, however it is written; the last ones are kept to go back to.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    set,
    stage::{Stage, ready_groups},
};

const REVISION: &str = "ControllerRevision";

/// Bug 6.1: a set whose pods are refused stores one more revision at every retry.
#[tokio::test(start_paused = true)]
async fn a_set_whose_pods_are_refused_has_one_revision_however_often_it_is_tried() {
    let stage = Stage::start().await;
    let mut bad = set("x", 1, 1, "one");
    bad["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] =
        json!({"labels": {"a": "bad%d value"}});
    stage.apply(&bad).await;
    stage
        .eventually("it was tried again and again", || async {
            (stage.failures("LeaderWorkerSet", "refused") > 3).then_some(())
        })
        .await;
    let events = stage.list("Event").await.into_iter().map(|it| serde_json::to_value(it).unwrap());
    let told: Vec<Value> = events.filter(|event| event["reason"] == "FailedCreate").collect();
    // However often it is tried, it is told once.
    let [event] = &told[..] else { panic!("{} events", told.len()) };
    assert!(event["series"].is_null(), "{event}");
    // Bug 6.22: a percent sign in a note is taken for a format.
    assert!(event["note"].as_str().unwrap().contains("bad%d value"), "{}", event["note"]);
    assert_eq!(event["type"], "Warning");
    assert_eq!(stage.names(REVISION).await.len(), 1);
    // It is not wedged either: a template that is accepted rolls out.
    stage.apply(&set("x", 1, 1, "two")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
}

/// Bug 6.20: a look that does not know yet what the one before has stored stores it again.
#[tokio::test(start_paused = true)]
async fn a_restart_finds_the_revision_that_was_stored() {
    let mut stage = Stage::start().await;
    stage.apply(&set("x", 1, 1, "one")).await;
    let before = stage
        .eventually("the revision is stored", || async {
            let stored = stage.uids(REVISION).await;
            (!stored.is_empty()).then_some(stored)
        })
        .await;
    stage.kill().await;
    stage.run();
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    assert_eq!(stage.uids(REVISION).await, before);
}

/// Row 2.2: what is written otherwise and means the same is no new revision.
#[tokio::test(start_paused = true)]
async fn another_text_of_the_same_template_replaces_no_group() {
    let stage = Stage::start().await;
    let written = |cpu: &str, policy: &str, host_network: bool| {
        let mut set = set("x", 1, 2, "one");
        let template = &mut set["spec"]["leaderWorkerTemplate"];
        template["restartPolicy"] = json!(policy);
        let spec = &mut template["workerTemplate"]["spec"];
        spec["containers"][0]["resources"] = json!({"limits": {"cpu": cpu}});
        if host_network {
            spec["hostNetwork"] = json!(false);
            spec["tolerations"] = json!([]);
        }
        set
    };
    stage.apply(&written("0.5", "Default", false)).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let (pods, revisions) = (stage.uids("Pod").await, stage.uids(REVISION).await);
    stage.apply(&written("500m", "None", true)).await;
    stage.eventually("it is looked at", || stage.observed("LeaderWorkerSet", "x")).await;
    stage.quiet().await;
    assert_eq!((stage.uids("Pod").await, stage.uids(REVISION).await), (pods, revisions));
}

#[tokio::test(start_paused = true)]
async fn the_last_ten_revisions_are_kept_and_one_that_is_wanted_again_is_the_newest() {
    let stage = Stage::start().await;
    let image = |number: u32| format!("image-{number}");
    for number in 0..13 {
        stage.apply(&set("x", 0, 1, &image(number))).await;
        stage.eventually("it is looked at", || stage.observed("LeaderWorkerSet", "x")).await;
    }
    let stored = || async {
        let mut stored: Vec<(i64, String, String)> = stage
            .list(REVISION)
            .await
            .into_iter()
            .map(|revision| {
                let template = &revision.data["data"]["spec"]["leaderWorkerTemplate"]["workerTemplate"];
                let image = template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
                (revision.data["revision"].as_i64().unwrap(), image, revision.uid().unwrap())
            })
            .collect();
        stored.sort();
        stored
    };
    let kept = stage
        .eventually("ten are kept beside the one that is used", || async {
            let stored = stored().await;
            (stored.len() == 11).then_some(stored)
        })
        .await;
    let images: Vec<String> = kept.iter().map(|(_, image, _)| image.clone()).collect();
    assert_eq!(images, (2..13).map(image).collect::<Vec<_>>());
    stage.apply(&set("x", 0, 1, &image(5))).await;
    stage
        .eventually("the sixth is the newest again, and the same object", || async {
            let stored = stored().await;
            let (number, image, uid) = stored.last()?;
            (image == "image-5" && *number == 14 && *uid == kept[3].2 && stored.len() == 11).then_some(())
        })
        .await;
    let status = stage.eventually("it is looked at", || stage.observed("LeaderWorkerSet", "x")).await;
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    tokio::time::timeout(Duration::from_secs(30), stage.quiet()).await.unwrap();
}
