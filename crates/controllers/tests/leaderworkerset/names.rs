//! Services, and names that are somebody else's.

use serde_json::{Value, json};

use crate::{
    rolling, set,
    stage::{Stage, ready_groups, updated_groups},
};

fn unique(mut set: Value) -> Value {
    set["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"});
    set
}

#[tokio::test(start_paused = true)]
async fn the_shared_service_is_headless_and_repaired() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 1, 2, "one")).await;
    stage.eventually("the group is ready", ready_groups(&stage, "x", 1)).await;
    let service = stage.get("Service", "x").await.unwrap();
    let spec = &service["spec"];
    assert_eq!((&spec["clusterIP"], &spec["publishNotReadyAddresses"]), (&json!("None"), &json!(true)));
    assert_eq!(spec["selector"], json!({"leaderworkerset.sigs.k8s.io/name": "x"}));
    assert_eq!(spec["ports"], Value::Null);
    stage
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"},
            "spec": {"publishNotReadyAddresses": false},
        }))
        .await;
    stage
        .eventually("it is put right", || async {
            let service = stage.get("Service", "x").await?;
            (service["spec"]["publishNotReadyAddresses"] == true).then_some(())
        })
        .await;
    stage.delete("Service", "x").await;
    stage.eventually("it is made again", || stage.get("Service", "x")).await;
}

/// Bug 6.10: the Service of a group belongs to its leader pod, and goes with it.
#[tokio::test(start_paused = true)]
async fn every_group_keeps_its_service_while_it_is_made_again_and_surge_has_one_too() {
    let stage = Stage::start().await;
    stage.apply(&rolling(unique(set("x", 2, 2, "one")), 0, 1)).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    assert_eq!(stage.names("Service").await, ["x-0", "x-1"]);
    let service = stage.get("Service", "x-1").await.unwrap();
    assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "LeaderWorkerSet");
    let before = stage.uids("Service").await;
    stage.fail("x-1").await;
    stage
        .eventually("the group is made again", || async {
            let status = stage.get("LeaderWorkerSet", "x").await?["status"].clone();
            (status["groups"][0]["restarts"] == 1 && status["readyReplicas"] == 2).then_some(())
        })
        .await;
    assert_eq!(stage.uids("Service").await, before);
    // The group beyond the two cannot become ready, so it stays.
    stage.kubelet.ready_if(|pod| pod.metadata.name.as_deref() != Some("x-2"));
    stage.apply(&rolling(unique(set("x", 2, 2, "two")), 0, 1)).await;
    let service =
        stage.eventually("the group of the surge has a Service", || stage.get("Service", "x-2")).await;
    assert_eq!(service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/group-index"], "2");
    let leader = stage.eventually("and a leader that is named by it", || stage.get("Pod", "x-2")).await;
    assert_eq!(leader["spec"]["subdomain"], "x-2");
    stage.kubelet.ready_if(|_| true);
    stage.eventually("both groups are of the new template", updated_groups(&stage, "x", 2)).await;
    stage
        .eventually("the Service goes with its group", || async {
            (stage.names("Service").await == ["x-0", "x-1"]).then_some(())
        })
        .await;
}

/// Row 2.7: the public operator leaves the shared Service behind.
#[tokio::test(start_paused = true)]
async fn services_that_a_new_policy_does_not_need_go_when_the_last_group_of_the_old_one_has() {
    let stage = Stage::start().await;
    stage.apply(&set("x", 2, 1, "one")).await;
    stage.eventually("two groups are ready", ready_groups(&stage, "x", 2)).await;
    assert_eq!(stage.names("Service").await, ["x"]);
    let waits = |names: &'static [&'static str]| {
        let stage = &stage;
        move || async move { (stage.names("Service").await == names).then_some(()) }
    };
    stage.apply(&unique(set("x", 2, 1, "one"))).await;
    stage.eventually("each group has its own", waits(&["x-0", "x-1"])).await;
    stage.eventually("both groups have changed", updated_groups(&stage, "x", 2)).await;
    stage.apply(&set("x", 2, 1, "one")).await;
    stage.eventually("they share one again", waits(&["x"])).await;
}

/// Bugs 6.10 and 6.11: a Service of somebody else is taken for ours without a word.
#[tokio::test(start_paused = true)]
async fn a_foreign_service_is_left_alone_and_named() {
    let stage = Stage::start().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    stage.apply(&theirs).await;
    stage.apply(&set("x", 1, 1, "one")).await;
    stage.eventually("the pods are made", ready_groups(&stage, "x", 1)).await;
    let condition = stage.eventually("it is named", || stage.true_condition("x", "NamesTaken")).await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("Service default/x") && message.contains("has another owner"), "{message}");
    let service = stage.get("Service", "x").await.unwrap();
    assert_eq!(service["spec"]["selector"], json!({"app": "theirs"}));
    assert_eq!(service["metadata"]["ownerReferences"], Value::Null);
}

/// Bug 6.11: the pods of set `a` and those of set `a-0` have the same names.
#[tokio::test(start_paused = true)]
async fn two_sets_whose_names_meet_do_not_fight() {
    let stage = Stage::start().await;
    stage.apply(&set("a", 1, 2, "one")).await;
    stage.eventually("the first is ready", ready_groups(&stage, "a", 1)).await;
    let before = stage.uids("Pod").await;
    stage.apply(&set("a-0", 2, 1, "two")).await;
    let condition = stage.eventually("it is named", || stage.true_condition("a-0", "NamesTaken")).await;
    assert!(condition["message"].as_str().unwrap().contains("Pod default/a-0-1"), "{condition}");
    stage.eventually("what is free is made", ready_groups(&stage, "a-0", 1)).await;
    let after = stage.uids("Pod").await;
    for (name, uid) in before {
        assert_eq!(after.get(&name), Some(&uid), "{name} belongs to the first set");
    }
    for event in stage.list("Event").await {
        let note = event.data["note"].as_str().unwrap();
        assert!(
            event.data["regarding"]["name"] == "a" || !note.starts_with("created groups"),
            "{note}: one is not"
        );
    }
    assert_eq!(stage.condition("a", "Available").await, "True");
    assert_eq!(stage.condition("a", "NamesTaken").await, "absent");
}
