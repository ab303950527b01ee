//! Servers that run, and what they say.

// Both test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::{net::SocketAddr, time::Duration};

use sample::{Counts, Error, Server, Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

/// Long enough for a busy machine; nothing waits for it that works.
pub const SOON: Duration = Duration::from_mins(1);

pub struct Running {
    pub address: SocketAddr,
    pub stop: oneshot::Sender<()>,
    pub serving: JoinHandle<Result<Counts, Error>>,
}

impl Running {
    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)), "v1");
        change(&mut settings);
        let server = Server::bind(settings).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { address, stop, serving }
    }

    pub async fn end(self) -> Counts {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap()
    }
}

pub async fn send(address: SocketAddr, path: &str, connection: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The whole answer, head and all.
pub async fn get(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    send(address, path, "close").await.read_to_string(&mut answer).await.unwrap();
    answer
}
