//! Conditions: what they say, when they change, and what is named in them.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde_json::{Value, json};
use testbed::virtual_time;

use crate::{
    rolling, set,
    stage::{Stage, ready_groups, updated_groups},
};

static LATER: AtomicU64 = AtomicU64::new(0);

fn conditions(status: &Value) -> Vec<&Value> {
    status["conditions"].as_array().into_iter().flatten().collect()
}

fn is_true(status: &Value, ty: &str) -> bool {
    conditions(status).iter().any(|condition| condition["type"] == ty && condition["status"] == "True")
}

/// Rows of 1.3, and bug 6.7: `UpdateInProgress` is written without `Progressing` at first.
#[tokio::test(start_paused = true)]
async fn conditions_say_their_words_and_exclude_each_other_in_every_write() {
    let stage = Stage::start().await;
    let record = stage.record("LeaderWorkerSet").await;
    stage.apply(&set("x", 2, 2, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.apply(&set("x", 2, 2, "two")).await;
    let status = stage.eventually("both are updated", updated_groups(&stage, "x", 2)).await;
    let said = |ty: &str| {
        let found = conditions(&status).into_iter().find(|condition| condition["type"] == ty).unwrap();
        ["status", "reason", "message"].map(|field| found[field].as_str().unwrap().to_owned())
    };
    assert_eq!(said("Available"), ["True", "AllGroupsReady", "All replicas are ready"]);
    // What is not so any more keeps its words.
    assert_eq!(said("Progressing"), ["False", "GroupsProgressing", "Replicas are progressing"]);
    assert_eq!(said("UpdateInProgress"), ["False", "GroupsUpdating", "Rolling Upgrade is in progress"]);
    let mut updates = 0;
    for object in record.end().await {
        let status = &object["status"];
        let [available, progressing, updating] =
            ["Available", "Progressing", "UpdateInProgress"].map(|ty| is_true(status, ty));
        assert!(!(available && (progressing || updating)), "{status}");
        assert!(!updating || progressing, "{status}");
        updates += u32::from(updating);
        for condition in conditions(status) {
            assert_eq!(condition["observedGeneration"], status["observedGeneration"], "{condition}");
        }
    }
    assert!(updates > 0);
}

/// Bug 6.7: the time of a condition moves with every change of the spec.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_condition_does_not_move_with_the_generation() {
    let stage = Stage::at_time(|| virtual_time::now() + Duration::from_secs(LATER.load(Relaxed))).await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let before = stage.eventually("it is available", || stage.true_condition("x", "Available")).await;
    LATER.store(5000, Relaxed);
    let mut changed = set("x", 1, 1, "one");
    changed["spec"]["startupPolicy"] = json!("LeaderReady");
    stage.apply(&changed).await;
    stage.eventually("it is looked at", || stage.observed("LeaderWorkerSet", "x")).await;
    let after = stage.true_condition("x", "Available").await.unwrap();
    assert!(after["observedGeneration"].as_i64() > before["observedGeneration"].as_i64());
    assert_eq!(after["lastTransitionTime"], before["lastTransitionTime"]);
}

/// Row 2.6: groups beyond the replicas do not stand in for a member.
#[tokio::test(start_paused = true)]
async fn a_set_is_available_when_its_own_groups_are_ready_and_not_those_of_the_surge() {
    let stage = Stage::start().await;
    stage.apply(&rolling(set("x", 2, 1, "one"), 0, 1)).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    stage.kubelet.ready_if(|pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        image.as_deref() == Some("one") || pod.metadata.name.as_deref() != Some("x-0")
    });
    stage.apply(&rolling(set("x", 2, 1, "two"), 0, 1)).await;
    stage
        .eventually("the last group waits for the surge to be of no use", || async {
            let status = stage.observed("LeaderWorkerSet", "x").await?;
            (status["updatedReplicas"] == 3 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
    assert_eq!(stage.condition("x", "Available").await, "False");
    assert_eq!(stage.condition("x", "Progressing").await, "True");
    stage.kubelet.ready_if(|_| true);
    stage.eventually("both are updated", updated_groups(&stage, "x", 2)).await;
    assert_eq!(stage.condition("x", "Available").await, "True");
}

/// Decision 5: a leader that waits for workers that wait for it is named, with the way out.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_not_ready_for_long_under_leader_ready_is_named() {
    let mut waits = set("x", 1, 2, "one");
    waits["spec"]["startupPolicy"] = json!("LeaderReady");
    let soon = Stage::start().await;
    soon.kubelet.ready_if(|_| false);
    soon.apply(&waits).await;
    soon.eventually("the leader is there", || soon.get("Pod", "x-0")).await;
    soon.quiet().await;
    assert_eq!(soon.condition("x", "Degraded").await, "absent");

    let late = Stage::at_time(|| virtual_time::now() + Duration::from_secs(601)).await;
    late.kubelet.ready_if(|_| false);
    late.apply(&waits).await;
    let condition = late.eventually("it is named", || late.true_condition("x", "Degraded")).await;
    assert_eq!(condition["reason"], "LeaderWaitsForWorkers");
    assert!(condition["message"].as_str().unwrap().contains("LeaderHasAddress"), "{condition}");
    // The way out, without touching the leader.
    let leader = late.uids("Pod").await;
    waits["spec"]["startupPolicy"] = json!("LeaderHasAddress");
    late.apply(&waits).await;
    late.eventually("the worker is there", || late.get("Pod", "x-0-1")).await;
    assert_eq!(late.uids("Pod").await["x-0"], leader["x-0"]);
    late.kubelet.ready_if(|_| true);
    late.eventually("the group is ready", ready_groups(&late, "x", 1)).await;
    assert_eq!(late.condition("x", "Degraded").await, "absent");
}

fn budget(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"leaderworkerset.sigs.k8s.io/name": "x"}});
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec})
}

/// Decision 1: Kubernetes asks the set how many pods there are, and it answers with its groups.
#[tokio::test(start_paused = true)]
async fn a_disruption_budget_that_takes_groups_for_pods_is_named() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 2, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    for spec in [json!({"maxUnavailable": 1}), json!({"minAvailable": "50%"})] {
        stage.apply(&budget(&spec)).await;
        let condition =
            stage.eventually("it is named", || stage.true_condition("x", "DisruptionsMiscounted")).await;
        assert!(condition["message"].as_str().unwrap().contains("default/b"), "{condition}");
        stage.delete("PodDisruptionBudget", "b").await;
        stage
            .eventually("it is forgotten", || async {
                (stage.condition("x", "DisruptionsMiscounted").await == "absent").then_some(())
            })
            .await;
    }
    stage.apply(&budget(&json!({"minAvailable": 1}))).await;
    stage.quiet().await;
    assert_eq!(stage.condition("x", "DisruptionsMiscounted").await, "absent", "this one counts pods");
}
