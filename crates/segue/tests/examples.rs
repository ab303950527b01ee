//! The examples: one folder per seed, every manifest accepted.

mod support;

const FOLDERS: [&str; 5] = [
    "backendai-model-service-deployment",
    "lws-startup-policy",
    "modelserving-role-upgrade-order",
    "ray-gcs-ha",
    "rayservice-incremental-upgrade",
];

#[test]
fn every_example_is_accepted() {
    for folder in FOLDERS {
        let files = support::files(&format!("examples/{folder}"), ".yaml");
        assert!(!files.is_empty(), "{folder} has no example");
        for file in files {
            let output = support::segue(&["validate", "-f", &file]);
            let said = support::stdout(&output) + &support::stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{file}: {said}");
            assert!(!said.contains("unknown field"), "{file}: {said}");
        }
    }
}
