//! What a server has answered: kept, and written down so that it survives the server.
use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The counts of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub version: String,
    /// Requests for completions that were answered to the end, with whatever status.
    pub requests: u64,
    /// Requests for completions that are being answered.
    pub in_flight: u64,
    /// Whether it ended in order: a file without this is of a server that runs, or was killed and may have counted less
    /// than it answered.
    pub ended: bool,
}

/// Counts as they are counted.
#[derive(Debug)]
pub struct Tally(watch::Sender<Counts>);

impl Tally {
    pub fn new(version: &str) -> Self {
        let counts = Counts { version: version.to_owned(), ..Counts::default() };
        Self(watch::Sender::new(counts))
    }

    pub fn counts(&self) -> Counts {
        self.0.borrow().clone()
    }

    /// Nothing is counted any more.
    pub fn end(&self) {
        self.0.send_modify(|counts| counts.ended = true);
    }

    /// Writes the counts to a file whenever they have changed, until they have ended. The file is replaced, never
    /// changed in place: a read gives one consistent state.
    pub fn record(self: &Arc<Self>, file: PathBuf) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let mut seen = self.0.subscribe();
        async move {
            loop {
                let counts = seen.borrow_and_update().clone();
                let ended = counts.ended;
                let file = file.clone();
                tokio::task::spawn_blocking(move || replace(&file, &counts))
                    .await
                    .map_err(io::Error::other)??;
                // The sender lives in the caller's tally; without it nothing can change.
                if ended || seen.changed().await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn replace(file: &Path, counts: &Counts) -> io::Result<()> {
    let part = file.with_extension("part");
    fs::write(&part, serde_json::to_vec(counts)?)?;
    fs::rename(&part, file)
}

/// A request that is being answered, until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<Tally>);

impl InFlight {
    pub fn begin(tally: &Arc<Tally>) -> Self {
        // Nobody waits for this one: it is written with the next answer.
        tally.0.send_if_modified(|counts| {
            counts.in_flight += 1;
            false
        });
        Self(Arc::clone(tally))
    }

    fn answered(&self) {
        self.0.0.send_modify(|counts| counts.requests += 1);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.in_flight -= 1);
    }
}

/// The body of an answer: counted as answered once its last part was given away.
pub struct Counted<B> {
    body: B,
    in_flight: Option<InFlight>,
}

impl<B> Counted<B> {
    pub fn new(body: B, in_flight: InFlight) -> Self {
        Self { body, in_flight: Some(in_flight) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // A body of known length is not asked again after its last part.
        let whole = match &frame {
            None => true,
            Some(frame) => frame.is_ok() && self.body.is_end_stream(),
        };
        if whole && let Some(in_flight) = self.in_flight.take() {
            in_flight.answered();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
