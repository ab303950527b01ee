//! The sockets: opened before a table names them, closed after none does.
use std::{collections::BTreeMap, io::ErrorKind, net::SocketAddr, sync::Arc};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Duration, sleep, timeout},
};

use crate::{live::Live, proxy::Proxy, routes::Plan, settings::Settings, tcp};

/// What is spoken at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speech {
    Http,
    Tcp,
}

/// Where it is listened, by where it was asked for; or why it is not.
pub type Places = BTreeMap<SocketAddr, Result<SocketAddr, String>>;

#[derive(Debug)]
struct Open {
    at: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// The sockets that are open.
#[derive(Debug)]
pub struct Listeners {
    live: Arc<Live>,
    settings: Arc<Settings>,
    open: BTreeMap<(SocketAddr, Speech), Open>,
    bound: Vec<((SocketAddr, Speech), TcpListener)>,
    refused: BTreeMap<SocketAddr, String>,
    closing: JoinSet<()>,
}

impl Listeners {
    pub fn new(live: Arc<Live>, settings: Arc<Settings>) -> Self {
        let (open, bound, refused) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { live, settings, open, bound, refused, closing: JoinSet::new() }
    }

    /// Opens what a plan needs. Nothing is accepted yet: who comes early waits in the backlog until the table is there.
    pub async fn bind(&mut self, plan: &Plan) {
        self.refused.clear();
        for key in wanted(plan) {
            if self.open.contains_key(&key) {
                continue;
            }
            match bind(key.0).await {
                Ok(listener) => self.bound.push((key, listener)),
                Err(why) => drop(self.refused.insert(key.0, why)),
            }
        }
    }

    /// Serves what was opened, and closes what the plan does not name. To be called once the plan is live.
    pub fn settle(&mut self, plan: &Plan) {
        for (key, listener) in std::mem::take(&mut self.bound) {
            let Ok(at) = listener.local_addr() else { continue };
            let (stop, stopped) = watch::channel(false);
            let (live, settings) = (Arc::clone(&self.live), Arc::clone(&self.settings));
            let serving = tokio::spawn(serve(listener, key, live, settings, stopped));
            self.open.insert(key, Open { at, stop, serving });
        }
        let wanted: Vec<_> = wanted(plan).collect();
        let gone: Vec<_> = self.open.keys().filter(|key| !wanted.contains(key)).copied().collect();
        for key in gone {
            self.close(key);
        }
        while self.closing.try_join_next().is_some() {}
    }

    pub fn places(&self) -> Places {
        let open = self.open.iter().map(|((asked, _), open)| (*asked, Ok(open.at)));
        open.chain(self.refused.iter().map(|(asked, why)| (*asked, Err(why.clone())))).collect()
    }

    /// Whether something could not be opened and is worth another try.
    pub fn lacking(&self) -> bool {
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

    fn close(&mut self, key: (SocketAddr, Speech)) {
        if let Some(open) = self.open.remove(&key) {
            open.stop.send_replace(true);
            self.closing.spawn(async move { drop(open.serving.await) });
        }
    }
}

fn wanted(plan: &Plan) -> impl Iterator<Item = (SocketAddr, Speech)> {
    let http = plan.sites.keys().map(|site| (*site, Speech::Http));
    http.chain(plan.doors.keys().map(|door| (*door, Speech::Tcp)))
}

/// Opens a socket. A port that needs privileges is served at a higher one: 80 at 8080, 443 at 8443.
async fn bind(asked: SocketAddr) -> Result<TcpListener, String> {
    let refused = match TcpListener::bind(asked).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    let instead = unprivileged(asked).filter(|_| refused.kind() == ErrorKind::PermissionDenied);
    let Some(instead) = instead else { return Err(format!("failed to listen on {asked}: {refused}")) };
    TcpListener::bind(instead)
        .await
        .map_err(|error| format!("failed to listen on {asked} ({refused}) and on {instead}: {error}"))
}

/// Where a privileged port is served instead.
fn unprivileged(asked: SocketAddr) -> Option<SocketAddr> {
    (asked.port() < 1024).then(|| SocketAddr::new(asked.ip(), asked.port() + 8000))
}

async fn serve(
    listener: TcpListener,
    (asked, speech): (SocketAddr, Speech),
    live: Arc<Live>,
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
        match speech {
            Speech::Tcp => {
                let forwarding = tcp::forward(Arc::clone(&live), Arc::clone(&settings), asked, stream);
                connections.spawn(forwarding);
            }
            Speech::Http => {
                let proxy = Proxy { live: Arc::clone(&live), settings: Arc::clone(&settings), site: asked };
                connections.spawn(converse(stream, client, proxy, until.clone()));
            }
        }
    }
    drop(listener);
    // What is left after the drain is cut when the set is dropped.
    drop(timeout(settings.drain, async { while connections.join_next().await.is_some() {} }).await);
}

/// One connection of a client: request after request, until it ends or, after a stop, the one that is in flight.
async fn converse(stream: TcpStream, client: SocketAddr, proxy: Proxy, mut stopped: watch::Receiver<bool>) {
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request| proxy.clone().answer(client, request));
    let mut server = http1::Builder::new();
    // None: it would also close a connection that waits for its next request, and that request might be on its way.
    server.header_read_timeout(None);
    let connection = server.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // However it ends, the client knows it: there is nobody else to tell.
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_port_is_served_at_a_higher_one() {
        let at = |port| SocketAddr::from(([127, 80, 0, 1], port));
        assert_eq!(unprivileged(at(80)), Some(at(8080)));
        assert_eq!(unprivileged(at(443)), Some(at(8443)));
        assert_eq!(unprivileged(at(1024)), None);
    }
}
