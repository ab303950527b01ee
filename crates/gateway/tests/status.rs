//! What the API is told, and when.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::time::Duration;

use gateway::{Settings, load::Outcome};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::{Rig, SOON, echo::Echo};
use testbed::eventually;
use tokio::time::Instant;

fn condition<'a>(conditions: &'a Value, kind: &str) -> &'a Value {
    conditions.as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_ours_is_acknowledged_by_generation() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    for weight in 1..4 {
        let generation = rig.route(&[("one", weight)]).await;
        assert_eq!(generation, i64::from(weight));
        let conditions = rig.acknowledged(generation).await;
        for kind in ["Accepted", "ResolvedRefs"] {
            assert_eq!(condition(&conditions, kind)["status"], "True");
        }
        assert_eq!(rig.snapshot().generations.into_values().collect::<Vec<_>>(), [generation]);
        // Acknowledged means served: no wait between.
        assert_eq!(rig.load("/").await.request().await.0, Outcome::Ok);
    }
    let class = rig.read("GatewayClass", "segue").await;
    assert_eq!(condition(&class["status"]["conditions"], "Accepted")["status"], "True");
    let gateway = eventually("the attached route", SOON, async || {
        let gateway = rig.read("Gateway", "front").await;
        (gateway["status"]["listeners"][0]["attachedRoutes"] == 1).then_some(gateway)
    });
    let status = &gateway.await.unwrap()["status"];
    assert_eq!(condition(&status["conditions"], "Programmed")["status"], "True");
    let listener = &status["listeners"][0];
    let says = format!("listens on {}", rig.front().await);
    assert_eq!(condition(&listener["conditions"], "Programmed")["message"], says);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_lags_acknowledges_late_and_still_not_before_it_serves() {
    let lag = Duration::from_millis(300);
    let rig = Rig::with(Settings { lag, ..Settings::default() }).await;
    let mut servers = Vec::new();
    for (place, name) in [(1, "one"), (2, "two")] {
        let server = Echo::new(name, rig.endpoint(place, 0)).await;
        rig.service(name, &[server.address]).await;
        servers.push(server);
    }
    for (one, two) in [(1, 0), (0, 1), (1, 0)] {
        let began = Instant::now();
        rig.routed(&[("one", one), ("two", two)]).await;
        assert!(began.elapsed() >= lag, "acknowledged after {:?}", began.elapsed());
        let (outcome, who) = rig.load("/").await.request().await;
        assert_eq!((outcome, who.as_ref()), (Outcome::Ok, if one == 1 { &b"one"[..] } else { b"two" }));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_backend_keeps_its_share_and_answers_500() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    let generation = rig.route(&[("one", 3), ("missing", 1)]).await;
    let conditions = rig.acknowledged(generation).await;
    let resolved = condition(&conditions, "ResolvedRefs");
    assert_eq!((&resolved["status"], &resolved["reason"]), (&json!("False"), &json!("BackendNotFound")));
    let client = rig.load("/").await;
    client.closed_loop(400, 4).await;
    assert_eq!((client.totals().ok, client.totals().failed), (300, 100));
    // The Service comes: the same generation, now resolved.
    rig.service("missing", &[one.address]).await;
    let resolved = eventually("the reference to lead somewhere", SOON, async || {
        let conditions = rig.acknowledged(generation).await;
        (condition(&conditions, "ResolvedRefs")["status"] == "True").then_some(())
    });
    resolved.await.unwrap();
    client.closed_loop(400, 4).await;
    assert_eq!((client.totals().ok, client.totals().failed), (700, 100));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_without_endpoints_goes_to_the_others_or_is_503_as_set() {
    for (failover, ok) in [(true, 100), (false, 75)] {
        let rig = Rig::with(Settings { failover, ..Settings::default() }).await;
        let one = Echo::new("one", rig.endpoint(1, 0)).await;
        rig.service("one", &[one.address]).await;
        rig.service("two", &[]).await;
        rig.routed(&[("one", 3), ("two", 1)]).await;
        let client = rig.load("/").await;
        client.closed_loop(100, 4).await;
        assert_eq!((client.totals().ok, client.totals().failed), (ok, 100 - ok));
        let failed_over: u64 = rig.snapshot().services.values().map(|counts| counts.failed_over).sum();
        assert_eq!(failed_over, if failover { 25 } else { 0 });
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_stays_and_a_status_that_says_the_same_is_not_written() {
    let rig = Rig::new().await;
    rig.service("one", &[]).await;
    let generation = rig.route(&[("one", 1)]).await;
    rig.acknowledged(generation).await;
    let theirs = json!({
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "elsewhere"}, "controllerName": "example.com/other",
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let route = rig.read("HTTPRoute", "main").await;
    let ours = route["status"]["parents"][0].clone();
    let patch = json!({"status": {"parents": [theirs, ours]}});
    let api = rig.api(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"namespace": "default"},
    }));
    api.patch_status("main", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let before = rig.read("HTTPRoute", "main").await;
    // A change that the gateway answers comes after whatever it had to say about the one before.
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.endpoints("one", &[one.address]).await;
    assert_eq!(rig.read("HTTPRoute", "main").await, before);
    assert_eq!(before["status"]["parents"], json!([theirs, ours]));
    let generation = rig.route(&[("one", 2)]).await;
    let acknowledged = eventually("our part of the status", SOON, async || {
        let parents = rig.read("HTTPRoute", "main").await["status"]["parents"].clone();
        (parents[1]["conditions"][0]["observedGeneration"] == generation).then_some(parents)
    });
    let parents = acknowledged.await.unwrap();
    assert_eq!(parents[0], theirs);
    let since = |parent: &Value| parent["conditions"][0]["lastTransitionTime"].clone();
    assert_eq!(since(&parents[1]), since(&ours), "a new generation is no transition");
    rig.stop().await;
}
