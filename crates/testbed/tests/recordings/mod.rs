//! What a kube-apiserver once answered.
use std::{fs, path::PathBuf};

use testbed::differential::Recording;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// By name, in the order of their names.
pub fn all() -> Vec<(String, Recording)> {
    let mut found: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, Recording::parse(&fs::read_to_string(&path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}
