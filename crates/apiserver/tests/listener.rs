//! Who is let in from outside the process, and what happens when the server stops.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
mod common;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use apiserver::{Credentials, Limits, ListenError, Listener, environment::SystemEnvironment};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::common::{Behind, answer, connector, rest, server};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#)
}

#[tokio::test]
async fn nobody_comes_in_without_the_token_whatever_they_ask() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let token = &behind.token;
    let wrong = [
        String::new(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Authorization: Basic {token}\r\n"),
        format!("Authorization: {token}\r\n"),
        format!("Authorization: Bearer {token}0\r\n"),
        format!("Authorization: Bearer {}\r\n", &token[1..]),
        format!("X-Remote-User: admin\r\nImpersonate-User: {token}\r\n"),
    ];
    for header in &wrong {
        for (method, path) in [
            ("GET", "/version"),
            ("GET", "/healthz"),
            ("GET", "/api/v1/secrets"),
            ("POST", CONFIG_MAPS),
            ("GET", "/x"),
        ] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
            let refusal = behind.raw(&request).await.refusal();
            assert_eq!(refusal, (401, "Unauthorized".to_owned(), "Unauthorized".to_owned()), "{header}");
        }
        // Before the body: who is not let in cannot make the server read.
        let large = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 10000000\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(behind.raw(&large).await.code, 401);
    }
    assert_eq!(behind.once("GET", "/version", "").await.code, 200);
}

#[tokio::test]
async fn only_tls_is_spoken() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let mut plain = TcpStream::connect(behind.address).await.unwrap();
    plain.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    drop(plain.read_to_end(&mut bytes).await);
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_lets_one_in_is_readable_by_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let credentials = Credentials::load(directory.path(), &SystemEnvironment).unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    // Somebody left one that all can read.
    fs::write(&kubeconfig, "").unwrap();
    fs::set_permissions(&kubeconfig, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(directory.path().join("kubeconfig.new"), "").unwrap();
    fs::set_permissions(directory.path().join("kubeconfig.new"), fs::Permissions::from_mode(0o644)).unwrap();
    credentials.write_kubeconfig(&kubeconfig, behind.address).unwrap();
    for name in ["kubeconfig", "server.key", "token"] {
        assert_eq!(mode(&directory.path().join(name)), 0o600, "{name}");
    }
    assert!(!format!("{credentials:?}").contains(&behind.token), "not printed by accident");
}

#[tokio::test]
async fn a_kubeconfig_stays_good_when_the_server_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let first = Behind::start(directory.path(), Limits::default()).await;
    let token = first.token.clone();
    let authority = fs::read(directory.path().join("ca.crt")).unwrap();
    first.stop.send_replace(true);
    first.serving.await.unwrap();

    let second = Behind::start(directory.path(), Limits::default()).await;
    assert_eq!(second.token, token);
    // With the authority of the first: the second proves itself with the same.
    let stream = TcpStream::connect(second.address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = connector(&authority, b"http/1.1").connect(name, stream).await.unwrap();
    stream.write_all(second.head("GET", "/version", "Connection: close\r\n").as_bytes()).await.unwrap();
    assert_eq!(answer(stream).await.code, 200);
}

#[tokio::test]
async fn broken_credentials_are_named_and_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    drop(Credentials::load(directory.path(), &SystemEnvironment).unwrap());
    let key = directory.path().join("server.key");
    fs::write(&key, "rubbish").unwrap();
    let error = Credentials::load(directory.path(), &SystemEnvironment).unwrap_err().to_string();
    assert!(error.contains("server.key"), "{error}");
    assert_eq!(fs::read_to_string(&key).unwrap(), "rubbish");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let first = Behind::start(directory.path(), Limits::default()).await;
    let port = first.address.port();
    let credentials = Credentials::load(directory.path(), &SystemEnvironment).unwrap();
    let second = Listener::bind(port, server().await, credentials, Limits::default()).await;
    let error @ ListenError::Bind { .. } = second.err().unwrap();
    assert_eq!(error.to_string(), format!("failed to listen on 127.0.0.1:{port}; is something else there?"));
}

#[tokio::test]
async fn when_the_server_stops_watches_end_and_requests_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let mut watching = behind.connect().await;
    let watch = behind.head("GET", &format!("{CONFIG_MAPS}?watch=true"), "");
    watching.write_all(watch.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    watching.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");

    // A request of which only a half is here.
    let body = map("late");
    let (first, second) = body.split_at(10);
    let mut asking = behind.connect().await;
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    asking.write_all((behind.head("POST", CONFIG_MAPS, &length) + first).as_bytes()).await.unwrap();
    // The server has it: a request after it on another connection is answered.
    assert_eq!(behind.once("GET", "/version", "").await.code, 200);

    behind.stop.send_replace(true);
    // It ends by itself, in good order: the last chunk is there.
    assert!(rest(watching).await.ends_with(b"0\r\n\r\n"));
    assert!(!behind.serving.is_finished(), "it waits for the half request");
    asking.write_all(second.as_bytes()).await.unwrap();
    assert_eq!(answer(asking).await.code, 201);
    behind.serving.await.unwrap();
    assert!(TcpStream::connect(behind.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_client_that_never_finishes_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { drain: Duration::from_millis(50), ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    let mut asking = behind.connect().await;
    asking.write_all(behind.head("POST", CONFIG_MAPS, "Content-Length: 100\r\n").as_bytes()).await.unwrap();
    let silent = TcpStream::connect(behind.address).await.unwrap();
    assert_eq!(behind.once("GET", "/version", "").await.code, 200);
    behind.stop.send_replace(true);
    behind.serving.await.unwrap();
    drop((asking, silent));
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let mut stream = behind.connect().await;
    let get = behind.head("GET", "/version", "");
    let last = behind.head("GET", "/api/v1/namespaces/default", "Connection: close\r\n");
    stream.write_all(format!("{get}{get}{last}").as_bytes()).await.unwrap();
    let text = String::from_utf8(rest(stream).await).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3);
    let object: Value = serde_json::from_str(text.rsplit("\r\n\r\n").next().unwrap()).unwrap();
    assert_eq!(object["kind"], "Namespace");
}
