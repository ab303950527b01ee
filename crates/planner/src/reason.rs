use std::{fmt, time::Duration};

/// A moment, on a clock of the caller's: time since some epoch.
pub type Time = Duration;

/// Why something is done or waited for. Status, events, `segue why` and logs print this one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// A word for events and conditions, such as `WaitingForReady`. Clients may match it.
    pub code: &'static str,
    /// What is done or waited for, and why: a sentence without its full stop.
    pub what: String,
    /// Since when it is waited for.
    pub since: Option<Time>,
    /// Until when; without, until it happens.
    pub until: Option<Time>,
    /// What happens then.
    pub then: Option<String>,
}

impl Reason {
    /// A reason without a time.
    pub fn new(code: &'static str, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), since: None, until: None, then: None }
    }

    /// The same, known to have been so since a time.
    #[must_use]
    pub fn since(self, time: Time) -> Self {
        Self { since: Some(time), ..self }
    }

    /// The same, with a time at which it ends.
    #[must_use]
    pub fn until(self, time: Time) -> Self {
        Self { until: Some(time), ..self }
    }

    /// The same, with what happens next.
    #[must_use]
    pub fn then(self, what: impl Into<String>) -> Self {
        Self { then: Some(what.into()), ..self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(until) = self.until {
            write!(f, ", until {}s", until.as_secs())?;
        }
        self.then.as_ref().map_or(Ok(()), |then| write!(f, "; then {then}"))
    }
}

/// The decisions after which a rehearsal of so many units stands still: a few for each unit, and far more than any list
/// of steps has.
pub(crate) fn patience(units: u32) -> u64 {
    10_000 + 20 * u64::from(units)
}
