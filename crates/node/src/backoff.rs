//! How long a container that ended waits before it is started again.
use std::time::Duration;

/// Doubling from the first delay to the longest. The first restart is at once, as the kubelet's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_mins(5) }
    }
}

impl Backoff {
    /// The delay before the next start, after so many starts that did not last.
    pub(crate) fn delay(&self, starts: u32) -> Duration {
        match starts {
            0 | 1 => Duration::ZERO,
            more => self.first.saturating_mul(1 << (more - 2).min(20)).min(self.longest),
        }
    }

    /// A container that ran so long has recovered.
    pub(crate) fn forgets_after(&self) -> Duration {
        self.longest * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_to_its_end() {
        let delays = [1, 2, 3, 4, 6, 7, 8, u32::MAX].map(|starts| Backoff::default().delay(starts).as_secs());
        assert_eq!(delays, [0, 10, 20, 40, 160, 300, 300, 300]);
    }
}
