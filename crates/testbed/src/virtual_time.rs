//! The time of a test on a paused runtime: a date plus the runtime's own clock, which moves only while no task can run.
//!
//! So a wait takes no time, and what has not happened before time moves does not happen without a timer.

use std::{cell::Cell, sync::Arc, time::Duration};

use apiserver::environment::SeededEnvironment;
use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01, when every test begins.
const START: u64 = 1_767_225_600;

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets the time of this thread to the start, and returns what a server has its time and its uids from.
pub fn begin(seed: u64) -> Arc<SeededEnvironment> {
    BEGAN.set(Some(Instant::now()));
    let start = Timestamp::from_second(i64::try_from(START).unwrap_or_default()).unwrap_or_default();
    Arc::new(SeededEnvironment::new(seed, start))
}

/// The time of this thread, since 1970.
pub fn now() -> Duration {
    let elapsed = BEGAN.get().map(|began| began.elapsed()).unwrap_or_default();
    Duration::from_secs(START) + elapsed
}

/// The same as the API writes it.
pub fn timestamp() -> Timestamp {
    Timestamp::UNIX_EPOCH.checked_add(now()).unwrap_or_default()
}
