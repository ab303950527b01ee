//! The log of long-running commands, on standard error.

use std::io;

use clap::ValueEnum;
use tracing::Level;

/// What the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Failures that are retried
    Warn,
    /// And every write
    Info,
    /// And every reconcile
    Debug,
}

/// Starts the log at this level.
pub(crate) fn init(level: LogLevel) {
    let level = match level {
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr);
    // An earlier call has set the level of this process.
    drop(subscriber.try_init());
}
