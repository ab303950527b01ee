//! New revisions, by whole groups and by roles.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    kit::{self, images, serving, settled, watch},
    stage::Stage,
};

fn by_groups(configuration: &Value, groups: u32, image: &str) -> Value {
    kit::rolling(serving(groups, &[("prefill", 1, 0, "p"), ("decode", 1, 1, image)]), configuration)
}

#[tokio::test(start_paused = true)]
async fn without_steps_whole_groups_are_replaced_within_the_budget() {
    let stage = Stage::start().await;
    let one = json!({"maxUnavailable": 1});
    stage.apply(&by_groups(&one, 3, "one")).await;
    settled(&stage, 3).await;
    let before = kit::uids(&stage).await;
    let watching = watch(&stage).await;
    stage.apply(&by_groups(&one, 3, "two")).await;
    settled(&stage, 3).await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!(history.most_groups, 3);
    let after = kit::uids(&stage).await;
    assert!(before.iter().all(|(name, uid)| after[name] != *uid), "every role of a group goes with it");
    // From the highest group down, one at a time.
    let order: Vec<&str> =
        history.made.iter().map(|(name, _)| &name[..4]).collect::<Vec<_>>().into_iter().fold(
            vec![],
            |mut it, next| {
                if it.last() != Some(&next) {
                    it.push(next);
                }
                it
            },
        );
    assert_eq!(order, ["pd-2", "pd-1", "pd-0"]);
}

#[tokio::test(start_paused = true)]
async fn with_a_surge_no_group_is_missed() {
    let stage = Stage::start().await;
    let surge = json!({"maxUnavailable": 0, "maxSurge": 1});
    stage.apply(&by_groups(&surge, 2, "one")).await;
    settled(&stage, 2).await;
    let watching = watch(&stage).await;
    stage.apply(&by_groups(&surge, 2, "two")).await;
    settled(&stage, 2).await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!(history.most_groups, 3);
    assert_eq!(kit::names(&stage).await.len(), 6);
    assert!(images(&stage).await.iter().all(|(name, image)| !name.contains("decode") || image == "two"));
}

/// Who heard late of its pods may write that a group comes from an older revision: such a group does not go because of
/// it.
#[tokio::test(start_paused = true)]
async fn a_new_group_that_its_status_calls_old_is_not_replaced() {
    let mut stage = Stage::start().await;
    let surge = json!({"maxUnavailable": 0, "maxSurge": 1});
    stage.apply(&by_groups(&surge, 1, "one")).await;
    let old = settled(&stage, 1).await["updateRevision"].clone();
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    let two = by_groups(&surge, 1, "two");
    stage.apply(&two).await;
    stage
        .eventually("the new group is made", || async {
            (images(&stage).await.get("pd-1-decode-0-1").map(String::as_str) == Some("two")).then_some(())
        })
        .await;
    stage.quiet().await;
    let before = kit::uids(&stage).await;
    stage.kill().await;
    let mut status = kit::status(&stage).await;
    let record = status["groups"].as_array_mut().unwrap().iter_mut().find(|it| it["index"] == 1).unwrap();
    assert_ne!(record["revision"], old);
    record["revision"] = old;
    let status = Patch::Merge(json!({"status": status}));
    stage.api(&two).patch_status("pd", &PatchParams::default(), &status).await.unwrap();
    stage.run();
    stage
        .eventually("it is told of as it is", || async {
            let status = kit::status(&stage).await;
            let mut told = status["groups"].as_array()?.iter();
            told.any(|it| it["index"] == 1 && it["revision"] == status["updateRevision"]).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(kit::uids(&stage).await, before);
}

#[tokio::test(start_paused = true)]
async fn groups_below_the_partition_stay_and_are_repaired_at_their_own_revision() {
    let stage = Stage::start().await;
    let partition = json!({"partition": 1});
    stage.apply(&by_groups(&partition, 2, "one")).await;
    settled(&stage, 2).await;
    stage.apply(&by_groups(&partition, 2, "two")).await;
    let status = stage
        .eventually("the group above is updated", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            let done = status["updatedReplicas"] == 1 && status["availableReplicas"] == 2;
            (done && status["message"].is_null()).then_some(status)
        })
        .await;
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    assert_eq!((&status["currentReplicas"], &status["groups"][0]["index"]), (&json!(1), &json!(0)));
    // A role replica that is lost there comes back as it was.
    let before = kit::uids(&stage).await;
    kit::delete_pod(&stage, "pd-0-decode-0-0").await;
    stage
        .eventually("the replica is made again", || async {
            let now = kit::uids(&stage).await;
            let again = now.get("pd-0-decode-0-1").is_some_and(|uid| *uid != before["pd-0-decode-0-1"]);
            (again && kit::status(&stage).await["availableReplicas"] == 2).then_some(())
        })
        .await;
    assert_eq!(images(&stage).await["pd-0-decode-0-0"], "one");
    assert_eq!(images(&stage).await["pd-1-decode-0-0"], "two");
}

fn by_roles(roles: &[(&str, u32, u32, &str)], budget: &Value) -> Value {
    let mut serving = serving(1, roles);
    serving["spec"]["rolloutStrategy"] = json!({"type": "RoleRollingUpdate"});
    for (name, value) in budget.as_object().unwrap() {
        serving["spec"]["template"]["roles"][0][name] = value.clone();
    }
    serving
}

#[tokio::test(start_paused = true)]
async fn by_roles_each_role_rolls_in_its_own_room_and_others_are_left_alone() {
    let stage = Stage::start().await;
    let budget = json!({"maxUnavailable": 1});
    stage.apply(&by_roles(&[("decode", 3, 1, "one"), ("prefill", 2, 0, "p")], &budget)).await;
    settled(&stage, 1).await;
    let before = kit::uids(&stage).await;
    let watching = watch(&stage).await;
    stage.apply(&by_roles(&[("decode", 3, 1, "two"), ("prefill", 2, 0, "p")], &budget)).await;
    settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!(history.fewest_of("pd-0", "decode"), 2);
    assert_eq!(history.fewest_of("pd-0", "prefill"), 2, "a role that did not change is not touched");
    let after = kit::uids(&stage).await;
    assert!(
        before.iter().filter(|(name, _)| name.contains("prefill")).all(|(name, uid)| after[name] == *uid)
    );
    assert!(images(&stage).await.iter().all(|(name, image)| !name.contains("decode") || image == "two"));
}

#[tokio::test(start_paused = true)]
async fn by_roles_a_surge_and_a_partition_are_kept() {
    let stage = Stage::start().await;
    let budget = json!({"maxUnavailable": 0, "maxSurge": 1, "partition": 1});
    stage.apply(&by_roles(&[("decode", 3, 0, "one")], &budget)).await;
    settled(&stage, 1).await;
    let watching = watch(&stage).await;
    stage.apply(&by_roles(&[("decode", 3, 0, "two")], &budget)).await;
    stage
        .eventually("two are updated and the surge is gone", || async {
            let status = stage.observed("ModelServing", "pd").await?;
            let role = &status["roles"][0];
            let done =
                role["updatedReadyReplicas"] == 2 && role["replicas"] == 3 && role["readyReplicas"] == 3;
            (done && status["message"].is_null()).then_some(())
        })
        .await;
    let history = watching.end().await;
    history.is_clean();
    assert_eq!(
        (history.fewest_of("pd-0", "decode"), history.most[&("pd-0".into(), "decode".into())]),
        (3, 4)
    );
    let images = images(&stage).await;
    assert_eq!((images["pd-0-decode-0-0"].as_str(), images["pd-0-decode-1-0"].as_str()), ("one", "two"));
    // Also when a protected one must be made again.
    kit::delete_pod(&stage, "pd-0-decode-0-0").await;
    stage
        .eventually("it is back", || async {
            (kit::status(&stage).await["availableReplicas"] == 1 && kit::names(&stage).await.len() == 3)
                .then_some(())
        })
        .await;
    assert_eq!(kit::images(&stage).await["pd-0-decode-0-0"], "one");
}

#[tokio::test(start_paused = true)]
async fn by_roles_every_group_follows_and_roles_come_and_go() {
    let stage = Stage::start().await;
    let wanted = |roles: &[(&str, u32, u32, &str)]| {
        let mut serving = serving(2, roles);
        serving["spec"]["rolloutStrategy"] = json!({"type": "RoleRollingUpdate"});
        serving
    };
    stage.apply(&wanted(&[("decode", 2, 0, "one"), ("router", 1, 0, "r")])).await;
    settled(&stage, 2).await;
    let watching = watch(&stage).await;
    stage.apply(&wanted(&[("decode", 2, 0, "two"), ("prefill", 1, 0, "p")])).await;
    settled(&stage, 2).await;
    let history = watching.end().await;
    history.is_clean();
    let expected = ["pd-0", "pd-1"].map(|group| {
        assert_eq!(history.fewest_of(group, "decode"), 1);
        [("decode-0", "two"), ("decode-1", "two"), ("prefill-0", "p")]
            .map(|(replica, image)| (format!("{group}-{replica}-0"), image.to_owned()))
    });
    assert_eq!(images(&stage).await, expected.into_iter().flatten().collect());
}

/// 19: a revision whose name another one has already gets another name, and neither is taken for the other.
#[tokio::test(start_paused = true)]
async fn two_revisions_of_one_key_are_two() {
    let wanted = |image: &str| serving(1, &[("decode", 1, 0, image)]);
    let key = {
        let stage = Stage::start().await;
        stage.apply(&wanted("two")).await;
        settled(&stage, 1).await["updateRevision"].as_str().unwrap().to_owned()
    };
    let mut stage = Stage::start().await;
    stage.apply(&wanted("one")).await;
    settled(&stage, 1).await;
    stage.kill().await;
    let serving = stage.get("ModelServing", "pd").await.unwrap();
    stage
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 2,
            "metadata": {"name": format!("pd-{key}"), "labels": {
                "modelserving.volcano.sh/name": "pd", kit::REVISION: key,
            }, "ownerReferences": [{
                "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "pd",
                "uid": serving["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }]},
            "data": {"data": wanted("three")["spec"]["template"]["roles"]},
        }))
        .await;
    stage.apply(&wanted("two")).await;
    stage.run();
    let told = stage
        .eventually("it is updated", || async {
            let is_new = images(&stage).await.get("pd-0-decode-0-0").map(String::as_str) == Some("two");
            if is_new { Some(settled(&stage, 1).await) } else { None }
        })
        .await;
    assert_ne!(told["updateRevision"], key);
}

#[tokio::test(start_paused = true)]
async fn old_revisions_are_kept_up_to_the_limit() {
    let stage = Stage::start().await;
    for image in ["one", "two", "three", "four"] {
        let mut serving = serving(1, &[("decode", 1, 0, image)]);
        serving["spec"]["revisionHistoryLimit"] = json!(1);
        stage.apply(&serving).await;
        settled(&stage, 1).await;
        assert_eq!(images(&stage).await["pd-0-decode-0-0"], image);
    }
    let api = stage.api(&json!({"apiVersion": "apps/v1", "kind": "ControllerRevision"}));
    let count = || async { api.list(&kube::api::ListParams::default()).await.unwrap().items };
    stage.eventually("one old revision is left", || async { (count().await.len() == 2).then_some(()) }).await;
    let revisions = count().await;
    let data = serde_json::to_value(&revisions[0]).unwrap()["data"]["data"].clone();
    assert_eq!(data[0]["name"], "decode", "stored as the public operator stores it");
}

#[tokio::test(start_paused = true)]
async fn another_order_of_roles_or_another_number_restarts_nothing() {
    let stage = Stage::start().await;
    stage.apply(&serving(1, &[("prefill", 1, 0, "p"), ("decode", 1, 0, "d")])).await;
    settled(&stage, 1).await;
    let before = kit::uids(&stage).await;
    let mut again = serving(1, &[("decode", 2, 0, "d"), ("prefill", 1, 0, "p")]);
    again["spec"]["recoveryPolicy"] = json!("None");
    again["spec"]["template"]["roles"][0]["maxUnavailable"] = json!(2);
    stage.apply(&again).await;
    settled(&stage, 1).await;
    let after = kit::uids(&stage).await;
    assert!(before.iter().all(|(name, uid)| after[name] == *uid) && after.len() == 3, "{after:?}");
}
