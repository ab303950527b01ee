//! Where the operator is asked: by the probes of its pod, and by the API about objects of our kinds.

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

use crate::{numbers::Numbers, output::Error, webhook};

/// Connections at once; more wait at the door.
const CONNECTIONS: usize = 256;

/// For a handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// In a pod, everybody in the cluster may come in; anywhere else, this machine alone.
pub(crate) fn is_in_a_pod() -> bool {
    env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Listens, in a pod on every address that it has.
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
    bound.map_err(|error| Error::Up { what: "listen", why: format!("port {port}: {error}") })
}

/// Answers `/healthz`, and `/readyz` with what `ready` says; `Err` is what is missing.
pub(crate) async fn health(
    listener: TcpListener,
    ready: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static,
) {
    let ready = Arc::new(ready);
    loop {
        let (stream, ready) = (next(&listener).await, Arc::clone(&ready));
        tokio::spawn(converse(stream, move |request: Request<Incoming>| {
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

/// Answers reviews and gives out numbers, over TLS.
pub(crate) async fn reviews(listener: TcpListener, tls: Arc<ServerConfig>, numbers: Numbers) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, acceptor) = (next(&listener).await, acceptor.clone());
        let numbers = numbers.clone();
        tokio::spawn(async move {
            // Nobody to tell: the other side closes, or does not speak TLS.
            if let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await {
                converse(stream, |request| webhook::answer(request, &numbers)).await;
            }
            drop(place);
        });
    }
}

async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Out of file descriptors, most likely: the next attempt would fail as fast.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn converse<A: Future<Output = Response<Full<Bytes>>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> A,
) {
    let service = service_fn(|request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A broken connection has nobody to tell.
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}
