//! How answers leave: as text for people, as JSON for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};
use thiserror::Error;

/// Why a question could not be asked.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("failed to read {file}: {source}")]
    Read { file: String, source: io::Error },
    #[error("failed to read {file} as YAML: {message}")]
    Yaml { file: String, message: String },
    #[error("{file} holds no manifest")]
    Empty { file: String },
    #[error("failed to write the answer: {0}")]
    Write(#[from] io::Error),
    #[error("failed to print as {format}: {message}")]
    Print { format: &'static str, message: String },
    #[error("unknown kind {given:?}; there are: {known}")]
    UnknownKind { given: String, known: String },
    #[error("{0}")]
    NoPlan(String),
    #[error("there is no home directory to keep the state in; name one with --directory")]
    NoDirectory,
    #[error(
        "the demonstration needs Linux: pods are processes that are kept by /proc, each with an address of 127.0.0.0/8"
    )]
    NotLinux,
    #[error("told to stop before the end; everything was ended")]
    Interrupted,
    #[error(
        "failed to use the kubeconfig {origin}: {why}; start a server with `segue up`, or name a kubeconfig with --kubeconfig"
    )]
    Kubeconfig { origin: String, why: String },
    #[error(
        "no answer from {server} ({why}), which the kubeconfig {origin} names; start a server with `segue up`, or name \
         another kubeconfig with --kubeconfig"
    )]
    NoServer { server: String, origin: String, why: String },
    #[error("{0}")]
    CouldNotAsk(String),
    #[error("failed to {what}: {why}")]
    Up { what: &'static str, why: String },
}

impl Error {
    /// Something that must run did not start or stop; with everything that led there.
    pub(crate) fn up(what: &'static str, error: &dyn std::error::Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why += &format!(": {error}");
            cause = error.source();
        }
        Self::Up { what, why }
    }
}

/// The answer to a yes-or-no question; it becomes the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// What became of several objects: for people as it happens, for programs as one list at the end.
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

    /// On standard error in any case; `details` are for programs.
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

/// Prints at once, and treats a reader that has seen enough (`| head`) as content.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints what comes bit by bit, at once; says whether there is still a reader.
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
