//! The borders of the crates, and one version of each dependency.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

/// What a pure crate may depend on. None of it does I/O, knows a cluster or reads a clock.
const PURE: [(&str, &[&str]); 3] = [
    ("planner", &[]),
    ("schema", &["kube-cel", "regex", "serde_json", "thiserror"]),
    ("api", &["schema", "k8s-openapi", "schemars", "serde", "serde-saphyr", "serde_json", "thiserror"]),
];

/// The names in the `[dependencies]` table of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[dependencies]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split(['.', '=', ' ']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn pure_crates_depend_on_nothing_that_acts() {
    for (name, allowed) in PURE {
        for dependency in dependencies(&support::read(&format!("crates/{name}/Cargo.toml"))) {
            assert!(allowed.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn nothing_that_ships_depends_on_the_test_bed() {
    for manifest in support::files("crates", "Cargo.toml") {
        let shipped = dependencies(&support::read(&manifest));
        assert!(!shipped.contains(&"testbed".to_owned()), "{manifest}");
    }
}

/// The node runs pods for any API server, and reaches it through a client alone.
#[test]
fn the_node_depends_on_no_api_server() {
    let shipped = dependencies(&support::read("crates/node/Cargo.toml"));
    assert!(!shipped.contains(&"apiserver".to_owned()), "{shipped:?}");
}

#[test]
fn the_reader_of_manifests_reads_them() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# why\ntokio.workspace = true\nkube = { version = \"4\" }\n\
                    [dev-dependencies]\nproptest = \"1\"\n";
    assert_eq!(dependencies(manifest), ["tokio", "kube"]);
}

#[test]
fn the_lock_file_holds_one_version_of_each() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let lock = support::read("Cargo.lock");
    let value = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    for package in lock.split("[[package]]").skip(1) {
        let mut lines =
            package.lines().filter(|line| line.starts_with("name") || line.starts_with("version"));
        let name = lines.next().map(value).unwrap();
        versions.entry(name).or_default().push(lines.next().map(value).unwrap());
    }
    let allowed = support::read("deny.toml");
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let unexplained: Vec<_> =
            versions.iter().filter(|v| !allowed.contains(&format!("\"{name}@{v}\""))).collect();
        assert!(unexplained.len() <= 1, "{name}: {versions:?}; give all but one a reason in deny.toml");
    }
}
