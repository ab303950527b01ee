//! What the tests of the command line share.

// Several test binaries include this file, and not each uses all of it; clippy.toml allows unwrap and panic in tests, but
// does not know a helper of tests for one.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The binary, run at the top of the repository.
pub fn segue(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue")).args(arguments).current_dir(root()).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files below a folder whose names end so, as paths from the top.
pub fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    visit(&root().join(folder), &mut found);
    let top = root();
    let mut names: Vec<String> = found
        .iter()
        .map(|path| path.strip_prefix(&top).unwrap().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names
}

fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { visit(&path, found) } else { found.push(path) }
    }
}
