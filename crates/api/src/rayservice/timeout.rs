//! `ray.io/initializing-timeout`: `5m`, `1h30m`, or a number of seconds.

use std::time::Duration;

/// Units of a Go duration, in nanoseconds. `m` comes after `ms`, which begins with it.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// The longest that Go can say, and so the longest that a KubeRay user may have written.
const LONGEST: f64 = 9_223_372_036_854_775_807.0;

/// How long a service may take to serve, as its annotation says it. Nothing for what is no length of time, or none at
/// all.
pub fn initializing_timeout(text: &str) -> Option<Duration> {
    let nanoseconds = match text.strip_prefix('+').unwrap_or(text) {
        digits if digits.chars().all(|c| c.is_ascii_digit()) => digits.parse::<f64>().ok()? * 1e9,
        text => go_duration(text)?,
    };
    (1.0..LONGEST).contains(&nanoseconds).then(|| Duration::from_secs_f64(nanoseconds / 1e9))
}

/// A sum of numbers with units.
fn go_duration(mut text: &str) -> Option<f64> {
    let mut sum = 0.0;
    while !text.is_empty() {
        let number = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = text[..number].parse().ok()?;
        text = &text[number..];
        let (rest, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_prefix(name)?, unit)))?;
        sum += amount * unit;
        text = rest;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_go_reads_them_and_bare_numbers_are_seconds() {
        let seconds = |text| initializing_timeout(text).map(|time| time.as_secs_f64());
        let cases = [
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("90", 90.0),
            ("+5m", 300.0),
            ("1.5h", 5400.0),
            ("100ms", 0.1),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in
            ["", "0", "0s", "-5m", "-1", "m", "5", "5 m", "5x", "1h30", "1.2.3h", "é", "9999999h", "1e400"]
        {
            assert_eq!(seconds(text).is_some(), text == "5", "{text}");
        }
    }
}
