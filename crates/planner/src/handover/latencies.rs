//! How long the answers of a version took, as counts by duration.

use std::{collections::BTreeMap, time::Duration};

/// How many answers took how long: those of a version so far, or those of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// By upper bound: how many took at most so long, and longer than the bound before. `Duration::MAX` is for those
    /// that were longer than every bound.
    buckets: BTreeMap<Duration, u64>,
}

impl Latencies {
    /// Adds answers that took at most so long, and longer than the bound before.
    pub fn add(&mut self, upper: Duration, answers: u64) {
        *self.buckets.entry(upper).or_default() += answers;
    }

    /// Returns the number of answers.
    pub fn count(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// Returns the answers since an earlier moment; nothing where the counter began anew meanwhile.
    pub fn since(&self, before: &Self) -> Option<Self> {
        if before.buckets.keys().any(|upper| !self.buckets.contains_key(upper)) {
            return None;
        }
        let mut buckets = BTreeMap::new();
        for (upper, answers) in &self.buckets {
            let known = before.buckets.get(upper).copied().unwrap_or_default();
            buckets.insert(*upper, answers.checked_sub(known)?);
        }
        buckets.retain(|_, answers| *answers > 0);
        Some(Self { buckets })
    }

    /// Returns the least bound that so many percent of the answers did not exceed; nothing where there is no answer. It is
    /// never below the percentile, and above it by the width of a bucket at most: by a sixth, in those of the gateway.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        let rank = (u128::from(self.count()) * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut reached = 0;
        self.buckets.iter().find_map(|(upper, answers)| {
            reached += u128::from(*answers);
            (reached >= rank).then_some(*upper)
        })
    }

    /// Returns how many answers took longer than a limit: exact where the limit is a bound, elsewhere with those of the
    /// bucket that it falls into.
    ///
    /// The percentile is within the limit exactly if at most the rest, in percent, is slower. So a check of a percentile
    /// can be kept over a restart as two counts, like a check of errors.
    pub fn slower_than(&self, limit: Duration) -> u64 {
        self.buckets.iter().filter(|(upper, _)| **upper > limit).map(|(_, answers)| answers).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(buckets: &[(u64, u64)]) -> Latencies {
        let mut latencies = Latencies::default();
        for (upper, answers) in buckets {
            latencies.add(Duration::from_millis(*upper), *answers);
        }
        latencies
    }

    #[test]
    fn a_percentile_is_of_the_window_and_not_of_all_time() {
        let before = millis(&[(10, 1_000), (800, 5)]);
        let now = millis(&[(10, 1_090), (800, 14), (5_000, 1)]);
        let window = now.since(&before).unwrap();
        assert_eq!(window, millis(&[(10, 90), (800, 9), (5_000, 1)]));
        let percentile = |percent| window.percentile(percent).map(|it| it.as_millis());
        assert_eq!((percentile(50), percentile(90), percentile(91)), (Some(10), Some(10), Some(800)));
        assert_eq!((percentile(99), percentile(100)), (Some(800), Some(5_000)));
        assert_eq!(now.percentile(99).map(|it| it.as_millis()), Some(800));
        assert_eq!(now.since(&now).unwrap().percentile(50), None, "no answer has no percentile");
    }

    #[test]
    fn a_counter_that_began_anew_has_no_window() {
        let before = millis(&[(10, 5), (800, 1)]);
        assert_eq!(millis(&[(10, 4), (800, 1)]).since(&before), None);
        assert_eq!(millis(&[(10, 9)]).since(&before), None);
        assert_eq!(Latencies::default().since(&before), None);
        assert_eq!(before.since(&Latencies::default()), Some(before.clone()));
    }

    #[test]
    fn a_percentile_is_within_a_limit_exactly_if_no_more_than_the_rest_is_slower() {
        for fast in 0..40 {
            for slow in 0..4 {
                let latencies = millis(&[(10, fast), (800, slow)]);
                for percent in 1..=100 {
                    for limit in [5, 10, 700, 800].map(Duration::from_millis) {
                        let by_counts = latencies.slower_than(limit) * 100
                            <= latencies.count() * u64::from(100 - percent);
                        let within = latencies.percentile(percent).is_none_or(|it| it <= limit);
                        assert_eq!(within, by_counts, "{fast} {slow} {percent} {limit:?}");
                    }
                }
            }
        }
    }
}
