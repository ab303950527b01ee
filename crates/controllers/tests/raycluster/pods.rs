//! Which pods there are.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::{cluster, fault_tolerant, pods, ready, stage::Stage, uids};

#[tokio::test(start_paused = true)]
async fn a_cluster_has_one_head_and_as_many_workers_as_are_wanted() {
    let stage = Stage::start().await;
    stage.apply(&cluster(2)).await;
    let status = ready(&stage, 2).await;
    assert_eq!((uids(&stage, "head").await.len(), uids(&stage, "worker").await.len()), (1, 2));
    assert_eq!((&status["desiredCPU"], &status["desiredMemory"]), (&json!("3"), &json!("3Gi")));
    for pod in pods(&stage).await.values() {
        let owner = &pod.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.controller), ("RayCluster", Some(true)));
    }
}

/// Zero writes at steady state, where the public operator writes a status every few seconds.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    let stage = Stage::start().await;
    stage.apply(&fault_tolerant(2)).await;
    ready(&stage, 2).await;
    let before = stage.revision().await;
    tokio::time::sleep(std::time::Duration::from_mins(30)).await;
    assert_eq!(stage.revision().await, before);
}

#[tokio::test(start_paused = true)]
async fn workers_are_added_and_removed_and_the_others_stay() {
    let stage = Stage::start().await;
    stage.apply(&cluster(2)).await;
    ready(&stage, 2).await;
    let before = uids(&stage, "worker").await;
    stage.apply(&cluster(4)).await;
    ready(&stage, 4).await;
    let more = uids(&stage, "worker").await;
    assert!(before.iter().all(|(name, uid)| more.get(name) == Some(uid)));
    stage.apply(&cluster(1)).await;
    ready(&stage, 1).await;
    let fewer = uids(&stage, "worker").await;
    assert!(fewer.iter().all(|(name, uid)| before.get(name) == Some(uid)), "the oldest stays");
}

/// Weakness 12: a stale name deletes again and again, and pods of others too.
#[tokio::test(start_paused = true)]
async fn a_worker_that_the_autoscaler_names_goes_once_and_no_pod_of_another() {
    let stage = Stage::start().await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    stage.apply(&foreign).await;
    stage.apply(&cluster(2)).await;
    ready(&stage, 2).await;
    let before = uids(&stage, "worker").await;
    let (first, other) = (before.keys().next().unwrap(), before.keys().nth(1).unwrap());
    let mut listed = cluster(2);
    listed["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": [first, "foreign"]});
    stage.apply(&listed).await;
    stage
        .eventually("another worker is in its place", || async {
            let now = uids(&stage, "worker").await;
            (now.len() == 2 && !now.contains_key(first)).then_some(())
        })
        .await;
    ready(&stage, 2).await;
    let after = uids(&stage, "worker").await;
    assert_eq!(after.get(other), before.get(other));
    assert!(stage.get("Pod", "foreign").await.is_some());
    let again = stage.revision().await;
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    assert_eq!(stage.revision().await, again, "the list is honoured once");
}

/// With autoscaling absent, bounds count whatever `replicas` says; edited bounds count at once.
#[tokio::test(start_paused = true)]
async fn edited_bounds_count() {
    let stage = Stage::start().await;
    stage.apply(&cluster(1)).await;
    ready(&stage, 1).await;
    let mut wider = cluster(1);
    wider["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(3);
    stage.apply(&wider).await;
    let status = ready(&stage, 3).await;
    assert_eq!((&status["desiredWorkerReplicas"], &status["minWorkerReplicas"]), (&json!(3), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn the_hosts_of_a_replica_live_together() {
    let stage = Stage::start().await;
    let mut several = fault_tolerant(2);
    several["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(2);
    stage.apply(&several).await;
    ready(&stage, 4).await;
    let before = pods(&stage).await;
    let of = |replica: &str| {
        let is = |pod: &&Pod| {
            pod.labels().get("ray.io/worker-group-replica-index").is_some_and(|it| it == replica)
        };
        let mut uids: Vec<_> = before.values().filter(is).map(|pod| pod.uid().unwrap()).collect();
        uids.sort();
        uids
    };
    let (lost, kept) = (of("0"), of("1"));
    assert_eq!((lost.len(), kept.len()), (2, 2));
    let one = before.values().find(|pod| pod.uid().as_deref() == Some(lost[0].as_str())).unwrap();
    stage.delete("Pod", &one.name_any()).await;
    stage
        .eventually("the whole replica is replaced", || async {
            let now: Vec<String> = uids(&stage, "worker").await.into_values().collect();
            let whole = now.len() == 4 && kept.iter().all(|uid| now.contains(uid));
            (whole && lost.iter().all(|uid| !now.contains(uid))).then_some(())
        })
        .await;
    ready(&stage, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_cluster_has_no_pods_and_comes_back() {
    let stage = Stage::start().await;
    stage.apply(&cluster(2)).await;
    ready(&stage, 2).await;
    let mut suspended = cluster(2);
    suspended["spec"]["suspend"] = json!(true);
    stage.apply(&suspended).await;
    let status = stage.eventually("it is suspended", || async {
        let status = stage.observed("RayCluster", "c").await?;
        (status["state"] == "suspended").then_some(status)
    });
    let status = status.await;
    assert!(pods(&stage).await.is_empty());
    assert_eq!(crate::condition(&status, "RayClusterSuspended").unwrap()["status"], "True");
    assert!(status["waitingFor"].is_null(), "nothing is left to do");
    assert!(stage.get("Service", "c-head-svc").await.is_some(), "the name stays");
    stage.apply(&cluster(2)).await;
    let status = ready(&stage, 2).await;
    assert_eq!(crate::condition(&status, "RayClusterSuspended").unwrap()["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_replaces_pods_only_where_that_is_asked_for() {
    for (strategy, replaced) in [(None, false), (Some("None"), false), (Some("Recreate"), true)] {
        let stage = Stage::start().await;
        let mut cluster = cluster(1);
        if let Some(strategy) = strategy {
            cluster["spec"]["upgradeStrategy"] = json!({"type": strategy});
        }
        stage.apply(&cluster).await;
        ready(&stage, 1).await;
        let before = stage.uids("Pod").await;
        cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] = json!("ray:2");
        stage.apply(&cluster).await;
        stage.quiet().await;
        ready(&stage, 1).await;
        let after = stage.uids("Pod").await;
        let kept = before.values().filter(|uid| after.values().any(|now| now == *uid)).count();
        assert_eq!(kept, if replaced { 0 } else { 2 }, "{strategy:?}");
    }
}

/// A write of `replicas` by another client, the autoscaler for one, stays.
#[tokio::test(start_paused = true)]
async fn replicas_that_another_client_writes_stay() {
    let stage = Stage::start().await;
    stage.apply(&cluster(1)).await;
    ready(&stage, 1).await;
    let api: Api<DynamicObject> = stage.api(&cluster(1));
    let patch = json!([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    api.patch("c", &PatchParams::default(), &patch).await.unwrap();
    ready(&stage, 3).await;
    let replicas = &stage.get("RayCluster", "c").await.unwrap()["spec"]["workerGroupSpecs"][0]["replicas"];
    assert_eq!(replicas, 3);
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_others_is_left_alone() {
    let stage = Stage::start().await;
    let mut of_kueue = cluster(1);
    of_kueue["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    let mut of_a_job = cluster(1);
    of_a_job["metadata"]["labels"] = json!({"ray.io/originated-from-crd": "RayJob"});
    for (name, mut cluster) in [("kueue", of_kueue), ("job", of_a_job)] {
        cluster["metadata"]["name"] = json!(name);
        stage.apply(&cluster).await;
    }
    // One that is ours is made meanwhile: the controller is at work.
    stage.apply(&cluster(0)).await;
    ready(&stage, 0).await;
    assert_eq!(stage.names("Pod").await.len(), 1);
    for name in ["kueue", "job"] {
        assert!(stage.get("RayCluster", name).await.unwrap()["status"].is_null(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_leaves_nothing() {
    let stage = Stage::start().await;
    stage.apply(&cluster(2)).await;
    ready(&stage, 2).await;
    stage.delete("RayCluster", "c").await;
    stage
        .eventually("its pods and Services are gone", || async {
            let services = stage.names("Service").await;
            (stage.names("Pod").await.is_empty() && !services.contains(&"c-head-svc".to_owned()))
                .then_some(())
        })
        .await;
}
