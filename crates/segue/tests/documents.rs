//! Every command in the documents is run.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

/// Commands that this very test is part of, or that take minutes. `.ci/run` runs them.
const RUN_BY_CI: [&str; 4] = [
    "cargo run --release -- demo",
    "cargo test --workspace",
    "cargo fmt --check",
    "cargo clippy --workspace --all-targets --all-features -- -D warnings",
];

/// Suites that need more than Rust. `.ci/run` runs the same targets, selected so that they are built once.
const RUN_BY_CI_TOGETHER: [&str; 4] = [
    "cargo test -p testbed -- --ignored",
    "cargo test -p segue --test real_kubernetes -- --ignored",
    "cargo test -p segue --test install -- --ignored",
    "cargo test -p segue --test ray --test ray_ha --test ray_service --test pod_networks -- --ignored",
];

/// Commands that take long and change nothing: their results are in the documents.
const RUN_BY_HAND: [&str; 7] = [
    "cargo run --release -p bench --bin leaderworkersets",
    "cargo test -p planner -- --nocapture",
    "crates/planner/planted",
    "cargo run --release -p testbed -- campaign --kind lws --seeds 20 -o json",
    "cargo run --release -p testbed -- campaign --kind modelserving --seeds 20 -o json",
    "cargo run --release -p testbed -- campaign --kind modeldeployment --seeds 20 -o json",
    "cargo run --release -p testbed -- campaign --kind raycluster --seeds 20 -o json",
];

/// The arguments after `segue` or `cargo run --`, for a command that is ours.
fn arguments(command: &str) -> Option<Vec<&str>> {
    let rest = command.strip_prefix("segue ").or_else(|| command.strip_prefix("cargo run --release -- "))?;
    Some(rest.split_whitespace().collect())
}

#[test]
fn every_command_of_ours_works_as_written() {
    let mut ran = 0;
    for block in support::blocks().iter().filter(|block| block.runner.is_empty()) {
        for command in &block.commands {
            let mut known = RUN_BY_CI.iter().chain(&RUN_BY_CI_TOGETHER).chain(&RUN_BY_HAND);
            if known.any(|known| known == command) {
                continue;
            }
            let Some(arguments) = arguments(command) else {
                panic!("{}: nobody runs {command:?}", block.file);
            };
            let output = support::segue(&arguments);
            assert!(output.status.success(), "{}: {command}: {}", block.file, support::stderr(&output));
            assert!(!output.stdout.is_empty(), "{}: {command} says nothing", block.file);
            ran += 1;
        }
    }
    assert!(ran >= 3, "only {ran} commands found");
}

#[test]
fn every_manifest_in_the_documents_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let mut judged = 0;
    for document in support::files("docs", ".md") {
        let text = support::read(&document);
        for block in text.split("\n```yaml\n").skip(1) {
            let manifest = block.split("\n```").next().unwrap();
            let file = directory.path().join("manifest.yaml");
            fs::write(&file, manifest).unwrap();
            let output = support::segue(&["validate", "-f", file.to_str().unwrap()]);
            let said = support::stdout(&output) + &support::stderr(&output);
            assert!(output.status.success() && !said.contains("unknown field"), "{document}: {said}");
            judged += 1;
        }
    }
    assert!(judged >= 2, "only {judged} manifests found");
}

#[test]
fn ci_runs_what_this_test_leaves_to_it() {
    let script = support::read(".ci/run").replace(" --locked", "");
    for command in RUN_BY_CI {
        assert!(script.contains(command), ".ci/run does not run {command:?}");
    }
    let words: Vec<&str> = script.split_whitespace().collect();
    let runs = |option: &str, target: &str| words.windows(2).any(|pair| pair == [option, target]);
    let mut suites = 0;
    for file in support::files("crates", ".rs") {
        if !support::read(&file).contains("#[ignore = \"needs") {
            continue;
        }
        // `crates/PACKAGE/tests/NAME.rs` and `crates/PACKAGE/tests/NAME/main.rs` are the target NAME.
        let parts: Vec<&str> = file.split('/').collect();
        let runs_it = match parts[2] {
            "tests" => runs("--test", parts[3].trim_end_matches(".rs")),
            _ => runs("--bin", parts[1]) || runs("--lib", parts[1]),
        };
        assert!(runs_it, ".ci/run does not run the ignored tests of {file}");
        suites += 1;
    }
    assert!(suites >= 12, "only {suites} suites found");
}

#[test]
fn commands_for_a_cluster_are_known_to_the_suite_that_has_one() {
    let suites = ["crates/segue/tests/real_documents.rs", "crates/segue/tests/install/site.rs"];
    let suite = suites.map(support::read).concat();
    for block in support::blocks().iter().filter(|block| !block.runner.is_empty()) {
        match block.runner.as_str() {
            "real-kubernetes" => {}
            // `verbs.rs` and `ray_ha.rs` run whatever is in such a block.
            "segue-up" | "ray" => continue,
            other => panic!("{}: nobody runs blocks of {other:?}", block.file),
        }
        for command in &block.commands {
            assert!(suite.contains(command.as_str()), "{}: nobody runs {command:?}", block.file);
        }
    }
}
