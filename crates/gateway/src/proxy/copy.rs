//! Copies of a request for the mirrors of its rule. They never hold up the request itself.
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::body::Upload;
use crate::pool::Error;

/// How many bytes of a body may wait for a mirror. A mirror that is slower than that gets no more of it.
const BEHIND: usize = 1 << 20;

/// What a piece takes besides its bytes: a body may come byte by byte.
const PIECE: usize = 64;

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

/// Where the pieces of a body are copied to.
#[derive(Debug)]
struct Copy {
    pieces: mpsc::UnboundedSender<Piece>,
    waiting: Arc<AtomicUsize>,
}

impl Copy {
    /// Sends a piece; false if the mirror is too slow or gone.
    fn send(&self, frame: &Frame<Bytes>) -> bool {
        let piece = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => {
                let size = data.len() + PIECE;
                if self.waiting.fetch_add(size, Relaxed) + size > BEHIND {
                    return false;
                }
                Piece::Data(data.clone())
            }
            (None, Some(trailers)) => Piece::Trailers(trailers.clone()),
            (None, None) => return true,
        };
        self.pieces.send(piece).is_ok()
    }
}

/// The copies of one body.
#[derive(Debug, Default)]
pub struct Copies(Vec<Copy>);

impl Copies {
    /// Adds a copy of a body that nothing was read of yet.
    pub fn add(&mut self, is_empty: bool) -> CopiedBody {
        let (sender, pieces) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        self.0.push(Copy { pieces: sender, waiting: Arc::clone(&waiting) });
        CopiedBody { pieces, waiting, upload: Arc::default(), has_ended: is_empty }
    }

    pub fn send(&mut self, frame: &Frame<Bytes>) {
        self.0.retain(|copy| copy.send(frame));
    }

    pub fn end(&mut self) {
        for copy in self.0.drain(..) {
            // A mirror that is gone is counted where its request ends.
            drop(copy.pieces.send(Piece::End));
        }
    }
}

/// The copy of a body. It breaks off if the body does, or if it falls behind.
#[derive(Debug)]
pub struct CopiedBody {
    pieces: mpsc::UnboundedReceiver<Piece>,
    waiting: Arc<AtomicUsize>,
    upload: Arc<Upload>,
    has_ended: bool,
}

impl CopiedBody {
    pub fn upload(&self) -> Arc<Upload> {
        Arc::clone(&self.upload)
    }
}

impl Body for CopiedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.pieces.poll_recv(context)) {
            Some(Piece::Data(data)) => {
                self.waiting.fetch_sub(data.len() + PIECE, Relaxed);
                self.upload.received(data.len() as u64);
                Some(Ok(Frame::data(data)))
            }
            Some(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Piece::End) => {
                self.has_ended = true;
                None
            }
            None => {
                self.upload.breaks();
                Some(Err("the copy of the request broke off".into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_ended { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(copy: &mut CopiedBody) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(copy).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn read(copy: &mut CopiedBody) -> usize {
        let mut bytes = 0;
        while let Poll::Ready(Some(Ok(frame))) = next(copy) {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        bytes
    }

    #[test]
    fn a_body_that_comes_byte_by_byte_is_kept_by_what_it_takes() {
        let (mut copies, byte) = (Copies::default(), Frame::data(Bytes::from_static(b"x")));
        let mut slow = copies.add(false);
        for _ in 0..BEHIND {
            copies.send(&byte);
        }
        assert_eq!(read(&mut slow), BEHIND / 65);
    }

    #[test]
    fn a_mirror_that_falls_behind_gets_no_more_and_the_others_get_all() {
        let (mut copies, piece) = (Copies::default(), Frame::data(Bytes::from(vec![0; BEHIND / 4])));
        let (mut slow, mut quick) = (copies.add(false), copies.add(false));
        let mut quickly = 0;
        for _ in 0..8 {
            copies.send(&piece);
            quickly += read(&mut quick);
        }
        copies.end();
        assert_eq!((quickly, read(&mut slow)), (2 * BEHIND, 3 * BEHIND / 4));
        assert!(quick.has_ended || matches!(next(&mut quick), Poll::Ready(None)));
        assert!(matches!(next(&mut slow), Poll::Ready(Some(Err(_)))), "it is not whole");
        assert_eq!((quick.upload.is_broken(), slow.upload.is_broken()), (false, true));
    }
}
