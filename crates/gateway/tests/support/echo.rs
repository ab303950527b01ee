//! A server that answers with its name, at the pace of the test.
use std::{
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const FAILING: &str = "failing";

pub struct Echo {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

struct Shared {
    name: String,
    served: AtomicU64,
    /// One permit lets one more chunk of one stream go.
    chunks: Semaphore,
    keep_alive: bool,
}

impl Echo {
    pub async fn new(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, true).await
    }

    /// Every answer closes its connection: no request can be sent into one that is about to close.
    pub async fn without_keep_alive(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, false).await
    }

    /// Every answer is an error.
    pub async fn failing(address: SocketAddr) -> Self {
        Self::start(FAILING, address, true).await
    }

    async fn start(name: &str, address: SocketAddr, keep_alive: bool) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (served, chunks) = (AtomicU64::new(0), Semaphore::new(0));
        let shared = Arc::new(Shared { name: name.to_owned(), served, chunks, keep_alive });
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared), stopped));
        Self { address, shared, stop, serving }
    }

    pub fn served(&self) -> u64 {
        self.shared.served.load(Relaxed)
    }

    pub fn let_chunks_go(&self, chunks: usize) {
        self.shared.chunks.add_permits(chunks);
    }

    /// Stops listening, finishes what it has, and is gone.
    pub async fn finish(self) {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
    }

    /// Is gone, with everything it had.
    pub async fn die(self) {
        self.serving.abort();
        drop(self.serving.await);
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut until = stopped.clone();
    loop {
        let stream = tokio::select! {
            _ = until.wait_for(|stopped| *stopped) => break,
            accepted = listener.accept() => accepted.unwrap().0,
        };
        let (shared, mut stopped) = (Arc::clone(&shared), stopped.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| ready(Ok::<_, Infallible>(answer(&shared, request))));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
            }
            drop(connection.await);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// `/` says the name, `/error` fails, `/echo` gives the body back, `/headers` those of the request, `/stream` sends ten
/// chunks as the test lets them go.
fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    shared.served.fetch_add(1, Relaxed);
    let path = if shared.name == FAILING { "/error" } else { request.uri().path() };
    let mut response = match path {
        "/error" => {
            Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).body(text("my own")).unwrap()
        }
        "/echo" => Response::new(request.into_body().map_err(|_| unreachable!()).boxed_unsync()),
        "/headers" => Response::new(text(&format!("{:?}", request.headers()))),
        "/stream" => {
            let shared = Arc::clone(shared);
            let chunks = stream::unfold((0, shared), |(sent, shared)| async move {
                if sent == 10 {
                    return None;
                }
                shared.chunks.acquire().await.unwrap().forget();
                Some((Ok(Frame::data(Bytes::from(format!("{sent}\n")))), (sent + 1, shared)))
            });
            Response::new(StreamBody::new(chunks).boxed_unsync())
        }
        _ => Response::new(text(&shared.name)),
    };
    if !shared.keep_alive {
        response.headers_mut().insert(header::CONNECTION, "close".parse().unwrap());
    }
    response
}

fn text(text: &str) -> Body {
    Full::new(Bytes::from(text.to_owned())).boxed_unsync()
}
