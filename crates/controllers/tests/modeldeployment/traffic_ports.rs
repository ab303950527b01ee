//! How traffic comes in may change at any time: nothing of before is left, and no rollout is held up.

use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
use serde_json::{Value, json};

use super::{condition, deployment, idle, notes};
use crate::stage::Stage;

const ROLLING: &str = "Rolling";

/// A deployment of an image with these ports, behind a Gateway of its own.
fn with_ports(image: &str, ports: &Value) -> Value {
    let mut chat = deployment(image, &json!({"type": ROLLING}), true);
    chat["spec"]["traffic"]["ports"] = ports.clone();
    chat
}

/// The ports of a Service, and the listeners of the Gateway.
async fn listens(stage: &Stage) -> Option<(Vec<i64>, Vec<i64>)> {
    let ports = |list: &Value| -> Option<Vec<i64>> {
        Some(list.as_array()?.iter().filter_map(|it| it["port"].as_i64()).collect())
    };
    let service = stage.get("Service", "chat").await?;
    let gateway = stage.get("Gateway", "chat").await?;
    Some((ports(&service["spec"]["ports"])?, ports(&gateway["spec"]["listeners"])?))
}

async fn eventually_listens(stage: &Stage, on: &[i64]) {
    stage
        .eventually(&format!("it listens on {on:?}"), || async {
            let (ports, listeners) = listens(stage).await?;
            (ports == on && listeners == on).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_port_may_change_its_number_and_its_name_and_the_next_version_comes() {
    let stage = Stage::start().await;
    stage.route().await;
    stage.apply(&with_ports("one", &json!([{"name": "http", "port": 8000}]))).await;
    idle(&stage, "r1").await;
    eventually_listens(&stage, &[8000]).await;
    stage.apply(&with_ports("one", &json!([{"name": "http", "port": 9000}]))).await;
    eventually_listens(&stage, &[9000]).await;
    stage.apply(&with_ports("one", &json!([{"name": "api", "port": 9000}]))).await;
    stage
        .eventually("the route of the old name is gone", || async {
            (stage.names("HTTPRoute").await == ["chat-api"]).then_some(())
        })
        .await;
    stage.apply(&with_ports("two", &json!([{"name": "api", "port": 9000}]))).await;
    idle(&stage, "r2").await;
    eventually_listens(&stage, &[9000]).await;
    assert_eq!(notes(&stage, "Repaired").await, Vec::<String>::new(), "nobody else has changed anything");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_wants_no_gateway_any_more_has_none() {
    let stage = Stage::start().await;
    stage.route().await;
    stage.apply(&with_ports("one", &json!([{"name": "http", "port": 8000}]))).await;
    idle(&stage, "r1").await;
    stage.apply(&deployment("one", &json!({"type": ROLLING}), false)).await;
    stage
        .eventually("route and Gateway are gone", || async {
            let left = (stage.names("HTTPRoute").await, stage.names("Gateway").await);
            (left == (vec![], vec![])).then_some(())
        })
        .await;
    stage.apply(&deployment("two", &json!({"type": ROLLING}), false)).await;
    idle(&stage, "r2").await;
}

/// An API that has no Gateways answers 404: that is no news that are late, and a person must know.
#[tokio::test(start_paused = true)]
async fn a_gateway_without_its_definition_is_reported_and_made_later() {
    let stage = Stage::start().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let crds: Api<DynamicObject> = stage.api(&crd);
    let name = "gateways.gateway.networking.k8s.io";
    let mut definition = json!(crds.get(name).await.unwrap());
    crds.delete(name, &DeleteParams::default()).await.unwrap();
    stage
        .eventually("the definition is gone", || async {
            crds.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    stage.apply(&with_ports("one", &json!([{"name": "http", "port": 8000}]))).await;
    let refused = condition(&stage, "WritesRefused").await;
    assert_eq!(refused["reason"], "FailedCreate");
    assert!(refused["message"].as_str().unwrap().contains("Gateway default/chat"), "{refused}");
    assert_eq!(notes(&stage, "FailedCreate").await, [refused["message"].as_str().unwrap()]);

    for field in ["status", "metadata"] {
        definition.as_object_mut().unwrap().remove(field);
    }
    definition["metadata"] = json!({"name": name, "annotations": {
        "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/3328",
    }});
    stage.apply(&definition).await;
    stage.route().await;
    idle(&stage, "r1").await;
}
