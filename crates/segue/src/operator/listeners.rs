//! The sockets on which the operator listens: probes of its pod on one port, admission reviews and metrics on another.

use std::{
    convert::Infallible,
    env,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{metrics::MetricsEndpoint, webhook};
use crate::output::Error;

/// The most connections that are served at once. Further ones wait in the backlog of the socket.
const CONNECTIONS: usize = 256;

/// How long a TLS handshake, and the head of a request, may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether this process runs in a pod. There it listens on all addresses, elsewhere on loopback.
pub(crate) fn is_in_a_pod() -> bool {
    env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Listens on a port: in a pod on every address of the pod, elsewhere on loopback.
pub(crate) async fn listen(port: u16) -> Result<TcpListener, Error> {
    let bound = if is_in_a_pod() {
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            Ok(listener) => Ok(listener),
            // A node without IPv6.
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
        }
    } else {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
    };
    bound.map_err(|error| Error::FailedTo { what: "listen", why: format!("port {port}: {error}") })
}

/// Serves `/healthz`, and `/readyz` with the result of `ready`; its `Err` names what is missing.
pub(crate) async fn health(
    listener: TcpListener,
    ready: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static,
) {
    let ready = Arc::new(ready);
    loop {
        let (stream, ready) = (accept(&listener).await, Arc::clone(&ready));
        tokio::spawn(serve(stream, move |request: Request<Incoming>| {
            let answer = match request.uri().path() {
                "/healthz" => Ok(()),
                "/readyz" => ready(),
                _ => Err("there are /healthz and /readyz"),
            };
            let (code, text) = match answer {
                Ok(()) => (StatusCode::OK, "ok"),
                Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing),
            };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = code;
            async move { response }
        }));
    }
}

/// Serves admission reviews and metrics over TLS.
pub(crate) async fn reviews(listener: TcpListener, tls: Arc<ServerConfig>, metrics: MetricsEndpoint) {
    let acceptor = TlsAcceptor::from(tls);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let (stream, acceptor) = (accept(&listener).await, acceptor.clone());
        let metrics = metrics.clone();
        tokio::spawn(async move {
            // A failed handshake has no response: the client has closed, or does not speak TLS.
            if let Ok(Ok(stream)) = timeout(READ_TIMEOUT, acceptor.accept(stream)).await {
                serve(stream, |request| webhook::answer(request, &metrics)).await;
            }
            drop(permit);
        });
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Out of file descriptors, most likely: the next attempt would fail as fast.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve<A: Future<Output = Response<Full<Bytes>>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> A,
) {
    let service = service_fn(|request| {
        let response = answer(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    // A broken connection has no response.
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}
