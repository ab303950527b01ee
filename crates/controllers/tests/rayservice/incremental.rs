//! Upgrades step by step, with a gateway that takes routes up.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    kit::{active, clusters, condition, pending, service, settled, stage, until},
    serve::Serve,
    stage::Stage,
};

fn incremental(surge: u32, step: u32, interval: u32) -> Value {
    json!({"type": "IncrementalUpgrade", "incrementalUpgradeOptions": {
        "maxSurgePercent": surge, "stepSizePercent": step, "intervalSeconds": interval, "gatewayClassName": "segue",
    }})
}

/// A service of ten replicas that runs, and its cluster.
async fn running(strategy: &Value, replicas: u32) -> (Stage, std::sync::Arc<Serve>, String) {
    let (stage, serve) = stage().await;
    stage.route().await;
    stage.apply(&service("one", replicas, strategy)).await;
    let cluster = active(&settled(&stage).await);
    (stage, serve, cluster)
}

/// The weights of a route, by cluster.
fn weights(route: &Value) -> Vec<(String, u64)> {
    let backends = route["spec"]["rules"][0]["backendRefs"].as_array().unwrap();
    let named = |it: &Value| it["name"].as_str().unwrap().strip_suffix("-serve-svc").unwrap().to_owned();
    backends.iter().map(|it| (named(it), it["weight"].as_u64().unwrap())).collect()
}

fn weight(route: &Value, cluster: &str) -> u64 {
    weights(route).iter().find(|(name, _)| name == cluster).map_or(0, |(_, weight)| *weight)
}

/// Looks until the upgrade is over, and judges every moment: no traffic above what runs, and no capacity above the surge.
async fn judged(stage: &Stage, serve: &Serve, old: &str, surge: u64) -> Value {
    for _ in 0..6_000 {
        let route = stage.get("HTTPRoute", "chat-httproute").await.unwrap();
        let mut sum = 0;
        for (cluster, weight) in weights(&route) {
            let (capacity, runs) = serve.granted(&cluster);
            sum += capacity;
            assert!(
                weight <= capacity,
                "{cluster} gets {weight}% of the traffic at a capacity of {capacity}%"
            );
            // With ten replicas a share of 5% is half a replica: Serve rounds up.
            assert!(
                weight <= runs,
                "{cluster} gets {weight}% of the traffic, and {runs}% of its replicas run"
            );
        }
        assert!(sum <= 100 + surge, "{sum}% of capacity");
        if let Some(status) = stage.observed("RayService", "chat").await {
            let is_over = status["pendingServiceStatus"].is_null() && status["waitingFor"].is_null();
            if is_over && active(&status) != old && status["activeServiceStatus"].is_object() {
                return status;
            }
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("the upgrade did not end: {:#}", stage.get("RayService", "chat").await.unwrap()["status"]);
}

#[tokio::test(start_paused = true)]
async fn capacity_and_traffic_go_by_the_surge_and_the_step() {
    let strategy = incremental(20, 10, 5);
    let (stage, serve, old) = running(&strategy, 10).await;
    let gateway = stage.get("Gateway", "chat-gateway").await.unwrap();
    let listener = &gateway["spec"]["listeners"][0];
    assert_eq!((&listener["name"], &listener["port"]), (&json!("http"), &json!(8000)));
    assert_eq!(gateway["spec"]["gatewayClassName"], "segue");
    let route = stage.get("HTTPRoute", "chat-httproute").await.unwrap();
    assert_eq!(weights(&route), [(old.clone(), 100)]);
    assert_eq!(route["spec"]["parentRefs"][0]["name"], "chat-gateway");
    let record = stage.record("HTTPRoute").await;
    stage.apply(&service("two", 10, &strategy)).await;
    let status = judged(&stage, &serve, &old, 20).await;
    let new = active(&status);
    assert_eq!(serve.capacities(&new), [20, 40, 60, 80, 100]);
    assert_eq!(serve.capacities(&old), [100, 80, 60, 40, 20, 0]);
    let routes = record.end().await;
    assert!(weights(&routes[0]).contains(&(new.clone(), 0)), "it is a backend before any traffic moves");
    let mut steps: Vec<u64> = routes.iter().map(|route| weight(route, &new)).collect();
    steps.dedup();
    assert_eq!(steps, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    let told = &status["activeServiceStatus"];
    assert_eq!((&told["targetCapacity"], &told["trafficRoutedPercent"]), (&json!(100), &json!(100)));
    assert!(
        serve.puts(&new).last().unwrap().get("target_capacity").is_none(),
        "all of it is told by naming none"
    );
    stage
        .eventually("the old one is gone", || async {
            (clusters(&stage).await == [new.clone()]).then_some(())
        })
        .await;
    let route = stage.get("HTTPRoute", "chat-httproute").await.unwrap();
    assert_eq!(weights(&route), [(new, 100)]);
}

/// Serve rounds: one replica at 20 % is one replica. What is compared is what Serve says that it aims for.
#[tokio::test(start_paused = true)]
async fn few_replicas_never_stop_an_upgrade() {
    for replicas in 1..=5 {
        let strategy = incremental(20, 20, 0);
        let (stage, serve, old) = running(&strategy, replicas).await;
        serve.take(Duration::from_secs(1));
        stage.apply(&service("two", replicas, &strategy)).await;
        until(&stage, "it ends", |it| {
            pending(it).is_none() && it["waitingFor"].is_null() && active(it) != old
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn going_back_from_the_middle_moves_traffic_at_once_to_what_the_old_cluster_carries() {
    let strategy = incremental(20, 10, 5);
    let (stage, serve, old) = running(&strategy, 10).await;
    stage.apply(&service("two", 10, &strategy)).await;
    until(&stage, "half-way", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 50).await;
    let record = stage.record("RayService").await;
    stage.apply(&service("one", 10, &strategy)).await;
    let status = settled(&stage).await;
    assert_eq!(active(&status), old);
    assert_eq!(
        (serve.granted(&old), &status["activeServiceStatus"]["targetCapacity"]),
        ((100, 100), &json!(100))
    );
    let told = record.end().await;
    assert!(told.iter().any(|it| {
        condition(&it["status"], "RollbackInProgress") == ("True", "DesiredClusterSpecChanged")
    }));
    assert_eq!(condition(&status, "RollbackInProgress").0, "absent");
    for it in &told {
        let share = |side: &str, field: &str| it["status"][side][field].as_u64().unwrap_or(0);
        for side in ["activeServiceStatus", "pendingServiceStatus"] {
            assert!(share(side, "trafficRoutedPercent") <= share(side, "targetCapacity"), "{it:#}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_third_config_in_the_middle_goes_back_first_and_leaves_two_clusters_at_most() {
    let strategy = incremental(50, 25, 0);
    let (stage, serve, old) = running(&strategy, 4).await;
    stage.apply(&service("two", 4, &strategy)).await;
    let during =
        until(&stage, "half-way", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 50).await;
    let second = pending(&during).unwrap();
    let mut third = service("three", 4, &strategy);
    third["spec"]["serveConfigV2"] = crate::kit::config("third", 4).into();
    third["spec"]["rayClusterDeletionDelaySeconds"] = 0.into();
    stage.apply(&third).await;
    let status = judged(&stage, &serve, &old, 50).await;
    let new = active(&status);
    assert!(new != second && new != old);
    for cluster in [&old, &second] {
        let told = serve.puts(cluster);
        assert!(told.iter().all(|body| body["applications"][0]["import_path"] == "app"), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_config_that_never_serves_goes_back_by_itself_where_that_is_asked_for() {
    let strategy = incremental(50, 25, 0);
    let (stage, serve, old) = running(&strategy, 4).await;
    let mut bad = service("two", 4, &strategy);
    bad["spec"]["serveConfigV2"] = crate::kit::config("broken", 4).into();
    bad["metadata"]["annotations"] = json!({"segue.dev/rollback-after-seconds": "60"});
    stage.apply(&bad).await;
    let given_up = until(&stage, "it is given up", |it| {
        it["givenUp"].is_object() && it["pendingServiceStatus"].is_null()
    })
    .await;
    assert_eq!(active(&given_up), old);
    let why = given_up["givenUp"]["reason"].as_str().unwrap();
    assert!(why.contains("DEPLOY_FAILED: no module named broken"), "{why}");
    assert_eq!(condition(&given_up, "GivenUp"), ("True", "UpgradeGivenUp"));
    assert_eq!(serve.granted(&old), (100, 100));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(clusters(&stage).await, std::slice::from_ref(&old), "it is not tried again");
    // A verb tries it again, in a cluster of another name.
    let request = json!({"id": "1", "verb": "retry"}).to_string();
    bad["metadata"]["annotations"]["segue.dev/request"] = request.into();
    stage.apply(&bad).await;
    until(&stage, "it is tried again", |it| pending(it).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_gives_up_what_does_not_move() {
    let strategy = incremental(50, 25, 0);
    let (stage, serve, old) = running(&strategy, 4).await;
    serve.take(Duration::from_hours(10));
    let mut slow = service("two", 4, &strategy);
    slow["metadata"]["annotations"] = json!({"segue.dev/rollback-after-seconds": "90"});
    stage.apply(&slow).await;
    let waits = until(&stage, "it says until when", |it| it["waitingFor"]["deadline"].is_string()).await;
    assert_eq!(waits["waitingFor"]["onExpiry"], "the upgrade goes back");
    let given_up = until(&stage, "it is given up", |it| {
        it["givenUp"].is_object() && it["pendingServiceStatus"].is_null()
    })
    .await;
    assert_eq!(active(&given_up), old);
    assert!(given_up["givenUp"]["reason"].as_str().unwrap().contains("nothing has moved for 90 s"));
}

#[tokio::test(start_paused = true)]
async fn a_person_pauses_resumes_and_aborts() {
    let strategy = incremental(50, 25, 5);
    let (stage, _, old) = running(&strategy, 4).await;
    let mut chat = service("two", 4, &strategy);
    let ask = |chat: &mut Value, verb: &str| {
        chat["metadata"]["annotations"] =
            json!({"segue.dev/request": json!({"id": verb, "verb": verb}).to_string()});
    };
    ask(&mut chat, "resume");
    stage.apply(&chat).await;
    until(&stage, "it moves", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 25).await;
    ask(&mut chat, "pause");
    stage.apply(&chat).await;
    let paused = until(&stage, "it is paused", |it| condition(it, "Paused").0 == "True").await;
    let before = paused["pendingServiceStatus"]["trafficRoutedPercent"].clone();
    let said = format!(
        "paused with {before}% of the traffic moved and no time limit; then it continues after `segue resume`, or back after \
         `segue abort`"
    );
    assert_eq!(paused["message"], said);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let status = crate::kit::status(&stage).await;
    assert_eq!(status["pendingServiceStatus"]["trafficRoutedPercent"], before);
    ask(&mut chat, "resume");
    stage.apply(&chat).await;
    until(&stage, "it moves on", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 75).await;
    ask(&mut chat, "abort");
    stage.apply(&chat).await;
    let back = until(&stage, "it is back", |it| it["givenUp"].is_object() && pending(it).is_none()).await;
    assert_eq!((active(&back), &back["givenUp"]["reason"]), (old, &json!("a user requested it")));
}

/// A pause says who made it and why, has no time limit, and its time counts towards no deadline.
#[tokio::test(start_paused = true)]
async fn a_pause_names_its_author_and_counts_as_no_time_without_progress() {
    let strategy = incremental(50, 25, 5);
    let (stage, _, old) = running(&strategy, 4).await;
    let mut chat = service("two", 4, &strategy);
    let ask = |chat: &mut Value, request: Value| {
        chat["metadata"]["annotations"] = json!({
            "segue.dev/rollback-after-seconds": "600", "segue.dev/request": request.to_string(),
        });
    };
    stage.apply(&chat).await;
    until(&stage, "it moves", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 25).await;
    ask(&mut chat, json!({"id": "1", "verb": "pause", "actor": "dana", "reason": "a look at the logs"}));
    stage.apply(&chat).await;
    until(&stage, "it is paused", |it| condition(it, "Paused").0 == "True").await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let status = crate::kit::status(&stage).await;
    let said = status["message"].as_str().unwrap();
    assert!(
        said.starts_with("paused by dana (a look at the logs) with 25% of the traffic moved and no time"),
        "{said}"
    );
    ask(&mut chat, json!({"id": "2", "verb": "resume"}));
    stage.apply(&chat).await;
    let status = settled(&stage).await;
    assert!(active(&status) != old && status["givenUp"].is_null(), "{status:#}");
}

/// Returns what the controller answers to a verb.
async fn answer(stage: &Stage, chat: &mut Value, id: &str, verb: &str) -> (bool, String) {
    chat["metadata"]["annotations"] =
        json!({"segue.dev/request": json!({"id": id, "verb": verb}).to_string()});
    stage.apply(chat).await;
    let answered = stage
        .eventually("it is answered", || async {
            let chat = stage.get("RayService", "chat").await?;
            let text = chat["metadata"]["annotations"]["segue.dev/response"].as_str()?.to_owned();
            serde_json::from_str::<Value>(&text).ok().filter(|response| response["id"] == id)
        })
        .await;
    (answered["done"] == true, answered["message"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_person_promotes_and_no_interval_is_waited_for() {
    let strategy = incremental(50, 10, 3_600);
    let (stage, serve, old) = running(&strategy, 10).await;
    let mut chat = service("two", 10, &strategy);
    stage.apply(&chat).await;
    until(&stage, "it waits", |it| it["waitingFor"]["reason"] == "WaitingForInterval").await;
    let (done, _) = answer(&stage, &mut chat, "1", "pause").await;
    assert!(done);
    until(&stage, "it is paused", |it| condition(it, "Paused").0 == "True").await;
    let (done, said) = answer(&stage, &mut chat, "2", "promote").await;
    assert!(done, "{said}");
    // The gates hold all the same.
    judged(&stage, &serve, &old, 50).await;
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_means_nothing_now_is_refused_and_changes_nothing() {
    let strategy = incremental(50, 25, 0);
    let (stage, _, old) = running(&strategy, 4).await;
    let mut chat = service("one", 4, &strategy);
    for (verb, why) in [
        ("pause", "no upgrade moves forward: "),
        ("resume", "no upgrade moves forward: "),
        ("promote", "no upgrade moves forward: "),
        ("abort", "no upgrade is under way: "),
        ("retry", "no config was aborted or rolled back: "),
    ] {
        let (done, said) = answer(&stage, &mut chat, verb, verb).await;
        assert!(!done && said.starts_with(why), "{verb}: {said}");
    }
    chat["spec"] = service("two", 4, &strategy)["spec"].clone();
    stage.apply(&chat).await;
    until(&stage, "half-way", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 50).await;
    chat["spec"] = service("one", 4, &strategy)["spec"].clone();
    let (done, said) = answer(&stage, &mut chat, "back", "pause").await;
    assert!(!done && said.starts_with("no upgrade moves forward: "), "{said}");
    assert_eq!(active(&settled(&stage).await), old, "the way back is not paused");
}

#[tokio::test(start_paused = true)]
async fn a_readiness_check_of_the_user_holds_every_step_and_is_asked_no_more_at_the_end() {
    let strategy = incremental(50, 25, 0);
    let (stage, serve) = stage().await;
    stage.route().await;
    let checked = |image: &str| {
        let mut chat = service(image, 4, &strategy);
        chat["metadata"]["annotations"] = json!({"segue.dev/readiness-path": "/ready"});
        chat
    };
    stage.apply(&checked("one")).await;
    let old = active(&settled(&stage).await);
    stage.apply(&checked("two")).await;
    let half = until(&stage, "half-way", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 50).await;
    let new = pending(&half).unwrap();
    serve.fail_check(&new, true);
    let is_said = |it: &Value| {
        let said = it["waitingFor"]["subject"].as_str().unwrap_or_default();
        said.contains("the readiness check /ready of RayCluster")
            && said.contains("503 Service Unavailable: warming")
    };
    let held =
        until(&stage, "it is said", is_said).await["pendingServiceStatus"]["trafficRoutedPercent"].clone();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let status = crate::kit::status(&stage).await;
    assert_eq!(status["pendingServiceStatus"]["trafficRoutedPercent"], held);
    serve.fail_check(&new, false);
    judged(&stage, &serve, &old, 50).await;
    let asked = serve.checks(&new);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(serve.checks(&new), asked, "nothing waits for the answer");
}

/// Weakness 22 of the public operator: the end of the old cluster erases what the new one has stored.
#[tokio::test(start_paused = true)]
async fn two_clusters_of_a_service_never_store_in_one_namespace() {
    let strategy = incremental(100, 100, 0);
    let (stage, _) = stage().await;
    stage.route().await;
    let stored = |image: &str| {
        let mut chat = service(image, 1, &strategy);
        chat["metadata"]["annotations"] = json!({"ray.io/external-storage-namespace": "mine"});
        chat["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"] =
            json!({"redisAddress": "redis:6379", "externalStorageNamespace": "mine"});
        chat
    };
    stage.apply(&stored("one")).await;
    let old = active(&settled(&stage).await);
    stage.apply(&stored("two")).await;
    let during = until(&stage, "both", |it| pending(it).is_some()).await;
    for cluster in [old, pending(&during).unwrap()] {
        let object = stage.eventually("it is made", || stage.get("RayCluster", &cluster)).await;
        let own = format!("mine-{cluster}");
        assert_eq!(object["spec"]["gcsFaultToleranceOptions"]["externalStorageNamespace"], own.as_str());
        assert_eq!(object["metadata"]["annotations"]["ray.io/external-storage-namespace"], own.as_str());
    }
}

/// Weakness 6 of the public operator: it moves no traffic away from a cluster whose head is gone.
#[tokio::test(start_paused = true)]
async fn an_old_cluster_that_does_not_answer_does_not_hold_the_new_one_back() {
    let strategy = incremental(100, 50, 0);
    let (stage, serve, old) = running(&strategy, 4).await;
    serve.mute(&old, true);
    stage.apply(&service("two", 4, &strategy)).await;
    until(&stage, "it ends", |it| pending(it).is_none() && it["waitingFor"].is_null() && active(it) != old)
        .await;
}

#[tokio::test(start_paused = true)]
async fn grpc_has_a_listener_and_a_route_of_its_own() {
    let strategy = incremental(100, 50, 0);
    let (stage, _) = stage().await;
    stage.route().await;
    let mut chat = service("one", 4, &strategy);
    let config = format!("grpc_options:\n  grpc_servicer_functions: [f]\n{}", crate::kit::config("app", 4));
    chat["spec"]["serveConfigV2"] = config.into();
    stage.apply(&chat).await;
    let cluster = active(&settled(&stage).await);
    let gateway = stage.get("Gateway", "chat-gateway").await.unwrap();
    assert_eq!(gateway["spec"]["listeners"][1]["name"], "grpc");
    assert_eq!(gateway["spec"]["listeners"][1]["allowedRoutes"]["kinds"][0]["kind"], "GRPCRoute");
    let route = stage.get("GRPCRoute", "chat-grpcroute").await.unwrap();
    assert_eq!(weights(&route), [(cluster, 100)]);
    assert_eq!(route["spec"]["rules"][0]["backendRefs"][0]["port"], 9000);
    assert_eq!(route["spec"]["parentRefs"][0]["sectionName"], "grpc");
}

/// A new cluster may serve on another port. Clients are told of it when that cluster takes over, and not before.
#[tokio::test(start_paused = true)]
async fn clients_come_in_by_the_port_of_the_cluster_that_they_have() {
    let strategy = incremental(100, 50, 0);
    let (stage, _, old) = running(&strategy, 4).await;
    let mut second = service("two", 4, &strategy);
    let head = &mut second["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0];
    head["ports"] =
        json!([{"name": "gcs-server", "containerPort": 7000}, {"name": "serve", "containerPort": 8001}]);
    stage.apply(&second).await;
    let half = until(&stage, "half-way", |it| it["pendingServiceStatus"]["trafficRoutedPercent"] == 50).await;
    let new = pending(&half).unwrap();
    let port = async |service: &str, name: &str| {
        let service = stage.get("Service", service).await.unwrap();
        let mut ports = service["spec"]["ports"].as_array().unwrap().iter();
        ports.find(|port| port["name"] == name).map(|port| (port["port"].clone(), port["targetPort"].clone()))
    };
    let listens = async || {
        let gateway = stage.get("Gateway", "chat-gateway").await.unwrap();
        gateway["spec"]["listeners"][0]["port"].clone()
    };
    assert_eq!(listens().await, 8000);
    let serves = port(&format!("{new}-serve-svc"), "serve").await;
    assert_eq!(serves, Some((8000.into(), 8001.into())), "the Service of a cluster leads to its own port");
    until(&stage, "it ends", |it| pending(it).is_none() && it["waitingFor"].is_null() && active(it) != old)
        .await;
    stage.quiet().await;
    assert_eq!(listens().await, 8001);
    assert_eq!(port("chat-head-svc", "gcs-server").await, Some((7000.into(), 7000.into())));
}

/// Weakness 14 of the public operator: routes stay, and lead to a cluster that goes.
#[tokio::test(start_paused = true)]
async fn another_strategy_takes_the_routes_away() {
    let (stage, _, old) = running(&incremental(100, 50, 0), 4).await;
    stage.apply(&service("one", 4, &crate::kit::blue_green())).await;
    stage
        .eventually("they are gone", || async {
            let gone = stage.list("HTTPRoute").await.is_empty() && stage.list("Gateway").await.is_empty();
            gone.then_some(())
        })
        .await;
    stage.apply(&service("two", 4, &crate::kit::blue_green())).await;
    until(&stage, "it switches", |it| pending(it).is_none() && active(it) != old).await;
}

#[tokio::test(start_paused = true)]
async fn suspending_deletes_the_clusters_and_keeps_the_entrance() {
    let strategy = incremental(100, 50, 0);
    let (stage, _, first) = running(&strategy, 4).await;
    let mut chat = service("one", 4, &strategy);
    chat["spec"]["suspend"] = true.into();
    stage.apply(&chat).await;
    let status = until(&stage, "it is suspended", |it| condition(it, "Suspended").0 == "True").await;
    assert_eq!(condition(&status, "Ready"), ("False", "SuspendComplete"));
    assert_eq!(clusters(&stage).await, Vec::<String>::new());
    assert!(stage.get("Gateway", "chat-gateway").await.is_some(), "its address stays");
    chat["spec"]["suspend"] = false.into();
    stage.apply(&chat).await;
    let status = settled(&stage).await;
    assert_eq!(condition(&status, "Suspended"), ("False", "SuspendComplete"));
    assert_eq!(active(&status), first, "it has the same name again");
}
