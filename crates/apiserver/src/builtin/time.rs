//! Times as Kubernetes reads and prints them: RFC 3339 in UTC, to the second or to the microsecond.
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

const SECONDS: &[&str] = &["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
const ZERO: &str = "0001-01-01T00:00:00";

/// A time to the second; a fraction is read and dropped.
pub fn seconds(value: &Value) -> Result<Value, String> {
    convert(value, "", "2006-01-02T15:04:05Z07:00", "%Y-%m-%dT%H:%M:%SZ")
}

/// A time to the microsecond, which must have just six digits after the point.
pub fn micros(value: &Value) -> Result<Value, String> {
    convert(value, ".000000", "2006-01-02T15:04:05.000000Z07:00", "%Y-%m-%dT%H:%M:%S.%6fZ")
}

fn convert(value: &Value, fraction: &'static str, layout: &str, print: &str) -> Result<Value, String> {
    let text = value.as_str().unwrap_or_default();
    if let Err((rest, element)) = check(text, fraction) {
        return Err(format!(r#"parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}""#));
    }
    let time: Timestamp = text.parse().map_err(|_| format!(r#"parsing time "{text}": day out of range"#))?;
    let printed = time.to_zoned(TimeZone::UTC).strftime(print).to_string();
    Ok(if printed.starts_with(ZERO) { Value::Null } else { Value::from(printed) })
}

/// Go's layout, element by element: what is left where it does not match, and what was expected there.
fn check<'a>(text: &'a str, fraction: &'static str) -> Result<(), (&'a str, &'static str)> {
    let mut rest = text;
    for element in SECONDS {
        rest = take(rest, element).ok_or((rest, *element))?;
    }
    if !fraction.is_empty() {
        rest = point(rest)
            .filter(|(digits, _)| *digits + 1 >= fraction.len())
            .map(|_| &rest[fraction.len()..])
            .ok_or((rest, fraction))?;
    } else if let Some((_, after)) = point(rest) {
        rest = after;
    }
    if zone(rest) { Ok(()) } else { Err((rest, "Z07:00")) }
}

fn take<'a>(text: &'a str, element: &str) -> Option<&'a str> {
    if element.starts_with(|c: char| c.is_ascii_digit()) {
        let digits = text.get(..element.len())?;
        return digits.bytes().all(|b| b.is_ascii_digit()).then(|| &text[element.len()..]);
    }
    text.strip_prefix(element)
}

/// The digits after a point: how many, and what follows.
fn point(text: &str) -> Option<(usize, &str)> {
    let digits = text.strip_prefix('.')?;
    let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    (after.len() < digits.len()).then_some((digits.len() - after.len(), after))
}

fn zone(text: &str) -> bool {
    let signed = text.strip_prefix(['+', '-']).and_then(|rest| rest.split_once(':'));
    let pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    text == "Z" || signed.is_some_and(|(hours, minutes)| pair(hours) && pair(minutes))
}
