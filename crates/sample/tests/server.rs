//! The sample server as a client meets it.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod running;

use std::time::Duration;

use sample::{Counts, Error, LAST_EVENT};
use testbed::eventually;
use tokio::{io::AsyncReadExt, net::TcpStream};

use self::running::{Running, SOON, get, send};

#[tokio::test]
async fn it_listens_from_the_start_and_is_not_ready_while_it_loads() {
    let server = Running::with(|settings| settings.load = Duration::from_hours(1)).await;
    for path in ["/ready", "/v1/completions"] {
        let answer = get(server.address, path).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    server.end().await;
    let server = Running::with(|settings| settings.load = Duration::from_millis(1)).await;
    let ready = eventually("readiness", SOON, async || {
        get(server.address, "/ready").await.starts_with("HTTP/1.1 200").then_some(())
    });
    ready.await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn it_says_its_version_and_errors_when_asked_to_and_counts_both() {
    let server = Running::with(|settings| settings.latency = Duration::from_millis(1)).await;
    let answer = get(server.address, "/v1/completions").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"version\":\"v1\""), "{answer}");
    let answer = get(server.address, "/v1/completions?status=500").await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    // Looking is no request, and neither is getting lost.
    get(server.address, "/ready").await;
    assert!(get(server.address, "/nowhere").await.starts_with("HTTP/1.1 404"));
    let stats = get(server.address, "/stats").await;
    assert!(stats.contains("\"requests\":2") && stats.contains("\"inFlight\":0"), "{stats}");
    assert_eq!(
        server.end().await,
        Counts { version: "v1".to_owned(), requests: 2, in_flight: 0, ended: true }
    );
}

#[tokio::test]
async fn a_stream_in_flight_is_finished_and_nobody_new_is_let_in() {
    let server = Running::with(|settings| settings.token_gap = Duration::from_millis(20)).await;
    // The client would keep the connection; the server that ends does not.
    let mut stream = send(server.address, "/v1/completions?stream=20", "keep-alive").await;
    let mut first = [0; 256];
    let count = stream.read(&mut first).await.unwrap();
    let mut idle = send(server.address, "/ready", "keep-alive").await;
    assert!(idle.read(&mut [0; 256]).await.unwrap() > 0);
    server.stop.send(()).unwrap();
    let refused = eventually("a refusal", SOON, async || TcpStream::connect(server.address).await.err());
    refused.await.unwrap();
    let mut text = String::from_utf8(first[..count].to_vec()).unwrap();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.matches("\"token\":").count(), 20, "{text}");
    assert!(text.contains(LAST_EVENT) && text.ends_with("\r\n0\r\n\r\n"), "{text}");
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0, "a connection without a request is closed");
    assert_eq!(server.serving.await.unwrap().unwrap().requests, 1);
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_is_not_answered() {
    let server = Running::with(|settings| settings.latency = Duration::from_hours(1)).await;
    let asking = send(server.address, "/v1/completions", "close").await;
    let stats = async |wanted: &str| get(server.address, "/stats").await.contains(wanted).then_some(());
    eventually("the request", SOON, async || stats("\"inFlight\":1").await).await.unwrap();
    drop(asking);
    eventually("its end", SOON, async || stats("\"inFlight\":0").await).await.unwrap();
    assert_eq!(server.end().await.requests, 0);
}

#[tokio::test]
async fn its_counts_outlive_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one.json");
    let read = || serde_json::from_slice::<Counts>(&std::fs::read(&file).ok()?).ok();
    let server = Running::with(|settings| settings.counts = Some(file.clone())).await;
    get(server.address, "/v1/completions").await;
    let written = eventually("the count of one that runs", SOON, async || {
        read().filter(|counts| counts.requests == 1 && !counts.ended)
    });
    written.await.unwrap();
    for _ in 0..20 {
        get(server.address, "/v1/completions").await;
    }
    let counts = server.end().await;
    assert_eq!((counts.requests, counts.ended), (21, true));
    assert_eq!(read(), Some(counts));
}

#[tokio::test]
async fn counts_that_cannot_be_kept_are_an_error() {
    let server = Running::with(|settings| settings.counts = Some("/nowhere/at/all.json".into())).await;
    server.stop.send(()).unwrap();
    let error = server.serving.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "failed to write counts to /nowhere/at/all.json");
}

#[tokio::test]
async fn a_worker_is_ready_once_its_leader_counts_it_and_ends_with_its_leader() {
    let leader = Running::with(|_| {}).await;
    let address = leader.address;
    let worker = Running::with(|settings| settings.join = Some(address.to_string())).await;
    let other = Running::with(|settings| settings.join = Some(address.to_string())).await;
    let members = async |count: &str| {
        let wanted = format!("\"members\":{count}");
        eventually(&wanted, SOON, async || get(address, "/stats").await.contains(&wanted).then_some(()))
            .await
            .unwrap();
    };
    members("2").await;
    assert!(get(worker.address, "/ready").await.starts_with("HTTP/1.1 200"));
    other.end().await;
    members("1").await;
    leader.end().await;
    let ended = worker.serving.await.unwrap();
    assert!(matches!(&ended, Err(Error::LeaderGone(leader)) if *leader == address.to_string()), "{ended:?}");
}

#[tokio::test]
async fn a_worker_waits_for_a_leader_that_loads() {
    let leader = Running::with(|settings| settings.load = Duration::from_hours(1)).await;
    let worker = Running::with(|settings| settings.join = Some(leader.address.to_string())).await;
    assert!(get(worker.address, "/ready").await.starts_with("HTTP/1.1 503"));
    assert!(get(leader.address, "/join").await.starts_with("HTTP/1.1 503"));
    worker.end().await;
    leader.end().await;
}
