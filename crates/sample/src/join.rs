//! A worker and its leader: an answer that lasts as long as both do.
use std::{
    future::{pending, ready},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::sleep,
};

use crate::answer::Body;

/// How long to wait for a leader that is not there yet.
const AGAIN: Duration = Duration::from_millis(200);

/// An answer that ends with this server. Its receiver counts as a member as long as it is held.
pub fn membership(member: Arc<()>, mut stopped: watch::Receiver<bool>) -> Response<Body> {
    let ending = async move {
        drop(stopped.wait_for(|stopped| *stopped).await);
        drop(member);
        "the leader ends\n"
    };
    // The first word is sent at once, and the head of the answer with it.
    let words = stream::once(ready("welcome\n")).chain(stream::once(ending));
    let frames = words.map(|word| Ok(Frame::data(Bytes::from(word))));
    Response::new(StreamBody::new(Box::pin(frames)).boxed_unsync())
}

/// Joins the leader as soon as it answers, and returns when it is gone. A server without one waits for ever.
pub async fn belong(leader: Option<&str>, joined: impl FnOnce()) {
    let Some(leader) = leader else { return pending().await };
    let mut connection = loop {
        match join(leader).await {
            Ok(connection) => break connection,
            Err(_) => sleep(AGAIN).await,
        }
    };
    joined();
    // Nothing more is said until it ends, in whichever way.
    while let Ok(1..) = connection.read(&mut [0; 64]).await {}
}

async fn join(leader: &str) -> io::Result<TcpStream> {
    const ACCEPTED: &[u8] = b"HTTP/1.1 200 ";
    let mut connection = TcpStream::connect(leader).await?;
    connection.write_all(format!("GET /join HTTP/1.1\r\nhost: {leader}\r\n\r\n").as_bytes()).await?;
    let mut answer = [0; ACCEPTED.len()];
    connection.read_exact(&mut answer).await?;
    if answer == ACCEPTED { Ok(connection) } else { Err(io::Error::other("the leader is not ready")) }
}
