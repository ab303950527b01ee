//! The socket and its connections.
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Error, Settings,
    answer::Model,
    counts::{Counts, Tally},
    join::belong,
    pair::Decodes,
};

/// Serves until `stop`, then finishes what it has.
pub async fn serve(settings: Settings, stop: impl Future<Output = ()>) -> Result<Counts, Error> {
    Server::bind(settings).await?.serve(stop).await
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
}

impl Server {
    pub async fn bind(settings: Settings) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address: settings.address, source };
        let listener = TcpListener::bind(settings.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, settings })
    }

    /// Where it listens: the port too, when any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then finishes what it has. The counts are final.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<Counts, Error> {
        let Self { listener, settings, .. } = self;
        let file = settings.counts.clone();
        let tally = Arc::new(Tally::new(&settings.version));
        let recording = file.clone().map(|file| tokio::spawn(tally.record(file)));
        let ready_at = Instant::now() + settings.load;
        let (stopping, stopped) = watch::channel(false);
        let leader = settings.join.clone();
        let model = Arc::new(Model {
            settings,
            ready_at,
            tally: Arc::clone(&tally),
            joined: AtomicBool::new(leader.is_none()),
            members: Arc::new(()),
            decodes: Decodes::default(),
            stopped: stopped.clone(),
        });
        let mut alone = false;
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = belong(leader.as_deref(), || model.joined.store(true, Relaxed)) => alone = true,
            }
        };
        let mut connections = accept_until(listener, &model, &stopped, stop).await;
        stopping.send_replace(true);
        while connections.join_next().await.is_some() {}
        tally.end();
        if let (Some(recording), Some(file)) = (recording, file) {
            let recorded = recording.await.map_err(io::Error::other).and_then(|recorded| recorded);
            recorded.map_err(|source| Error::Counts { file, source })?;
        }
        match leader {
            Some(leader) if alone => Err(Error::LeaderGone(leader)),
            _ => Ok(tally.counts()),
        }
    }
}

/// Accepts connections until `stop`. When this returns, the socket is closed.
async fn accept_until(
    listener: TcpListener,
    model: &Arc<Model>,
    stopped: &watch::Receiver<bool>,
    stop: impl Future<Output = ()>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(connections.spawn(converse(stream, Arc::clone(model), stopped.clone()))),
            // Out of file descriptors, most likely: the next attempt would fail as fast.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// One connection: request after request, until it ends or, after a stop, the one that is in flight.
async fn converse(stream: TcpStream, model: Arc<Model>, mut stopped: watch::Receiver<bool>) {
    // Tokens are small and must not wait for each other.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request| Arc::clone(&model).answer(request));
    let mut server = http1::Builder::new();
    server.header_read_timeout(None);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}
