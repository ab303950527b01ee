//! Bodies on their way: counted, and known to have ended or not.
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    counters::{Cause, Tally},
    live::Visit,
    pool::{Connection, Error},
};

/// How much of a request's body came: told to the tallies when the answer ends.
pub type Counter = Arc<AtomicU64>;

/// The body of a request.
pub struct Received {
    body: Incoming,
    bytes: Counter,
}

impl Received {
    pub fn new(body: Incoming) -> Self {
        Self { body, bytes: Arc::default() }
    }

    pub fn counter(&self) -> Counter {
        Arc::clone(&self.bytes)
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.bytes.fetch_add(data.remaining() as u64, Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Error::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Its visit ends with it; its connection waits for the next request if it ended well.
pub struct Measured {
    body: Incoming,
    way: Option<(Visit, Connection)>,
    received: Counter,
    sent: u64,
}

impl Measured {
    pub fn new(body: Incoming, visit: Visit, connection: Connection, received: Counter) -> Self {
        Self { body, way: Some((visit, connection)), received, sent: 0 }
    }

    fn end(&mut self, how: End) {
        let Some((visit, connection)) = self.way.take() else { return };
        let received = self.received.load(Relaxed);
        visit.tell(|tally| {
            tally.received(received);
            tally.sent(self.sent);
            match how {
                End::Whole => {}
                End::Broken => tally.failed(Cause::Truncated),
                End::GivenUp => Tally::cancelled(tally),
            }
        });
        if how == End::Whole {
            visit.endpoint.pool.put(connection);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
    GivenUp,
}

impl Body for Measured {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => self.sent += frame.data_ref().map_or(0, |data| data.remaining() as u64),
            Some(Err(_)) => self.end(End::Broken),
            None => self.end(End::Whole),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Error::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Measured {
    /// A body of known length is not asked again after its last byte, so its end is seen here.
    fn drop(&mut self) {
        let how = if self.body.is_end_stream() { End::Whole } else { End::GivenUp };
        self.end(how);
    }
}
