//! `segue model-server` as a pod runs it.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
};

fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream
}

#[test]
fn it_serves_at_its_pods_address_and_ends_after_its_last_token() {
    let counts = tempfile::tempdir().unwrap();
    let pod = format!("127.64.{}.9", std::process::id() % 200);
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["model-server", "--version", "v7", "--port", "0", "--token-gap-millis", "20", "--counts"])
        .arg(counts.path())
        .env("POD_IP", &pod)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut saying = BufReader::new(child.stderr.take().unwrap());
    saying.read_line(&mut said).unwrap();
    assert!(said.starts_with(&format!("v7 listens on http://{pod}:")), "{said}");
    let address = said.trim().rsplit('/').next().unwrap().parse().unwrap();

    let mut stream = BufReader::new(ask(address, "/v1/completions?stream=20"));
    let mut line = String::new();
    while !line.contains("\"token\":0") {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let status = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"token\":19") && rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let files: Vec<_> = fs::read_dir(counts.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let written = fs::read_to_string(&files[0]).unwrap();
    assert_eq!(written, r#"{"version":"v7","requests":1,"inFlight":0,"ended":true}"#);
}
