//! Services of one cluster, and those that switch to the next one at once.

use std::time::Duration;

use serde_json::json;

use crate::kit::{
    active, blue_green, clusters, condition, config, pending, selector, service, settled, stage, until,
};

#[tokio::test(start_paused = true)]
async fn the_first_cluster_serves_and_nothing_is_written_after_that() {
    let (stage, serve) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let before = until(&stage, "it begins", |status| pending(status).is_some()).await;
    assert_eq!(condition(&before, "Ready"), ("False", "Initializing"));
    let status = settled(&stage).await;
    let cluster = active(&status);
    assert_eq!(condition(&status, "Ready"), ("True", "NonZeroServeEndpoints"));
    assert_eq!(condition(&status, "UpgradeInProgress"), ("False", "NoPendingCluster"));
    assert_eq!((&status["numServeEndpoints"], &status["serviceStatus"]), (&json!(2), &json!("Running")));
    let application = &status["activeServiceStatus"]["applicationStatuses"]["app"];
    assert_eq!(
        (&application["status"], &application["serveDeploymentStatuses"]["d"]["status"]),
        (&json!("RUNNING"), &json!("HEALTHY"))
    );
    for service in ["chat-serve-svc", &format!("{cluster}-serve-svc")] {
        let selector = selector(&stage, service).await;
        assert_eq!(
            (selector["ray.io/cluster"].as_str(), selector["ray.io/serve"].as_str()),
            (cluster.as_str(), "true")
        );
    }
    let object = stage.get("RayCluster", &cluster).await.unwrap();
    assert_eq!(object["metadata"]["labels"]["ray.io/originated-from-cr-name"], "chat");
    assert_eq!(object["metadata"]["labels"]["ray.io/originated-from-crd"], "RayService");
    assert_eq!(serve.puts(&cluster).len(), 1, "it is told once");
    // Everything is polled on, and nothing is written.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let version = stage.revision().await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(stage.changed_since(version).await, Vec::<String>::new());
    assert_eq!(serve.puts(&cluster).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn traffic_switches_when_the_new_cluster_serves_and_the_old_one_goes_after_its_delay() {
    let (stage, serve) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let old = active(&settled(&stage).await);
    stage.apply(&service("two", 3, &blue_green())).await;
    let during = until(&stage, "the new one is on its way", |it| pending(it).is_some()).await;
    let new = pending(&during).unwrap();
    assert_eq!(condition(&during, "UpgradeInProgress"), ("True", "BothActivePendingClustersExist"));
    // The application says RUNNING long before its replicas run: that is no reason to switch.
    until(&stage, "Serve says RUNNING", |it| {
        it["pendingServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
    })
    .await;
    assert_eq!(serve.granted(&new), (100, 0), "no replica runs");
    assert_eq!(selector(&stage, "chat-serve-svc").await["ray.io/cluster"], old);
    let switched = settled(&stage).await;
    assert_eq!(active(&switched), new);
    assert_eq!(serve.granted(&new), (100, 100), "every replica runs");
    assert_eq!(selector(&stage, "chat-serve-svc").await["ray.io/cluster"], new);
    assert_eq!(switched["retiring"][0]["rayClusterName"], old.as_str());
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(clusters(&stage).await.len(), 2, "its delay is not over");
    stage
        .eventually("the old one is gone", || async {
            (clusters(&stage).await == [new.clone()]).then_some(())
        })
        .await;
    assert_eq!(serve.puts(&old).len(), 1, "the old one was told nothing more");
    until(&stage, "it is forgotten", |it| it["retiring"].is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn applications_change_in_place() {
    let (stage, serve) = stage().await;
    let mut chat = service("one", 3, &blue_green());
    stage.apply(&chat).await;
    let cluster = active(&settled(&stage).await);
    chat["spec"]["serveConfigV2"] = config("other", 5).into();
    stage.apply(&chat).await;
    let is_told = |status: &serde_json::Value| {
        status["waitingFor"].is_null()
            && serve.puts(&cluster).len() == 2
            && serve.granted(&cluster) == (100, 100)
    };
    let status = until(&stage, "it is told", is_told).await;
    assert_eq!((active(&status), clusters(&stage).await.len()), (cluster.clone(), 1));
    assert_eq!(serve.puts(&cluster)[1]["applications"][0]["import_path"], "other");
}

#[tokio::test(start_paused = true)]
async fn with_type_none_no_new_cluster_is_made() {
    let (stage, serve) = stage().await;
    let none = json!({"type": "None"});
    stage.apply(&service("one", 3, &none)).await;
    let cluster = active(&settled(&stage).await);
    let mut second = service("two", 3, &none);
    second["spec"]["serveConfigV2"] = config("other", 3).into();
    stage.apply(&second).await;
    until(&stage, "its applications are told", |it| {
        it["waitingFor"].is_null() && serve.puts(&cluster).len() == 2
    })
    .await;
    stage.quiet().await;
    assert_eq!(clusters(&stage).await, [cluster]);
}

/// Weakness 9 of the public operator: it makes a third cluster.
#[tokio::test(start_paused = true)]
async fn going_back_before_the_switch_makes_no_third_cluster() {
    for wait_for_object in [false, true] {
        let (stage, serve) = stage().await;
        stage.apply(&service("one", 3, &blue_green())).await;
        let old = active(&settled(&stage).await);
        let record = stage.record("RayCluster").await;
        stage.apply(&service("two", 3, &blue_green())).await;
        if wait_for_object {
            stage.eventually("both", || async { (clusters(&stage).await.len() == 2).then_some(()) }).await;
        }
        stage.apply(&service("one", 3, &blue_green())).await;
        assert_eq!(active(&settled(&stage).await), old);
        stage.eventually("one", || async { (clusters(&stage).await == [old.clone()]).then_some(()) }).await;
        let mut seen: Vec<String> =
            record.end().await.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        seen.sort();
        seen.dedup();
        seen.retain(|name| *name != old);
        assert!(seen.len() <= 1, "{seen:?}");
        assert_eq!(serve.puts(&old).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn going_back_after_the_switch_takes_the_old_cluster_again() {
    let (stage, _) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let old = active(&settled(&stage).await);
    stage.apply(&service("two", 3, &blue_green())).await;
    let new = active(&settled(&stage).await);
    assert_ne!(old, new);
    let uid = stage.uids("RayCluster").await[&old].clone();
    stage.apply(&service("one", 3, &blue_green())).await;
    until(&stage, "it is active again", |it| it["activeServiceStatus"]["rayClusterName"] == old.as_str())
        .await;
    settled(&stage).await;
    assert_eq!(stage.uids("RayCluster").await[&old], uid, "it is the same one");
}

/// Weakness 2 of the public operator: after a restart it tells the old cluster the new config.
#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_tells_no_cluster_the_config_of_another() {
    let (mut stage, serve) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let old = active(&settled(&stage).await);
    let mut second = service("two", 3, &blue_green());
    second["spec"]["serveConfigV2"] = config("new", 3).into();
    stage.apply(&second).await;
    let during = until(&stage, "the new one is on its way", |it| pending(it).is_some()).await;
    for _ in 0..5 {
        stage.kill().await;
        stage.run();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let new = active(&settled(&stage).await);
    assert_eq!(Some(&new), pending(&during).as_ref());
    for (cluster, import) in [(old, "app"), (new, "new")] {
        let puts = serve.puts(&cluster);
        assert!(
            !puts.is_empty() && puts.iter().all(|body| body["applications"][0]["import_path"] == import),
            "{puts:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_serve_that_has_lost_its_config_is_told_again() {
    let (stage, serve) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let cluster = active(&settled(&stage).await);
    tokio::time::sleep(Duration::from_secs(15)).await;
    serve.lose(&cluster);
    stage.eventually("it is told again", || async { (serve.puts(&cluster).len() == 2).then_some(()) }).await;
    settled(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn pods_take_requests_as_long_as_their_proxy_is_healthy() {
    let (stage, serve) = stage().await;
    let mut chat = service("one", 3, &blue_green());
    stage.apply(&chat).await;
    let cluster = active(&settled(&stage).await);
    let label = async |role: &str| {
        let pod = stage.get("Pod", &format!("{cluster}-{role}")).await.unwrap();
        pod["metadata"]["labels"]["ray.io/serve"].as_str().unwrap().to_owned()
    };
    assert_eq!((label("head").await.as_str(), label("worker").await.as_str()), ("true", "true"));
    serve.lose_proxy(&format!("{cluster}-worker"));
    until(&stage, "one endpoint is left", |it| it["numServeEndpoints"] == 1).await;
    assert_eq!((label("head").await.as_str(), label("worker").await.as_str()), ("true", "false"));
    chat["spec"]["excludeHeadPodFromServeSvc"] = true.into();
    stage.apply(&chat).await;
    let status = until(&stage, "none is left", |it| it["numServeEndpoints"] == 0).await;
    assert_eq!(condition(&status, "Ready"), ("False", "ZeroServeEndpoints"));
}

#[tokio::test(start_paused = true)]
async fn a_dashboard_that_does_not_answer_is_told_again_later_and_said_so() {
    let (stage, serve) = stage().await;
    stage.apply(&service("one", 3, &blue_green())).await;
    let begun = until(&stage, "it begins", |it| pending(it).is_some()).await;
    let cluster = pending(&begun).unwrap();
    serve.mute(&cluster, true);
    let waits = |status: &serde_json::Value| {
        status["waitingFor"]["subject"]
            .as_str()
            .is_some_and(|it| it.contains("the dashboard does not answer"))
    };
    until(&stage, "it says so", waits).await;
    serve.mute(&cluster, false);
    assert_eq!(active(&settled(&stage).await), cluster);
}

#[tokio::test(start_paused = true)]
async fn blue_green_works_without_any_crd_of_gateways() {
    let (stage, _) = stage().await;
    for crd in gateway::crds() {
        let api = stage.api(&crd);
        drop(
            api.delete(crd["metadata"]["name"].as_str().unwrap(), &kube::api::DeleteParams::default()).await,
        );
    }
    stage.apply(&service("one", 3, &blue_green())).await;
    let old = active(&settled(&stage).await);
    stage.apply(&service("two", 3, &blue_green())).await;
    until(&stage, "it has switched", |it| pending(it).is_none() && active(it) != old).await;
}

#[tokio::test(start_paused = true)]
async fn the_number_of_workers_changes_in_place_and_leaves_the_autoscalers_alone() {
    let (stage, _) = stage().await;
    let mut chat = service("one", 3, &blue_green());
    stage.apply(&chat).await;
    let cluster = active(&settled(&stage).await);
    chat["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["maxReplicas"] = 7.into();
    chat["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = 5.into();
    stage.apply(&chat).await;
    let group = stage
        .eventually("it is changed", || async {
            let object = stage.get("RayCluster", &cluster).await?;
            let group = object["spec"]["workerGroupSpecs"][0].clone();
            (group["maxReplicas"] == 7).then_some(group)
        })
        .await;
    assert_eq!(group["replicas"], 1);
    assert_eq!(clusters(&stage).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_cluster_another_operator_made_is_left_alone() {
    let (mut stage, serve) = stage().await;
    stage.kill().await;
    let chat = service("one", 3, &blue_green());
    stage.apply(&chat).await;
    let uid = stage.uids("RayService").await["chat"].clone();
    stage
        .apply(&json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": "chat-theirs", "ownerReferences": [{
                "apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": uid, "controller": true,
            }]},
            "spec": chat["spec"]["rayClusterConfig"],
        }))
        .await;
    let named = json!({"status": {"activeServiceStatus": {"rayClusterName": "chat-theirs"}}});
    let (parameters, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(&named));
    stage.api(&chat).patch_status("chat", &parameters, &patch).await.unwrap();
    // A write of another operator is respected for a while; after that its clusters are.
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.run();
    stage
        .eventually("it says so", || async {
            let events = stage.list("Event").await;
            events.iter().any(|event| event.data["reason"] == "NotAdopted").then_some(())
        })
        .await;
    stage.quiet().await;
    assert_eq!(clusters(&stage).await, ["chat-theirs"]);
    assert_eq!(serve.puts("chat-theirs").len(), 0);
}
