//! Output: text for people, JSON for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};
use thiserror::Error;

/// Why a command has no answer: exit code 2.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("failed to read {file}: {source}")]
    Read { file: String, source: io::Error },
    #[error("failed to read {file} as YAML: {message}")]
    Yaml { file: String, message: String },
    #[error("{file} holds no manifest")]
    Empty { file: String },
    #[error("failed to write the output: {0}")]
    Write(#[from] io::Error),
    #[error("failed to print as {format}: {message}")]
    Print { format: &'static str, message: String },
    #[error("unknown kind {given}; allowed are: {known}")]
    UnknownKind { given: String, known: String },
    #[error("{0}")]
    NoPlan(String),
    #[error("no home directory for the state; name a directory with --directory")]
    NoDirectory,
    #[error(
        "segue demo needs Linux: it finds the processes of pods in /proc, and gives each pod an address of 127.0.0.0/8"
    )]
    NotLinux,
    #[error("stopped by a signal; all processes have ended")]
    Interrupted,
    #[error(
        "failed to use the kubeconfig {origin}: {why}\n  start a server with `segue up`, or name a kubeconfig with --kubeconfig"
    )]
    Kubeconfig { origin: String, why: String },
    #[error(
        "no answer from {server} of the kubeconfig {origin}: {why}\n  start a server with `segue up`, or name another \
         kubeconfig with --kubeconfig"
    )]
    NoServer { server: String, origin: String, why: String },
    #[error("{0}")]
    Failed(String),
    #[error("failed to {what}: {why}")]
    FailedTo { what: &'static str, why: String },
}

impl Error {
    /// Returns the error of an action, with all its causes.
    pub(crate) fn failed_to(what: &'static str, error: &dyn std::error::Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why += &format!(": {error}");
            cause = error.source();
        }
        Self::FailedTo { what, why }
    }
}

/// The answer of a command, as its exit code: 0 for yes, 1 for no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// The results for several objects: for people one by one, for programs one list at the end.
#[derive(Debug)]
pub(crate) struct Report {
    format: Format,
    entries: Vec<Value>,
    refused: bool,
}

impl Report {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, entries: Vec::new(), refused: false }
    }

    pub(crate) fn done(&mut self, object: &str, result: &str, note: &str) -> Result<(), Error> {
        match self.format {
            Format::Table => print(&format!("{object} {result}{note}\n")),
            Format::Json => {
                self.entries.push(json!({"object": object, "result": result}));
                Ok(())
            }
        }
    }

    /// Prints what an object's controller answered.
    pub(crate) fn answered(&mut self, object: &str, message: &str) -> Result<(), Error> {
        match self.format {
            Format::Table => print(&format!("{object}: {message}\n")),
            Format::Json => self.done(object, message, ""),
        }
    }

    /// Prints a refusal on standard error. `details` are for programs.
    pub(crate) fn refused(&mut self, object: &str, why: &str, details: &Value) {
        eprintln!("error: {object}: {why}");
        self.refused = true;
        self.entries.push(json!({"object": object, "result": "refused", "why": why, "details": details}));
    }

    pub(crate) fn any_refused(&self) -> bool {
        self.refused
    }

    pub(crate) fn finish(self) -> Result<Answer, Error> {
        if self.format == Format::Json {
            print(&self::json(&self.entries.into())?)?;
        }
        Ok(if self.refused { Answer::No } else { Answer::Yes })
    }
}

/// Prints and flushes. A reader that has closed the pipe (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints and flushes. Returns whether there is still a reader.
pub(crate) fn pass_on(bytes: &[u8]) -> Result<bool, Error> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn yaml(value: &Value) -> Result<String, Error> {
    serde_saphyr::to_string(value)
        .map_err(|error| Error::Print { format: "YAML", message: error.to_string() })
}

pub(crate) fn json(value: &Value) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Print { format: "JSON", message: error.to_string() })?;
    Ok(text + "\n")
}
