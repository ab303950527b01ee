//! More weak points of the public operator, and rules of upgrades that take a failure in the middle of one to
//! be seen. The numbers are those of the notes of the design; those of semantics say so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use controllers::{Nothing, Settings, sentence};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Embedded, Kubelet};

use crate::{
    kit::{self, images, pd, serving, settled, status, uids, watch},
    stage::Stage,
};

/// What a revision and the pods of it are labelled with.
const REVISION: &str = "modelserving.volcano.sh/revision";

/// By how many seconds the clocks of three tests are ahead of what they began with.
static BACKING_OFF: AtomicU64 = AtomicU64::new(0);
static FAILING: AtomicU64 = AtomicU64::new(0);
static WAITING: AtomicU64 = AtomicU64::new(0);

#[allow(clippy::disallowed_methods, reason = "the controllers tell the time by the wall clock")]
fn wall_clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

async fn with_clock(clock: fn() -> Duration) -> Stage {
    let settings = Settings { embedded: true, clock, ..Settings::default() };
    Stage::with(Arc::new(Nothing::default()), settings).await
}

/// Has the ModelServing looked at again: a clock that is put forward wakes nobody.
async fn touch(stage: &Stage) {
    let at = stage.revision().await.to_string();
    kit::patch(stage, &json!([{"op": "add", "path": "/metadata/annotations/touched", "value": at}])).await;
}

/// Nobody looks after the pods from now on: what is written to their status stays, and nothing else is.
async fn without_kubelet(stage: &mut Stage) {
    let elsewhere = Embedded::start().await.unwrap();
    stage.kubelet = Kubelet::start(elsewhere.client());
}

/// Groups are replaced so.
fn rolling(mut serving: Value, configuration: &Value) -> Value {
    serving["spec"]["rolloutStrategy"] =
        json!({"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": configuration});
    serving
}

/// Two groups that answer failures so.
fn answering(policy: &str, grace: u32) -> Value {
    let mut serving = serving(2, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")]);
    serving["spec"]["recoveryPolicy"] = json!(policy);
    serving["spec"]["template"]["restartGracePeriodSeconds"] = json!(grace);
    serving
}

fn incarnation(pod: &Pod) -> &str {
    pod.annotations().get("segue.dev/incarnation").map_or("", String::as_str)
}

/// What is said of a condition.
fn message(status: &Value, ty: &str) -> String {
    let found = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == ty);
    found.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned()
}

/// Waits until a pod is made from this image.
async fn made_from(stage: &Stage, pod: &str, image: &str) {
    stage
        .eventually("a pod is made from another template", || async {
            images(stage).await.get(pod).is_some_and(|it| it == image).then_some(())
        })
        .await;
}

/// Waits until a pod is another one than before, and so many groups serve again. What is missing is told
/// before anything is made in its place, so nobody counts what is gone.
async fn returned(stage: &Stage, pod: &str, before: &BTreeMap<String, String>, groups: u64) {
    stage
        .eventually("it is back, and the groups serve", || async {
            let now = uids(stage).await;
            let is_back = now.get(pod).is_some_and(|uid| before.get(pod) != Some(uid));
            (is_back && status(stage).await["availableReplicas"] == groups).then_some(())
        })
        .await;
}

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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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
#[tokio::test(flavor = "multi_thread")]
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

/// 9: a grace ends. What failed and does not come back in it is made again then and not before, without
/// anything else that happens.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_outlasts_its_grace_is_answered() {
    let stage = Stage::start().await;
    stage.apply(&answering("RoleRecreate", 2)).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    let before = uids(&stage).await;
    stage.kubelet.ready_if(|pod| pod.name_any() != "pd-1-decode-1-1" || incarnation(pod) != "0");
    stage
        .eventually("it is not ready", || async {
            (status(&stage).await["availableReplicas"] == 1).then_some(())
        })
        .await;
    stage.quiet().await;
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let failed = pods.get("pd-1-decode-1-1").await.unwrap();
    let conditions = failed.status.unwrap().conditions.unwrap();
    let unready = conditions.into_iter().find(|it| it.type_ == "ContainersReady").unwrap();
    let since = unready.last_transition_time.unwrap().0.as_second();

    stage.fail("pd-1-decode-1-1").await;
    returned(&stage, "pd-1-decode-1-1", &before, 2).await;
    let after = uids(&stage).await;
    let changed: Vec<&String> = before.keys().filter(|name| after.get(*name) != before.get(*name)).collect();
    assert_eq!(changed, ["pd-1-decode-1-0", "pd-1-decode-1-1"]);
    let again = pods.get("pd-1-decode-1-1").await.unwrap();
    let made = again.metadata.creation_timestamp.unwrap().0.as_second();
    assert!(made >= since + 2, "made again at {made}, though it was let be for 2 seconds from {since}");
    let replica = status(&stage).await["groups"][0]["replicas"][0].clone();
    assert_eq!(
        (&replica["restarts"], &replica["lastFailure"]["pod"]),
        (&json!(1), &json!("pd-1-decode-1-1"))
    );
}

/// 9: the first failure is answered at once, and each one in a row after twice as long.
#[tokio::test(flavor = "multi_thread")]
async fn failures_in_a_row_are_answered_later_each_time() {
    let stage = with_clock(|| wall_clock() + Duration::from_secs(BACKING_OFF.load(Relaxed))).await;
    stage.apply(&answering("RoleRecreate", 0)).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    let before = uids(&stage).await;
    stage.fail("pd-1-prefill-0-0").await;
    returned(&stage, "pd-1-prefill-0-0", &before, 2).await;
    for (times, wait) in [(1, 10_i64), (2, 20)] {
        stage.quiet().await;
        let before = uids(&stage).await;
        stage.fail("pd-1-prefill-0-0").await;
        let replica = stage
            .eventually("it backs off", || async {
                let replica = status(&stage).await["groups"][0]["replicas"][0].clone();
                let expected = format!("backing off after {times} recreations");
                replica["message"].as_str()?.contains(&expected).then_some(replica)
            })
            .await;
        let until = sentence::read(replica["message"].as_str().unwrap()).until.unwrap();
        let last: Timestamp = replica["lastFailure"]["time"].as_str().unwrap().parse().unwrap();
        assert_eq!(until.as_second() - last.as_second(), wait, "{replica}");
        assert_eq!(uids(&stage).await, before, "it is let be until then");
        BACKING_OFF.fetch_add(wait.unsigned_abs() + 1, Relaxed);
        touch(&stage).await;
        returned(&stage, "pd-1-prefill-0-0", &before, 2).await;
    }
}

/// 10: what has ended will not run again, however it ended: its role replica is made again, and where
/// failures are not to be answered itself alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_ended_is_made_again() {
    let replicas = ["pd-0-decode-0-0", "pd-0-decode-0-1", "pd-1-decode-1-0", "pd-1-decode-1-1"];
    let alone = ["pd-0-decode-0-1", "pd-1-decode-1-1"];
    for (policy, expected) in [("RoleRecreate", &replicas[..]), ("None", &alone[..])] {
        let mut stage = Stage::start().await;
        stage.apply(&answering(policy, 0)).await;
        settled(&stage, 2).await;
        stage.quiet().await;
        let before = uids(&stage).await;
        // A pod that has ended is not revived.
        without_kubelet(&mut stage).await;
        let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
        for (pod, phase) in [("pd-0-decode-0-1", "Succeeded"), ("pd-1-decode-1-1", "Failed")] {
            let ended = Patch::Merge(json!({"status": {"phase": phase}}));
            pods.patch_status(pod, &PatchParams::default(), &ended).await.unwrap();
        }
        stage
            .eventually("what has ended is made again", || async {
                let now = uids(&stage).await;
                let is_other = |name: &&str| now.get(*name).is_some_and(|uid| *uid != before[*name]);
                (now.len() == before.len() && expected.iter().all(is_other)).then_some(())
            })
            .await;
        stage.kubelet = Kubelet::start(stage.client.clone());
        let told = settled(&stage, 2).await;
        let after = uids(&stage).await;
        let changed: Vec<&String> = before.keys().filter(|name| after[*name] != before[*name]).collect();
        assert_eq!(changed, expected, "{policy}");
        let failures = told["groups"].as_array().into_iter().flatten();
        let reasons = failures.map(|group| group["replicas"][0]["lastFailure"]["reason"].clone());
        let reasons: Vec<Value> = reasons.collect();
        let answered = if policy == "None" { 0 } else { 2 };
        assert_eq!(reasons, vec![json!("pod 1 has ended"); answered], "{policy}: {told}");
    }
}

/// 11: a status speaks of the spec whose generation it names, in every state that anybody could have seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_never_names_a_generation_that_it_does_not_speak_of() {
    let stage = Stage::start().await;
    let wanted = |image: &str| serving(2, &[("decode", 1, 0, image)]);
    stage.apply(&wanted("one")).await;
    settled(&stage, 2).await;
    let first = stage.get("ModelServing", "pd").await.unwrap();
    let told = stage.record("ModelServing").await;
    stage.apply(&wanted("two")).await;
    made_from(&stage, "pd-1-decode-0-0", "two").await;
    stage.apply(&wanted("three")).await;
    settled(&stage, 2).await;
    let mut told = told.end().await;
    told.insert(0, first);

    let image = |role: &Value| role["entryTemplate"]["spec"]["containers"][0]["image"].to_string();
    let stored = stage.list("ControllerRevision").await;
    let keys: BTreeMap<String, String> =
        stored.iter().map(|it| (image(&it.data["data"]["data"][0]), it.labels()[REVISION].clone())).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    let specs: BTreeMap<i64, String> =
        told.iter().map(|it| (generation(it), image(&it["spec"]["template"]["roles"][0]))).collect();
    let mut seen = BTreeSet::new();
    for object in &told {
        let status = &object["status"];
        let observed = status["observedGeneration"].as_i64().unwrap();
        assert!(observed <= generation(object), "{object}");
        assert_eq!(status["updateRevision"], keys[&specs[&observed]], "of generation {observed}: {object}");
        seen.insert((specs[&observed].clone(), observed == generation(object)));
    }
    assert!(seen.len() >= 5, "three specs that were looked at, and two that were not yet: {seen:?}");
}

/// 12: conditions name groups by their places, exclude each other, and what is over or not so says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_tell_an_upgrade_from_its_beginning_to_its_end() {
    let stage = Stage::start().await;
    let wanted = |image: &str| rolling(serving(3, &[("decode", 1, 0, image)]), &json!({"maxUnavailable": 1}));
    stage.apply(&wanted("one")).await;
    settled(&stage, 3).await;
    let told = stage.record("ModelServing").await;
    stage.kubelet.ready_if(|pod| kit::image(pod) != "two");
    stage.apply(&wanted("two")).await;
    made_from(&stage, "pd-2-decode-0-0", "two").await;
    stage.quiet().await;
    let types = ["Available", "Progressing", "UpdateInProgress"];
    let halfway = status(&stage).await;
    assert_eq!(types.map(|ty| kit::condition(&halfway, ty)), ["False", "True", "True"]);
    assert!(message(&halfway, "Progressing").contains(": [2]"), "{halfway}");
    assert!(message(&halfway, "UpdateInProgress").contains(": [0, 1, 2];"), "{halfway}");
    stage.kubelet.ready_if(|_| true);
    let done = settled(&stage, 3).await;
    assert_eq!(types.map(|ty| kit::condition(&done, ty)), ["True", "False", "False"]);

    let mut updating = Vec::new();
    for object in told.end().await {
        let status = &object["status"];
        assert_ne!(kit::condition(status, "Available"), kit::condition(status, "Progressing"), "{status}");
        for condition in status["conditions"].as_array().into_iter().flatten() {
            assert!(condition["status"] == "True" || condition["message"] == "", "{condition}");
            assert_eq!(condition["observedGeneration"], status["observedGeneration"], "{condition}");
        }
        updating.push(kit::condition(status, "UpdateInProgress"));
    }
    updating.dedup();
    assert_eq!(updating, ["False", "True", "False"], "without a break from its beginning to its end");
}

/// Waits until so many groups of a ModelServing serve, with or without anything left to do.
async fn available(stage: &Stage, name: &str, groups: u64, done: bool) -> Value {
    stage
        .eventually("so many groups serve", || async {
            let status = stage.observed("ModelServing", name).await?;
            let is_done = status["message"].is_null() && status["replicas"] == groups;
            (status["availableReplicas"] == groups && is_done == done).then_some(status)
        })
        .await
}

/// 18: `a`, group 0, role `b-1-c` and `a-0-b`, group 1, role `c` give their pods the same name. Whoever has
/// it keeps it, whatever becomes of the other, and the other waits and says so until it is free.
#[tokio::test(flavor = "multi_thread")]
async fn two_whose_pods_would_have_one_name_leave_each_other_alone() {
    let stage = Stage::start().await;
    let wanted = |name: &str, groups: u32, role: &str| {
        let mut serving = serving(groups, &[(role, 1, 1, "x")]);
        serving["metadata"]["name"] = json!(name);
        serving
    };
    let shared = "a-0-b-1-c-0-0";
    stage.apply(&wanted("a", 1, "b-1-c")).await;
    available(&stage, "a", 1, true).await;
    stage.quiet().await;
    let first = stage.uids("Pod").await;
    assert_eq!(first.keys().collect::<Vec<_>>(), [shared, "a-0-b-1-c-0-1"]);
    let keeps = |now: &BTreeMap<String, String>| first.iter().all(|(name, uid)| now.get(name) == Some(uid));

    stage.apply(&wanted("a-0-b", 2, "c")).await;
    let told = available(&stage, "a-0-b", 1, false).await;
    let group = &told["groups"][0];
    assert!(group["index"] == 1 && group["message"].is_string(), "it says what it waits with: {told}");
    stage
        .eventually("it has found the name taken", || async {
            (stage.failures("ModelServing", "foreign") > 1).then_some(())
        })
        .await;
    assert!(keeps(&stage.uids("Pod").await));
    // The group that it could not make is not one that it may take away.
    stage.apply(&wanted("a-0-b", 1, "c")).await;
    available(&stage, "a-0-b", 1, true).await;
    assert!(keeps(&stage.uids("Pod").await));
    stage.delete("ModelServing", "a-0-b").await;
    stage
        .eventually("its own pods go with it", || async {
            (stage.uids("Pod").await.len() == first.len()).then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(stage.uids("Pod").await, first);
    available(&stage, "a", 1, true).await;

    stage.apply(&wanted("a-0-b", 2, "c")).await;
    available(&stage, "a-0-b", 1, false).await;
    stage.delete("ModelServing", "a").await;
    available(&stage, "a-0-b", 2, true).await;
    let pod = stage.get("Pod", shared).await.unwrap();
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "a-0-b");
}

/// Decision 6: a scheduler that never looks is named, but not before it has had half a minute, and no longer
/// than it is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_is_missing_is_named() {
    // A minute behind, so that no pod waits for long however slow this test is.
    let mut stage = with_clock(|| {
        (wall_clock() + Duration::from_secs(WAITING.load(Relaxed))).saturating_sub(Duration::from_mins(1))
    })
    .await;
    without_kubelet(&mut stage).await;
    let mut wanted = serving(1, &[("decode", 1, 1, "d")]);
    wanted["spec"]["schedulerName"] = json!("nobody");
    stage.apply(&wanted).await;
    stage
        .eventually("the pods are there", || async { (kit::names(&stage).await.len() == 2).then_some(()) })
        .await;
    stage.quiet().await;
    assert_eq!(kit::condition(&status(&stage).await, "SchedulerMissing"), "absent");

    WAITING.store(120, Relaxed);
    touch(&stage).await;
    let told = stage
        .eventually("it is named", || async {
            let status = status(&stage).await;
            (kit::condition(&status, "SchedulerMissing") == "True").then_some(status)
        })
        .await;
    let why = message(&told, "SchedulerMissing");
    assert!(why.starts_with("pod pd-0-decode-0-0: no scheduler called nobody has looked at it"), "{why}");
    stage.kubelet = Kubelet::start(stage.client.clone());
    let done = settled(&stage, 1).await;
    assert_eq!(kit::condition(&done, "SchedulerMissing"), "absent");
}

/// Decision 5: what fails again and again is told as long as it does not serve; once is not again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_fails_again_and_again_is_told_until_it_serves() {
    let stage = with_clock(|| wall_clock() + Duration::from_secs(FAILING.load(Relaxed))).await;
    stage.apply(&answering("RoleRecreate", 0)).await;
    settled(&stage, 2).await;
    stage.quiet().await;
    let before = uids(&stage).await;
    let told = stage.record("ModelServing").await;
    stage.fail("pd-1-prefill-0-0").await;
    returned(&stage, "pd-1-prefill-0-0", &before, 2).await;
    stage.quiet().await;
    for object in told.end().await {
        assert_eq!(kit::condition(&object["status"], "Degraded"), "absent", "{object}");
    }

    // The second time its back-off is over already, and the third one never gets ready.
    stage.kubelet.ready_if(|pod| incarnation(pod) != "2");
    FAILING.store(20, Relaxed);
    stage.fail("pd-1-prefill-0-0").await;
    stage
        .eventually("it is told", || async {
            (kit::condition(&status(&stage).await, "Degraded") == "True").then_some(())
        })
        .await;
    stage.quiet().await;
    let why = message(&status(&stage).await, "Degraded");
    assert!(why.starts_with("1 fail again and again; prefill-0 of group 1: "), "{why}");
    stage.kubelet.ready_if(|_| true);
    let done = settled(&stage, 2).await;
    assert_eq!(kit::condition(&done, "Degraded"), "absent");
    assert_eq!(done["groups"][0]["replicas"][0]["restarts"], 2);
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
#[tokio::test(flavor = "multi_thread")]
async fn by_steps_a_group_that_fails_before_its_turn_is_made_again_as_it_was() {
    a_group_that_waits_fails(&json!({"roleUpgrade": {"steps": [{"role": "decode", "updateTo": 1}]}})).await;
}

/// Semantic 22 and 6: the same, where groups are replaced as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn by_groups_a_group_that_fails_before_its_turn_is_made_again_as_it_was() {
    a_group_that_waits_fails(&json!({"maxUnavailable": 1})).await;
}
