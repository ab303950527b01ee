//! Services are reachable at their cluster address: HTTP request by request, anything else connection by connection.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::{net::SocketAddr, time::Duration};

use gateway::{Settings, load::Outcome};
use support::{Rig, SOON, echo::Echo, load_at};
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

async fn open(rig: &Rig, service: SocketAddr) {
    let open = async || rig.gateway.bindings().get(&service).cloned();
    assert_eq!(eventually("the Service to be reachable", SOON, open).await.unwrap(), Ok(service));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_reachable_and_replicas_come_and_go() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(1, 1)).await;
    let service = SocketAddr::new(rig.service("stable", &[one.address]).await.into(), rig.port);
    open(&rig, service).await;
    let client = load_at(service, "/", true);
    client.closed_loop(50, 4).await;
    rig.endpoints("stable", &[two.address]).await;
    client.closed_loop(50, 4).await;
    assert_eq!((client.totals().ok, one.served(), two.served()), (100, 50, 50));
    let counts = rig.snapshot().cluster_addresses.into_values().next().unwrap();
    assert_eq!((counts.requests, counts.accepted), (100, 0));
    rig.drained(one.address).await;
    rig.stop().await;
}

/// A server that answers with what it was sent, once the client has ended.
async fn reads_to_the_end(listener: TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_outlives_its_place_in_the_service_and_each_half_ends_by_itself() {
    let rig = Rig::new().await;
    let listener = TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    let server = listener.local_addr().unwrap();
    let serving = tokio::spawn(reads_to_the_end(listener));
    let service = SocketAddr::new(rig.service("stable", &[server]).await.into(), rig.port);
    open(&rig, service).await;
    let mut client = TcpStream::connect(service).await.unwrap();
    client.write_all(b"half ").await.unwrap();
    rig.busy(server).await;
    rig.endpoints("stable", &[]).await;
    assert!(!rig.gateway.drained(server));
    client.write_all(b"closed").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "HALF CLOSED");
    serving.await.unwrap();
    rig.drained(server).await;
    rig.stop().await;
}

/// A server that gives back what it gets, for as long as the client sends.
async fn gives_back(listener: TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_not_cut_while_its_server_keeps_it() {
    let drain = Duration::from_millis(5);
    let rig = Rig::with(Settings { drain, ..Settings::default() }).await;
    let listener = TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    let server = listener.local_addr().unwrap();
    let serving = tokio::spawn(gives_back(listener));
    let service = SocketAddr::new(rig.service("stable", &[server]).await.into(), rig.port);
    open(&rig, service).await;
    let mut client = TcpStream::connect(service).await.unwrap();
    rig.busy(server).await;
    rig.endpoints("stable", &[]).await;
    let left = Instant::now();
    while left.elapsed() < drain * 20 {
        client.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
        assert!(!rig.gateway.drained(server));
    }
    drop(client);
    serving.await.unwrap();
    rig.drained(server).await;
    rig.stop().await;
}

/// One request on a connection that is kept, and the body of its answer.
async fn ask(client: &mut TcpStream, path: &str) -> String {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: stable\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(client.read_u8().await.unwrap()));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    client.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_goes_on_when_the_server_that_answered_on_it_is_gone() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(1, 1)).await;
    let service = SocketAddr::new(rig.service("stable", &[one.address]).await.into(), rig.port);
    open(&rig, service).await;
    let mut client = TcpStream::connect(service).await.unwrap();
    // The client is silent for long enough to be taken for one that waits for the server.
    rig.busy(one.address).await;
    assert_eq!(ask(&mut client, "/").await, "one");
    rig.endpoints("stable", &[two.address]).await;
    // Nothing is in flight there: a connection that waits for its next request keeps no server.
    rig.drained(one.address).await;
    one.finish().await;
    assert_eq!(ask(&mut client, "/").await, "two");
    // What a client sends through a Service arrives as it was sent.
    let headers = ask(&mut client, "/headers").await;
    assert!(!headers.contains("forwarded"), "{headers}");
    let counts = rig.snapshot().cluster_addresses.into_values().next().unwrap();
    assert_eq!((counts.requests, counts.accepted), (3, 0), "each request is counted once");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_at_once_gets_no_more_than_its_share() {
    let rig = Rig::new().await;
    let slow = [1, 2, 3].map(|replica| Echo::new("slow", rig.endpoint(1, replica)));
    let slow = futures_util::future::join_all(slow).await;
    let failing = Echo::failing(rig.endpoint(2, 0)).await;
    let all: Vec<SocketAddr> = slow.iter().chain([&failing]).map(|echo| echo.address).collect();
    let service = SocketAddr::new(rig.service("stable", &all).await.into(), rig.port);
    open(&rig, service).await;
    // The others are busy for as long as the test wants, and it never is.
    let asking: Vec<_> = (0..40)
        .map(|_| tokio::spawn(async move { load_at(service, "/stream", false).request().await.0 }))
        .collect();
    for echo in &slow {
        rig.in_flight(echo.address, 10).await;
    }
    for echo in &slow {
        echo.let_chunks_go(1_000);
    }
    let outcomes = futures_util::future::join_all(asking).await;
    let failed = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::AppError))).count();
    assert_eq!((failed, failing.served()), (10, 10));
    rig.stop().await;
}
