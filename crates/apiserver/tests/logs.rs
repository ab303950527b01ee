//! `pods/log`: which pod and container a request may mean, and what is passed on of the output.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::{Arc, Mutex};

use apiserver::{LogRequest, PodLogs, Server, StatusError};
use bytes::Bytes;
use futures_util::{
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::common::{ask, send, server};

/// Says two lines of every container, and goes on with nothing for who follows.
#[derive(Debug, Default)]
struct Node(Mutex<Vec<LogRequest>>);

impl PodLogs for Node {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, StatusError>> {
        let said = stream::iter(["one\n", "two\n"].map(Bytes::from));
        let answer = match request.container.as_str() {
            "late" => Err(StatusError::bad_request("container \"late\" in pod \"two\" is waiting to start")),
            _ if request.follow => Ok(said.chain(stream::pending()).boxed()),
            _ => Ok(said.boxed()),
        };
        self.0.lock().unwrap().push(request);
        Box::pin(async move { answer })
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(server: &Server, name: &str, containers: &[&str], more: Value) {
    let containers: Vec<Value> = containers.iter().map(|n| json!({"name": n, "image": "i"})).collect();
    let mut spec = json!({"containers": containers});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let answer = send(server, "POST", PODS, "application/json", pod.to_string()).await;
    assert!(answer.code.is_success(), "{answer:?}");
}

async fn with_pods() -> (Server, Arc<Node>) {
    let (server, node) = (server().await, Arc::new(Node::default()));
    server.set_log_source(Arc::<Node>::clone(&node));
    pod(&server, "one", &["main"], json!({"nodeName": "n"})).await;
    let init = json!({"nodeName": "n", "initContainers": [{"name": "first", "image": "i"}]});
    pod(&server, "two", &["main", "late"], init).await;
    pod(&server, "unbound", &["main"], json!({})).await;
    (server, node)
}

#[tokio::test]
async fn without_a_node_it_is_not_implemented() {
    let server = server().await;
    let answer = send(&server, "GET", &format!("{PODS}/one/log"), "", "").await;
    assert_eq!(answer.refusal().0, 501);
}

#[tokio::test]
async fn the_output_is_passed_on_as_plain_text_with_what_was_asked_for() {
    let (server, node) = with_pods().await;
    let answer = send(&server, "GET", &format!("{PODS}/one/log"), "", "").await;
    assert_eq!((answer.code.as_u16(), &answer.bytes[..]), (200, &b"one\ntwo\n"[..]));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let answer =
        send(&server, "GET", &format!("{PODS}/two/log?container=first&tailLines=3&previous=true"), "", "")
            .await;
    assert_eq!(answer.code, 200);
    let asked = LogRequest {
        namespace: "default".to_owned(),
        pod: "two".to_owned(),
        container: "first".to_owned(),
        follow: false,
        tail: Some(3),
        previous: true,
    };
    assert_eq!(node.0.lock().unwrap().last(), Some(&asked));
    let cut = send(&server, "GET", &format!("{PODS}/one/log?limitBytes=6"), "", "").await;
    assert_eq!(&cut.bytes[..], b"one\ntw");
    let unbound = send(&server, "GET", &format!("{PODS}/unbound/log"), "", "").await;
    assert_eq!((unbound.code.as_u16(), unbound.bytes.len()), (204, 0));
}

#[tokio::test]
async fn who_follows_reads_what_is_there_before_the_end() {
    let (server, _) = with_pods().await;
    let response = ask(&server, "GET", &format!("{PODS}/one/log?follow=true"), "", "").await;
    let mut body = response.into_body();
    for line in ["one\n", "two\n"] {
        let frame = body.frame().await.unwrap().unwrap_or_else(|never| match never {});
        assert_eq!(frame.into_data().unwrap(), line);
    }
}

#[tokio::test]
async fn refusals_have_the_words_of_a_kube_apiserver() {
    let (server, _) = with_pods().await;
    for (path, code, message) in [
        ("none/log", 404, "pods \"none\" not found"),
        ("one/log?container=x", 400, "container x is not valid for pod one"),
        (
            "two/log",
            400,
            "a container name must be specified for pod two, choose one of: [main late] or one of the init \
             containers: [first]",
        ),
        ("two/log?container=late", 400, "container \"late\" in pod \"two\" is waiting to start"),
        (
            "one/log?tailLines=-1",
            422,
            "PodLogOptions \"one\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
        ("one/log?tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "one/log?sinceSeconds=5",
            501,
            "pods/log with sinceSeconds: the embedded API does not serve this; a Kubernetes cluster does",
        ),
    ] {
        let (answered, _, said) = send(&server, "GET", &format!("{PODS}/{path}"), "", "").await.refusal();
        assert_eq!((answered, said.as_str()), (code, message), "{path}");
    }
}
