//! Time: what deadlines are compared with, and what the process waits by.
//!
//! Deadlines and conditions carry the time of the wall clock, which may step. Waits inside the process use a clock that
//! never does. A step of the wall clock that happens while the process lives is noticed, and the time that it skips or
//! repeats is not taken for waiting: times from before a step forward are read as if they had been written on the new
//! clock, and so are times that a step back leaves in the future.

use std::{sync::OnceLock, time::Duration};

use jiff::Timestamp;
use planner::Time;

/// The two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The time since 1970.
    pub wall: fn() -> Time,
    /// The time since some moment. Never steps.
    pub monotonic: fn() -> Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self { wall: wall_clock, monotonic: since_start }
    }
}

impl Clock {
    /// One clock for both: it steps only where its owner means time to pass.
    pub fn single(clock: fn() -> Time) -> Self {
        Self { wall: clock, monotonic: clock }
    }
}

#[allow(clippy::disallowed_methods, reason = "deadlines and conditions carry the time of the wall clock")]
fn wall_clock() -> Time {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

#[allow(clippy::disallowed_methods, reason = "waits inside the process do not step with the wall clock")]
fn since_start() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// Times in the future by no more than this are rounded ones: the API tells whole seconds.
const ROUNDED: Duration = Duration::from_secs(2);

/// Times in the future by no more than this are believed, where no step explains them: the clocks of hosts differ, and
/// a wait that is too long does no harm. What lies farther off was written before a step that this process has not
/// seen.
const SKEW: Duration = Duration::from_mins(5);

/// Steps that are remembered. Times from before older ones are read as they are.
const MOST_STEPS: usize = 8;

/// What the process knows of the wall clock: how times that others and it wrote are read.
#[derive(Clone, Debug, Default)]
pub struct Times {
    now: Time,
    /// When the clock was last read, on both clocks.
    last: Option<(Time, Duration)>,
    /// When the wall clock was first read, or last noticed to have gone back.
    anchor: Time,
    /// The last step back: the time that the wall clock would show without it, and how far it went back.
    back: Option<(Time, Duration)>,
    /// Steps forward: times before this moment of the new clock were written on the old one, so much earlier.
    forward: Vec<(Time, Duration)>,
}

impl Times {
    /// Reads the clock. Returns whether it has stepped since it was last read.
    pub(super) fn read(&mut self, clock: &Clock) -> bool {
        let (wall, monotonic) = ((clock.wall)(), (clock.monotonic)());
        let Some((last_wall, last_monotonic)) = self.last.replace((wall, monotonic)) else {
            (self.now, self.anchor) = (wall, wall);
            return false;
        };
        self.now = wall;
        let passed = monotonic.saturating_sub(last_monotonic);
        let expected = last_wall + passed;
        // Clocks are disciplined by less than this; what is more is a step.
        let tolerance = Duration::from_secs(1) + passed / 1_000;
        if wall + tolerance < expected {
            // Times from before a step forward are right again after a step back.
            self.forward.clear();
            (self.anchor, self.back) = (wall, Some((expected, expected.saturating_sub(wall))));
            return true;
        }
        if wall > expected + tolerance {
            let by = wall.saturating_sub(expected);
            self.forward.push((last_wall + by, by));
            let surplus = self.forward.len().saturating_sub(MOST_STEPS);
            self.forward.drain(..surplus);
            return true;
        }
        false
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When something has happened that the API tells, as deadlines count it.
    pub fn moment(&self, timestamp: Timestamp) -> Time {
        self.moment_of(timestamp, None)
    }

    /// On the clock as it is now. A time that was moved before is one of the clock as it was then.
    fn moved(&self, timestamp: Timestamp, adjusted: Option<Timestamp>) -> Time {
        let time = moment(timestamp);
        let written = adjusted.map_or(time, moment).max(time);
        let mut by = Duration::ZERO;
        for (before, step) in &self.forward {
            if written + by < *before {
                by += *step;
            }
        }
        time + by
    }

    /// When something has happened, where its time was last moved along with a step at some time.
    pub fn moment_of(&self, timestamp: Timestamp, adjusted: Option<Timestamp>) -> Time {
        let time = self.moved(timestamp, adjusted);
        let step = self.back.filter(|(before, _)| time <= *before + ROUNDED).map(|(_, step)| step);
        let believed = if step.is_some() { ROUNDED } else { SKEW };
        if time <= self.now + believed {
            return time;
        }
        // Written before the step back. What is in the future after it, too, is older than a step that is not remembered.
        let written = step.map(|step| time.saturating_sub(step));
        written.filter(|written| *written <= self.now + ROUNDED).unwrap_or(self.anchor)
    }
}

#[cfg(test)]
impl Times {
    /// As if the clock had always run.
    pub(crate) fn at(now: Time) -> Self {
        Self { now, ..Self::default() }
    }
}

/// A moment as the API writes it.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(seconds, i32::try_from(time.subsec_nanos()).unwrap_or(0)).unwrap_or(Timestamp::MAX)
}

/// A moment as planners count it.
pub(crate) fn moment(timestamp: Timestamp) -> Time {
    Duration::try_from(timestamp.as_duration()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    /// A clock that shows what each pair says.
    struct Process(Times);

    impl Process {
        fn new(wall: u64, monotonic: u64) -> Self {
            let mut process = Self(Times::default());
            assert!(!process.read(wall, monotonic));
            process
        }

        fn read(&mut self, wall: u64, monotonic: u64) -> bool {
            thread_local! {
                static NOW: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
            }
            NOW.set((wall, monotonic));
            let clock = Clock {
                wall: || Duration::from_secs(NOW.get().0),
                monotonic: || Duration::from_secs(NOW.get().1),
            };
            self.0.read(&clock)
        }

        /// How long ago the API's time was.
        fn ago(&self, second: u64) -> u64 {
            let moment = self.0.moment(Timestamp::from_second(i64::try_from(second).unwrap()).unwrap());
            self.0.now().saturating_sub(moment).as_secs()
        }
    }

    #[test]
    fn a_clock_that_runs_is_read_as_it_is() {
        let mut process = Process::new(10 * HOUR, 5);
        assert!(!process.read(10 * HOUR + 60, 65));
        assert_eq!((process.ago(10 * HOUR), process.ago(HOUR)), (60, 9 * HOUR + 60));
        assert!(!process.read(10 * HOUR + 61, 65), "a second is no step");
        assert!(!process.read(11 * HOUR + 64, 65 + HOUR), "nor is what discipline takes in an hour");
    }

    #[test]
    fn a_step_forward_is_not_taken_for_waiting() {
        let mut process = Process::new(10 * HOUR, 0);
        assert!(process.read(12 * HOUR + 30, 30));
        assert_eq!(process.ago(10 * HOUR), 30, "half a minute has passed, whatever the clock says");
        assert_eq!(process.ago(10 * HOUR - 60), 90);
        assert_eq!(process.ago(12 * HOUR + 20), 10, "written on the new clock");
        assert!(process.read(13 * HOUR + 40, 40), "once more");
        assert_eq!((process.ago(10 * HOUR), process.ago(12 * HOUR + 30)), (40, 10));
    }

    #[test]
    fn what_was_moved_along_with_a_step_is_not_moved_again() {
        let mut process = Process::new(10 * HOUR, 0);
        process.read(12 * HOUR + 30, 30);
        let at = |second: u64| Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        let read = process.0.moment(at(10 * HOUR - 60));
        assert_eq!(read.as_secs(), 12 * HOUR - 60);
        let (moved, adjusted) = (timestamp(read), at(12 * HOUR + 30));
        assert_eq!(process.0.moment_of(moved, Some(adjusted)), read);
        assert_eq!(
            Times::at(process.0.now()).moment_of(moved, Some(adjusted)),
            read,
            "nor by another process"
        );
        process.read(13 * HOUR, 60);
        assert_eq!(
            process.0.now().saturating_sub(process.0.moment_of(moved, Some(adjusted))).as_secs(),
            120,
            "until the next step"
        );
    }

    #[test]
    fn a_step_back_ends_no_wait_and_lengthens_none_beyond_itself() {
        let mut process = Process::new(10 * HOUR, 0);
        assert!(process.read(8 * HOUR, 60));
        assert_eq!(process.ago(10 * HOUR), 60, "a minute has passed, whatever the clock says");
        assert!(!process.read(8 * HOUR + 90, 150));
        assert_eq!(process.ago(10 * HOUR), 150);
        assert_eq!(process.ago(8 * HOUR + 30), 60, "written on the new clock");
        assert!(process.read(6 * HOUR, 160), "once more");
        assert_eq!((process.ago(8 * HOUR + 90), process.ago(10 * HOUR)), (10, 0), "two steps are too many");
    }

    #[test]
    fn a_host_whose_clock_is_ahead_is_believed() {
        let mut process = Process::new(8 * HOUR, 0);
        process.read(9 * HOUR, HOUR);
        assert_eq!(process.ago(9 * HOUR + 60), 0, "it was not before the process began");
        assert!(process.read(9 * HOUR - 60, HOUR));
        process.read(9 * HOUR, HOUR + 60);
        assert_eq!(process.ago(9 * HOUR + 30), 0, "a small step explains only what was there before it");
    }

    #[test]
    fn a_process_that_starts_after_a_step_back_waits_no_longer_than_it_should() {
        let mut process = Process::new(8 * HOUR, 0);
        process.read(8 * HOUR + 40, 40);
        assert_eq!(process.ago(10 * HOUR), 40);
    }
}
