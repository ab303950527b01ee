//! `segue demo` as a person runs it.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

#[test]
fn it_says_first_what_is_real_and_leaves_nothing_behind_after_an_interrupt() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .arg("demo")
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with("Real: ") && first.contains("Not real: "), "{first}");
    assert!(lines.any(|line| line.contains("4 replicas of v1 start")));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("told to stop before the end"), "{said}");
}

#[test]
fn what_it_does_not_know_is_refused() {
    for arguments in [["--strategy", "sideways"], ["--without", "luck"], ["--rps", "0"]] {
        let output = support::segue(&[&["demo"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
