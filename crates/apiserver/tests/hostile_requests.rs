//! Requests that no correct client sends: the server refuses them with a message or bounds them, and serves other clients.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
mod common;

use std::time::Duration;

use apiserver::{Limits, Server};
use bytes::Bytes;
use http_body::Body as _;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Answer, Behind, answer, ask, rest, send, server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const PATCH: &str = "application/json-patch+json";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

async fn post(server: &Server, object: &Value) -> Answer {
    send(server, "POST", MAPS, JSON, object.to_string()).await
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_not_kept() {
    let server = server().await;
    let large = vec![b' '; 10 << 20];
    for (method, path, media) in [
        ("POST", MAPS, JSON),
        ("PUT", "/api/v1/namespaces/default", JSON),
        ("DELETE", MAPS, JSON),
        ("GET", "/version", ""),
    ] {
        let refusal = send(&server, method, path, media, large.clone()).await.refusal();
        assert_eq!((refusal.0, refusal.1.as_str()), (413, "RequestEntityTooLarge"), "{method}");
    }
    // Over the wire as well, whether its length is said before or not.
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::over(server, directory.path(), Limits::default()).await;
    let said = behind.head(
        "POST",
        MAPS,
        "Content-Type: application/json\r\nContent-Length: 10485760\r\nConnection: close\r\n",
    );
    let unsaid = behind.head(
        "POST",
        MAPS,
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n",
    );
    for head in [said, unsaid] {
        let (mut reading, mut writing) = tokio::io::split(behind.connect().await);
        let write = async {
            writing.write_all(head.as_bytes()).await?;
            for _ in 0..160 {
                // A chunk of 64 KiB is also 64 KiB of a body without chunks.
                writing.write_all(b"10000\r\n").await?;
                writing.write_all(&vec![b' '; 0x10000]).await?;
                writing.write_all(b"\r\n").await?;
            }
            std::io::Result::Ok(())
        };
        let read = async {
            let mut bytes = Vec::new();
            drop(reading.read_to_end(&mut bytes).await);
            bytes
        };
        // The server need not read to the end what it refuses.
        let (_, bytes) = tokio::join!(write, read);
        assert_eq!(common::parse(&bytes).refusal().0, 413);
    }
    assert_eq!(behind.once("POST", MAPS, &map("after").to_string()).await.code, 201);
}

#[tokio::test]
async fn nesting_aliases_and_bytes_that_are_no_text_are_bad_requests() {
    let server = server().await;
    assert_eq!(post(&server, &map("a")).await.code, 201);
    let deep =
        |open: &str, close: &str| format!("{{\"a\":{}1{}}}", open.repeat(10_000), close.repeat(10_000));
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (this, last) in ('b'..='z').zip('a'..='y') {
        bomb += &format!("{this}: &{this} [{}]\n", vec![format!("*{last}"); 9].join(","));
    }
    let one = format!("{MAPS}/a?fieldManager=x");
    let bodies: [(&str, Vec<u8>); 12] = [
        (JSON, deep("[", "]").into()),
        (JSON, deep("{\"a\":", "}").into()),
        (JSON, b"\xff\xfe{}".to_vec()),
        (JSON, b"{\"kind\":\"\xc3\x28\"}".to_vec()),
        (JSON, b"{\"a\":\"\\ud800\"}".to_vec()),
        (JSON, b"[1,2".to_vec()),
        (JSON, Vec::new()),
        (JSON, b"null".to_vec()),
        (YAML, bomb.clone().into()),
        (YAML, "- ".repeat(10_000).into()),
        (YAML, b"\xff: x".to_vec()),
        (YAML, b"a: &a [*a]".to_vec()),
    ];
    for (media, body) in &bodies {
        for (method, path) in [("POST", MAPS), ("PUT", one.as_str())] {
            let answer = send(&server, method, path, media, body.clone()).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(answer.refusal().0, 400, "{method} {media} {shown}");
        }
    }
    for body in [deep("[", "]"), deep("{\"a\":", "}"), bomb] {
        assert_eq!(send(&server, "PATCH", &one, APPLY, body).await.refusal().0, 400);
    }
    assert_eq!(send(&server, "DELETE", &one, JSON, deep("[", "]")).await.refusal().0, 400);
}

#[tokio::test]
async fn a_patch_of_too_many_steps_is_too_large() {
    let server = server().await;
    assert_eq!(post(&server, &map("a")).await.code, 201);
    let steps = |number: usize| vec![json!({"op": "add", "path": "/data/k", "value": "x"}); number];
    let one = format!("{MAPS}/a");
    let many = send(&server, "PATCH", &one, PATCH, json!(steps(20_000)).to_string()).await;
    assert_eq!(many.refusal().0, 413);
    assert_eq!(send(&server, "PATCH", &one, PATCH, json!(steps(1_000)).to_string()).await.code, 200);
    // Copies that double what there is each time.
    let mut doubling = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(1_000)}})];
    doubling.extend((0..40).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/x{n}")})));
    let doubled = send(&server, "PATCH", &one, PATCH, json!(doubling).to_string()).await;
    assert!(matches!(doubled.refusal().0, 413 | 422), "{doubled:?}");
}

#[tokio::test]
async fn labels_annotations_and_names_have_the_bounds_of_a_cluster() {
    let server = server().await;
    let with = |field: &str, key: String, value: String| {
        let mut object = map("a");
        object["metadata"][field] = json!({key: value});
        object
    };
    let long = |n: usize| "x".repeat(n);
    let refused = [
        with("labels", "k".to_owned(), long(64)),
        with("labels", long(64), "v".to_owned()),
        with("labels", format!("{}/k", long(254)), "v".to_owned()),
        with("labels", "k".to_owned(), "not allowed".to_owned()),
        with("annotations", "k".to_owned(), long(256 << 10)),
        with("annotations", "not allowed".to_owned(), "v".to_owned()),
        map(&long(254)),
        map("../../etc/passwd"),
        map(""),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": long((1 << 20) + 1)}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"../k": "v"}}),
    ];
    for object in &refused {
        assert_eq!(post(&server, object).await.refusal().0, 422, "{:.200}", object.to_string());
    }
    assert_eq!(post(&server, &with("annotations", "k".to_owned(), long(200 << 10))).await.code, 201);
    let mut crowded = map("crowded");
    for number in 0..20_000 {
        crowded["metadata"]["labels"][format!("label-{number}")] = json!("v");
    }
    assert_eq!(post(&server, &crowded).await.code, 201, "no bound on their number, as on a cluster");
    let selector = format!("{MAPS}?labelSelector={}", "a%3Db,".repeat(20_000) + "c");
    // A URI of this length does not come through every front; the server itself answers.
    if let Ok(request) = http::Request::get(selector).body(http_body_util::Full::<Bytes>::default()) {
        assert_eq!(server.handle(request).await.status(), 200);
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(100);
    let limits = Limits { head: short, handshake: short, idle: short, ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    let mut slow = behind.connect().await;
    slow.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    // Before the handshake, after it, and after a request.
    let mut silent = tokio::net::TcpStream::connect(behind.address).await.unwrap();
    let idle = behind.connect().await;
    let mut kept = behind.connect().await;
    kept.write_all(behind.head("GET", "/version", "").as_bytes()).await.unwrap();
    // Closed by the server, each: reading comes to an end.
    let text = rest(slow).await;
    assert!(text.is_empty() || text.starts_with(b"HTTP/1.1 408"), "{text:?}");
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
    assert!(rest(idle).await.is_empty());
    assert!(rest(kept).await.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn heads_that_are_too_large_or_broken_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let behind = Behind::start(directory.path(), Limits::default()).await;
    let many = "X-Many: x\r\n".repeat(200);
    let large = format!("X-Large: {}\r\n", "x".repeat(1 << 20));
    let heads = [
        behind.head("GET", "/version", &many),
        behind.head("GET", "/version", &large),
        "rubbish\r\n\r\n".to_owned(),
        "GET /version HTTP/9.9\r\n\r\n".to_owned(),
        behind.head("POST", MAPS, "Content-Length: 5\r\nContent-Length: 6\r\n"),
        behind.head("POST", MAPS, "Content-Length: -1\r\n"),
    ];
    for head in heads {
        let mut stream = behind.connect().await;
        // It may be closed before all of it is written.
        drop(stream.write_all(head.as_bytes()).await);
        let bytes = rest(stream).await;
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(behind.once("GET", "/version", "").await.code, 200);
}

#[tokio::test]
async fn too_many_requests_are_told_when_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { requests: 2, ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut stream = behind.connect().await;
        stream.write_all(behind.head("GET", &format!("{MAPS}?watch=1"), "").as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        watches.push(stream);
    }
    let refused = behind.once("GET", "/version", "").await;
    assert_eq!(refused.refusal().1, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.json()["details"]["retryAfterSeconds"], 1);
    // A place is free again when a watch ends.
    drop(watches.pop());
    while behind.once("GET", "/version", "").await.code != 200 {}
}

#[tokio::test]
async fn too_many_connections_are_told_when_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 2, ..Limits::default() };
    let behind = Behind::start(directory.path(), limits).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = behind.connect().await;
        stream.write_all(behind.head("GET", "/version", "").as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        open.push(stream);
    }
    let mut third = behind.connect().await;
    // Not even with a connection that it means to keep.
    third.write_all(behind.head("GET", "/version", "").as_bytes()).await.unwrap();
    let refused = answer(third).await;
    assert_eq!(refused.refusal().1, "TooManyRequests");
    assert_eq!(refused.headers["retry-after"], "1");
    let mut stranger = behind.connect().await;
    stranger.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert_eq!(answer(stranger).await.code, 401);
    drop(open.pop());
    while behind.once("GET", "/version", "").await.code != 200 {}
}

fn segment() -> impl Strategy<Value = String> {
    let known = [
        "api",
        "apis",
        "v1",
        "namespaces",
        "default",
        "configmaps",
        "pods",
        "a",
        "status",
        "scale",
        "finalize",
        "log",
        "eviction",
        "binding",
        "events",
        "events.k8s.io",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "secrets",
        "services",
        "nodes",
        "openapi",
        "v3",
        "",
        "apps",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "%2e%2e",
        "é",
    ];
    prop_oneof![8 => select(known.to_vec()).prop_map(str::to_owned), 1 => "[a-z0-9%.:~-]{0,12}"]
}

fn query() -> impl Strategy<Value = String> {
    let names = [
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "dryRun",
        "fieldManager",
        "force",
        "fieldValidation",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "timeoutSeconds",
        "propagationPolicy",
        "gracePeriodSeconds",
        "includeObject",
    ];
    let values = [
        "true",
        "false",
        "",
        "0",
        "1",
        "-1",
        "All",
        "Exact",
        "NotOlderThan",
        "a%3Db",
        "a+in+(b",
        "99999999999999999999",
    ];
    let value =
        prop_oneof![3 => select(values.to_vec()).prop_map(str::to_owned), 1 => "[a-zA-Z0-9%=,!()/.-]{0,12}"];
    vec((select(names.to_vec()), value).prop_map(|(name, value)| format!("{name}={value}")), 0..4)
        .prop_map(|pairs| pairs.join("&"))
}

/// JSON that resembles objects and patches.
fn value() -> impl Strategy<Value = Value> {
    let texts = [
        "v1",
        "ConfigMap",
        "Pod",
        "a",
        "default",
        "x/y",
        "/data/k",
        "/metadata/labels/-",
        "add",
        "remove",
        "test",
        "move",
        "",
        "1Gi",
        "$patch",
        "2026-01-01T00:00:00Z",
        "é\u{0}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(texts.to_vec()).prop_map(Value::from),
    ];
    let keys = [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "spec",
        "status",
        "data",
        "finalizers",
        "ownerReferences",
        "uid",
        "managedFields",
        "containers",
        "op",
        "path",
        "from",
        "value",
        "items",
        "resourceVersion",
        "replicas",
        "generateName",
        "$patch",
        "$retainKeys",
        "preconditions",
        "versions",
        "schema",
        "ports",
        "fieldsV1",
        "f:metadata",
        "manager",
        "operation",
        "time",
        "names",
        "group",
        "deletionTimestamp",
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((select(keys.to_vec()), inner), 0..7)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let object = value().prop_map(|mut value| {
        if value.is_object() {
            value["apiVersion"] = json!("v1");
            value["kind"] = json!("ConfigMap");
            if value["metadata"].is_null() || value["metadata"].is_object() {
                value["metadata"]["name"] = json!("a");
            }
        }
        value.to_string().into_bytes()
    });
    let safe = value().prop_map(|value| value.to_string().into_bytes());
    prop_oneof![2 => vec(any::<u8>(), 0..200), 4 => safe, 4 => object, 1 => Just(Vec::new())]
}

/// Beyond 64 levels nothing is stored, by any verb: lists and watches of its kind must stay readable.
#[tokio::test]
async fn an_object_that_is_nested_too_deep_is_refused_by_every_verb_and_harms_no_other() {
    let server = server().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nests.test.dev"},
        "spec": {
            "group": "test.dev", "scope": "Namespaced", "names": {"kind": "Nest", "plural": "nests"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", crds, JSON, crd.to_string()).await.code, 201);
    let nests = "/apis/test.dev/v1/namespaces/default/nests";
    let deep = |levels: usize| (1..levels).fold(json!({"end": 1}), |inner, _| json!({"a": inner}));
    let nest = |name: &str, levels: usize| json!({"apiVersion": "test.dev/v1", "kind": "Nest", "metadata": {"name": name}, "spec": deep(levels)});
    assert_eq!(send(&server, "POST", nests, JSON, nest("a", 63).to_string()).await.code, 201);
    let (one, merge) = (format!("{nests}/a"), "application/merge-patch+json");
    let apply = format!("{nests}/b?fieldManager=x");
    let version = send(&server, "GET", &one, JSON, "").await.json()["metadata"]["resourceVersion"].clone();
    for levels in [64, 90, 110, 122] {
        for (method, path, media, name) in [
            ("POST", nests, JSON, "b"),
            ("PUT", one.as_str(), JSON, "a"),
            ("PATCH", one.as_str(), merge, "a"),
            ("PATCH", apply.as_str(), APPLY, "b"),
        ] {
            let mut sent = nest(name, levels);
            if method == "PUT" {
                sent["metadata"]["resourceVersion"] = version.clone();
            }
            let (code, _, message) = send(&server, method, path, media, sent.to_string()).await.refusal();
            assert_eq!(code, 422, "{method} {media} of {levels} levels: {message}");
            assert!(message.contains("spec.a.a") && message.contains("64 levels"), "{message}");
        }
    }
    // With an owner for every field it can still be listed, changed and deleted.
    let owned = format!("{one}?fieldManager=x&force=true");
    assert_eq!(send(&server, "PATCH", &owned, APPLY, nest("a", 63).to_string()).await.code, 200);
    assert_eq!(send(&server, "GET", nests, JSON, "").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(send(&server, "DELETE", &one, JSON, "").await.code, 200);
}

/// A `Status`, an object, a list, a text of ours: never anything else, and never an error of the server.
fn check(answer: &Answer, request: &str) {
    let media = answer.headers.get("content-type").map(|value| value.to_str().unwrap()).unwrap_or_default();
    assert!(
        answer.code.as_u16() < 500 || matches!(answer.code.as_u16(), 500 | 501 | 504),
        "{request}: {answer:?}"
    );
    if media.starts_with("text/plain") {
        assert!(matches!(answer.code.as_u16(), 200 | 404), "{request}: {answer:?}");
    } else if answer.code.is_success() {
        assert!(answer.json().is_object(), "{request}: {answer:?}");
    } else {
        answer.refusal();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_request_makes_the_server_panic_or_answer_in_other_forms(
        requests in vec((
            select(vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]),
            vec(segment(), 0..8),
            prop_oneof![1 => Just(true), 1 => Just(false)],
            query(),
            select(vec![
                "", JSON, YAML, PATCH, APPLY, "application/merge-patch+json", "application/strategic-merge-patch+json",
                "application/vnd.kubernetes.protobuf", "text/plain",
            ]),
            body(),
        ), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = server().await;
            assert_eq!(post(&server, &map("a")).await.code, 201);
            for (method, segments, aimed, query, media, body) in requests {
                let path = if aimed { format!("{MAPS}/a") } else { format!("/{}", segments.join("/")) };
                let uri = format!("{path}?{query}");
                if uri.parse::<http::Uri>().is_err() {
                    continue;
                }
                let request = format!("{method} {uri} {media} {}", String::from_utf8_lossy(&body));
                let response = ask(&server, method, &uri, media, body).await;
                if response.body().size_hint().exact().is_none() {
                    assert_eq!(response.status(), 200, "a watch: {request}");
                    continue;
                }
                let (head, body) = response.into_parts();
                let bytes = http_body_util::BodyExt::collect(body).await.unwrap_or_else(|never| match never {}).to_bytes();
                check(&Answer { code: head.status, headers: head.headers, bytes }, &request);
                server.collect_garbage().await;
            }
            // It still serves: nothing is poisoned.
            assert_eq!(send(&server, "GET", "/api/v1/namespaces", "", "").await.code, 200);
        });
    }
}
