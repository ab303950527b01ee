//! More weak points of the public operator, by their numbers in the notes of the design.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Embedded, Kubelet, virtual_time};

use crate::{
    kit::{
        self, REVISION, incarnation, made_from, message, returned, rolling, serving, settled, status, uids,
    },
    stage::{self, Stage},
};

/// By how many seconds the clocks of three tests are ahead of what they began with.
static BACKING_OFF: AtomicU64 = AtomicU64::new(0);
static FAILING: AtomicU64 = AtomicU64::new(0);
static WAITING: AtomicU64 = AtomicU64::new(0);

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

/// Two groups that answer failures so.
fn answering(policy: &str, grace: u32) -> Value {
    let mut serving = serving(2, &[("prefill", 1, 0, "p"), ("decode", 2, 1, "d")]);
    serving["spec"]["recoveryPolicy"] = json!(policy);
    serving["spec"]["template"]["restartGracePeriodSeconds"] = json!(grace);
    serving
}

/// 9: a grace ends. What failed and does not come back in it is made again then and not before, without
/// anything else that happens.
#[tokio::test(start_paused = true)]
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
#[tokio::test(start_paused = true)]
async fn failures_in_a_row_are_answered_later_each_time() {
    let stage = Stage::at_time(|| virtual_time::now() + Duration::from_secs(BACKING_OFF.load(Relaxed))).await;
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
                let expected = format!("backing off after {times} recreation");
                replica["waitingFor"]["subject"].as_str()?.contains(&expected).then_some(replica)
            })
            .await;
        let until: Timestamp = replica["waitingFor"]["deadline"].as_str().unwrap().parse().unwrap();
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
#[tokio::test(start_paused = true)]
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
        stage.kubelet = stage::kubelet(&stage.client);
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
#[tokio::test(start_paused = true)]
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
#[tokio::test(start_paused = true)]
async fn conditions_show_an_upgrade_from_its_beginning_to_its_end() {
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
    assert!(message(&halfway, "Progressing").contains("group 2 does not serve yet"), "{halfway}");
    assert!(
        message(&halfway, "UpdateInProgress")
            .contains("groups 0, 1, 2 are not updated and ready yet; 1 of the new revision"),
        "{halfway}"
    );
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
#[tokio::test(start_paused = true)]
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
    assert!(group["index"] == 1 && group["waitingFor"].is_object(), "it says what it waits with: {told}");
    stage
        .eventually("it says that the name is taken", || async {
            let status = stage.observed("ModelServing", "a-0-b").await?;
            let conditions = status["conditions"].as_array()?.iter();
            let taken = |it: &&Value| it["type"] == "NamesTaken" && it["status"] == "True";
            let message = conditions.clone().find(taken)?["message"].as_str()?.to_owned();
            message.contains(&format!("Pod default/{shared}")).then_some(())
        })
        .await;
    assert!(keeps(&stage.uids("Pod").await));
    // The group that it could not make is not one that it may take away.
    stage.apply(&wanted("a-0-b", 1, "c")).await;
    available(&stage, "a-0-b", 1, true).await;
    assert!(keeps(&stage.uids("Pod").await));
    // It is known to be over when nothing was refused, which the next status says.
    stage
        .eventually("what is over leaves nothing", || async {
            let status = stage.observed("ModelServing", "a-0-b").await?;
            (!status["conditions"].to_string().contains("NamesTaken")).then_some(())
        })
        .await;
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
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_missing_is_named() {
    // A minute behind, so that no pod waits for long however slow this test is.
    let mut stage = Stage::at_time(|| {
        (virtual_time::now() + Duration::from_secs(WAITING.load(Relaxed)))
            .saturating_sub(Duration::from_mins(1))
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
    assert!(why.starts_with("pod pd-0-decode-0-0: scheduler nobody has not handled it"), "{why}");
    stage.kubelet = stage::kubelet(&stage.client);
    let done = settled(&stage, 1).await;
    assert_eq!(kit::condition(&done, "SchedulerMissing"), "absent");
}

/// Decision 5: what fails again and again is told as long as it does not serve; once is not again and again.
#[tokio::test(start_paused = true)]
async fn a_failing_replica_is_reported_until_it_serves() {
    let stage = Stage::at_time(|| virtual_time::now() + Duration::from_secs(FAILING.load(Relaxed))).await;
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
    assert!(why.starts_with("1 failing repeatedly, first prefill-0 of group 1: "), "{why}");
    stage.kubelet.ready_if(|_| true);
    let done = settled(&stage, 2).await;
    assert_eq!(kit::condition(&done, "Degraded"), "absent");
    assert_eq!(done["groups"][0]["replicas"][0]["restarts"], 2);
}
