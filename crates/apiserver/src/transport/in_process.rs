//! The in-process transport: a server as a tower service, for `kube::Client::new`.
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use tower::Service;

use crate::{response::Body, server::Server};

/// A server for clients in the same process. They are trusted: nothing is authenticated here.
#[derive(Debug, Clone)]
pub struct InProcess(Server);

impl InProcess {
    pub fn new(server: Server) -> Self {
        Self(server)
    }
}

impl<B> Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
