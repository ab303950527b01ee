//! What the programs that go on by themselves say of their work, on standard error.

use std::io;

use clap::ValueEnum;
use tracing::Level;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loudness {
    /// What went wrong and is tried again
    Warn,
    /// Every write, too
    Info,
    /// Every look that found something newer, too
    Debug,
}

/// From now on so much is said.
pub(crate) fn begin(loudness: Loudness) {
    let level = match loudness {
        Loudness::Warn => Level::WARN,
        Loudness::Info => Level::INFO,
        Loudness::Debug => Level::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr);
    // Whoever began before says it all.
    drop(subscriber.try_init());
}
