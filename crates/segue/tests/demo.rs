//! `segue demo` as a person runs it: what it promises, and that it shows what each protection is good for.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A demonstration that has ended, and the place where it could have left something.
struct Ended {
    output: Output,
    temporary: TempDir,
}

impl Ended {
    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn summary(&self) -> Value {
        serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", support::stderr(&self.output)))
    }
}

/// Every demonstration that is looked at here. Each takes most of a minute of waiting and little else, and has ports and
/// a directory of its own: they run at once, whichever test asks first.
static ENDED: LazyLock<BTreeMap<&str, Ended>> = LazyLock::new(|| {
    let shown = [
        ("rolling", ["--strategy", "rolling"]),
        ("incremental", ["--strategy", "incremental"]),
        ("drain", ["--without", "drain"]),
        ("gate", ["--without", "gate"]),
        ("settle", ["--without", "settle"]),
    ];
    let running = shown.map(|(name, arguments)| {
        let temporary = tempfile::tempdir().unwrap();
        let child = demo(&[&["-o", "json"], &arguments[..]].concat(), &temporary);
        (name, child, temporary)
    });
    let end = |(name, child, temporary): (_, Child, _)| {
        (name, Ended { output: child.wait_with_output().unwrap(), temporary })
    };
    running.into_iter().map(end).collect()
});

fn demo(arguments: &[&str], temporary: &TempDir) -> Child {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .arg("demo")
        .args(arguments)
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The whole of what a run is told to keep everything below: its files, and its processes, which know its directory.
fn assert_nothing_is_left(temporary: &TempDir) {
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    let left = support::processes_with(temporary.path().to_str().unwrap());
    assert!(left.is_empty(), "{left:#?}");
}

fn assert_nothing_was_dropped(strategy: &str) {
    let ended = &ENDED[strategy];
    let summary = ended.summary();
    let expected = json!({"strategy": strategy, "without": [], "failed": 0, "truncated": 0, "appErrors": 0,
        "outcome": "Promoted", "peakPercent": 125, "good": true});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&summary[field], value, "{field}: {summary:#}");
    }
    let requests = summary["requests"].as_u64().unwrap();
    let counts = json!({"load": requests, "gateway": requests, "servers": requests, "disagreements": []});
    assert_eq!(summary["counts"], counts);
    // Some of them at every step of the way.
    assert!(requests > 500, "{summary:#}");
    assert_eq!(ended.code(), Some(0));
    assert_nothing_is_left(&ended.temporary);
}

/// What is taken away was good for something: requests fail, and the demonstration says so.
fn assert_it_is_missed(protection: &str) {
    let ended = &ENDED[protection];
    let summary = ended.summary();
    assert_eq!(summary["without"], json!([protection]));
    assert!(summary["failed"].as_u64().unwrap() > 0, "{summary:#}");
    assert_eq!((&summary["good"], ended.code()), (&json!(false), Some(1)), "{summary:#}");
    // Failing is all that is different: what was counted is the same, and so is the end.
    assert_eq!((&summary["outcome"], &summary["peakPercent"]), (&json!("Promoted"), &json!(125)));
    let disagreements = summary["counts"]["disagreements"].as_array().unwrap();
    // A server that is killed in the middle of its streams cannot write its last count down; the gateway always can.
    let excused =
        |said: &Value| protection == "drain" && said.as_str().unwrap().contains("the model servers counted");
    assert!(disagreements.iter().all(excused), "{summary:#}");
    assert_nothing_is_left(&ended.temporary);
}

#[test]
fn a_rolling_handover_under_load_drops_nothing_and_leaves_nothing() {
    assert_nothing_was_dropped("rolling");
}

#[test]
fn an_incremental_handover_under_load_drops_nothing_and_leaves_nothing() {
    assert_nothing_was_dropped("incremental");
}

#[test]
fn without_the_drain_streams_break_off() {
    assert_it_is_missed("drain");
    assert!(ENDED["drain"].summary()["truncated"].as_u64().unwrap() > 0);
}

#[test]
fn without_the_gate_requests_meet_a_version_that_is_not_ready() {
    assert_it_is_missed("gate");
}

#[test]
fn without_the_settling_requests_go_where_nobody_serves_any_more() {
    assert_it_is_missed("settle");
}

/// Comes first by its name, so that it runs beside the others.
#[test]
fn a_demonstration_says_what_is_real_and_an_interrupt_at_any_time_leaves_nothing_behind() {
    let moments = ["4 replicas of v1 start", "v2 is applied", "scaling the current version to 3 replicas"];
    let interrupted = moments.map(|moment| thread::spawn(move || interrupt_at(moment)));
    for moment in interrupted {
        moment.join().unwrap();
    }
}

fn interrupt_at(moment: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(&[], &temporary);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with("Real processes") && first.contains("a simulated model"), "{first}");
    assert!(lines.any(|line| line.contains(moment)));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    support::interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_nothing_is_left(&temporary);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("stopped by a signal"), "{said}");
}

#[test]
fn what_it_does_not_know_is_refused() {
    for arguments in [["--strategy", "sideways"], ["--without", "luck"], ["--rps", "0"]] {
        let output = support::segue(&[&["demo"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
