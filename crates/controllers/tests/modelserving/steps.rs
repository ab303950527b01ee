//! Upgrades in the order of `roleUpgrade.steps`. The numbers are those of the semantics in the notes of the design; the
//! planner's own tests (`crates/planner/tests/roles_rules.rs`) have each of them without an API.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    kit::{self, images, pd, serving, settled, status, watch},
    stage::Stage,
};

/// Entries in the order in which they were made: role and ordinal.
fn order(made: &[(String, String)]) -> Vec<String> {
    made.iter().map(|(name, _)| name["pd-0-".len()..name.len() - 2].to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_seeds_example_goes_decode_canary_prefill_canary_prefill_decode() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    let watching = watch(&stage).await;
    stage.apply(&pd("two", "two")).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    let expected =
        ["decode-3", "prefill-3", "prefill-2", "prefill-1", "prefill-0", "decode-2", "decode-1", "decode-0"];
    assert_eq!(order(&history.made), expected);
    assert!(history.made.iter().all(|(_, image)| image == "two"));
    assert_eq!((history.fewest_of("pd-0", "decode"), history.fewest_of("pd-0", "prefill")), (3, 3));
    let entered: Vec<String> = kit::events(&stage)
        .await
        .into_iter()
        .filter(|(reason, _)| reason == "StepEntered")
        .map(|it| it.1)
        .collect();
    for step in ["step 1 of 4", "step 2 of 4", "step 3 of 4", "step 4 of 4"] {
        assert_eq!(entered.iter().filter(|note| note.contains(step)).count(), 1, "{entered:?}");
    }
    assert!(kit::events(&stage).await.iter().any(|(reason, _)| reason == "GroupUpdated"));
}

/// Waits until the first group waits at a step with a pod in its way.
async fn stalled(stage: &Stage, step: u64) -> Value {
    stage
        .eventually("a step waits for a pod", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            let group = status["groups"][0].clone();
            (group["step"]["index"] == step && group["step"]["blockingPod"].is_string()).then_some(status)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_broken_canary_costs_one_replica_says_so_and_is_gone_with_the_revert() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    let before = kit::uids(&stage).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "broken");
    let watching = watch(&stage).await;
    stage.apply(&pd("two", "broken")).await;
    let status = stalled(&stage, 0).await;
    let step = &status["groups"][0]["step"];
    assert_eq!(
        (&step["role"], &step["required"], &step["satisfied"], &step["blockingPod"]),
        (&json!("decode"), &json!(1), &json!(0), &json!("pd-0-decode-3-0"))
    );
    assert_eq!(kit::condition(&status, "Stalled"), "absent", "it may still load: {status}");
    assert_eq!(status["roles"][1]["readyReplicas"], 3);
    stage.quiet().await;
    // Nothing else was touched.
    let broken: Vec<_> = images(&stage).await.into_iter().filter(|(_, image)| image != "one").collect();
    assert_eq!(broken, [("pd-0-decode-3-0".to_owned(), "broken".to_owned())]);
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!(history.fewest_of("pd-0", "decode"), 3);
    let after = kit::uids(&stage).await;
    let restarted: Vec<&String> =
        before.iter().filter(|(name, uid)| after[*name] != **uid).map(|(name, _)| name).collect();
    assert_eq!(restarted, ["pd-0-decode-3-0"], "the revert restarts nothing that was never upgraded");
    assert_eq!(kit::condition(&kit::status(&stage).await, "Stalled"), "absent");
    assert!(kit::events(&stage).await.iter().any(|(reason, _)| reason == "StepEntered"));
}

/// 13: a new revision begins at the first step again, and the failed canary is what goes first.
#[tokio::test(start_paused = true)]
async fn a_third_revision_replaces_the_broken_canary_first() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "broken");
    stage.apply(&pd("two", "broken")).await;
    stalled(&stage, 0).await;
    let watching = watch(&stage).await;
    stage.apply(&pd("three", "three")).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    assert_eq!(order(&history.made)[..2], ["decode-3", "prefill-3"]);
    assert_eq!(history.made.len(), 8, "each replica once: {:?}", history.made);
    assert!(history.fewest_of("pd-0", "decode") >= 3 && history.fewest_of("pd-0", "prefill") >= 3);
}

/// 16: what is not admitted yet comes back at its own revision.
#[tokio::test(start_paused = true)]
async fn a_replica_whose_turn_has_not_come_returns_at_its_own_revision() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "broken");
    stage.apply(&pd("two", "broken")).await;
    stalled(&stage, 0).await;
    for lost in ["pd-0-prefill-2-0", "pd-0-decode-1-0"] {
        let before = kit::uids(&stage).await;
        kit::delete_pod(&stage, lost).await;
        stage
            .eventually("it is back and serves", || async {
                let now = kit::uids(&stage).await;
                let back = now.get(lost).is_some_and(|uid| *uid != before[lost]);
                let roles = status(&stage).await["roles"].clone();
                (back && roles[0]["readyReplicas"] == 4 && roles[1]["readyReplicas"] == 3).then_some(())
            })
            .await;
        assert_eq!(images(&stage).await[lost], "one");
    }
    assert_eq!(
        images(&stage).await.values().filter(|image| *image == "broken").count(),
        1,
        "one canary, not two"
    );
}

/// The same, where the operator begins anew while nothing of the replica is left.
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_operator_changes_nothing() {
    let mut stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "broken");
    stage.apply(&pd("two", "broken")).await;
    stalled(&stage, 0).await;
    stage.quiet().await;
    stage.kill().await;
    kit::delete_pod(&stage, "pd-0-prefill-0-0").await;
    kit::delete_pod(&stage, "pd-0-decode-3-0").await;
    stage.eventually("both are gone", || async { (kit::names(&stage).await.len() == 6).then_some(()) }).await;
    stage.run();
    stage.eventually("both are back", || async { (kit::names(&stage).await.len() == 8).then_some(()) }).await;
    let images = images(&stage).await;
    assert_eq!(images["pd-0-prefill-0-0"], "one");
    assert_eq!(images["pd-0-decode-3-0"], "broken", "the canary stays the canary");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
}

/// 15: an earlier step that falls back stops new work, and nothing more is taken out.
#[tokio::test(start_paused = true)]
async fn a_canary_that_fails_later_stops_the_rest_and_is_said() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    stage
        .kubelet
        .ready_if(|pod| kit::image(pod) != "two" || !kit::label(pod, "role-id").starts_with("prefill-1"));
    stage.apply(&pd("two", "two")).await;
    stalled(&stage, 2).await;
    // prefill-2 is of this step too: only once prefill-1 is made is there nothing on its way any more.
    stage
        .eventually("the pod that never gets ready is made", || async {
            (images(&stage).await.get("pd-0-prefill-1-0").is_some_and(|image| image == "two")).then_some(())
        })
        .await;
    stage.kubelet.ready_if(|pod| {
        kit::image(pod) != "two" || !["prefill-1", "decode-3"].contains(&kit::label(pod, "role-id").as_str())
    });
    stage
        .eventually("the first step is open again", || async {
            let step = status(&stage).await["groups"][0]["step"].clone();
            (step["index"] == 0 && step["blockingPod"] == "pd-0-decode-3-0").then_some(())
        })
        .await;
    stage.quiet().await;
    let old = images(&stage).await.into_iter().filter(|(_, image)| image == "one").map(|(name, _)| name);
    let expected = ["pd-0-decode-0-0", "pd-0-decode-1-0", "pd-0-decode-2-0", "pd-0-prefill-0-0"];
    assert_eq!(old.collect::<Vec<_>>(), expected, "nothing more was taken out");
    assert!(kit::events(&stage).await.iter().any(|(reason, _)| reason == "StepRegressed"));
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
}

/// 5 and 27: a role that a step names and that did not change is met, and its pods keep their label.
#[tokio::test(start_paused = true)]
async fn a_role_that_did_not_change_is_never_touched() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    let before = kit::uids(&stage).await;
    stage.apply(&pd("two", "one")).await;
    settled(&stage, 1).await;
    let after = kit::uids(&stage).await;
    for (name, uid) in &before {
        assert_eq!(after[name] == *uid, name.contains("decode"), "{name}");
    }
    // Nor by what comes after it, and its pods count as updated.
    stage.apply(&pd("three", "one")).await;
    let status = settled(&stage, 1).await;
    assert_eq!(status["roles"][1]["updatedReadyReplicas"], 4);
    let later = kit::uids(&stage).await;
    assert!(before.iter().filter(|(name, _)| name.contains("decode")).all(|(name, uid)| later[name] == *uid));
}

/// 27: what a router can pair by when only one of the roles changed. Its new pods are of another revision than all of the
/// others; a label of the templates says what they have in common.
#[tokio::test(start_paused = true)]
async fn roles_that_did_not_change_together_have_only_labels_of_their_own_in_common() {
    let stage = Stage::start().await;
    let manifest = |decode: &str| {
        let mut serving = pd("one", decode);
        for role in serving["spec"]["template"]["roles"].as_array_mut().unwrap() {
            role["entryTemplate"]["metadata"] = json!({"labels": {"protocol": "1"}});
        }
        serving
    };
    for (decode, revisions) in [("one", 1), ("two", 2)] {
        stage.apply(&manifest(decode)).await;
        settled(&stage, 1).await;
        let pods = kit::pods(&stage).await;
        let of_pods = |value: &dyn Fn(&Pod) -> String| pods.iter().map(value).collect::<BTreeSet<_>>();
        assert_eq!(of_pods(&|pod| kit::label(pod, "revision")).len(), revisions);
        let by_role = of_pods(&|pod| kit::label(pod, "role") + &kit::label(pod, "revision"));
        assert_eq!(by_role.len(), 2, "all of a role are of one: {by_role:?}");
        assert_eq!(of_pods(&|pod| kit::label(pod, "role-template-hash")).len(), 2, "one for each role");
        assert_eq!(of_pods(&|pod| pod.labels()["protocol"].clone()), BTreeSet::from(["1".to_owned()]));
    }
}

/// 6 and 9: what no step names follows, role by role; one at a time unless the role has more room.
#[tokio::test(start_paused = true)]
async fn what_no_step_names_follows_after_the_last_step() {
    let stage = Stage::start().await;
    let manifest = |image: &str| {
        let mut serving = serving(1, &[("prefill", 2, 0, image), ("decode", 2, 0, image)]);
        serving["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {
            "roleUpgrade": {"steps": [{"role": "decode", "updateTo": 1}]}}});
        serving
    };
    stage.apply(&manifest("one")).await;
    settled(&stage, 1).await;
    let watching = watch(&stage).await;
    stage.apply(&manifest("two")).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    assert_eq!(order(&history.made), ["decode-1", "prefill-1", "prefill-0", "decode-0"]);
}

/// 7 and 21: entry and workers are one; another number of workers replaces the replica and adds nothing to an old one.
#[tokio::test(start_paused = true)]
async fn a_role_replica_of_several_pods_is_replaced_as_a_whole() {
    let stage = Stage::start().await;
    let manifest = |image: &str, workers: u32| {
        let mut serving = serving(1, &[("decode", 2, workers, image)]);
        serving["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {
            "roleUpgrade": {"steps": [{"role": "decode", "updateTo": 1}, {"role": "decode", "updateTo": "100%"}]}}});
        serving
    };
    stage.apply(&manifest("one", 1)).await;
    settled(&stage, 1).await;
    // A worker that is not ready keeps its replica from being Ready.
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two" || kit::label(pod, "entry") == "true");
    let watching = watch(&stage).await;
    stage.apply(&manifest("two", 2)).await;
    stage
        .eventually("the step waits for a worker", || async {
            (status(&stage).await["groups"][0]["step"]["blockingPod"] == "pd-0-decode-1-1").then_some(())
        })
        .await;
    let names = kit::names(&stage).await;
    assert_eq!(names.iter().filter(|name| name.starts_with("pd-0-decode-0")).count(), 2, "{names:?}");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!((history.fewest_of("pd-0", "decode"), history.made.len()), (1, 2));
    assert_eq!(kit::names(&stage).await.len(), 6);
}

/// 11, 12 and 16: group after group from the highest, none below the partition.
#[tokio::test(start_paused = true)]
async fn groups_take_their_turn_and_the_partition_holds() {
    let stage = Stage::start().await;
    let manifest = |image: &str, partition: u32| {
        let mut serving = serving(3, &[("prefill", 1, 0, image), ("decode", 2, 0, image)]);
        serving["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {
            "partition": partition,
            "roleUpgrade": {"steps": [{"role": "decode", "updateTo": 1}, {"role": "prefill", "updateTo": "100%"}]}}});
        serving
    };
    stage.apply(&manifest("one", 1)).await;
    settled(&stage, 3).await;
    let watching = watch(&stage).await;
    stage.apply(&manifest("two", 1)).await;
    stage
        .eventually("the groups above the partition are updated", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            (status["updatedReplicas"] == 2 && status["message"].is_null()).then_some(())
        })
        .await;
    let made = watching.end().await.made;
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    let group = |group: u32| ["decode-1", "prefill-0", "decode-0"].map(|role| format!("pd-{group}-{role}-0"));
    assert_eq!(names, [group(2), group(1)].concat());
    // 19: a group that is added is new at once; below the partition it is what the others there are.
    kit::patch(&stage, &json!([{"op": "replace", "path": "/spec/replicas", "value": 4}])).await;
    stage
        .eventually("the fourth group serves", || async {
            (status(&stage).await["availableReplicas"] == 4).then_some(())
        })
        .await;
    let images = images(&stage).await;
    assert_eq!((images["pd-3-decode-0-0"].as_str(), images["pd-0-decode-0-0"].as_str()), ("two", "one"));
    stage
        .apply(&{
            let mut all = manifest("two", 0);
            all["spec"]["replicas"] = json!(4);
            all
        })
        .await;
    settled(&stage, 4).await;
    assert!(kit::images(&stage).await.values().all(|image| image == "two"));
}

/// 17, 18 and 24: a role may be scaled and the steps edited in the middle.
#[tokio::test(start_paused = true)]
async fn scaling_and_editing_in_the_middle_keep_the_order() {
    let stage = Stage::start().await;
    stage.apply(&pd("one", "one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "slow");
    stage.apply(&pd("slow", "slow")).await;
    stalled(&stage, 0).await;
    // More prefill while the decode canary starts: at the old revision, because its turn has not come.
    kit::patch(&stage, &json!([{"op": "replace", "path": "/spec/template/roles/0/replicas", "value": 5}]))
        .await;
    stage
        .eventually("a fifth prefill serves", || async {
            (status(&stage).await["roles"][0]["readyReplicas"] == 5).then_some(())
        })
        .await;
    assert_eq!(images(&stage).await["pd-0-prefill-4-0"], "one");
    // Fewer decode: the canary, which is not Ready, goes before those that serve, and the next one is the canary.
    kit::patch(&stage, &json!([{"op": "replace", "path": "/spec/template/roles/1/replicas", "value": 3}]))
        .await;
    stage
        .eventually("three decode are left, one of them the canary", || async {
            let images = images(&stage).await;
            let decode: Vec<_> = images.iter().filter(|(name, _)| name.contains("decode")).collect();
            (decode.len() == 3 && decode.iter().filter(|(_, image)| *image == "slow").count() == 1)
                .then_some(())
        })
        .await;
    // Other steps: prefill first.
    let first = json!([{"op": "replace",
        "path": "/spec/rolloutStrategy/rollingUpdateConfiguration/roleUpgrade/steps",
        "value": [{"role": "prefill", "updateTo": 1}, {"role": "decode", "updateTo": "100%"}]}]);
    kit::patch(&stage, &first).await;
    stage
        .eventually("the first step is prefill's", || async {
            let step = status(&stage).await["groups"][0]["step"].clone();
            (step["index"] == 0 && step["role"] == "prefill").then_some(())
        })
        .await;
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
    assert!(images(&stage).await.values().all(|image| image == "slow"));
}

/// 20: a role that is added comes with its step, one that is dropped goes after the last.
#[tokio::test(start_paused = true)]
async fn roles_come_with_their_step_and_go_after_the_last() {
    let stage = Stage::start().await;
    let steps = |steps: Value, roles: &[(&str, u32, u32, &str)]| {
        let mut serving = serving(1, roles);
        serving["spec"]["rolloutStrategy"] =
            json!({"rollingUpdateConfiguration": {"roleUpgrade": {"steps": steps}}});
        serving
    };
    let one = json!([{"role": "decode", "updateTo": 1}]);
    stage.apply(&steps(one, &[("decode", 2, 0, "one"), ("old", 1, 0, "one")])).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    let two = json!([{"role": "decode", "updateTo": "100%"}, {"role": "new", "updateTo": 1}]);
    stage.apply(&steps(two, &[("decode", 2, 0, "two"), ("new", 1, 0, "two")])).await;
    stalled(&stage, 0).await;
    stage.quiet().await;
    let names = kit::names(&stage).await;
    assert_eq!(names, ["pd-0-decode-0-0", "pd-0-decode-1-0", "pd-0-old-0-0"], "not before their turn");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
    assert_eq!(kit::names(&stage).await, ["pd-0-decode-0-0", "pd-0-decode-1-0", "pd-0-new-0-0"]);
}

/// 23: the gang minimum is kept.
#[tokio::test(start_paused = true)]
async fn the_gang_minimum_is_kept() {
    let stage = Stage::start().await;
    let manifest = |image: &str| {
        let mut serving = serving(1, &[("decode", 4, 0, image)]);
        serving["spec"]["template"]["gangPolicy"] = json!({"minRoleReplicas": {"decode": 3}});
        serving["spec"]["template"]["roles"][0]["maxUnavailable"] = json!(4);
        serving["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {
            "roleUpgrade": {"steps": [{"role": "decode", "updateTo": "100%"}]}}});
        serving
    };
    stage.apply(&manifest("one")).await;
    settled(&stage, 1).await;
    let watching = watch(&stage).await;
    stage.apply(&manifest("two")).await;
    settled(&stage, 1).await;
    assert_eq!(watching.end().await.fewest_of("pd-0", "decode"), 3);
}
