use std::{fmt, time::Duration};

/// Why something is done or waited for. Status, events, `segue why` and logs print this one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is done or waited for, and why.
    pub what: String,
    /// Until when, on the clock of the caller; without, until it happens.
    pub until: Option<Duration>,
    /// What happens then.
    pub then: Option<String>,
}

impl Reason {
    /// A reason without a time.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), until: None, then: None }
    }

    /// The same, with a time and what happens then.
    #[must_use]
    pub fn until(self, time: Duration, then: impl Into<String>) -> Self {
        Self { until: Some(time), then: Some(then.into()), ..self }
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
