//! A reason as one line of a status: what is done or waited for, until when, and what happens then.

use jiff::Timestamp;
use planner::Reason;

use crate::runtime::timestamp;

/// The line.
pub(crate) fn of(reason: &Reason) -> String {
    let whole_seconds = |time| timestamp(time).as_second();
    let until = reason.until.map(whole_seconds).and_then(|second| Timestamp::from_second(second).ok());
    let until = until.map(|until| format!("{UNTIL}{until}")).unwrap_or_default();
    let then = reason.then.as_ref().map(|then| format!("{THEN}{then}")).unwrap_or_default();
    format!("{}{until}{then}", reason.what)
}

const UNTIL: &str = ", until ";
const THEN: &str = "; then ";

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What is done or waited for.
    pub what: String,
    /// Until when; without, until it happens.
    pub until: Option<Timestamp>,
    /// What happens then.
    pub then: Option<String>,
}

/// Reads a line of a status again.
pub fn read(line: &str) -> Told {
    let (rest, then) = match line.split_once(THEN) {
        Some((rest, then)) => (rest, Some(then.to_owned())),
        None => (line, None),
    };
    let timed = rest.rsplit_once(UNTIL).and_then(|(what, until)| Some((what, until.parse().ok()?)));
    let (what, until) = timed.map_or((rest, None), |(what, until)| (what, Some(until)));
    Told { what: what.to_owned(), until, then }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_told_can_be_read_again() {
        let plain = Reason::new("Waits", "group 1 starts, until somebody comes");
        let timed = plain.clone().until(Duration::from_millis(10_500)).then("it is tried again");
        assert_eq!(
            of(&timed),
            "group 1 starts, until somebody comes, until 1970-01-01T00:00:10Z; then it is tried again"
        );
        for reason in [plain.clone(), timed, plain.then("b")] {
            let told = read(&of(&reason));
            assert_eq!((&told.what, &told.then), (&reason.what, &reason.then));
            assert_eq!(told.until.map(Timestamp::as_second), reason.until.map(|_| 10));
        }
    }
}
