//! Groups: made, started, replaced, made again, counted.

use std::sync::Arc;

use controllers::{Calls, Settings};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    rolling, set,
    stage::{Stage, ready_groups, settings, updated_groups},
};

#[tokio::test(start_paused = true)]
async fn groups_are_created_become_ready_and_are_counted() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 3, "one")).await;
    let status = stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    assert_eq!((&status["replicas"], &status["updatedReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(stage.pods("x").await, ["x-0", "x-0-1", "x-0-2", "x-1", "x-1-1", "x-1-2"]);
    assert_eq!(stage.condition("x", "Available").await, "True");
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_their_own_leader_to_be_ready() {
    let stage = Stage::start().await;
    stage.kubelet.ready_if(|pod| pod.name_any() == "x-1" || pod.name_any().starts_with("x-1-"));
    let mut set = set("x", 2, 3, "one");
    set["spec"]["startupPolicy"] = json!("LeaderReady");
    stage.apply(&set).await;
    stage.eventually("the group whose leader is ready is whole", ready_groups(&stage, "x", 1)).await;
    assert_eq!(stage.pods("x").await, ["x-0", "x-1", "x-1-1", "x-1-2"]);
    let group = stage.get("LeaderWorkerSet", "x").await.unwrap()["status"]["groups"][0].clone();
    assert!(
        group["waitingFor"]["subject"].as_str().unwrap().contains("waiting for the leader to be ready"),
        "{group}"
    );
    stage.kubelet.ready_if(|_| true);
    stage.eventually("both groups are ready", ready_groups(&stage, "x", 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_group_by_group_within_the_budget() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 3, 2, "one")).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
    let trace = stage.trace();
    stage.apply(&set("x", 3, 2, "two")).await;
    stage
        .eventually("every group is of the new template", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            let updated = status["updatedReplicas"] == 3 && status["readyReplicas"] == 3;
            (updated && status["currentRevision"] == status["updateRevision"]).then_some(())
        })
        .await;
    let seen = trace.end().await;
    // One may be missing, none may be added.
    assert!(seen.least_serving >= 2, "{seen:?}");
    assert!(seen.most_groups <= 3, "{seen:?}");
    assert_eq!(seen.deleted_in_service, Vec::<String>::new());
    assert_eq!(seen.mixed_groups_ready, Vec::<String>::new());
    for pod in stage.all_pods("x").await {
        assert_eq!(pod.spec.unwrap().containers[0].image.as_deref(), Some("two"));
    }
}

#[tokio::test(start_paused = true)]
async fn with_surge_nothing_is_missing_and_the_surplus_goes() {
    let stage = Stage::start().await;
    let with_surge = |image: &str| {
        let mut set = set("x", 3, 1, image);
        set["spec"]["rolloutStrategy"] = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": {
            "maxSurge": 1, "maxUnavailable": 0,
        }});
        set
    };
    stage.apply(&with_surge("one")).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
    let trace = stage.trace();
    stage.apply(&with_surge("two")).await;
    stage
        .eventually("every group is of the new template and the surge is gone", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            let done =
                status["updatedReplicas"] == 3 && status["readyReplicas"] == 3 && status["replicas"] == 3;
            done.then_some(())
        })
        .await;
    let seen = trace.end().await;
    assert!(seen.least_serving >= 3 && seen.most_groups == 4, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_restarts_as_one_when_a_worker_fails_and_is_remembered() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let uids = |pods: Vec<k8s_openapi::api::core::v1::Pod>| -> std::collections::BTreeMap<String, String> {
        pods.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect()
    };
    let before = uids(stage.all_pods("x").await);
    stage.fail("x-1-1").await;
    stage
        .eventually("the group is made again", || async {
            let status = stage.get("LeaderWorkerSet", "x").await?["status"].clone();
            let again = status["groups"][0]["restarts"] == 1 && status["readyReplicas"] == 2;
            again.then_some(status)
        })
        .await;
    let after = uids(stage.all_pods("x").await);
    for name in ["x-0", "x-0-1"] {
        assert_eq!(before[name], after[name], "{name} belongs to another group");
    }
    for name in ["x-1", "x-1-1"] {
        assert_ne!(before[name], after[name], "{name} is made again");
    }
    let group = stage.get("LeaderWorkerSet", "x").await.unwrap()["status"]["groups"][0].clone();
    assert_eq!((&group["index"], &group["lastFailure"]["pod"]), (&json!(1), &json!("x-1-1")));
}

#[tokio::test(start_paused = true)]
async fn scaling_removes_the_highest_groups_and_comes_back() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 3, 1, "one")).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage
        .eventually("one group is left", || async { (stage.pods("x").await == ["x-0"]).then_some(()) })
        .await;
    stage.apply(&set("x", 2, 1, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    assert_eq!(stage.pods("x").await, ["x-0", "x-1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_changes() {
    let mut stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.quiet().await;
    let before = stage.revision().await;
    stage.kill().await;
    stage.run();
    // A set that is made afterwards is done with only when everything was looked at.
    stage.apply(&set("y", 1, 1, "one")).await;
    stage.eventually("the other set is ready", ready_groups(&stage, "y", 1)).await;
    let changed = stage.changed_since(before).await;
    assert!(changed.iter().all(|name| name.starts_with('y')), "{changed:?}");
}

/// Rows of 2.4 and 2.6: below the partition nothing is replaced, what fails there comes back as it was, and the set is
/// available when the others are new.
#[tokio::test(start_paused = true)]
async fn a_partition_keeps_the_groups_below_it_at_the_old_template() {
    let stage = Stage::start().await;
    let partitioned = |image: &str, partition: u32| {
        let mut set = rolling(set("x", 3, 1, image), 1, 0);
        set["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] = json!(partition);
        set
    };
    stage.apply(&partitioned("one", 0)).await;
    stage.eventually("three groups are ready", ready_groups(&stage, "x", 3)).await;
    stage.apply(&partitioned("two", 2)).await;
    let images = || async {
        let pods = stage.all_pods("x").await;
        pods.into_iter().map(|pod| pod.spec.unwrap().containers[0].image.clone().unwrap()).collect::<Vec<_>>()
    };
    let settled = || async {
        let status = stage.observed("LeaderWorkerSet", "x").await?;
        let new = status["updatedReplicas"] == 1 && status["readyReplicas"] == 3;
        (new && stage.condition("x", "Available").await == "True").then_some(())
    };
    stage.eventually("the highest group is new", settled).await;
    assert_eq!(images().await, ["one", "one", "two"]);
    let before = stage.uids("Pod").await;
    stage.delete("Pod", "x-0").await;
    stage
        .eventually("the lowest is back", || async {
            let now = stage.uids("Pod").await;
            (now.get("x-0")? != &before["x-0"]).then_some(())
        })
        .await;
    stage.eventually("all serve", settled).await;
    assert_eq!(images().await, ["one", "one", "two"]);
    stage.apply(&partitioned("two", 0)).await;
    stage.eventually("all are new", updated_groups(&stage, "x", 3)).await;
    assert_eq!(images().await, ["two", "two", "two"]);
}

/// Objects are watched by their labels. One that has lost them would never be heard of again, and its name is taken.
#[tokio::test(start_paused = true)]
async fn a_removed_label_is_set_again() {
    let settings = Settings { embedded: false, ..settings() };
    let stage = Stage::with(Arc::new(Calls::default()), settings).await;
    stage.apply(&set("x", 1, 2, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let revision = stage.names("ControllerRevision").await.remove(0);
    for (kind, name) in [("Service", "x"), ("Pod", "x-0-1"), ("ControllerRevision", &revision)] {
        let before = stage.get(kind, name).await.unwrap();
        let labels = before["metadata"]["labels"].as_object().unwrap();
        let none: serde_json::Map<String, Value> =
            labels.keys().map(|key| (key.clone(), Value::Null)).collect();
        let patch = json!({"metadata": {"labels": none}});
        stage.api(&before).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        stage
            .eventually(&format!("{kind} {name} has its labels"), || async {
                let now = stage.get(kind, name).await?;
                let is_whole = now["metadata"]["labels"] == before["metadata"]["labels"];
                (is_whole && now["metadata"]["uid"] == before["metadata"]["uid"]).then_some(())
            })
            .await;
    }
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("it goes on", ready_groups(&stage, "x", 2)).await;
}

/// Pods are told apart by their labels, and Services find them by those: a pod that has others is lost to both.
#[tokio::test(start_paused = true)]
async fn a_pod_with_changed_labels_has_them_back_and_lives_on() {
    let stage = Stage::start().await;
    let mut set = set("x", 2, 2, "one");
    set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = json!({"labels": {"app": "chat"}});
    stage.apply(&set).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let uids = stage.uids("Pod").await;
    for (name, labels) in [
        ("x-0", json!({"app": null})),
        ("x-1", json!({"app": "another"})),
        ("x-1-1", json!({"leaderworkerset.sigs.k8s.io/group-index": "0"})),
        ("x-0-1", json!({"leaderworkerset.sigs.k8s.io/worker-index": null})),
        ("x-1", json!({"leaderworkerset.sigs.k8s.io/template-revision-hash": "other"})),
    ] {
        let before = stage.get("Pod", name).await.unwrap();
        let patch = json!({"metadata": {"labels": labels}});
        stage.api(&before).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        stage
            .eventually(&format!("{name} has the labels that {labels} took"), || async {
                let now = stage.get("Pod", name).await?;
                (now["metadata"]["labels"] == before["metadata"]["labels"]).then_some(())
            })
            .await;
    }
    stage.quiet().await;
    assert_eq!(stage.uids("Pod").await, uids, "none was made again");
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
}

/// A revision that is stored twice, by whom it may be, is one revision: groups of it are of the newest.
#[tokio::test(start_paused = true)]
async fn a_revision_that_is_stored_twice_replaces_nothing() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let uids = stage.uids("Pod").await;
    let name = stage.names("ControllerRevision").await.remove(0);
    for suffix in ["1", "0"] {
        let mut twin = stage.get("ControllerRevision", &name).await.unwrap();
        let metadata = twin["metadata"].as_object_mut().unwrap();
        metadata.retain(|field, _| matches!(field.as_str(), "labels" | "ownerReferences"));
        metadata.insert("name".to_owned(), format!("{name}-{suffix}").into());
        stage.apply(&twin).await;
        stage.quiet().await;
        assert_eq!(stage.uids("Pod").await, uids, "nothing is replaced");
    }
    stage.apply(&set("x", 2, 2, "two")).await;
    stage
        .eventually("both groups are of the new revision", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            (status["updatedReplicas"] == 2 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
}

/// What the API refuses to make holds those back that are there no more than it must.
#[tokio::test(start_paused = true)]
async fn a_group_that_may_not_be_made_holds_no_other_back() {
    let stage = Stage::start().await;
    stage.apply(&rolling(set("x", 2, 2, "one"), 0, 1)).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    let mut refused = rolling(set("x", 2, 2, "two"), 0, 1);
    refused["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["name"] = json!("NO");
    // The first group keeps its template: it is not replaced because it is not ready.
    refused["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] = json!(1);
    stage.apply(&refused).await;
    stage
        .eventually("it is told", || async {
            let told = stage.true_condition("x", "WritesRefused").await?;
            told["message"].as_str()?.contains("Pod default/x-2").then_some(())
        })
        .await;
    let serves = |is: &'static str| {
        let stage = &stage;
        move || async move {
            let leader = stage.get("Pod", "x-0").await?;
            let conditions = leader["status"]["conditions"].as_array()?.clone();
            let gate = conditions.into_iter().find(|it| it["type"] == "segue.dev/in-service")?;
            (gate["status"] == is).then_some(())
        }
    };
    stage.kubelet.ready_if(|pod| pod.name_any() != "x-0-1");
    stage.eventually("the group is out of service", serves("False")).await;
    stage.kubelet.ready_if(|_| true);
    stage.eventually("the group is in service again", serves("True")).await;
}
