//! The listening sockets: bound before a table names them, closed after none does.
use std::{collections::BTreeMap, io, io::ErrorKind, net::SocketAddr, sync::Arc};

use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Duration, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    proxy::{Frontend, Proxy, forwarded_for},
    router::Router,
    routes::Config,
    settings::Settings,
    tcp::{self, Entered, Speaks},
};

/// How many streams of one HTTP/2 connection of a client may be open at once.
const STREAMS: u32 = 1_024;

/// How many connections may wait to be accepted; the kernel allows `net.core.somaxconn` of them (4096). Beyond it, a client
/// tries again after a second.
const BACKLOG: u32 = 4096;

/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The protocol of a listening socket. Whether HTTP is in TLS is up to the table of the moment.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Http,
    Tcp,
}

/// The bound address, by the address that was asked for; or why it could not be bound.
pub type Bindings = BTreeMap<SocketAddr, Result<SocketAddr, String>>;

#[derive(Debug)]
struct Open {
    at: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// The sockets that are open.
#[derive(Debug)]
pub struct Listeners {
    router: Arc<Router>,
    settings: Arc<Settings>,
    open: BTreeMap<(SocketAddr, Protocol), Open>,
    bound: Vec<((SocketAddr, Protocol), TcpListener)>,
    refused: BTreeMap<SocketAddr, String>,
    closing: JoinSet<()>,
}

impl Listeners {
    pub fn new(router: Arc<Router>, settings: Arc<Settings>) -> Self {
        let (open, bound, refused) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { router, settings, open, bound, refused, closing: JoinSet::new() }
    }

    /// Binds what a config needs. Nothing is accepted yet: early connections wait in the backlog until the table is in
    /// place.
    pub fn bind(&mut self, config: &Config) {
        self.refused.clear();
        for key in wanted(config) {
            if self.open.contains_key(&key) {
                continue;
            }
            match bind(key.0) {
                Ok(listener) => self.bound.push((key, listener)),
                Err(why) => drop(self.refused.insert(key.0, why)),
            }
        }
    }

    /// Serves what was bound, and closes what the config does not name. To be called once the config is served.
    pub fn serve_bound(&mut self, config: &Config) {
        for (key, listener) in std::mem::take(&mut self.bound) {
            let Ok(at) = listener.local_addr() else { continue };
            let (stop, stopped) = watch::channel(false);
            let (router, settings) = (Arc::clone(&self.router), Arc::clone(&self.settings));
            let serving = tokio::spawn(serve(listener, key, router, settings, stopped));
            self.open.insert(key, Open { at, stop, serving });
        }
        let wanted: Vec<_> = wanted(config).collect();
        let gone: Vec<_> = self.open.keys().filter(|key| !wanted.contains(key)).copied().collect();
        for key in gone {
            self.close(key);
        }
        while self.closing.try_join_next().is_some() {}
    }

    pub fn bindings(&self) -> Bindings {
        let open = self.open.iter().map(|((asked, _), open)| (*asked, Ok(open.at)));
        open.chain(self.refused.iter().map(|(asked, why)| (*asked, Err(why.clone())))).collect()
    }

    /// Whether an address could not be bound and is worth another attempt.
    pub fn any_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Closes everything and waits for what is in flight, for as long as the drain allows.
    pub async fn close_all(mut self) {
        let keys: Vec<_> = self.open.keys().copied().collect();
        for key in keys {
            self.close(key);
        }
        while self.closing.join_next().await.is_some() {}
    }

    fn close(&mut self, key: (SocketAddr, Protocol)) {
        if let Some(open) = self.open.remove(&key) {
            open.stop.send_replace(true);
            self.closing.spawn(async move { drop(open.serving.await) });
        }
    }
}

fn wanted(config: &Config) -> impl Iterator<Item = (SocketAddr, Protocol)> {
    let http = config.frontends.keys().map(|frontend| (*frontend, Protocol::Http));
    http.chain(config.cluster_addresses.keys().map(|service| (*service, Protocol::Tcp)))
}

/// Opens a socket. A port that needs privileges is served at a higher one: 80 at 8080, 443 at 8443.
fn bind(asked: SocketAddr) -> Result<TcpListener, String> {
    let refused = match listen(asked) {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    let instead = unprivileged(asked).filter(|_| refused.kind() == ErrorKind::PermissionDenied);
    let Some(instead) = instead else { return Err(format!("failed to listen on {asked}: {refused}")) };
    listen(instead)
        .map_err(|error| format!("failed to listen on {asked} ({refused}) and on {instead}: {error}"))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As for every server: connections of before that linger do not keep it from coming back.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where a privileged port is served instead.
fn unprivileged(asked: SocketAddr) -> Option<SocketAddr> {
    (asked.port() < 1024).then(|| SocketAddr::new(asked.ip(), asked.port() + 8000))
}

async fn serve(
    listener: TcpListener,
    (asked, protocol): (SocketAddr, Protocol),
    router: Arc<Router>,
    settings: Arc<Settings>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let until = stopped.clone();
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, client)) = accepted else {
            // Out of file descriptors, most likely: the next attempt would fail as fast.
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (router, settings, until) = (Arc::clone(&router), Arc::clone(&settings), until.clone());
        connections.spawn(async move {
            drop(stream.set_nodelay(true));
            let (frontend, http2) = match protocol {
                Protocol::Http => {
                    if let Some(tls) = router.tls(asked) {
                        return serve_tls(stream, client, tls, (router, settings, asked), until).await;
                    }
                    let mut stopped = until.clone();
                    let speaks = tokio::select! {
                        _ = stopped.wait_for(|stopped| *stopped) => return,
                        speaks = tcp::speaks(&stream) => speaks,
                    };
                    (Frontend::Gateway(asked), speaks == Speaks::Http2)
                }
                Protocol::Tcp => match tcp::enter(&router, &settings, asked, &stream).await {
                    Entered::Http { http2 } => (Frontend::Service(asked), http2),
                    Entered::Tcp(in_flight, server) => return tcp::forward(in_flight, stream, server).await,
                    Entered::Refused => return,
                },
            };
            let proxy =
                Proxy { router, settings, frontend, server_name: None, client: forwarded_for(client.ip()) };
            if http2 {
                serve_streams(stream, proxy, until).await;
            } else {
                serve_connection(stream, proxy, until).await;
            }
        });
    }
    drop(listener);
    // What is left after the drain is cut when the set is dropped.
    drop(timeout(settings.drain, async { while connections.join_next().await.is_some() {} }).await);
}

/// Serves one connection of TLS. Its listener may get other certificates meanwhile: those are for new connections.
async fn serve_tls(
    stream: TcpStream,
    client: SocketAddr,
    tls: Arc<ServerConfig>,
    (router, settings, asked): (Arc<Router>, Arc<Settings>, SocketAddr),
    until: watch::Receiver<bool>,
) {
    let mut stopped = until.clone();
    let shaken = tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => return,
        shaken = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)) => shaken,
    };
    let Ok(Ok(stream)) = shaken else { return };
    let session = stream.get_ref().1;
    let server_name = Some(session.server_name().unwrap_or_default().into());
    let http2 = session.alpn_protocol() == Some(b"h2");
    let proxy = Proxy {
        router,
        settings,
        frontend: Frontend::Gateway(asked),
        server_name,
        client: forwarded_for(client.ip()),
    };
    if http2 {
        serve_streams(stream, proxy, until).await;
    } else {
        serve_connection(stream, proxy, until).await;
    }
}

/// Serves one connection of a client until it ends; after a stop, until the request in flight ends.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    proxy: Proxy,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| proxy.clone().answer(request));
    let mut server = http1::Builder::new();
    // None: it would also close a connection that waits for its next request, and that request might be on its way.
    server.header_read_timeout(None);
    let connection = server.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // The client sees how it ends; nothing else has to know.
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

/// Serves one connection of HTTP/2 until it ends; after a stop, until its streams have ended.
async fn serve_streams(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    proxy: Proxy,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| proxy.clone().answer(request));
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.max_concurrent_streams(STREAMS);
    let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_connections_waits_to_be_accepted_and_none_is_turned_away() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        // More than a listener without a number of its own has.
        let burst = allowed.trim().parse::<usize>().unwrap().min(300);
        let mut waiting = Vec::new();
        for _ in 0..burst {
            let connecting = TcpStream::connect(listener.local_addr().unwrap());
            let connected = timeout(Duration::from_mins(1), connecting).await;
            waiting.push(connected.expect("it is not turned away").unwrap());
        }
    }

    #[test]
    fn a_privileged_port_is_served_at_a_higher_one() {
        let at = |port| SocketAddr::from(([127, 80, 0, 1], port));
        assert_eq!(unprivileged(at(80)), Some(at(8080)));
        assert_eq!(unprivileged(at(443)), Some(at(8443)));
        assert_eq!(unprivileged(at(1024)), None);
    }
}
