//! The ledger of the seeds: every row has an answer, and the answers are counted.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

const SEEDS: [(&str, &str); 5] = [
    ("rayservice-incremental-upgrade", "RS"),
    ("ray-gcs-ha", "HA"),
    ("backendai-model-service-deployment", "BA"),
    ("modelserving-role-upgrade-order", "MS"),
    ("lws-startup-policy", "LW"),
];

struct Row {
    id: String,
    shown_by: String,
}

/// The rows of one seed's table.
fn rows(ledger: &str, seed: &str) -> Vec<Row> {
    let section = ledger.split("\n## ").find(|part| part.lines().next() == Some(seed));
    let section = section.unwrap_or_else(|| panic!("no section for {seed}"));
    section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| id "))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [id, says, shown_by] = cells.as_slice() else { panic!("not three cells: {line}") };
            assert!(!says.is_empty(), "{id} says nothing");
            Row { id: (*id).to_owned(), shown_by: (*shown_by).to_owned() }
        })
        .collect()
}

/// The functions of every test in the tree.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in support::files("crates", ".rs") {
        for line in support::read(&file).lines() {
            let line = line.trim_start().trim_start_matches("async ");
            if let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_row_names_a_test_or_a_deviation_or_is_not_done_yet() {
    let ledger = support::read("docs/seeds.md");
    let tests = tests();
    let (mut shown, mut deviations, mut open) = (0, 0, 0);
    for (seed, prefix) in SEEDS {
        let rows = rows(&ledger, seed);
        assert!(!rows.is_empty(), "{seed} has no rows");
        for (place, row) in rows.iter().enumerate() {
            assert_eq!(row.id, format!("{prefix}-{:02}", place + 1), "ids are consecutive");
            let answer = row.shown_by.as_str();
            let (reason, test) =
                answer.split_once("test: ").map_or((answer, None), |(r, test)| (r, Some(test)));
            for name in test.iter().flat_map(|names| names.split(", ")).map(|name| name.trim_matches('`')) {
                assert!(tests.contains(name), "{}: there is no test {name}", row.id);
            }
            let replaced = answer.strip_suffix("; not yet");
            if answer == "not yet" || replaced.is_some_and(|reason| reason.starts_with("deviation: ")) {
                open += 1;
            } else if reason.starts_with("deviation: ") {
                deviations += 1;
            } else {
                assert!(test.is_some() && reason.is_empty(), "{}: {answer:?} is no answer", row.id);
                shown += 1;
            }
        }
    }
    println!("seeds: {shown} rows shown by a test, {deviations} stated deviations, {open} not yet");
}
