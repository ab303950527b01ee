//! Durations for people: two or three figures, as Kubernetes writes them.
use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration in seconds. One second into the future is a clock that is a little off.
pub fn human_duration(seconds: i64) -> String {
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s, MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s, HOUR, "h", MINUTE, "m"),
        s if s < 48 * HOUR => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s, DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s, YEAR, "y", DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// A large unit, and a small one unless there are none of it.
fn two(seconds: i64, large: i64, large_name: &str, small: i64, small_name: &str) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 { format!("{whole}{large_name}") } else { format!("{whole}{large_name}{rest}{small_name}") }
}

/// The time since a timestamp. An empty text is no time; another that is none is invalid.
pub(super) fn since(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        return "<unknown>".into();
    }
    text.parse::<Timestamp>()
        .map_or_else(|_| "<invalid>".into(), |then| human_duration(now.duration_since(then).as_secs()))
}
