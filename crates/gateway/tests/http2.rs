//! HTTP/2: every stream is a request, chosen, counted and drained like those of HTTP/1.1.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::net::SocketAddr;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;
use support::{
    Rig, SOON,
    echo::Echo,
    grpc::{Callee, Caller},
    load_at,
};
use testbed::eventually;

const H2C: Option<&str> = Some("kubernetes.io/h2c");

/// Applies a `GRPCRoute` by weights, and waits until it is served.
async fn route_calls(rig: &Rig, weights: &[(&str, u32)]) {
    let backends: Vec<_> = weights
        .iter()
        .map(|(name, weight)| json!({"name": name, "port": rig.port, "weight": weight}))
        .collect();
    let route = rig
        .apply(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
            "metadata": {"name": "calls", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "front"}], "rules": [{
                "matches": [{"method": {"service": "llm.Chat"}}], "backendRefs": backends,
            }]},
        }))
        .await;
    let acknowledged = eventually("the acknowledgement", SOON, async || {
        let status = rig.read("GRPCRoute", "calls").await["status"]["parents"][0]["conditions"].clone();
        let all = |condition: &serde_json::Value| {
            condition["observedGeneration"] == json!(route.metadata.generation)
                && condition["status"] == "True"
        };
        status.as_array()?.iter().all(all).then_some(())
    });
    acknowledged.await.unwrap();
}

fn ok(name: &str) -> (StatusCode, String, Option<String>) {
    (StatusCode::OK, name.to_owned(), Some("0".to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_one_connection_are_split_exactly_and_keep_their_trailers() {
    let rig = Rig::new().await;
    let one = Callee::new("one", rig.endpoint(1, 0)).await;
    let two = Callee::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    route_calls(&rig, &[("one", 37), ("two", 63)]).await;
    let caller = Caller::connect(rig.front().await).await;
    for _ in 0..3 {
        let calls = (0..100).map(|_| {
            let mut caller = caller.clone();
            async move { caller.call("/llm.Chat/Say").await }
        });
        for answer in join_all(calls).await {
            assert_eq!(answer, ok(&answer.1));
        }
    }
    assert_eq!((one.served(), two.served()), (111, 189));
    let (status, ..) = caller.clone().call("/llm.Other/Say").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_outlives_its_endpoint_and_then_the_drain_ends() {
    let rig = Rig::new().await;
    let one = Callee::new("one", rig.endpoint(1, 0)).await;
    let two = Callee::new("two", rig.endpoint(1, 1)).await;
    rig.service("one", &[one.address]).await;
    route_calls(&rig, &[("one", 1)]).await;
    let caller = Caller::connect(rig.front().await).await;
    let held = tokio::spawn({
        let mut caller = caller.clone();
        async move { caller.call("/llm.Chat/Held").await }
    });
    rig.in_flight(one.address, 1).await;
    rig.endpoints("one", &[two.address]).await;
    // The connection of the client goes on; its next stream goes elsewhere.
    assert_eq!(caller.clone().call("/llm.Chat/Say").await, ok("two"));
    assert!(!rig.gateway.drained(one.address));
    one.let_end(1);
    assert_eq!(held.await.unwrap(), ok("one"));
    rig.drained(one.address).await;
    assert_eq!((one.served(), two.served()), (1, 1));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_servers_need_not_speak_the_same_version() {
    let rig = Rig::new().await;
    let old = Echo::new("old", rig.endpoint(1, 0)).await;
    let new = Callee::new("new", rig.endpoint(2, 0)).await;
    rig.service("old", &[old.address]).await;
    rig.service_of("new", H2C, &[new.address]).await;
    rig.routed(&[("old", 1), ("new", 1)]).await;
    let front = rig.front().await;
    let mut caller = Caller::connect(front).await;
    let mut answers = [caller.call("/").await, caller.call("/").await];
    answers.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(answers, [ok("new"), (StatusCode::OK, "old".to_owned(), None)]);
    let client = load_at(front, "/", false);
    client.closed_loop(20, 4).await;
    assert_eq!((client.totals().ok, old.served(), new.served()), (20, 11, 11));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_through_a_service_take_turns_if_its_port_says_what_it_speaks() {
    let rig = Rig::new().await;
    let one = Callee::new("one", rig.endpoint(1, 0)).await;
    let two = Callee::new("two", rig.endpoint(1, 1)).await;
    let both = [one.address, two.address];
    for (name, protocol, served) in [("said", H2C, [20, 20]), ("unsaid", None, [60, 20])] {
        let service = SocketAddr::new(rig.service_of(name, protocol, &both).await.into(), rig.port);
        let open = async || rig.gateway.bindings().get(&service).cloned();
        assert_eq!(eventually("the Service to be reachable", SOON, open).await.unwrap(), Ok(service));
        let mut caller = Caller::connect(service).await;
        for _ in 0..40 {
            assert_eq!(caller.call("/llm.Chat/Say").await.2.as_deref(), Some("0"));
        }
        let mut counts = [one.served(), two.served()];
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(counts, served, "{name}");
    }
    rig.stop().await;
}
