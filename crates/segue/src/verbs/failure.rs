use std::io;

use crate::output::Error;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request was refused: exit code 1.
    Refused(String),
    /// The request could not be made, or has no answer: exit code 2.
    Failed(Error),
}

impl Failure {
    /// Returns the failure of arguments that make no sense.
    pub fn usage(why: impl Into<String>) -> Self {
        Self::Failed(Error::Failed(why.into()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.into())
    }
}
