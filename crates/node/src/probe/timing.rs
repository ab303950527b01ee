//! The timing of a probe, and its thresholds. Pure.
use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

/// Delays and thresholds of a probe, with the defaults of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    pub delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub successes: u32,
    pub failures: u32,
}

impl Timing {
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

/// The length of the current run of equal results.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResultRun {
    good: bool,
    row: u32,
}

impl ResultRun {
    /// Adds a result. Returns it once the run is as long as its threshold.
    pub fn record(&mut self, good: bool, timing: &Timing) -> Option<bool> {
        self.row = if self.good == good { self.row.saturating_add(1) } else { 1 };
        self.good = good;
        let enough = if good { timing.successes } else { timing.failures };
        (self.row >= enough).then_some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_must_be_long_enough_and_starts_again_with_every_change() {
        let probe = Probe { success_threshold: Some(2), ..Probe::default() };
        let mut results = ResultRun::default();
        let timing = Timing::of(&probe);
        let seen = [false, false, true, false, true, true, true, false, false, false];
        let believed = seen.map(|good| results.record(good, &timing));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(believed, [None, None, None, None, None, yes, yes, None, None, no]);
    }
}
