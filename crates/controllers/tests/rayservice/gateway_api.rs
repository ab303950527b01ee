//! What an incremental upgrade makes of Gateway API, what it leaves to others, and what it waits for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    kit::{active, pending, service, settled, stage, status, until},
    stage::Stage,
};

const GROUP: &str = "gateway.networking.k8s.io/v1";

fn strategy(gateway: &Value) -> Value {
    let mut options = json!({"maxSurgePercent": 100, "stepSizePercent": 50, "intervalSeconds": 0});
    options.as_object_mut().unwrap().extend(gateway.as_object().unwrap().clone());
    json!({"type": "IncrementalUpgrade", "incrementalUpgradeOptions": options})
}

/// Every definition and class of Gateway API, with its version.
async fn of_administrators(stage: &Stage) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for (version, kind) in [("apiextensions.k8s.io/v1", "CustomResourceDefinition"), (GROUP, "GatewayClass")]
    {
        let api = stage.api(&json!({"apiVersion": version, "kind": kind}));
        let all = api.list(&kube::api::ListParams::default()).await.unwrap();
        found.extend(all.into_iter().map(|it| (it.metadata.name.unwrap(), it.metadata.resource_version)));
    }
    found.sort();
    found
}

#[tokio::test(start_paused = true)]
async fn gateways_and_routes_are_of_v1_and_classes_and_definitions_stay_the_administrators() {
    let (stage, _) = stage().await;
    stage.route().await;
    let strategy = strategy(&json!({"gatewayClassName": "segue"}));
    // The gateway accepts its class; nothing else changes what administrators made.
    let accepted = async || {
        let class =
            stage.api(&json!({"apiVersion": GROUP, "kind": "GatewayClass"})).get("segue").await.unwrap();
        (class.data["status"]["conditions"][0]["status"] == "True").then_some(())
    };
    stage.eventually("the class is accepted", accepted).await;
    let before = of_administrators(&stage).await;
    stage.apply(&service("one", 4, &strategy)).await;
    let old = active(&settled(&stage).await);
    stage.apply(&service("two", 4, &strategy)).await;
    until(&stage, "it is upgraded", |it| active(it) != old && pending(it).is_none()).await;
    assert_eq!(of_administrators(&stage).await, before);
    for (kind, name) in [("Gateway", "chat-gateway"), ("HTTPRoute", "chat-httproute")] {
        let made = stage.get(kind, name).await.unwrap();
        assert_eq!((&made["apiVersion"], &made["kind"]), (&json!(GROUP), &json!(kind)));
    }
    assert!(stage.names("GRPCRoute").await.is_empty(), "gRPC is not configured");
    // Weighted backends and one match on the path: what every implementation of HTTPRoute has.
    let route = stage.get("HTTPRoute", "chat-httproute").await.unwrap();
    let rules = route["spec"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 1);
    let fields: Vec<&String> = rules[0].as_object().unwrap().keys().collect();
    assert!(fields.iter().all(|field| ["backendRefs", "matches"].contains(&field.as_str())), "{fields:?}");
    assert_eq!(route["spec"]["hostnames"], Value::Null, "no hostname is made up");
}

#[tokio::test(start_paused = true)]
async fn the_hostnames_of_a_route_are_those_that_the_user_gives() {
    let (stage, _) = stage().await;
    stage.route().await;
    stage
        .apply(&json!({
            "apiVersion": GROUP, "kind": "Gateway", "metadata": {"name": "shared"},
            "spec": {"gatewayClassName": "segue", "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]},
        }))
        .await;
    let gateway = json!({"gateway": {"parentRefs": [{"name": "shared"}], "hostnames": ["chat.example.com"]}});
    stage.apply(&service("one", 2, &strategy(&gateway))).await;
    settled(&stage).await;
    let route = stage.get("HTTPRoute", "chat-httproute").await.unwrap();
    assert_eq!(route["spec"]["hostnames"], json!(["chat.example.com"]));
    assert_eq!(route["spec"]["parentRefs"][0]["name"], "shared");
    assert_eq!(stage.names("Gateway").await, ["shared"], "the user's Gateway is the only one");
}

/// A Gateway without an implementation: the CRDs are there, and nothing takes the routes up.
#[tokio::test(start_paused = true)]
async fn no_traffic_moves_before_a_gateway_accepts_the_routes() {
    let (stage, serve) = stage().await;
    let strategy = strategy(&json!({"gatewayClassName": "segue"}));
    stage.apply(&service("one", 4, &strategy)).await;
    let old = active(&settled(&stage).await);
    stage.apply(&service("two", 4, &strategy)).await;
    let waiting = until(&stage, "it waits for the routes", |it| {
        pending(it).is_some_and(|new| serve.granted(&new).1 > 0)
            && it["waitingFor"]["reason"] == "WaitingForRoute"
    })
    .await;
    let new = pending(&waiting).unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let later = status(&stage).await;
    assert_eq!((active(&later), pending(&later).as_ref()), (old, Some(&new)), "both clusters are kept");
    assert_eq!(later["pendingServiceStatus"]["trafficRoutedPercent"], 0);
    stage.route().await;
    until(&stage, "it is upgraded once there is one", |it| active(it) == new && pending(it).is_none()).await;
}
