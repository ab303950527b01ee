//! A server and a client of gRPC, as far as HTTP/2 sees them: calls are streams that end with trailers.
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
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{client, server, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};

/// Answers every call with its own name and the status 0; `/Held` only when the test lets it end.
pub struct Callee {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    name: &'static str,
    served: AtomicU64,
    ends: Semaphore,
}

impl Callee {
    pub async fn new(name: &'static str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let shared = Arc::new(Shared { name, served: AtomicU64::new(0), ends: Semaphore::new(0) });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared, serving }
    }

    pub fn served(&self) -> u64 {
        self.shared.served.load(Relaxed)
    }

    pub fn let_end(&self, calls: usize) {
        self.shared.ends.add_permits(calls);
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = listener.accept().await.unwrap().0;
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| ready(Ok::<_, Infallible>(answer(&shared, &request))));
            let server = server::conn::http2::Builder::new(TokioExecutor::new());
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

fn answer<B>(shared: &Arc<Shared>, request: &Request<B>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    shared.served.fetch_add(1, Relaxed);
    let held = request.uri().path().ends_with("/Held");
    let frames = stream::unfold((0, Arc::clone(shared)), move |(frame, shared)| async move {
        let next = match frame {
            0 => Frame::data(Bytes::from_static(shared.name.as_bytes())),
            1 => {
                if held {
                    shared.ends.acquire().await.unwrap().forget();
                }
                Frame::trailers(HeaderMap::from_iter([(
                    "grpc-status".parse().unwrap(),
                    "0".parse().unwrap(),
                )]))
            }
            _ => return None,
        };
        Some((Ok(next), (frame + 1, shared)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// One connection, on which every call is a stream.
#[derive(Clone)]
pub struct Caller(client::conn::http2::SendRequest<Full<Bytes>>, &'static str);

impl Caller {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), "front").await
    }

    /// A caller of a host, on a stream that is open.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &'static str,
    ) -> Self {
        let (sender, connection) =
            client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender, host)
    }

    /// The status, the body, and what the trailers say.
    pub async fn call(&mut self, path: &str) -> (StatusCode, String, Option<String>) {
        let call = Request::post(format!("http://{}{path}", self.1))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from_static(b"x")))
            .unwrap();
        self.0.ready().await.unwrap();
        let (head, body) = self.0.send_request(call).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let status = body.trailers().and_then(|trailers| trailers.get("grpc-status"));
        let status = status.map(|status| status.to_str().unwrap().to_owned());
        (head.status, String::from_utf8(body.to_bytes().to_vec()).unwrap(), status)
    }
}
