//! What the tests of the command line share.

// Several test binaries include this file, and not each uses all of it; clippy.toml allows unwrap and panic in tests, but
// does not know a helper of tests for one.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod pod;
pub mod seen;
pub mod up;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
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

/// What Ctrl-C does.
pub fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The command lines of the processes that have this in their command line or in their environment.
pub fn processes_with(text: &str) -> Vec<String> {
    let holds = |file: &Path| {
        fs::read(file).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    processes
        .filter(|process| ["cmdline", "environ"].iter().any(|file| holds(&process.join(file))))
        .filter_map(|process| fs::read(process.join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .collect()
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

/// A block of commands and who runs it.
pub struct Block {
    pub file: String,
    pub runner: String,
    pub commands: Vec<String>,
}

/// The blocks of commands in the documents, in their order.
pub fn blocks() -> Vec<Block> {
    let mut files = files("docs", ".md");
    files.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned));
    let mut found = Vec::new();
    for file in files {
        let text = read(&file);
        let mut fences = text.split("\n```").skip(1);
        while let (Some(opened), _closed) = (fences.next(), fences.next()) {
            let (marked, body) = opened.split_once('\n').unwrap();
            if let Some(runner) = marked.strip_prefix("sh") {
                let commands =
                    body.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
                found.push(Block { file: file.clone(), runner: runner.trim().to_owned(), commands });
            }
        }
    }
    found
}
