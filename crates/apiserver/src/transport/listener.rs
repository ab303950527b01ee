//! The listener on loopback: TLS, a bearer token, and limits of connections, requests and times.
use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Request, Response, header};
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
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{Credentials, write_timeout::WriteTimeout};
use crate::{
    response::{self, Body},
    server::Server,
    status::StatusError,
};

/// The limits of a listener, over all clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// Requests under way, watches among them.
    pub requests: usize,
    /// For a handshake, for the head of a request, and for a whole request that is not a watch.
    pub handshake: Duration,
    pub head: Duration,
    pub request: Duration,
    /// How long a connection is kept that nothing is asked of.
    pub idle: Duration,
    /// How long a client may leave unread what it asked for.
    pub stall: Duration,
    /// How long requests under way are waited for when the server stops.
    pub drain: Duration,
}

/// Connections above the limit that are answered with 429; further ones are closed.
const OVERFLOW: usize = 64;

/// How long to wait when no connection can be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What is kept for each stream of a client that reads slowly.
const SEND_BUFFER: usize = 64 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_000,
            requests: 4_000,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            request: Duration::from_mins(1),
            idle: Duration::from_mins(2),
            stall: Duration::from_mins(1),
            drain: Duration::from_secs(10),
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
    context: Arc<Context>,
}

#[derive(Debug)]
struct Context {
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
        Ok(Self { socket, address, context: Arc::new(Context { server, credentials, limits, requests }) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` says so, then lets requests under way finish; watches end at once.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.context.credentials.tls));
        let permits = Arc::new(Semaphore::new(self.context.limits.connections));
        let overflow = Arc::new(Semaphore::new(OVERFLOW));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stopped(&mut stop) => break,
                accepted = self.socket.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, or the client is gone: the next accept may succeed after a connection has
                // closed.
                sleep(ACCEPT_AGAIN).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let permit = Arc::clone(&permits).try_acquire_owned();
            let full = permit.is_err();
            // A connection above the limit is answered with 429; above the overflow too, it is closed.
            let Ok(permit) = permit.or_else(|_| Arc::clone(&overflow).try_acquire_owned()) else { continue };
            let (context, acceptor, stop) = (Arc::clone(&self.context), acceptor.clone(), stop.clone());
            connections.spawn(serve_one(stream, acceptor, context, stop, full, permit));
        }
        while connections.join_next().await.is_some() {}
    }
}

/// Returns when the server stops, or when the sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// The use of a connection.
#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    /// Requests under way.
    requests: usize,
    /// One of its requests was authenticated.
    trusted: bool,
}

/// Returns when a connection was idle for too long: `limits.idle`, or `limits.head` until a request was authenticated,
/// so that clients without a token cannot hold connections that others need.
async fn idle(mut used: watch::Receiver<Usage>, limits: Limits) {
    loop {
        let now = *used.borrow_and_update();
        let longest = if now.trusted { limits.idle } else { limits.head };
        let changed = used.changed();
        let changed = if now.requests > 0 { Ok(changed.await) } else { timeout(longest, changed).await };
        match changed {
            Ok(Ok(())) => {}
            // The connection is gone: the select in `serve_one` ends.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => return,
        }
    }
}

/// A request in flight on a connection.
struct InFlight(watch::Sender<Usage>);

impl InFlight {
    fn new(used: &watch::Sender<Usage>) -> Self {
        used.send_modify(|used| used.requests += 1);
        Self(used.clone())
    }

    fn trust(&self) {
        self.0.send_if_modified(|used| !std::mem::replace(&mut used.trusted, true));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|used| used.requests -= 1);
    }
}

async fn serve_one(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    context: Arc<Context>,
    mut stop: watch::Receiver<bool>,
    full: bool,
    permit: OwnedSemaphorePermit,
) {
    let limits = context.limits;
    let stream = WriteTimeout::new(stream, limits.stall);
    // Errors are dropped: the client has closed, or does not speak TLS.
    let handshake = timeout(limits.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        () = stopped(&mut stop) => return,
        stream = handshake => match stream {
            Ok(Ok(stream)) => stream,
            _ => return,
        },
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Of a connection without a request too, so it is no shorter than what such a one is kept.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle.max(limits.head));
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1_000).max_send_buf_size(SEND_BUFFER);
    let ending = stop.clone();
    let (use_of, used) = watch::channel(Usage::default());
    let service = service_fn(move |request| {
        let (context, ending, in_flight) = (Arc::clone(&context), ending.clone(), InFlight::new(&use_of));
        async move { Ok::<_, Infallible>(context.handle(request, ending, full, in_flight).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let trusted = used.clone();
    tokio::select! {
        // The error of a broken connection is dropped too.
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => {}
        () = idle(used, limits) => if !trusted.borrow().trusted { return },
    }
    connection.as_mut().graceful_shutdown();
    // What is under way when the time comes is finished, but not for ever.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = idle(trusted, Limits { idle: limits.drain, head: limits.drain, ..limits }) => {}
        () = async { stopped(&mut stop).await; sleep(limits.drain).await } => {}
    }
    drop(permit);
}

impl Context {
    async fn handle(
        &self,
        request: Request<Incoming>,
        stop: watch::Receiver<bool>,
        full: bool,
        in_flight: InFlight,
    ) -> Response<Body> {
        let authorization =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !self.credentials.admits(authorization) {
            return and_close(response::error(&StatusError::unauthorized()));
        }
        if full {
            let why = format!("{} connections are open; try again in a second", self.limits.connections);
            return and_close(response::error(&StatusError::too_many_requests(why, 1)));
        }
        in_flight.trust();
        let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() else {
            let why = format!("{} requests are under way; try again in a second", self.limits.requests);
            return response::error(&StatusError::too_many_requests(why, 1));
        };
        match timeout(self.limits.request, self.server.handle(request)).await {
            Ok(response) => response.map(|body| response::until_stopped(body, stop, (permit, in_flight))),
            Err(_) => response::error(&StatusError::timeout(self.limits.request.as_secs())),
        }
    }
}

/// Closes the connection after the response.
fn and_close(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
