//! The Services of a cluster.

use serde_json::json;

use crate::{cluster, ready, stage::Stage};

#[tokio::test(start_paused = true)]
async fn the_head_has_a_service_with_the_ports_of_ray() {
    let stage = Stage::start().await;
    stage.apply(&cluster(0)).await;
    let status = ready(&stage, 0).await;
    let service = stage.get("Service", "c-head-svc").await.unwrap();
    let spec = &service["spec"];
    assert_eq!((&spec["clusterIP"], &spec["publishNotReadyAddresses"]), (&json!("None"), &json!(true)));
    assert_eq!(spec["selector"]["ray.io/node-type"], "head");
    let ports = json!({"client": "10001", "gcs-server": "6379", "dashboard": "8265", "serve": "8000", "metrics": "8080"});
    assert_eq!(status["endpoints"], ports);
    let head = &status["head"];
    assert_eq!(head["serviceName"], "c-head-svc");
    assert_eq!(head["serviceIP"], head["podIP"], "a headless Service leads to the pod");
}

/// Weakness 20: edits of the Service's part of the spec are never applied there.
#[tokio::test(start_paused = true)]
async fn edits_of_the_head_service_are_applied() {
    let stage = Stage::start().await;
    let mut cluster = cluster(0);
    let container = "/spec/headGroupSpec/template/spec/containers/0";
    *cluster.pointer_mut(container).unwrap() =
        json!({"name": "head", "image": "ray", "ports": [{"name": "serve", "containerPort": 8001}]});
    stage.apply(&cluster).await;
    ready(&stage, 0).await;
    cluster["spec"]["headServiceAnnotations"] = json!({"team": "a"});
    cluster["spec"]["headGroupSpec"]["headService"] =
        json!({"spec": {"ports": [{"name": "extra", "port": 9999}], "selector": {"mine": "yes"}}});
    stage.apply(&cluster).await;
    stage.quiet().await;
    let service = stage.get("Service", "c-head-svc").await.unwrap();
    assert_eq!(service["metadata"]["annotations"]["team"], "a");
    let ports = service["spec"]["ports"].as_array().unwrap();
    let ports: Vec<&str> = ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(ports, ["extra", "serve", "metrics"]);
    let selector = &service["spec"]["selector"];
    assert_eq!((&selector["mine"], &selector["ray.io/cluster"]), (&json!("yes"), &json!("c")));
}

#[tokio::test(start_paused = true)]
async fn workers_with_several_hosts_have_a_service_of_their_own() {
    let stage = Stage::start().await;
    let mut several = cluster(1);
    several["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(2);
    stage.apply(&several).await;
    ready(&stage, 2).await;
    let service = stage.get("Service", "c-headless").await.unwrap();
    assert_eq!(service["spec"]["selector"], json!({"ray.io/cluster": "c", "ray.io/node-type": "worker"}));
}
