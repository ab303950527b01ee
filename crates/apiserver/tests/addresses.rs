//! A cluster IP and a node port belong to one Service at a time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
mod common;

use std::collections::BTreeSet;

use apiserver::{
    Server,
    store::{Change, Draft, Key, Settings, Store},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::common::{Answer, send, server, server_over};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

async fn create(server: &Server, name: &str, spec: &Value) -> Answer {
    send(server, "POST", SERVICES, "application/json", service(name, spec).to_string()).await
}

async fn spec(server: &Server, name: &str) -> Value {
    send(server, "GET", &format!("{SERVICES}/{name}"), "", "").await.json()["spec"].clone()
}

/// Applied by many clients at once to a durable store, whose commits are batched: the addresses are picked before any
/// of them is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_hundred_services_at_once_have_an_address_each() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_over(Store::open(directory.path(), Settings::default()).unwrap().store).await;
    let apply = |number: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let name = format!("s-{number}");
            let path = format!("{SERVICES}/{name}?fieldManager=test");
            let object = service(&name, &json!({"type": "NodePort"})).to_string();
            send(&server, "PATCH", &path, "application/apply-patch+yaml", object).await
        })
    };
    let (mut ips, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for answer in join_all((0..400).map(apply)).await {
        let answer = answer.unwrap();
        assert_eq!(answer.code, 201, "{answer:?}");
        ips.insert(answer.json()["spec"]["clusterIP"].as_str().unwrap().to_owned());
        ports.insert(answer.json()["spec"]["ports"][0]["nodePort"].as_i64().unwrap());
    }
    assert_eq!((ips.len(), ports.len()), (400, 400));
}

/// The picks of concurrent requests may still meet an address that a client asked for: the store decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_requests_for_one_address_one_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let server = server_over(Store::open(directory.path(), Settings::default()).unwrap().store).await;
    let ask = |number: usize| {
        let server = server.clone();
        let asked = json!({"clusterIP": "127.96.0.3"});
        // Half of the requests ask for none and may pick it.
        let spec = if number.is_multiple_of(2) { asked } else { json!({}) };
        tokio::spawn(async move { create(&server, &format!("s-{number}"), &spec).await })
    };
    let answers = join_all((0..64).map(ask)).await;
    let created = answers.iter().flatten().filter(|answer| answer.code == 201).map(Answer::json);
    let ips: Vec<String> =
        created.map(|service| service["spec"]["clusterIP"].as_str().unwrap().into()).collect();
    assert_eq!(ips.iter().collect::<BTreeSet<_>>().len(), ips.len(), "{ips:?}");
    assert_eq!(ips.iter().filter(|ip| *ip == "127.96.0.3").count(), 1);
    assert!((32..=33).contains(&ips.len()), "{ips:?}");
}

#[tokio::test]
async fn an_address_that_is_taken_or_outside_the_range_is_refused() {
    let server = server().await;
    let asked =
        json!({"clusterIP": "127.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30_007}]});
    assert_eq!(create(&server, "first", &asked).await.code, 201);
    let refused = [
        (
            json!({"clusterIP": "127.96.7.7"}),
            r#"spec.clusterIPs: Invalid value: ["127.96.7.7"]: failed to allocate IP 127.96.7.7: provided IP is already allocated"#,
        ),
        (
            json!({"clusterIP": "127.0.0.1"}),
            r#"spec.clusterIPs: Invalid value: ["127.0.0.1"]: failed to allocate IP 127.0.0.1: the provided IP (127.0.0.1) is not in the valid range. The range of valid IPs is 127.96.0.0/16"#,
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_007}]}),
            "spec.ports[0].nodePort: Invalid value: 30007: provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
    ];
    for (spec, why) in refused {
        let (code, reason, message) = create(&server, "second", &spec).await.refusal();
        assert_eq!((code, reason.as_str()), (422, "Invalid"));
        assert_eq!(message, format!("Service \"second\" is invalid: {why}"));
    }
    // The address that was freed is there for the next Service that asks for it.
    assert_eq!(send(&server, "DELETE", &format!("{SERVICES}/first"), "", "").await.code, 200);
    assert_eq!(create(&server, "second", &asked).await.code, 201);
    // And an update that changes nothing of it is no request for it.
    let labels = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let patched =
        send(&server, "PATCH", &format!("{SERVICES}/second"), "application/merge-patch+json", labels).await;
    assert_eq!(patched.code, 200);
    assert_eq!(patched.json()["spec"]["clusterIP"], "127.96.7.7");
}

/// A store of the time when addresses were picked and committed apart.
#[tokio::test]
async fn a_start_gives_services_that_share_an_address_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path(), Settings::default()).unwrap().store;
    let server = server_over(open()).await;
    let mut whole = create(&server, "oldest", &json!({})).await.json();
    let shared = whole["spec"]["clusterIP"].clone();
    whole["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    for (name, ip) in [("younger", shared.clone()), ("outside", json!("127.0.0.1"))] {
        whole["metadata"]["name"] = json!(name);
        whole["metadata"]["creationTimestamp"] = json!("2999-01-01T00:00:00Z");
        whole["spec"]["clusterIP"] = ip.clone();
        whole["spec"]["clusterIPs"] = json!([ip]);
        let fields = vec![
            ("spec.clusterIP".to_owned(), ip.as_str().unwrap().to_owned()),
            ("spec.type".to_owned(), "ClusterIP".to_owned()),
        ];
        let draft = Draft::new(&whole).unwrap().with_fields(fields);
        server.store().commit(Change::create(Key::new("services", "default", name), draft)).await.unwrap();
    }
    drop(server);
    let server = server_over(open()).await;
    let mut ips = BTreeSet::new();
    for name in ["oldest", "younger", "outside"] {
        let spec = spec(&server, name).await;
        assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]), "{name}");
        let ip = spec["clusterIP"].as_str().unwrap().to_owned();
        assert!(ip.starts_with("127.96."), "{name}: {ip}");
        assert!(ips.insert(ip), "{name}: {spec}");
    }
    assert_eq!(spec(&server, "oldest").await["clusterIP"], shared);
    let listed = format!("{SERVICES}?fieldSelector=spec.clusterIP%3D{}", shared.as_str().unwrap());
    let listed = send(&server, "GET", &listed, "", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}
