//! HTTPS listeners: which certificate a client gets, what it speaks, and what changes while it does.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

mod support;

use std::{net::SocketAddr, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::{Value, json};
use support::{Rig, SOON, echo::Echo, grpc::Caller};
use testbed::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Puts a certificate for a host into a Secret, and returns it.
async fn secret(rig: &Rig, name: &str, host: &str) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([host.to_owned()]).unwrap();
    rig.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": cert.pem(), "tls.key": signing_key.serialize_pem()},
    }))
    .await;
    cert.der().clone()
}

async fn listeners(rig: &Rig, listeners: &[(&str, &str)]) {
    let listeners: Vec<Value> = listeners
        .iter()
        .map(|(hostname, secret)| {
            let mut listener = json!({
                "name": secret, "port": rig.port, "protocol": "HTTPS",
                "tls": {"certificateRefs": [{"name": secret}]},
            });
            if !hostname.is_empty() {
                listener["hostname"] = json!(hostname);
            }
            listener
        })
        .collect();
    rig.apply(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "front", "namespace": "default"},
        "spec": {"gatewayClassName": "segue", "listeners": listeners},
    }))
    .await;
}

type Refused = std::io::Error;

/// Connects as a client that trusts one certificate.
async fn connect(
    address: SocketAddr,
    host: &str,
    trusted: &CertificateDer<'static>,
    protocol: &[u8],
) -> Result<TlsStream<TcpStream>, Refused> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Connects as soon as the listener serves the certificate.
async fn connected(
    address: SocketAddr,
    host: &str,
    trusted: &CertificateDer<'static>,
    protocol: &[u8],
) -> TlsStream<TcpStream> {
    let connected = async || connect(address, host, trusted, protocol).await.ok();
    eventually("the certificate to be served", SOON, connected).await.unwrap()
}

async fn get(stream: &mut TlsStream<TcpStream>, path: &str, host: &str) -> String {
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    // The other side may close without a word of TLS.
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_that_a_client_names_decides_the_certificate_and_alpn_the_version() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    let two = Echo::new("two", rig.endpoint(2, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.service("two", &[two.address]).await;
    rig.routed(&[("one", 3), ("two", 1)]).await;
    let front = rig.front().await;
    let exact = secret(&rig, "exact", "chat.models.dev").await;
    let below = secret(&rig, "below", "code.models.dev").await;
    listeners(&rig, &[("*.models.dev", "below"), ("chat.models.dev", "exact")]).await;

    let mut stream = connected(front, "chat.models.dev", &exact, b"http/1.1").await;
    let answer = get(&mut stream, "/headers", "chat.models.dev").await;
    assert!(answer.contains(r#""x-forwarded-proto": "https""#), "{answer}");
    let stream = connected(front, "code.models.dev", &below, b"h2").await;
    let mut calls = Caller::over(stream, "code.models.dev").await;
    for _ in 0..39 {
        assert_eq!(calls.call("/").await.0, 200);
    }
    assert_eq!((one.served(), two.served()), (30, 10), "weights are exact in TLS too");

    // The certificate of the one is not that of the other, and no listener has any other host.
    assert!(connect(front, "code.models.dev", &exact, b"h2").await.is_err());
    assert!(connect(front, "models.dev", &exact, b"h2").await.is_err());
    assert!(connect(front, "chat.models.dev", &exact, b"spdy/3").await.is_err(), "it is not spoken");
    // A request for a host of another listener is not for this connection.
    let mut stream = connected(front, "chat.models.dev", &exact, b"http/1.1").await;
    let answer = get(&mut stream, "/", "code.models.dev").await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_for_new_connections_and_cuts_none() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let front = rig.front().await;
    let first = secret(&rig, "tls", "chat.models.dev").await;
    listeners(&rig, &[("", "tls")]).await;
    let mut stream = connected(front, "chat.models.dev", &first, b"http/1.1").await;
    let reading = tokio::spawn(async move { get(&mut stream, "/stream", "chat.models.dev").await });
    rig.in_flight(one.address, 1).await;
    let second = secret(&rig, "tls", "chat.models.dev").await;
    drop(connected(front, "chat.models.dev", &second, b"http/1.1").await);
    assert!(connect(front, "chat.models.dev", &first, b"http/1.1").await.is_err());
    rig.endpoints("one", &[]).await;
    assert!(!rig.gateway.drained(one.address), "the stream is in flight");
    one.let_chunks_go(10);
    let answer = reading.await.unwrap();
    assert!(answer.contains("9\n") && answer.ends_with("0\r\n\r\n"), "{answer}");
    rig.drained(one.address).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_without_its_secret_says_so_and_is_served_once_it_comes() {
    let rig = Rig::new().await;
    let one = Echo::new("one", rig.endpoint(1, 0)).await;
    rig.service("one", &[one.address]).await;
    rig.routed(&[("one", 1)]).await;
    let front = rig.front().await;
    listeners(&rig, &[("", "tls")]).await;
    let condition = async |kind: &str, status: &str| {
        let found = eventually("the condition", SOON, async || {
            let gateway = rig.read("Gateway", "front").await;
            let listener =
                gateway["status"]["listeners"].as_array()?.iter().find(|it| it["name"] == "tls")?;
            let conditions = listener["conditions"].as_array()?.clone();
            conditions.into_iter().find(|it| it["type"] == kind && it["status"] == status)
        });
        found.await.unwrap()
    };
    let resolved = condition("ResolvedRefs", "False").await;
    assert_eq!(resolved["reason"], "InvalidCertificateRef");
    assert_eq!(resolved["message"], "there is no Secret default/tls");
    condition("Programmed", "False").await;
    assert!(TcpStream::connect(front).await.is_err(), "nothing listens without a certificate");
    let certificate = secret(&rig, "tls", "chat.models.dev").await;
    condition("ResolvedRefs", "True").await;
    condition("Programmed", "True").await;
    let mut stream = connected(front, "chat.models.dev", &certificate, b"http/1.1").await;
    assert!(get(&mut stream, "/", "chat.models.dev").await.ends_with("one"));
    rig.stop().await;
}
