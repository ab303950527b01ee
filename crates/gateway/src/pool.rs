//! Connections to one endpoint.
use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// A connection that can take a request.
pub type Connection = SendRequest<Body>;

/// The connections that wait for a request.
#[derive(Debug, Default)]
pub struct Pool {
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// Nothing of it was sent: anybody else may have it.
    Unsent(Box<Request<Body>>),
    /// It was sent, at least in part: only the client knows whether it may be sent again.
    Lost,
}

impl Pool {
    /// Sends a request, on a connection that waits or on a new one.
    pub async fn send(
        &self,
        address: SocketAddr,
        mut request: Request<Body>,
        limits: Limits,
    ) -> Result<(Response<Incoming>, Connection), Unanswered> {
        // A connection that waited may turn out closed. There are only so many of them, and then comes a new one.
        while let Some(mut connection) = self.take(limits.idle) {
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut error) => request = error.take_message().ok_or(Unanswered::Lost)?,
            }
        }
        let Some(mut connection) = connect(address, limits.connect).await else {
            return Err(Unanswered::Unsent(Box::new(request)));
        };
        match connection.try_send_request(request).await {
            Ok(response) => Ok((response, connection)),
            Err(mut error) => match error.take_message() {
                Some(request) => Err(Unanswered::Unsent(Box::new(request))),
                None => Err(Unanswered::Lost),
            },
        }
    }

    /// Keeps a connection whose answer was read to its end.
    pub fn put(&self, connection: Connection) {
        let mut idle = self.lock();
        idle.retain(|(connection, _)| !connection.is_closed());
        if !connection.is_closed() {
            idle.push((connection, Instant::now()));
        }
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The one that came last: the others grow old and go.
    fn take(&self, longest: Duration) -> Option<Connection> {
        let mut idle = self.lock();
        idle.retain(|(connection, since)| !connection.is_closed() && since.elapsed() < longest);
        let place = idle.iter().rposition(|(connection, _)| connection.is_ready())?;
        Some(idle.remove(place).0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connect: Duration,
    pub idle: Duration,
}

async fn connect(address: SocketAddr, limit: Duration) -> Option<Connection> {
    let stream = timeout(limit, TcpStream::connect(address)).await.ok()?.ok()?;
    // Tokens of a stream are small and must not wait for each other. Without it they do; that is all that is lost.
    drop(stream.set_nodelay(true));
    let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    // Ends by itself: when the sender is dropped or either side closes.
    tokio::spawn(connection.with_upgrades());
    Some(sender)
}
