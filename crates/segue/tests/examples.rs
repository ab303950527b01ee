//! The examples: one folder per seed, every manifest accepted.

// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;

const FOLDERS: [&str; 5] = [
    "backendai-model-service-deployment",
    "lws-startup-policy",
    "modelserving-role-upgrade-order",
    "ray-gcs-ha",
    "rayservice-incremental-upgrade",
];

/// Kinds that go along with ours. Whoever runs the example applies them; here is nobody to judge them.
const OTHERS: [&str; 2] = ["apiVersion: v1", "apiVersion: gateway.networking.k8s.io/v1"];

/// The manifests of ours in a file.
fn ours(file: &str) -> String {
    let text = support::read(file);
    let is_ours = |manifest: &&str| !manifest.lines().any(|line| OTHERS.contains(&line));
    text.split("\n---\n").filter(is_ours).collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn every_example_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let manifests = directory.path().join("manifests.yaml");
    for folder in FOLDERS {
        let files = support::files(&format!("examples/{folder}"), ".yaml");
        assert!(!files.is_empty(), "{folder} has no example");
        let mut judged = 0;
        for file in files {
            let manifest = ours(&file);
            if manifest.trim().is_empty() {
                continue;
            }
            judged += 1;
            fs::write(&manifests, manifest).unwrap();
            let output = support::segue(&["validate", "-f", manifests.to_str().unwrap()]);
            let said = support::stdout(&output) + &support::stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{file}: {said}");
            assert!(!said.contains("unknown field"), "{file}: {said}");
        }
        assert!(judged > 0, "{folder} has no manifest of ours");
    }
}
