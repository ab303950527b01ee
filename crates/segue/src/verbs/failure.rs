use std::io;

use crate::output::Error;

/// Why a verb did not do what it was asked to.
#[derive(Debug)]
pub(super) enum Failure {
    /// The answer is no: exit code 1.
    Refused(String),
    /// There is no answer: exit code 2.
    Unasked(Error),
}

impl Failure {
    /// What was typed makes no sense together.
    pub fn usage(why: impl Into<String>) -> Self {
        Self::Unasked(Error::CouldNotAsk(why.into()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Unasked(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unasked(error.into())
    }
}
