//! Pods with networks of their own: `segue up --pod-networks`. Needs root; see CONTRIBUTING.md.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use serde_json::Value;
use testbed::eventually;

use self::support::{pod, up::Up};

const LIMIT: Duration = Duration::from_mins(1);

/// Two pods that listen on the same port of every address, behind a Service that is named after the first.
const PODS: &str = r"
apiVersion: v1
kind: Service
metadata: {name: one}
spec: {clusterIP: None, selector: {name: one}, ports: [{port: 8000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {name: one}}
spec: {containers: [{name: c, image: none, command: [python3, -c, CODE], readinessProbe: {tcpSocket: {port: 8000}, periodSeconds: 1}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two}
spec: {containers: [{name: c, image: none, command: [python3, -c, CODE], readinessProbe: {tcpSocket: {port: 8000}, periodSeconds: 1}}]}
";

/// Answers with the name of its pod, and what the pod called `one` answers.
const CODE: &str = r#"
import http.server, os, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = os.environ["HOSTNAME"]
        if self.path == "/one":
            text += " hears " + urllib.request.urlopen("http://one.default.svc.cluster.local:8000/").read().decode()
        self.send_response(200); self.end_headers(); self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"#;

fn pods(up: &Up) -> Vec<Value> {
    let list: Value = serde_json::from_str(&up.says(&["get", "pods", "-o", "json"])).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// What a pod answers.
fn ask(pod: &Value, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((pod::address(pod), 8000)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// Waits until both pods are Ready and answer, and `two` reaches `one` by its name.
async fn both_answer(up: &Up) {
    let answers = eventually("answers of both pods", LIMIT, async || {
        let pods: Vec<Value> = pods(up).into_iter().filter(pod::is_ready).collect();
        let [one, two] = pods.as_slice() else { return None };
        Some((ask(one, "/")?, ask(two, "/one")?)).filter(|answers| answers.1.contains("hears"))
    });
    let answers = answers.await.unwrap_or_else(|late| panic!("{late}: {}", up.says(&["get", "pods"])));
    assert_eq!(answers, ("one".to_owned(), "two hears one".to_owned()));
}

/// The bridge of a `segue up`, if there is one.
fn bridge(up: &Up) -> Option<String> {
    let output =
        Command::new("ip").args(["-json", "-details", "link", "show", "type", "bridge"]).output().unwrap();
    let links: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let directory = up.directory.path().join("state/node").display().to_string();
    let mut links = links.as_array().into_iter().flatten();
    links.find(|link| link["ifalias"] == directory)?["ifname"].as_str().map(str::to_owned)
}

#[tokio::test]
#[ignore = "needs root"]
async fn pods_with_networks_of_their_own_listen_on_the_same_port() {
    let mut up = Up::start_with(&["--pod-networks"]);
    let code = serde_json::to_string(CODE).unwrap();
    up.says(&["apply", "-f", &up.file("pods.yaml", &PODS.replace("CODE", &code))]);
    both_answer(&up).await;
    let first = bridge(&up);
    assert!(first.is_some());

    up.kill_and_restart();
    both_answer(&up).await;
    assert_eq!(bridge(&up), first, "the bridge is taken over");

    assert!(up.interrupt().success());
    assert_eq!(bridge(&up), None, "nothing is left on the machine");
}
