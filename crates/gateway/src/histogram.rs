//! How long requests took, in fixed buckets.
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The upper bounds within one decade, in hundredths of its beginning. Every whole digit is one, so that most limits that
/// people write are bounds, where a comparison is exact; elsewhere it is off by a sixth at most.
const DECADE: [u64; 20] =
    [100, 110, 125, 140, 160, 180, 200, 225, 250, 275, 300, 350, 400, 450, 500, 550, 600, 700, 800, 900];

/// From 100 microseconds to 10,000 seconds.
const DECADES: usize = 8;

const BOUNDS: usize = DECADES * DECADE.len() + 1;

/// The upper bounds, in microseconds.
const UPPER: [u64; BOUNDS] = {
    let mut bounds = [0; BOUNDS];
    let (mut scale, mut place) = (1, 0);
    while place < BOUNDS {
        bounds[place] = DECADE[place % DECADE.len()] * scale;
        place += 1;
        if place % DECADE.len() == 0 {
            scale *= 10;
        }
    }
    bounds
};

/// Durations as they are counted: two atomic additions each.
#[derive(Debug)]
pub struct Histogram {
    /// One for each upper bound, and one for what is longer than all.
    counts: [AtomicU64; BOUNDS + 1],
    /// In microseconds.
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BOUNDS + 1], sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // What is a part of a microsecond beyond a bound is beyond it.
        let whole = took.subsec_nanos().is_multiple_of(1_000);
        let place = UPPER.partition_point(|bound| *bound < micros || (*bound == micros && !whole));
        self.counts[place].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    pub fn read(&self) -> Distribution {
        let upper = UPPER.iter().map(|micros| Duration::from_micros(*micros)).chain([Duration::MAX]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Distribution {
            buckets: upper.zip(counts).filter(|(_, count)| *count > 0).collect(),
            sum: Duration::from_micros(self.sum.load(Relaxed)),
        }
    }
}

/// Durations at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distribution {
    /// How many took at most so long, and longer than the bound before. Buckets without any are left out; what was
    /// longer than every bound is at `Duration::MAX`.
    pub buckets: BTreeMap<Duration, u64>,
    pub sum: Duration,
}

impl Distribution {
    pub fn count(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// How many took at most so long. Exact at a bound.
    pub fn within(&self, limit: Duration) -> u64 {
        self.buckets.range(..=limit).map(|(_, count)| count).sum()
    }
}

/// How long the requests of one Service take, as they are counted.
#[derive(Debug, Default)]
pub struct Timers {
    pub first_byte: Histogram,
    pub whole: Histogram,
}

impl Timers {
    pub fn read(&self) -> Latencies {
        Latencies { first_byte: self.first_byte.read(), whole: self.whole.read() }
    }
}

/// How long the requests of one Service took, from when the gateway had their head. Requests without an answer count with
/// the time that they waited, if the route limited it or the client gave up; not if their connection failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    /// Until the first byte of the body of the answer, or the end of an answer without a body.
    pub first_byte: Distribution,
    /// Until the end of the answer.
    pub whole: Distribution,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_rise_by_a_sixth_at_most_and_every_digit_is_one() {
        assert_eq!((UPPER[0], UPPER[BOUNDS - 1]), (100, 10_000_000_000));
        for pair in UPPER.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 6 <= pair[0] * 7 + 6, "{pair:?}");
        }
        for digit in 1..10 {
            assert!(UPPER.contains(&(digit * 100_000)));
        }
    }

    #[test]
    fn a_bound_is_within_its_bucket_and_what_follows_is_not() {
        let histogram = Histogram::default();
        let bound = Duration::from_millis(800);
        let all = [Duration::ZERO, bound, bound + Duration::from_nanos(1), Duration::from_secs(20_000)];
        for took in all {
            histogram.observe(took);
        }
        let read = histogram.read();
        let expected = [
            (Duration::from_micros(100), 1),
            (bound, 1),
            (Duration::from_millis(900), 1),
            (Duration::MAX, 1),
        ];
        assert_eq!(read.buckets, expected.into());
        assert_eq!((read.count(), read.within(bound)), (4, 2));
        assert_eq!(read.sum, Duration::from_millis(20_001_600));
    }
}
