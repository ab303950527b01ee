//! When a row of probe results means something. Pure.
use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

/// How often to ask and how much to believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rhythm {
    pub delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub successes: u32,
    pub failures: u32,
}

impl Rhythm {
    pub fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value.and_then(|value| u64::try_from(value).ok()).filter(|v| *v > 0).unwrap_or(default),
            )
        };
        let count = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        }
    }
}

/// Results of one kind in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    good: bool,
    row: u32,
}

impl Tally {
    /// Counts a result. Says what is now believed, once the row is long enough.
    pub fn count(&mut self, good: bool, rhythm: &Rhythm) -> Option<bool> {
        self.row = if self.good == good { self.row.saturating_add(1) } else { 1 };
        self.good = good;
        let enough = if good { rhythm.successes } else { rhythm.failures };
        (self.row >= enough).then_some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_must_be_long_enough_and_starts_again_with_every_change() {
        let probe = Probe { success_threshold: Some(2), ..Probe::default() };
        let mut tally = Tally::default();
        let rhythm = Rhythm::of(&probe);
        let seen = [false, false, true, false, true, true, true, false, false, false];
        let believed = seen.map(|good| tally.count(good, &rhythm));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(believed, [None, None, None, None, None, yes, yes, None, None, no]);
    }
}
