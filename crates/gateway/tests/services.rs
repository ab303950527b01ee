//! Services are reachable at their cluster address, connection by connection.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::{net::SocketAddr, time::Duration};

use gateway::Settings;
use support::{Rig, SOON, echo::Echo, load_at};
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn open(rig: &Rig, door: SocketAddr) {
    let open = async || rig.gateway.places().get(&door).cloned();
    assert_eq!(eventually("the Service to be reachable", SOON, open).await.unwrap(), Ok(door));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_reachable_and_replicas_come_and_go() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(1, 1)).await;
    let door = SocketAddr::new(rig.service("stable", &[one.address]).await.into(), rig.port);
    open(&rig, door).await;
    let client = load_at(door, "/", true);
    client.ask_many(50, 4).await;
    rig.endpoints("stable", &[two.address]).await;
    client.ask_many(50, 4).await;
    assert_eq!((client.tallied().ok, one.served(), two.served()), (100, 50, 50));
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
    let door = SocketAddr::new(rig.service("stable", &[server]).await.into(), rig.port);
    open(&rig, door).await;
    let mut client = TcpStream::connect(door).await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_end_is_cut_after_the_drain() {
    let rig = Rig::with(Settings { drain: Duration::from_millis(50), ..Settings::default() }).await;
    let listener = TcpListener::bind(rig.endpoint(1, 0)).await.unwrap();
    let server = listener.local_addr().unwrap();
    let door = SocketAddr::new(rig.service("stable", &[server]).await.into(), rig.port);
    open(&rig, door).await;
    let mut client = TcpStream::connect(door).await.unwrap();
    rig.busy(server).await;
    rig.endpoints("stable", &[]).await;
    assert!(matches!(client.read(&mut [0]).await, Ok(0) | Err(_)));
    rig.drained(server).await;
    rig.stop().await;
}
