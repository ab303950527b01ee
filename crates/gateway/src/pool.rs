//! Connections to one endpoint.
use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{
    body::Incoming,
    client::conn::{
        http1::{SendRequest, handshake},
        http2,
    },
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// How many of the connections that were put last are asked first.
const LAST: usize = 4;

/// A connection that can take a request.
pub type Connection = SendRequest<Body>;

/// The connections that wait for a request.
#[derive(Debug, Default)]
pub struct Pool {
    /// The one that waits longest is in front.
    idle: Mutex<VecDeque<(Connection, Instant)>>,
    /// The HTTP/2 connection, whose streams are the requests. Locked while it is opened.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Body>>>,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum SendError {
    /// Nothing of it was sent: it may be sent to another endpoint.
    NotSent(Box<Request<Body>>),
    /// It was sent, at least in part: only the client knows whether it may be sent again.
    Lost,
}

impl Pool {
    /// Sends a request, on a connection that waits or on a new one.
    pub async fn send(
        &self,
        address: SocketAddr,
        mut request: Request<Body>,
        timeouts: Timeouts,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        // A connection that waited may turn out closed. There are only so many of them, and then comes a new one.
        while let Some(mut connection) = self.take(timeouts.idle) {
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut error) => request = error.take_message().ok_or(SendError::Lost)?,
            }
        }
        let Some(mut connection) = connect(address, timeouts.connect).await else {
            return Err(SendError::NotSent(Box::new(request)));
        };
        match connection.try_send_request(request).await {
            Ok(response) => Ok((response, connection)),
            Err(mut error) => match error.take_message() {
                Some(request) => Err(SendError::NotSent(Box::new(request))),
                None => Err(SendError::Lost),
            },
        }
    }

    /// Sends a request as a stream of the one HTTP/2 connection, which is opened if need be.
    pub async fn send_stream(
        &self,
        address: SocketAddr,
        mut request: Request<Body>,
        timeouts: Timeouts,
    ) -> Result<Response<Incoming>, SendError> {
        // The connection may turn out closed, a new one only if the server does not want any.
        for _ in 0..2 {
            let Some(mut sender) = self.shared(address, timeouts.connect).await else { break };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut error) => request = error.take_message().ok_or(SendError::Lost)?,
            }
        }
        Err(SendError::NotSent(Box::new(request)))
    }

    async fn shared(&self, address: SocketAddr, limit: Duration) -> Option<http2::SendRequest<Body>> {
        let mut shared = self.shared.lock().await;
        if let Some(open) = shared.as_ref().filter(|open| !open.is_closed()) {
            return Some(open.clone());
        }
        let stream = open(address, limit).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        // Ends by itself: when every sender is dropped and every stream has ended, or either side closes.
        tokio::spawn(connection);
        Some(shared.insert(sender).clone())
    }

    /// Keeps a connection whose answer was read to its end.
    pub fn put(&self, connection: Connection) {
        if !connection.is_closed() {
            let since = Instant::now();
            self.lock().push_back((connection, since));
        }
    }

    /// Closes what waits for a request. Streams that are open go on.
    pub fn clear(&self) {
        self.lock().clear();
        if let Ok(mut shared) = self.shared.try_lock() {
            *shared = None;
        }
    }

    /// Takes the connection that was put last, so that the others grow old and are closed. The last few still read the end of
    /// their answers when much is in flight; then it is the one that waits longest, and not all are asked under the lock.
    fn take(&self, longest: Duration) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.lock();
        while idle
            .pop_front_if(|(connection, since)| connection.is_closed() || now - *since >= longest)
            .is_some()
        {}
        let is_ready = |place: &usize| idle[*place].0.is_ready();
        let all = 0..idle.len();
        let place = all.clone().rev().take(LAST).find(is_ready).or_else(|| all.clone().find(is_ready))?;
        Some(idle.remove(place)?.0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    pub idle: Duration,
}

async fn connect(address: SocketAddr, limit: Duration) -> Option<Connection> {
    let stream = open(address, limit).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    // Ends by itself: when the sender is dropped or either side closes.
    tokio::spawn(connection.with_upgrades());
    Some(sender)
}

async fn open(address: SocketAddr, limit: Duration) -> Option<TcpStream> {
    let stream = timeout(limit, TcpStream::connect(address)).await.ok()?.ok()?;
    // Tokens of a stream are small and must not wait for each other. Without it they do; that is all that is lost.
    drop(stream.set_nodelay(true));
    Some(stream)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Empty};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_waits_is_found_behind_those_that_are_busy() {
        // Connected by the kernel, answered by no process.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (pool, limit) = (Pool::default(), Duration::from_mins(1));
        let mut waiting = connect(address, limit).await.unwrap();
        waiting.ready().await.unwrap();
        pool.put(waiting);
        let mut asking = Vec::new();
        for _ in 0..2 * LAST {
            let mut busy = connect(address, limit).await.unwrap();
            busy.ready().await.unwrap();
            let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
            let mut asked = Box::pin(busy.try_send_request(Request::new(body)));
            assert!(asked.as_mut().now_or_never().is_none());
            asking.push(asked);
            pool.put(busy);
        }
        assert!(pool.take(limit).is_some_and(|found| found.is_ready()));
        assert!(pool.take(limit).is_none(), "the others are busy");
    }
}
