//! The log of long-running commands, on standard error.

use std::io;

use clap::ValueEnum;
use tracing::{Level, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

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
    let subscriber = subscriber(level, io::stderr);
    // An earlier call has set the level of this process.
    drop(subscriber.try_init());
}

fn subscriber(
    level: Level,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    // The client's library prints whole bodies that it cannot read, with what their owners keep in environment variables. The
    // errors that it returns are logged by who made the request.
    let targets = Targets::new().with_default(level).with_target("kube_client", LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false).with_writer(writer);
    Registry::default().with(lines.with_filter(targets))
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Mutex};

    use super::*;

    #[test]
    fn bodies_that_the_library_cannot_read_are_not_logged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Mutex::new(file.reopen().unwrap());
        tracing::subscriber::with_default(subscriber(Level::DEBUG, writer), || {
            tracing::warn!(target: "kube_client::client", "{{\"env\": \"secret\"}}, Error(\"recursion limit\")");
            tracing::warn!(target: "controllers::runtime", "the list failed");
        });
        let logged = fs::read_to_string(file.path()).unwrap();
        assert!(logged.contains("the list failed") && !logged.contains("secret"), "{logged}");
    }
}
