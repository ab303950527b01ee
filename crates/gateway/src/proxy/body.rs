//! Bodies in transit: counted, and known to have ended or not.
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::copy::{CopiedBody, Copies};
use crate::{
    counters::{Cause, Counters},
    pool::{Connection, Error},
    router::InFlight,
};

/// What came of a request's body: counted when the answer ends.
#[derive(Debug, Default)]
pub struct Upload {
    bytes: AtomicU64,
    broken: AtomicBool,
}

impl Upload {
    /// Whether the client broke off: then nothing that follows is a failure of ours.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    pub fn breaks(&self) {
        self.broken.store(true, Relaxed);
    }

    pub fn received(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// The body of a request.
pub struct RequestBody {
    body: Incoming,
    upload: Arc<Upload>,
    copies: Copies,
}

impl RequestBody {
    pub fn new(body: Incoming) -> Self {
        Self { body, upload: Arc::default(), copies: Copies::default() }
    }

    /// Returns a copy of the body, which is sent as the body is.
    pub fn copy(&mut self) -> CopiedBody {
        self.copies.add(self.body.is_end_stream())
    }

    pub fn upload(&self) -> Arc<Upload> {
        Arc::clone(&self.upload)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.upload.received(frame.data_ref().map_or(0, |data| data.remaining() as u64));
                self.copies.send(frame);
                // Not every server asks for more after the last byte.
                if self.body.is_end_stream() {
                    self.copies.end();
                }
            }
            Some(Err(_)) => self.upload.breaks(),
            None => self.copies.end(),
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

/// The body of an answer. Its request ends with it; its connection is kept for the next request if it ended well.
pub struct ResponseBody {
    body: Incoming,
    sender: Option<(InFlight, Option<Connection>)>,
    upload: Arc<Upload>,
    /// When the answer has to be complete.
    deadline: Option<Pin<Box<Sleep>>>,
    sent: u64,
}

impl ResponseBody {
    pub fn new(
        body: Incoming,
        in_flight: InFlight,
        connection: Option<Connection>,
        upload: Arc<Upload>,
        deadline: Option<Instant>,
    ) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Self { body, sender: Some((in_flight, connection)), upload, deadline, sent: 0 }
    }

    fn end(&mut self, how: End) {
        let Some((mut in_flight, connection)) = self.sender.take() else { return };
        in_flight.ended();
        let received = self.upload.bytes.load(Relaxed);
        in_flight.record(|counters| {
            counters.received(received);
            counters.sent(self.sent);
            match how {
                End::Whole => {}
                End::Broken => counters.failed(Cause::Truncated),
                End::Late => counters.failed(Cause::TimedOut),
                End::Cancelled => Counters::cancelled(counters),
            }
        });
        if let (End::Whole, Some(connection)) = (how, connection) {
            in_flight.endpoint.keep(connection);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
    Late,
    Cancelled,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready()) {
            self.end(End::Late);
            self.deadline = None;
            return Poll::Ready(Some(Err("the answer took longer than the route allows".into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            // Nothing follows the trailers, and not every client asks whether something does.
            Some(Ok(frame)) if frame.is_trailers() => self.end(End::Whole),
            Some(Ok(frame)) => {
                self.sent += frame.data_ref().map_or(0, |data| data.remaining() as u64);
                if let Some((in_flight, _)) = &mut self.sender {
                    in_flight.first_byte();
                }
            }
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

impl Drop for ResponseBody {
    /// A body of known length is not asked again after its last byte, so its end is seen here.
    fn drop(&mut self) {
        let how = if self.body.is_end_stream() { End::Whole } else { End::Cancelled };
        self.end(how);
    }
}
