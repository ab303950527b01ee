use std::time::Duration;

/// A wait that doubles with each failure in a row, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the wait after so many failures in a row; none after none.
    pub fn after(self, failures: u32) -> Duration {
        // No wait in use reaches its limit after more doublings than this.
        failures.checked_sub(1).map_or(Duration::ZERO, |doublings| {
            self.first.saturating_mul(1 << doublings.min(20)).min(self.longest)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_to_its_limit() {
        let backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };
        let waits = [0, 1, 2, 3, 5, 6, 7, u32::MAX].map(|failures| backoff.after(failures).as_secs());
        assert_eq!(waits, [0, 10, 20, 40, 160, 300, 300, 300]);
    }
}
