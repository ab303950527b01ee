//! The time of a run: a date plus the runtime's own clock, which stands still while anybody works.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// 2026-01-01, when every run begins.
const START: u64 = 1_767_225_600;

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A run begins on this thread.
pub(super) fn begin() -> jiff::Timestamp {
    BEGAN.set(Some(Instant::now()));
    jiff::Timestamp::from_second(i64::try_from(START).unwrap_or_default()).unwrap_or_default()
}

/// What time it is in the run of this thread.
pub(super) fn now() -> Duration {
    let elapsed = BEGAN.get().map(|began| began.elapsed()).unwrap_or_default();
    Duration::from_secs(START) + elapsed
}
