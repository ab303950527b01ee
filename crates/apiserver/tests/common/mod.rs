//! A server, and a client for it that can send any bytes.
#![allow(dead_code, reason = "every suite uses a part")]
use std::{net::SocketAddr, path::Path, sync::Arc};

use apiserver::{
    Credentials, Limits, Listener, Server,
    environment::SystemEnvironment,
    store::{History, Store},
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A server in memory with the namespaces that clients count on.
pub async fn server() -> Server {
    server_over(Store::memory(History::default())).await
}

pub async fn server_over(store: Store) -> Server {
    let server = Server::new(store, Arc::new(SystemEnvironment), Vec::new());
    server.bootstrap().await.unwrap();
    server
}

/// The answer of a server, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The code, and the reason and message of a `Status` that agrees with it.
    pub fn refusal(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{status}");
        assert_eq!(status["code"], self.code.as_u16(), "{status}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.code.as_u16(), text("reason"), text("message"))
    }
}

/// Asks a server in process; the body of the answer is not read.
pub async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    media: &str,
    body: impl Into<Bytes>,
) -> Response<apiserver::Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !media.is_empty() {
        request = request.header("content-type", media);
    }
    server.handle(request.body(Full::new(body.into())).unwrap()).await
}

pub async fn send(server: &Server, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> Answer {
    let (head, body) = ask(server, method, path, media, body).await.into_parts();
    let bytes = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
    Answer { code: head.status, headers: head.headers, bytes }
}

/// A server behind TLS.
pub struct Behind {
    pub server: Server,
    pub address: SocketAddr,
    pub token: String,
    pub stop: watch::Sender<bool>,
    pub serving: JoinHandle<()>,
    connector: TlsConnector,
}

impl Behind {
    pub async fn start(directory: &Path, limits: Limits) -> Self {
        Self::over(server().await, directory, limits).await
    }

    pub async fn over(server: Server, directory: &Path, limits: Limits) -> Self {
        let credentials = Credentials::load(directory, &SystemEnvironment).unwrap();
        let listener = Listener::bind(0, server.clone(), credentials, limits).await.unwrap();
        let address = listener.address();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listener.serve(stopped));
        let token = std::fs::read_to_string(directory.join("token")).unwrap();
        let connector = connector(&std::fs::read(directory.join("ca.crt")).unwrap(), b"http/1.1");
        Self { server, address, token, stop, serving, connector }
    }

    pub async fn connect(&self) -> TlsStream<TcpStream> {
        self.try_connect().await.unwrap()
    }

    pub async fn try_connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// The head of a request that is let in.
    pub fn head(&self, method: &str, path: &str, more: &str) -> String {
        let token = &self.token;
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
    }

    /// One request on a connection of its own.
    pub async fn once(&self, method: &str, path: &str, body: &str) -> Answer {
        let length = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
            body.len()
        );
        self.raw(&(self.head(method, path, &length) + body)).await
    }

    /// Any bytes on a connection of its own; the answer ends with the connection.
    pub async fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        answer(stream).await
    }
}

/// A client of one authority.
pub fn connector(authority: &[u8], protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Everything until the other side closes.
pub async fn rest(mut stream: TlsStream<TcpStream>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Some closes are rude; what came before counts.
    drop(stream.read_to_end(&mut bytes).await);
    bytes
}

pub async fn answer(stream: TlsStream<TcpStream>) -> Answer {
    parse(&rest(stream).await)
}

/// An answer of HTTP/1.1, whole or in chunks.
pub fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let mut lines = head.lines();
    let code = lines.next().unwrap().split(' ').nth(1).unwrap().parse::<u16>().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.insert(
            http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            http::HeaderValue::from_str(value).unwrap(),
        );
    }
    let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    let body = if chunked { dechunked(body) } else { body.to_owned() };
    Answer { code: StatusCode::from_u16(code).unwrap(), headers, bytes: body.into() }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(chunk) = rest.get(..size).filter(|chunk| !chunk.is_empty()) else { break };
        whole += chunk;
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}
