//! Reasons of the planner in a status: as a wait for programs, and as a sentence for people.

use api::Wait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use planner::{Reason, Time};

use crate::runtime::{moment, timestamp};

/// The longest texts that a status takes.
const LONGEST: usize = 512;

/// A reason as a wait. A wait of the status before with the same reason and pod keeps its start.
pub(crate) fn of(reason: &Reason, pod: Option<String>, before: Option<&Wait>, now: Time) -> Wait {
    let same = before.filter(|wait| wait.reason == reason.code.as_str() && wait.pod == pod);
    let since = reason.since.or_else(|| same.map(|wait| moment(wait.since.0))).unwrap_or(now);
    Wait {
        reason: reason.code.to_string(),
        subject: cut(&reason.what, LONGEST),
        pod,
        since: whole(since),
        deadline: reason.until.map(whole),
        on_expiry: reason.then.as_deref().map(|then| cut(then, LONGEST)),
    }
}

/// A reason as one line: what is done or waited for, until when, and what happens then.
pub(crate) fn sentence(reason: &Reason) -> String {
    let until = reason.until.map(|until| format!(", until {}", whole(until).0)).unwrap_or_default();
    let then = reason.then.as_ref().map(|then| format!("; then {then}")).unwrap_or_default();
    format!("{}{until}{then}", reason.what)
}

/// The first characters of a text.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    text.chars().take(longest).collect()
}

/// In whole seconds, as the API has them.
fn whole(time: Time) -> ApiTime {
    ApiTime(timestamp(Time::from_secs(time.as_secs())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use planner::Code;

    use super::*;

    fn at(millis: u64) -> Time {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_wait_goes_on_until_it_is_another_one() {
        let reason = Reason::new(Code::WaitingForReady, "2 of 3 pods").until(at(90_900)).then("it serves");
        let first = of(&reason, Some("p".to_owned()), None, at(10_500));
        assert_eq!((first.reason.as_str(), first.since.0.as_second()), ("WaitingForReady", 10));
        assert_eq!(
            (first.deadline.as_ref().unwrap().0.as_second(), first.on_expiry.as_deref()),
            (90, Some("it serves"))
        );
        let fewer = Reason::new(Code::WaitingForReady, "1 of 3 pods");
        let later = of(&fewer, Some("p".to_owned()), Some(&first), at(20_000));
        assert_eq!((later.subject.as_str(), later.since.0.as_second()), ("1 of 3 pods", 10));
        assert_eq!(of(&fewer, Some("q".to_owned()), Some(&first), at(20_000)).since.0.as_second(), 20);
        let other = Reason::new(Code::WaitingForDrain, "1 of 3 pods");
        assert_eq!(of(&other, Some("p".to_owned()), Some(&first), at(20_000)).since.0.as_second(), 20);
        let known = fewer.since(at(5_000));
        assert_eq!(
            of(&known, None, Some(&first), at(20_000)).since.0.as_second(),
            5,
            "who knows better says so"
        );
    }

    #[test]
    fn a_sentence_says_until_when_and_what_then() {
        let reason =
            Reason::new(Code::WaitingForReady, "group 1 starts").until(at(10_500)).then("it is tried again");
        assert_eq!(sentence(&reason), "group 1 starts, until 1970-01-01T00:00:10Z; then it is tried again");
    }
}
