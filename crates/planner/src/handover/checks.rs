//! Checks by counters: what the answers of a new version say of it, window by window.

use std::time::Duration;

use super::Verdict;
use crate::reason::Time;

/// What a check demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The most answers that may be errors, in thousandths of a percent.
    pub most: u32,
    /// The time that one judgement looks back.
    pub window: Duration,
    /// Answers without which there is no judgement.
    pub least: u64,
    /// Bad judgements in a row that make a failure.
    pub failures: u32,
    /// What a window with fewer answers means.
    pub no_data: NoData,
}

/// What it means when there is nothing to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoData {
    /// It is waited for.
    Wait,
    /// It is good.
    Pass,
    /// It is bad.
    Fail,
}

/// Answers of a version so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// All that were answered or failed.
    pub all: u64,
    /// Those that were errors.
    pub errors: u64,
}

impl Answers {
    /// Those since an earlier moment; nothing where the counter began anew meanwhile.
    fn since(self, before: Self) -> Option<Self> {
        let (all, errors) = (self.all.checked_sub(before.all)?, self.errors.checked_sub(before.errors)?);
        Some(Self { all, errors })
    }
}

/// How a check stands. It is written in the API, so a restart changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// When the window began.
    pub since: Time,
    /// What was counted by then.
    pub counted: Answers,
    /// Bad judgements in a row.
    pub bad: u32,
    /// What the last judgement said. A failure is final.
    pub verdict: Verdict,
    /// When the last judgement was made, and on which answers.
    pub judged: Option<(Time, Answers)>,
}

impl Check {
    /// How the check stands when so much is counted. Without a counter nothing is known.
    pub fn judge(&self, before: Option<Standing>, counted: Option<Answers>, now: Time) -> Standing {
        let counted = counted.unwrap_or_default();
        let Some(standing) = before else {
            return Standing { since: now, counted, bad: 0, verdict: Verdict::Open, judged: None };
        };
        let Some(answers) = counted.since(standing.counted) else {
            return Standing { since: now, counted, ..standing };
        };
        if standing.verdict == Verdict::Failed || now < standing.since + self.window {
            return standing;
        }
        let is_good = match (answers.all >= self.least, self.no_data) {
            (true, _) => self.holds(answers),
            // The window stays open until there is enough.
            (false, NoData::Wait) => return standing,
            (false, policy) => policy == NoData::Pass,
        };
        let bad = if is_good { 0 } else { standing.bad + 1 };
        let verdict = match bad {
            0 => Verdict::Passed,
            bad if bad >= self.failures => Verdict::Failed,
            _ => Verdict::Open,
        };
        Standing { since: now, counted, bad, verdict, judged: Some((now, answers)) }
    }

    fn holds(&self, answers: Answers) -> bool {
        u128::from(answers.errors) * 100_000 <= u128::from(self.most) * u128::from(answers.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check =
        Check { most: 1_000, window: Duration::from_secs(10), least: 20, failures: 2, no_data: NoData::Wait };

    fn at(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    fn answers(all: u64, errors: u64) -> Answers {
        Answers { all, errors }
    }

    #[test]
    fn errors_beyond_the_limit_fail_after_so_many_windows_in_a_row() {
        let first = CHECK.judge(None, Some(answers(500, 500)), at(0));
        assert_eq!(first.verdict, Verdict::Open, "what was before the window does not count");
        let early = CHECK.judge(Some(first), Some(answers(600, 600)), at(9));
        assert_eq!(early, first);
        let once = CHECK.judge(Some(first), Some(answers(600, 502)), at(10));
        assert_eq!((once.verdict, once.bad), (Verdict::Open, 1));
        let good = CHECK.judge(Some(once), Some(answers(700, 503)), at(20));
        assert_eq!((good.verdict, good.bad), (Verdict::Passed, 0), "one in a hundred may");
        let twice = CHECK.judge(Some(once), Some(answers(700, 504)), at(20));
        assert_eq!(twice.verdict, Verdict::Failed);
        assert_eq!(CHECK.judge(Some(twice), Some(answers(900, 504)), at(40)), twice, "a failure is final");
    }

    #[test]
    fn too_few_answers_are_what_the_policy_says() {
        let first = CHECK.judge(None, None, at(0));
        let judge = |no_data| {
            Check { no_data, failures: 1, ..CHECK }.judge(Some(first), Some(answers(19, 19)), at(10))
        };
        assert_eq!(judge(NoData::Wait), first, "the window stays open");
        assert_eq!(judge(NoData::Pass).verdict, Verdict::Passed);
        assert_eq!(judge(NoData::Fail).verdict, Verdict::Failed);
        let enough = Check { failures: 1, ..CHECK }.judge(Some(first), Some(answers(20, 20)), at(50));
        assert_eq!(enough.verdict, Verdict::Failed, "what came late counts");
    }

    #[test]
    fn a_counter_that_began_anew_begins_the_window_anew() {
        let first = CHECK.judge(None, Some(answers(500, 5)), at(0));
        let anew = CHECK.judge(Some(first), Some(answers(30, 30)), at(10));
        assert_eq!((anew.since, anew.verdict, anew.judged), (at(10), Verdict::Open, None));
    }
}
