//! Rules of upgrades that take a failure or a loss in the middle of one to be seen. The numbers are those of the notes of
//! the design: of its semantics, or of the weak points of the public operator.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    kit::{
        self, REVISION, images, incarnation, made_from, pd, returned, rolling, serving, settled, status,
        uids, watch,
    },
    stage::Stage,
};

/// Prefills of one pod and decodes of two, and any failure makes their whole group again.
fn recreated(image: &str) -> Value {
    let mut serving = serving(1, &[("prefill", 2, 0, image), ("decode", 2, 1, image)]);
    serving["spec"]["recoveryPolicy"] = json!("ServingGroupRecreate");
    let steps = json!([
        {"role": "decode", "updateTo": 1},
        {"role": "prefill", "updateTo": "100%"},
        {"role": "decode", "updateTo": "100%"},
    ]);
    rolling(serving, &json!({"roleUpgrade": {"steps": steps}}))
}

/// Semantic 22: what an upgrade takes away itself is no failure, whatever one would lead to.
#[tokio::test(start_paused = true)]
async fn what_an_upgrade_takes_away_makes_no_group_again() {
    let stage = Stage::start().await;
    stage.apply(&recreated("one")).await;
    settled(&stage, 1).await;
    let (told, watching) = (stage.record("ModelServing").await, watch(&stage).await);
    stage.apply(&recreated("two")).await;
    let done = settled(&stage, 1).await;
    let history = watching.end().await;
    history.is_clean();
    let made: Vec<&str> = history.made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(made, ["pd-0-decode-1-0", "pd-0-prefill-1-0", "pd-0-prefill-0-0", "pd-0-decode-0-0"]);
    assert!(done["groups"].is_null(), "nothing is to be remembered: {done}");
    for object in told.end().await {
        for group in object["status"]["groups"].as_array().into_iter().flatten() {
            assert!(group["restarts"].is_null(), "{group}");
        }
    }
}

/// Semantic 22: a pod that fails in the middle of an upgrade makes its whole group again at one revision: the
/// new one, as the group is being upgraded. Until then nothing is touched whose turn has not come.
#[tokio::test(start_paused = true)]
async fn a_failure_in_the_middle_of_an_upgrade_makes_the_group_again_at_the_new_revision() {
    let stage = Stage::start().await;
    stage.apply(&recreated("one")).await;
    settled(&stage, 1).await;
    let before = uids(&stage).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two" || kit::label(pod, "role") == "decode");
    stage.apply(&recreated("two")).await;
    made_from(&stage, "pd-0-prefill-1-0", "two").await;
    stage.quiet().await;
    let halfway = uids(&stage).await;
    for waits in ["pd-0-prefill-0-0", "pd-0-decode-0-0", "pd-0-decode-0-1"] {
        assert_eq!(halfway[waits], before[waits], "{waits}");
    }
    assert!(status(&stage).await["groups"][0]["restarts"].is_null(), "nothing has failed");

    let watching = watch(&stage).await;
    stage.fail("pd-0-decode-0-1").await;
    stage
        .eventually("the failure is the whole group's", || async {
            (status(&stage).await["groups"][0]["restarts"] == 1).then_some(())
        })
        .await;
    stage.kubelet.ready_if(|_| true);
    let done = settled(&stage, 1).await;
    assert_eq!(done["groups"][0]["restarts"], 1, "once: {done}");
    assert_eq!(done["groups"][0]["lastFailure"]["pod"], "pd-0-decode-0-1");
    let mut made = watching.end().await.made;
    made.sort();
    let entries = ["pd-0-decode-0-0", "pd-0-decode-1-0", "pd-0-prefill-0-0", "pd-0-prefill-1-0"];
    assert_eq!(made, entries.map(|name| (name.to_owned(), "two".to_owned())));
    assert!(images(&stage).await.values().all(|image| image == "two"));
}

/// The revisions that are stored, and those that pods were made from.
async fn revisions(stage: &Stage) -> (BTreeSet<String>, BTreeSet<String>) {
    let stored = stage.list("ControllerRevision").await;
    let stored = stored.iter().map(|it| it.labels()[REVISION].clone()).collect();
    let used = kit::pods(stage).await.iter().map(|pod| pod.labels()[REVISION].clone()).collect();
    (stored, used)
}

/// Semantic 13: a revision stays as long as anything is made from it, however few are to be kept. Three may
/// be at once, and what fails of the one in the middle comes back from it.
#[tokio::test(start_paused = true)]
async fn a_revision_that_is_in_use_is_kept_though_none_is_to_be() {
    let stage = Stage::start().await;
    let wanted = |image: &str| {
        let mut serving = pd(image, image);
        serving["spec"]["revisionHistoryLimit"] = json!(0);
        serving
    };
    stage.apply(&wanted("one")).await;
    settled(&stage, 1).await;
    stage.kubelet.ready_if(|pod| {
        kit::image(pod) == "one" || kit::image(pod) == "two" && kit::label(pod, "role") == "decode"
    });
    stage.apply(&wanted("two")).await;
    made_from(&stage, "pd-0-prefill-3-0", "two").await;
    stage.apply(&wanted("three")).await;
    made_from(&stage, "pd-0-decode-3-0", "three").await;
    stage.quiet().await;
    let (stored, used) = revisions(&stage).await;
    assert_eq!((used.len(), &stored), (3, &used));
    assert_eq!(images(&stage).await["pd-0-prefill-3-0"], "two");

    let before = uids(&stage).await;
    stage.fail("pd-0-prefill-3-0").await;
    stage
        .eventually("it is made again", || async {
            let now = uids(&stage).await;
            now.get("pd-0-prefill-3-0").is_some_and(|uid| *uid != before["pd-0-prefill-3-0"]).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(images(&stage).await["pd-0-prefill-3-0"], "two");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 1).await;
    stage
        .eventually("one revision is left, that of all pods", || async {
            let (stored, used) = revisions(&stage).await;
            (stored.len() == 1 && stored == used).then_some(())
        })
        .await;
    assert!(images(&stage).await.values().all(|image| image == "three"));
}

/// 4: what a role's partition keeps and is lost comes back from its own template, also when that was the
/// newest one before, and when the newest one before was another.
#[tokio::test(start_paused = true)]
async fn a_replica_below_a_roles_partition_comes_back_from_its_own_template() {
    for (partition_of_two, own) in [(0, "two"), (1, "one")] {
        let stage = Stage::start().await;
        let wanted = |image: &str, partition: u32| {
            let mut serving = serving(1, &[("decode", 3, 0, image)]);
            serving["spec"]["rolloutStrategy"] = json!({"type": "RoleRollingUpdate"});
            serving["spec"]["revisionHistoryLimit"] = json!(0);
            serving["spec"]["template"]["roles"][0]["partition"] = json!(partition);
            serving
        };
        stage.apply(&wanted("one", 0)).await;
        settled(&stage, 1).await;
        for (image, partition) in [("two", partition_of_two), ("three", 1)] {
            stage.apply(&wanted(image, partition)).await;
            stage
                .eventually("all above the partition are updated", || async {
                    let status = stage.observed("ModelServing", "pd").await?;
                    let role = &status["roles"][0];
                    let done = role["updatedReadyReplicas"] == 3 - partition && role["readyReplicas"] == 3;
                    (done && status["message"].is_null()).then_some(())
                })
                .await;
        }
        let before = uids(&stage).await;
        for lost in ["pd-0-decode-0-0", "pd-0-decode-2-0"] {
            kit::delete_pod(&stage, lost).await;
            returned(&stage, lost, &before, 1).await;
        }
        stage.quiet().await;
        let images = images(&stage).await;
        assert_eq!((images["pd-0-decode-0-0"].as_str(), images["pd-0-decode-2-0"].as_str()), (own, "three"));
        assert_eq!(uids(&stage).await["pd-0-decode-1-0"], before["pd-0-decode-1-0"]);
    }
}

/// 5: groups that were below the partition from the beginning have their template stored like any other: what
/// is lost of them, or all of one, comes back from it.
#[tokio::test(start_paused = true)]
async fn what_began_below_the_partition_comes_back_as_it_began() {
    for steps in [Value::Null, json!({"steps": [{"role": "decode", "updateTo": 1}]})] {
        let mut stage = Stage::start().await;
        let wanted = |image: &str| {
            let mut configuration = json!({"partition": 2});
            if !steps.is_null() {
                configuration["roleUpgrade"] = steps.clone();
            }
            rolling(serving(2, &[("decode", 2, 0, image)]), &configuration)
        };
        stage.apply(&wanted("one")).await;
        settled(&stage, 2).await;
        let before = uids(&stage).await;
        stage.apply(&wanted("two")).await;
        stage
            .eventually("the new template is seen, and there is nothing to do", || async {
                let status = stage.observed("ModelServing", "pd").await?;
                let seen = status["currentRevision"] != status["updateRevision"];
                (seen && status["updatedReplicas"] == 0 && status["message"].is_null()).then_some(())
            })
            .await;
        stage.quiet().await;
        assert_eq!(uids(&stage).await, before);

        stage.kill().await;
        let lost = ["pd-0-decode-1-0", "pd-1-decode-0-0", "pd-1-decode-1-0"];
        for pod in lost {
            kit::delete_pod(&stage, pod).await;
        }
        stage.run();
        for pod in lost {
            returned(&stage, pod, &before, 2).await;
        }
        stage.quiet().await;
        let images = images(&stage).await;
        assert!(images.len() == 4 && images.values().all(|image| image == "one"), "{images:?}");
    }
}

/// 6: a group that waits its turn is kept up as it is: what is lost of it comes back from its own template,
/// and it gets no workers of the next one.
#[tokio::test(start_paused = true)]
async fn groups_that_wait_their_turn_are_kept_as_they_are() {
    let stage = Stage::start().await;
    let wanted = |image: &str, workers: u32| {
        let roles = [("prefill", 1, 0, image), ("decode", 1, workers, image)];
        rolling(serving(3, &roles), &json!({"maxUnavailable": 1}))
    };
    stage.apply(&wanted("one", 1)).await;
    settled(&stage, 3).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    stage.apply(&wanted("two", 2)).await;
    made_from(&stage, "pd-2-decode-0-2", "two").await;
    stage.quiet().await;
    for lost in ["pd-0-decode-0-0", "pd-1-prefill-0-0"] {
        let before = uids(&stage).await;
        kit::delete_pod(&stage, lost).await;
        returned(&stage, lost, &before, 2).await;
    }
    stage.quiet().await;
    let halfway = images(&stage).await;
    for (name, image) in &halfway {
        assert_eq!(image, if name.starts_with("pd-2-") { "two" } else { "one" }, "{name}");
    }
    let decodes = |group: &str| halfway.keys().filter(|name| name.starts_with(group)).count();
    assert_eq!(["pd-0-decode-", "pd-1-decode-", "pd-2-decode-"].map(decodes), [2, 2, 3], "{halfway:?}");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 3).await;
    let after = images(&stage).await;
    assert!(after.len() == 12 && after.values().all(|image| image == "two"), "{after:?}");
}

/// 8: as long as the last outdated replica only goes, and until the one in its place is Ready, no upgrade is
/// told as over.
#[tokio::test(start_paused = true)]
async fn an_upgrade_is_not_over_while_its_last_replica_only_goes() {
    let steps = json!({"steps": [{"role": "decode", "updateTo": 1}]});
    let by_steps = json!({"rollingUpdateConfiguration": {"roleUpgrade": steps}});
    for strategy in [json!({"type": "RoleRollingUpdate"}), by_steps] {
        let stage = Stage::start().await;
        let wanted = |image: &str| {
            let mut serving = serving(1, &[("decode", 2, 0, image)]);
            let pod = &mut serving["spec"]["template"]["roles"][0]["entryTemplate"]["spec"];
            // A pod without a node goes as soon as it is told to; this one is not given up before long.
            pod["nodeName"] = json!("n");
            pod["terminationGracePeriodSeconds"] = json!(600);
            serving["spec"]["rolloutStrategy"] = strategy.clone();
            serving
        };
        stage.apply(&wanted("one")).await;
        settled(&stage, 1).await;
        let told = stage.record("ModelServing").await;
        stage.kubelet.gone_if(|pod| kit::label(pod, "role-id") != "decode-0");
        stage.kubelet.ready_if(|pod| kit::image(pod) != "two" || kit::label(pod, "role-id") != "decode-0");
        stage.apply(&wanted("two")).await;
        stage
            .eventually("the last one goes", || async {
                let goes = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
                let last = |pod: &Pod| goes(pod) && kit::label(pod, "role-id") == "decode-0";
                kit::pods(&stage).await.iter().any(last).then_some(())
            })
            .await;
        stage.quiet().await;
        let goes = status(&stage).await;
        assert_eq!(
            (&goes["updatedReplicas"], &goes["roles"][0]["updatedReadyReplicas"]),
            (&json!(0), &json!(1))
        );
        assert_ne!(goes["currentRevision"], goes["updateRevision"]);

        stage.kubelet.gone_if(|_| true);
        made_from(&stage, "pd-0-decode-0-0", "two").await;
        stage.quiet().await;
        let starts = status(&stage).await;
        assert_ne!(starts["currentRevision"], starts["updateRevision"], "it is made, and not Ready");
        stage.kubelet.ready_if(|_| true);
        let done = settled(&stage, 1).await;
        assert_eq!(done["updatedReplicas"], 1);
        for object in told.end().await {
            let status = &object["status"];
            let is_over = status["currentRevision"] == status["updateRevision"];
            assert!(!is_over || status["roles"][0]["updatedReadyReplicas"] == 2, "{status}");
        }
    }
}

/// A group fails that waits its turn, while the one before it is made from a template that never gets ready.
/// What is made again takes its time, as models do.
async fn a_group_that_waits_fails(configuration: &Value) {
    let stage = Stage::start().await;
    let wanted = |image: &str| {
        let roles = [("prefill", 1, 0, image), ("decode", 1, 0, image)];
        let mut serving = rolling(serving(2, &roles), configuration);
        serving["spec"]["recoveryPolicy"] = json!("ServingGroupRecreate");
        serving
    };
    stage.apply(&wanted("one")).await;
    settled(&stage, 2).await;
    stage.kubelet.ready_if(|pod| kit::image(pod) == "one" && incarnation(pod) == "0");
    stage.apply(&wanted("two")).await;
    made_from(&stage, "pd-1-decode-0-0", "two").await;
    stage.quiet().await;
    let before = uids(&stage).await;
    stage.fail("pd-0-decode-0-0").await;
    stage
        .eventually("the group is made again", || async {
            let now = uids(&stage).await;
            let is_other = |name: &str| now.get(name).is_some_and(|uid| *uid != before[name]);
            ["pd-0-decode-0-0", "pd-0-prefill-0-0"].into_iter().all(is_other).then_some(())
        })
        .await;
    stage.quiet().await;
    let again = images(&stage).await;
    let own = again.iter().filter(|(name, _)| name.starts_with("pd-0-")).map(|(_, image)| image.as_str());
    assert_eq!(own.collect::<Vec<_>>(), ["one", "one"], "its turn has not come: {again:?}");
    stage.kubelet.ready_if(|_| true);
    settled(&stage, 2).await;
    assert!(images(&stage).await.values().all(|image| image == "two"));
}

/// Semantic 22: a group that is not admitted yet is made again at its own revision, by steps.
#[tokio::test(start_paused = true)]
async fn by_steps_a_group_that_fails_before_its_turn_is_made_again_as_it_was() {
    a_group_that_waits_fails(&json!({"roleUpgrade": {"steps": [{"role": "decode", "updateTo": 1}]}})).await;
}

/// Semantic 22 and 6: the same, where groups are replaced as a whole.
#[tokio::test(start_paused = true)]
async fn by_groups_a_group_that_fails_before_its_turn_is_made_again_as_it_was() {
    a_group_that_waits_fails(&json!({"maxUnavailable": 1})).await;
}
