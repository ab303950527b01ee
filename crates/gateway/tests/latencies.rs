//! How long requests took, counted by Service: a version is a Service of its own.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::time::Duration;

use gateway::{Latencies, load::Outcome};
use serde_json::json;
use support::{Rig, SOON, echo::Echo, grpc::Callee, grpc::Caller, load_at};
use testbed::eventually;

/// The latencies of a Service now, and how many first bytes and ends they have.
fn of(rig: &Rig, service: &str) -> (Latencies, (u64, u64)) {
    let all = rig.snapshot().latencies;
    let (_, latencies) = all.into_iter().find(|(key, _)| key.service.name == service).unwrap();
    let counts = (latencies.first_byte.count(), latencies.whole.count());
    (latencies, counts)
}

async fn counted(rig: &Rig, service: &str, counts: (u64, u64)) -> Latencies {
    let reached = eventually("the latencies", SOON, async || {
        let (latencies, now) = of(rig, service);
        (now == counts).then_some(latencies)
    });
    let reached = reached.await;
    assert!(reached.is_ok(), "{service}: {:?} and not {counts:?}", of(rig, service).1);
    reached.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_version_has_the_latencies_of_its_own_answers() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Callee::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service_of("two", Some("kubernetes.io/h2c"), &[two.address]).await;
    rig.routed(&[("one", 3), ("two", 1)]).await;
    let front = rig.front().await;
    // Answers without a body and errors of the server are answers too.
    load_at(front, "/", false).closed_loop(30, 4).await;
    load_at(front, "/error", false).closed_loop(10, 4).await;
    Caller::connect(front).await.call("/").await;
    rig.idle(one.address).await;
    rig.idle(two.address).await;
    let (ones, twos) = (one.served(), two.served());
    assert_eq!(ones + twos, 41);
    counted(&rig, "one", (ones, ones)).await;
    counted(&rig, "two", (twos, twos)).await;
    let text = rig.gateway.metrics();
    let name =
        format!("request_seconds_count{{namespace=\"default\",service=\"two\",port=\"{}\"}}", rig.port);
    assert!(text.contains(&format!("segue_gateway_{name} {twos}\n")), "{text}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_of_a_stream_counts_before_its_end() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let client = rig.load("/stream").await;
    let watching = async {
        rig.in_flight(one.address, 1).await;
        // The head of the answer is no byte of it.
        assert_eq!(of(&rig, "one").1, (0, 0));
        one.let_chunks_go(1);
        let first = counted(&rig, "one", (1, 0)).await.first_byte;
        one.let_chunks_go(9);
        first
    };
    let ((outcome, _), first) = tokio::join!(client.request(), watching);
    assert_eq!(outcome, Outcome::Ok);
    let latencies = counted(&rig, "one", (1, 1)).await;
    assert_eq!(latencies.first_byte, first, "it counts once");
    assert!(latencies.whole.sum > first.sum);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_vain_counts_with_its_wait_and_what_was_refused_does_not() {
    let rig = Rig::new().await;
    // Connected by the kernel, answered by no process.
    let silent = tokio::net::TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    rig.service("silent", &[silent.local_addr().unwrap()]).await;
    rig.service("gone", &[rig.endpoint(2, 0)]).await;
    let rule = |path: &str, service: &str| {
        json!({
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"name": service, "port": rig.port}], "timeouts": {"request": "50ms"},
        })
    };
    let generation = rig.route_of(json!([rule("/silent", "silent"), rule("/gone", "gone")])).await;
    rig.acknowledged(generation).await;
    let front = rig.front().await;
    assert_eq!(load_at(front, "/silent", false).request().await.1, "timed-out");
    assert_eq!(load_at(front, "/gone", false).request().await.1, "refused");
    let latencies = counted(&rig, "silent", (1, 1)).await;
    assert_eq!(latencies.whole.within(Duration::from_millis(45)), 0, "it took as long as it waited");
    assert_eq!(of(&rig, "gone").1, (0, 0));
    rig.stop().await;
}
