//! The embedded API under test, and what a kube-apiserver once answered.
use std::{fs, path::PathBuf, sync::Arc};

use apiserver::{
    InProcess, Server,
    store::{History, Store},
    world::Machine,
};
use kube::Client;
use testbed::differential::Recording;

pub fn client() -> Client {
    let server = Server::new(Store::memory(History::default()), Arc::new(Machine), Vec::new());
    tokio::spawn(server.clone().keep_collecting());
    Client::new(InProcess::new(server), "default")
}

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// By name, in the order of their names.
pub fn recordings() -> Vec<(String, Recording)> {
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
