//! On loopback: TLS, a token, and bounds on what one client can take from the others.
use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::Credentials;
use crate::{
    answer::{self, Body},
    refusal::Refusal,
    server::Server,
};

/// What clients may take together.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// Requests under way, watches among them.
    pub requests: usize,
    /// For a handshake, for the head of a request, and for a whole request that is not a watch.
    pub handshake: Duration,
    pub head: Duration,
    pub request: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_000,
            requests: 4_000,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            request: Duration::from_mins(1),
        }
    }
}

/// Why a listener could not start.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error("failed to listen on 127.0.0.1:{port}; is something else there?")]
    Bind {
        port: u16,
        #[source]
        source: io::Error,
    },
}

/// A server that is reachable from this machine, and from nowhere else.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    door: Arc<Door>,
}

#[derive(Debug)]
struct Door {
    server: Server,
    credentials: Credentials,
    limits: Limits,
    requests: Arc<Semaphore>,
}

impl Listener {
    /// Port 0 is any free one.
    pub async fn bind(
        port: u16,
        server: Server,
        credentials: Credentials,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let bind = |source| ListenError::Bind { port, source };
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        let requests = Arc::new(Semaphore::new(limits.requests));
        Ok(Self { socket, address, door: Arc::new(Door { server, credentials, limits, requests }) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` says so, then lets requests under way finish; watches end at once.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.door.credentials.tls));
        let places = Arc::new(Semaphore::new(self.door.limits.connections));
        let mut connections = JoinSet::new();
        loop {
            let place = tokio::select! {
                () = stopped(&mut stop) => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let stream = tokio::select! {
                () = stopped(&mut stop) => break,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // Out of file descriptors, or the client is gone again: the next one may have more luck.
                    Err(_) => continue,
                },
            };
            let (door, acceptor, stop) = (Arc::clone(&self.door), acceptor.clone(), stop.clone());
            connections.spawn(serve_one(stream, acceptor, door, stop, place));
            while connections.try_join_next().is_some() {}
        }
        while connections.join_next().await.is_some() {}
    }
}

/// Returns when the server stops, or when whoever could say so is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

async fn serve_one(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    door: Arc<Door>,
    mut stop: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
) {
    // Nobody to tell: the other side closes or does not speak TLS.
    let Ok(Ok(stream)) = timeout(door.limits.handshake, acceptor.accept(stream)).await else { return };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(door.limits.head);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1_000);
    let ending = stop.clone();
    let service = service_fn(move |request| {
        let (door, ending) = (Arc::clone(&door), ending.clone());
        async move { Ok::<_, Infallible>(door.answer(request, ending).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A broken connection has nobody to tell either.
        _ = connection.as_mut() => {}
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
    drop(place);
}

impl Door {
    async fn answer(&self, request: Request<Incoming>, stop: watch::Receiver<bool>) -> Response<Body> {
        let authorization =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !self.credentials.admits(authorization) {
            return answer::refuse(&Refusal::unauthorized());
        }
        let Ok(place) = Arc::clone(&self.requests).try_acquire_owned() else {
            let why = format!("{} requests are under way; try again in a second", self.limits.requests);
            return answer::refuse(&Refusal::too_many_requests(why, 1));
        };
        match timeout(self.limits.request, self.server.answer(request)).await {
            Ok(response) => response.map(|body| answer::until(body, stop, place)),
            Err(_) => answer::refuse(&Refusal::timeout(self.limits.request.as_secs())),
        }
    }
}
