//! What a rule does to its requests besides choosing a Service: copies, headers of one backend, limits of time.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use gateway::{Cause, Counts, load::Outcome};
use serde_json::{Value, json};
use support::{
    Rig, SOON,
    echo::Echo,
    exchange,
    grpc::{Callee, Caller},
    load_at,
};
use testbed::eventually;

fn backend(rig: &Rig, service: &str) -> Value {
    json!({"name": service, "port": rig.port})
}

fn mirror(rig: &Rig, service: &str, share: &Value) -> Value {
    let mut mirror = json!({"backendRef": backend(rig, service)});
    mirror.as_object_mut().unwrap().extend(share.as_object().unwrap().clone());
    json!({"type": "RequestMirror", "requestMirror": mirror})
}

async fn serve(rig: &Rig, rule: Value) {
    let generation = rig.route_of(json!([rule])).await;
    rig.acknowledged(generation).await;
}

fn of(rig: &Rig, service: &str) -> Counts {
    let services = rig.snapshot().services;
    services.into_iter().find(|(key, _)| key.service.name == service).unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_gets_its_share_and_no_client_hears_of_it() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let copied = Echo::failing(rig.endpoint(2, 0)).await;
    let calls = Callee::new("calls", rig.endpoint(3, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("copied", &[copied.address]).await;
    rig.service_of("calls", Some("grpc"), &[calls.address]).await;
    rig.service("none", &[]).await;
    let all = json!({});
    let mirrors = [
        mirror(&rig, "copied", &json!({"percent": 25})),
        mirror(&rig, "calls", &json!({"fraction": {"numerator": 1, "denominator": 3}})),
        mirror(&rig, "none", &all),
        mirror(&rig, "missing", &all),
    ];
    serve(&rig, json!({"backendRefs": [backend(&rig, "one")], "filters": mirrors})).await;
    let front = rig.front().await;
    let client = load_at(front, "/", false);
    client.closed_loop(288, 8).await;
    let mut caller = Caller::connect(front).await;
    for _ in 0..12 {
        assert_eq!(caller.call("/").await.1, "one");
    }
    assert_eq!((client.totals().ok, one.served()), (288, 300));
    for (service, copies) in [("copied", 75), ("calls", 100)] {
        let ended = async || Some(of(&rig, service)).filter(|counts| counts.in_flight == 0);
        let counts = eventually("the copies to end", SOON, ended).await.unwrap();
        let answers: u64 = counts.answers.values().sum();
        // A copy breaks off with its request, as when a server answers before it has read a body.
        assert!(counts.cancelled <= 12, "{counts:?}");
        assert_eq!((counts.requests, answers + counts.cancelled, counts.failures()), (copies, copies, 0));
    }
    // The route is what clients asked for.
    let route = rig.snapshot().routes.into_values().next().unwrap();
    assert_eq!((route.requests, route.answers[&500], route.failures()), (300, 0, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_is_copied_too_and_a_mirror_that_does_not_read_holds_up_nothing() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let copied = Echo::new("copied", rig.endpoint(2, 0)).await;
    // Connected by the kernel, read by no process.
    let silent = tokio::net::TcpListener::bind(rig.endpoint(3, 0)).await.unwrap();
    rig.service("one", &[one.address]).await;
    rig.service("copied", &[copied.address]).await;
    rig.service("silent", &[silent.local_addr().unwrap()]).await;
    let mirrors = [mirror(&rig, "copied", &json!({})), mirror(&rig, "silent", &json!({}))];
    serve(&rig, json!({"backendRefs": [backend(&rig, "one")], "filters": mirrors})).await;
    let front = rig.front().await;
    let post = |length: usize| {
        let head =
            format!("POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n");
        format!("{head}\r\n{}", "x".repeat(length))
    };
    assert!(exchange(front, &post(1_000)).await.ends_with(&"x".repeat(1_000)));
    let all = eventually("the copy of the body", SOON, async || {
        let counts = of(&rig, "copied");
        (counts.in_flight == 0 && counts.bytes_received == 1_000).then_some(counts)
    });
    assert_eq!(all.await.unwrap().answers[&200], 1);
    // More than every buffer on the way to the mirror holds.
    let large = 16 << 20;
    assert!(exchange(front, &post(large)).await.len() > large);
    assert_eq!((one.served(), of(&rig, "one").failures()), (2, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_backend_may_change_headers_of_its_own() {
    let rig = Rig::new().await;
    for (place, name) in [(1, "one"), (2, "two")] {
        rig.service(name, &[rig.endpoint(place, 0)]).await;
    }
    let _servers = [Echo::new("one", rig.endpoint(1, 0)).await, Echo::new("two", rig.endpoint(2, 0)).await];
    let change = |kind: &str, field: &str, value: &str| json!({"type": kind, field: {"set": [{"name": "x-version", "value": value}]}});
    let backend = |name: &str| {
        json!({"name": name, "port": rig.port, "filters": [
            change("RequestHeaderModifier", "requestHeaderModifier", &format!("to-{name}")),
            change("ResponseHeaderModifier", "responseHeaderModifier", &format!("from-{name}")),
        ]})
    };
    let of_rule = change("RequestHeaderModifier", "requestHeaderModifier", "of the rule");
    serve(&rig, json!({"backendRefs": [backend("one"), backend("two")], "filters": [of_rule]})).await;
    let front = rig.front().await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let request = "GET /headers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        answers.push(exchange(front, request).await);
    }
    let named = |name: &str| {
        let both = |answer: &&String| {
            answer.contains(&format!("x-version: from-{name}\r\n"))
                && answer.contains(&format!(r#""x-version": "to-{name}""#))
        };
        answers.iter().filter(both).count()
    };
    assert_eq!((named("one"), named("two")), (1, 1), "{answers:?}");
    // A Service that takes over is asked in its own way.
    rig.endpoints("one", &[]).await;
    let answer = exchange(front, "GET /headers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("from-two") && answer.contains("to-two"), "{answer}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_time_holds_for_the_whole_answer() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    for (timeouts, failed) in [(json!({"request": "300ms"}), 1), (json!({"backendRequest": "300ms"}), 2)] {
        serve(&rig, json!({"backendRefs": [backend(&rig, "one")], "timeouts": timeouts})).await;
        let client = rig.load("/stream").await;
        one.let_chunks_go(1);
        let (outcome, _) = client.request().await;
        // On a machine that is busy enough not even the head comes in time.
        assert!(matches!(outcome, Outcome::Truncated | Outcome::Failed), "{outcome:?}");
        let counts = of(&rig, "one");
        assert_eq!((counts.failed[&Cause::TimedOut], counts.cancelled), (failed, 0));
        rig.idle(one.address).await;
    }
    // In time, nothing is cut.
    serve(&rig, json!({"backendRefs": [backend(&rig, "one")], "timeouts": {"request": "1h"}})).await;
    one.let_chunks_go(10);
    assert_eq!(rig.load("/stream").await.request().await.0, Outcome::Ok);
    rig.stop().await;
}
