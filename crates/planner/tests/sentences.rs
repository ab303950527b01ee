//! The sentences of the planner: what status, events, `segue why` and `segue plan` print.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, time::Duration};

use planner::{
    Amount, Budget,
    granted::{self, StepSchedule},
    handover::{self, OnFailure, Policy, Step, VersionId, Wanted},
    sets::{self, Identity, SetSpec},
    units::Revision,
};

/// The longest sentence.
const WIDTH: usize = 120;

/// Words that stand for a subject that is missing, and words that only the planner uses.
const BANNED: [&str; 9] =
    ["unit", "units", "nobody", "somebody", "whoever", "everybody", "wanted again", "looked at", "be asked"];

fn faults(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_alphanumeric()).collect();
    let has = |banned: &str| {
        let banned: Vec<&str> = banned.split(' ').collect();
        words.windows(banned.len()).any(|window| window == banned)
    };
    let mut faults: Vec<String> =
        BANNED.iter().filter(|banned| has(banned)).map(|banned| format!("the word {banned:?}")).collect();
    if text.contains("  ") {
        faults.push("two spaces in a row".to_owned());
    }
    if text.contains(":?}") {
        faults.push("a debug format".to_owned());
    }
    if words.iter().any(|word| {
        let digits = word.trim_end_matches('s');
        digits.len() >= 9 && digits.chars().all(|digit| digit.is_ascii_digit())
    }) {
        faults.push("a number like a time since 1970".to_owned());
    }
    if text.chars().count() > WIDTH {
        faults.push(format!("more than {WIDTH} characters"));
    }
    faults
}

#[test]
fn faults_are_found() {
    assert!(faults("scaling the new version to 4 replicas").is_empty());
    let long = "x ".repeat(WIDTH);
    for wrong in
        ["its traffic needs 5 units", "until  then", "nothing moved since 1794843101s", "group {:?}", &long]
    {
        assert_eq!(faults(wrong).len(), 1, "{wrong}");
    }
}

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

fn wanted(policy: Policy, surge: u32, unavailable: u32) -> Wanted {
    Wanted {
        target: VersionId(2),
        replicas: 4,
        budget: Budget { surge, unavailable },
        policy,
        progress_deadline: Some(Duration::from_mins(10)),
        on_failure: OnFailure::RollBack,
    }
}

/// The rehearsals of every kind of upgrade, forward and back, as `segue plan` shows them.
fn rehearsed() -> BTreeSet<String> {
    let canary = Policy::Canary(vec![
        Step::Weight(20, None),
        Step::Pause(Some(Duration::from_mins(1))),
        Step::Pause(None),
        Step::Analysis(Duration::from_secs(5)),
        Step::Weight(100, None),
    ]);
    let blue_green = |auto_promote| Policy::BlueGreen {
        auto_promote,
        delay: Duration::from_secs(20),
        preview: Amount::Percent(50),
        retain: Duration::from_mins(1),
    };
    let all = [
        wanted(Policy::Rolling, 1, 0),
        wanted(Policy::Rolling, 0, 1),
        wanted(Policy::Incremental { step: 25, interval: Duration::from_secs(20) }, 1, 0),
        wanted(canary, 1, 0),
        wanted(blue_green(true), 4, 0),
        wanted(blue_green(false), 4, 0),
        wanted(Policy::Recreate, 0, 4),
    ];
    let mut sentences = BTreeSet::new();
    for wanted in &all {
        for back in [None, Some(Duration::from_secs(35))] {
            let (moments, _) = handover::rehearse(wanted, START, STOP, back);
            sentences.extend(
                moments
                    .into_iter()
                    .map(|moment| format!("handover: {}: {}", moment.reason.code, moment.reason)),
            );
        }
    }
    for (identity, surge, unavailable) in
        [(Identity::Ordinal, 1, 0), (Identity::Ordinal, 0, 1), (Identity::Any, 1, 1)]
    {
        let spec = SetSpec {
            replicas: 3,
            budget: Budget { surge, unavailable },
            partition: 0,
            target: Revision(2),
            old: Revision(1),
            identity,
            noun: "group",
        };
        let (moments, _) = sets::rehearse(&spec, START, STOP);
        sentences.extend(
            moments.into_iter().map(|moment| format!("sets: {}: {}", moment.reason.code, moment.reason)),
        );
    }
    let pace = StepSchedule::new(20, 10, Duration::from_secs(5)).unwrap();
    for back in [None, Some(Duration::from_secs(50))] {
        let moments = granted::rehearse(pace, START, back);
        sentences.extend(
            moments.into_iter().map(|moment| format!("granted: {}: {}", moment.reason.code, moment.reason)),
        );
    }
    sentences
}

#[test]
fn rehearsed_sentences_are_as_they_were_read() {
    let sentences = rehearsed();
    for sentence in &sentences {
        assert!(faults(sentence).iter().all(|fault| fault.starts_with("more than")), "{sentence}");
    }
    insta::assert_snapshot!(sentences.into_iter().collect::<Vec<_>>().join("\n"));
}
