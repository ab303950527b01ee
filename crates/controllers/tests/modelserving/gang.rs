//! Groups that are placed together or not at all, where Volcano is there to do it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use testbed::pod_groups;
use tokio::time::Instant;

use crate::{
    kit::{self, serving, settled},
    stage::{Stage, warnings::Warnings},
};

/// Groups of two prefill pods and of two decode replicas with a worker each, of which one must be placed to begin.
fn gang(groups: u32, image: &str) -> Value {
    let mut serving = serving(groups, &[("prefill", 2, 0, image), ("decode", 2, 1, image)]);
    let spec = &mut serving["spec"];
    spec["schedulerName"] = json!("volcano");
    let template = &mut spec["template"];
    for role in template["roles"].as_array_mut().unwrap() {
        for pod in ["entryTemplate", "workerTemplate"] {
            if !role[pod].is_null() {
                role[pod]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
                        "limits": {"nvidia.com/gpu": "1"}});
            }
        }
    }
    template["gangPolicy"] = json!({"minRoleReplicas": {"decode": 1}});
    template["networkTopology"] = json!({
        "groupPolicy": {"mode": "hard", "highestTierAllowed": 2},
        "rolePolicy": {"mode": "soft", "highestTierAllowed": 1},
    });
    serving
}

/// The controllers begin where Volcano is already.
async fn with_volcano() -> Stage {
    let mut stage = Stage::start().await;
    stage.kill().await;
    stage.apply(&pod_groups(true)).await;
    stage.run();
    stage
}

async fn spec(stage: &Stage, name: &str) -> Value {
    stage.get("PodGroup", name).await.map(|it| it["spec"].clone()).unwrap_or_default()
}

async fn annotations(stage: &Stage) -> BTreeMap<String, Value> {
    let pods = kit::pods(stage).await.into_iter();
    pods.map(|pod| (pod.metadata.name.unwrap(), json!(pod.metadata.annotations))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_has_its_pod_group_before_its_pods_and_no_longer() {
    let stage = with_volcano().await;
    let pods = stage.record("Pod").await;
    stage.apply(&gang(2, "one")).await;
    settled(&stage, 2).await;

    let group = stage.get("PodGroup", "pd-1").await.unwrap();
    // Prefill needs both of its pods, decode one replica of two pods.
    assert_eq!(
        group["spec"],
        json!({
            "minMember": 4,
            "minResources": {"cpu": "2", "memory": "4294967296", "nvidia.com/gpu": "4"},
            "queue": "default",
            "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
            "subGroupPolicy": [
                {
                    "name": "prefill",
                    "labelSelector": {"matchLabels": {
                        "modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/role": "prefill"}},
                    "matchLabelKeys": ["modelserving.volcano.sh/role-id"],
                    "subGroupSize": 1,
                    "minSubGroups": 2,
                    "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
                },
                {
                    "name": "decode",
                    "labelSelector": {"matchLabels": {
                        "modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/role": "decode"}},
                    "matchLabelKeys": ["modelserving.volcano.sh/role-id"],
                    "subGroupSize": 2,
                    "minSubGroups": 1,
                    "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
                },
            ],
        })
    );
    let version =
        |object: &Value| -> u64 { object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    let made = pods.end().await;
    let first = made.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with("pd-1-"));
    assert!(version(&group) < first.map(version).min().unwrap(), "the PodGroup was there first");
    for (pod, said) in annotations(&stage).await {
        let (place, _) = pod.rsplit_once('-').unwrap();
        let (group, task) = place.split_at("pd-0".len());
        assert_eq!(said["scheduling.k8s.io/group-name"], group, "{pod}");
        assert_eq!(said["volcano.sh/task-spec"], task[1..], "{pod}");
    }
    let status = kit::status(&stage).await;
    assert_ne!(kit::condition(&status, "NotActedOn"), "True", "{status}");

    stage.apply(&gang(1, "one")).await;
    settled(&stage, 1).await;
    stage
        .eventually("the PodGroup is gone", || async {
            (stage.names("PodGroup").await == ["pd-0"]).then_some(())
        })
        .await;
}

/// Another operator made the PodGroup before it was stopped, with labels of its own.
#[tokio::test(start_paused = true)]
async fn a_pod_group_of_this_serving_is_adopted() {
    let mut stage = with_volcano().await;
    stage.kill().await;
    stage.apply(&gang(1, "one")).await;
    let serving = stage.get("ModelServing", "pd").await.unwrap();
    let owner = json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "pd",
        "uid": serving["metadata"]["uid"], "controller": true,
    });
    let theirs = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "pd-0", "ownerReferences": [owner]}, "spec": {"minMember": 6},
    });
    stage.apply(&theirs).await;
    let before = stage.uids("PodGroup").await;
    stage.run();
    settled(&stage, 1).await;
    assert_eq!(spec(&stage, "pd-0").await["minMember"], 4);
    assert_eq!(stage.uids("PodGroup").await, before);
}

/// Weak point 15: a queue that changes is heard of, and what is dropped from the topology is dropped under running
/// pods.
#[tokio::test(start_paused = true)]
async fn a_pod_group_follows_its_serving_and_is_never_made_anew() {
    let stage = with_volcano().await;
    let mut wanted = gang(1, "one");
    wanted["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = json!("urgent");
    stage.apply(&wanted).await;
    settled(&stage, 1).await;
    assert_eq!(spec(&stage, "pd-0").await["queue"], "urgent");
    let before = (stage.uids("PodGroup").await, kit::uids(&stage).await);

    let mut wanted = gang(1, "one");
    wanted["spec"]["template"].as_object_mut().unwrap().remove("networkTopology");
    stage.apply(&wanted).await;
    stage
        .eventually("queue and topology are as before", || async {
            let spec = spec(&stage, "pd-0").await;
            (spec["queue"] != "urgent" && spec["networkTopology"].is_null()).then_some(())
        })
        .await;
    settled(&stage, 1).await;
    assert_eq!((stage.uids("PodGroup").await, kit::uids(&stage).await), before);
}

/// Weak point 15: a group that still has fewer pods is not asked for those of the next revision, else none of its own
/// that is made again would be placed.
#[tokio::test(start_paused = true)]
async fn a_pod_group_never_needs_more_pods_than_it_has() {
    let stage = with_volcano().await;
    stage.apply(&gang(2, "one")).await;
    settled(&stage, 2).await;
    let mut wider = gang(2, "two");
    wider["spec"]["template"]["roles"][1]["workerReplicas"] = json!(3);
    wider["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"partition": 1}});
    stage.apply(&wider).await;
    stage
        .eventually("the upper group is wider", || async {
            (spec(&stage, "pd-1").await["minMember"] == 6).then_some(())
        })
        .await;
    assert_eq!(spec(&stage, "pd-0").await["minMember"], 4);
}

/// Volcano comes later, and is one that does not know parts of groups.
#[tokio::test(start_paused = true)]
async fn without_volcano_pods_are_placed_one_by_one_and_an_older_volcano_is_not_asked_twice() {
    let stage = Stage::start().await;
    stage.apply(&gang(1, "one")).await;
    let status = settled(&stage, 1).await;
    assert_eq!(kit::condition(&status, "NotActedOn"), "True", "{status}");
    let before = kit::uids(&stage).await;
    assert!(annotations(&stage).await.values().all(|it| it["scheduling.k8s.io/group-name"].is_null()));

    stage.apply(&pod_groups(false)).await;
    stage
        .eventually("the group has its PodGroup", || async {
            (spec(&stage, "pd-0").await["minMember"] == 4).then_some(())
        })
        .await;
    stage.quiet().await;
    assert!(spec(&stage, "pd-0").await["subGroupPolicy"].is_null());
    assert_eq!(kit::uids(&stage).await, before, "nothing was made again for it");
    // Once with parts, once without.
    assert_eq!((stage.writes("create", "PodGroup"), stage.writes("patch", "PodGroup")), (1, 1));
    kit::patch(&stage, &json!([{"op": "replace", "path": "/spec/template/roles/0/replicas", "value": 3}]))
        .await;
    stage
        .eventually("there is a third", || async { (kit::names(&stage).await.len() == 7).then_some(()) })
        .await;
    settled(&stage, 1).await;
    assert_eq!(spec(&stage, "pd-0").await["minMember"], 5);
    assert_eq!(stage.writes("patch", "PodGroup"), 2, "and once for the third");
}

/// A kind that is not installed costs one list and one watch of its definition, which the server ends every few minutes,
/// and no request for its objects. It is noticed as soon as it is installed.
#[tokio::test(start_paused = true)]
async fn an_uninstalled_kind_is_discovered_once_and_noticed_when_it_is_installed() {
    let warnings = Warnings::collect();
    let mut stage = Stage::start().await;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let requests_with = move |part: &str| -> usize {
        requests.lock().unwrap().iter().filter(|path: &&String| path.contains(part)).count()
    };
    let keep = move |_: &Method, path: &str| {
        seen.lock().unwrap().push(path.to_owned());
        false
    };
    drop(stage.refuse(keep).await);
    stage.apply(&gang(1, "one")).await;
    settled(&stage, 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(requests_with("/podgroups"), 0, "objects of a kind that is not installed were asked for");
    let asked = requests_with("metadata.name%3Dpodgroups.scheduling.volcano.sh");
    assert!(
        (2..=2 * 3_600 / 290 + 2).contains(&asked),
        "the definition was asked for {asked} times in an hour"
    );
    assert_eq!(warnings.messages(), [""; 0]);

    stage.apply(&pod_groups(true)).await;
    let installed = Instant::now();
    stage
        .eventually("the group has its PodGroup", || async {
            (spec(&stage, "pd-0").await["minMember"] == 4).then_some(())
        })
        .await;
    assert!(installed.elapsed() < Duration::from_secs(5), "noticed after {:?}", installed.elapsed());
}

/// A group that asks for more than it has, or for pods that there are not, is never placed.
#[tokio::test(start_paused = true)]
async fn foreign_fields_of_a_pod_group_are_removed() {
    let stage = with_volcano().await;
    stage.apply(&gang(1, "one")).await;
    settled(&stage, 1).await;
    let before = spec(&stage, "pd-0").await;
    let live = stage.get("PodGroup", "pd-0").await.unwrap();
    let mut parts = before["subGroupPolicy"].as_array().unwrap().clone();
    parts[0]["labelSelector"]["matchLabels"]["more"] = json!("than-ours");
    for added in [
        json!({"minResources": {"example.com/gpu": "64"}}),
        json!({"networkTopology": {"highestTierName": "rack"}}),
        json!({"subGroupPolicy": parts}),
    ] {
        let patch = kube::api::Patch::Merge(json!({"spec": added}));
        let by = kube::api::PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
        stage.api(&live).patch("pd-0", &by, &patch).await.unwrap();
        stage
            .eventually(&format!("{added} is taken away"), || async {
                (spec(&stage, "pd-0").await == before).then_some(())
            })
            .await;
    }
}
