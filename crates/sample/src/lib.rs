//! A model server without a model, for demonstrations, examples and tests: it loads for a while, answers with its
//! version, streams tokens, and ends the way a good server does.
//!
//! | path | answer |
//! |---|---|
//! | `/ready` | 503 while it loads, then 200 |
//! | `/v1/completions` | JSON with the version, after the latency; 503 while it loads |
//! | `/v1/completions?stream=N` | N server-sent events, then `data: [DONE]` |
//! | `/v1/completions?status=500` | an error of its own |
//! | `/stats` | its counts, its members, and how often a decode of another protocol was met, as JSON |
//! | `/join` | a response that stays open: its client is a member while it is; 503 while the server loads |
//!
//! A server that is told to join another is a worker of a group: ready once it is a member, at an end when its leader is.
//!
//! A server that is told of decodes is a prefill: it takes requests for completions, and one of them answers. It asks in
//! its protocol, and a decode that speaks another one refuses with 409; so does a prefill that hears another one. Then, and
//! when a decode is away or ends without its first byte, the next one is asked. Only when none is left, the client has 503.
//!
//! Guarantees: once told to stop it refuses new connections, finishes every answer that it has begun, closes each
//! connection after it, and returns when nothing is in flight. Its counts are then complete.

mod answer;
mod counts;
mod join;
mod pair;
mod server;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

pub use crate::{
    answer::LAST_EVENT,
    counts::Counts,
    server::{Server, serve},
};

/// What a server is told.
#[derive(Debug, Clone)]
pub struct Settings {
    pub address: SocketAddr,
    /// What it says it is.
    pub version: String,
    /// How long it loads. It listens from the start, as model servers do, and is not ready before.
    pub load: Duration,
    /// How long an answer, or the first token of one, takes.
    pub latency: Duration,
    /// The time between two tokens of a stream.
    pub token_gap: Duration,
    /// A file that has its counts, also after the server has ended and `/stats` cannot be read.
    pub counts: Option<PathBuf>,
    /// The leader that it belongs to, as `HOST:PORT`.
    pub join: Option<String>,
    /// The decodes that answer what it takes, as `HOST:PORT`; a name may stand for many.
    pub decodes: Vec<String>,
    /// What it speaks as a prefill with its decodes, or as a decode with those who say what they speak.
    pub protocol: u32,
}

impl Settings {
    /// A server that is ready at once and answers at once.
    pub fn new(address: SocketAddr, version: &str) -> Self {
        Self {
            address,
            version: version.to_owned(),
            load: Duration::ZERO,
            latency: Duration::ZERO,
            token_gap: Duration::ZERO,
            counts: None,
            join: None,
            decodes: Vec::new(),
            protocol: 1,
        }
    }
}

/// Why a server could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the leader at {0} is gone, and with it the group")]
    LeaderGone(String),
    #[error("failed to write counts to {}", file.display())]
    Counts { file: PathBuf, source: io::Error },
}
