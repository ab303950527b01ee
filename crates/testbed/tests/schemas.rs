//! What the embedded server knows about the built-in kinds, held against a real kube-apiserver: their schemas, and the
//! cases by which it is tested.
//!
//! `SEGUE_UPDATE=1 cargo test -p testbed --test schemas -- --ignored` writes both anew.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]

use std::{collections::BTreeMap, env, fs, path::Path, time::Duration};

use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};
use testbed::{Cluster, eventually};

const FILE: &str = "../apiserver/src/builtin/schemas.json";
const CASES: &str = "../apiserver/tests/builtin/cases.jsonl";
const NAMESPACE: &str = "builtin-cases";
const SOON: Duration = Duration::from_mins(1);
const REFERENCE: &str = "#/components/schemas/";

const DOCUMENTS: &[&str] = &[
    "api/v1",
    "apis/apps/v1",
    "apis/discovery.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
];

/// What is served, and what is sent to its subresources.
const ROOTS: &[(&str, &[&str])] = &[
    (
        "io.k8s.api.core.v1",
        &[
            "Namespace",
            "Pod",
            "Service",
            "ConfigMap",
            "Secret",
            "Event",
            "Node",
            "ServiceAccount",
            "Endpoints",
            "PersistentVolumeClaim",
        ],
    ),
    ("io.k8s.api.apps.v1", &["ControllerRevision"]),
    ("io.k8s.api.discovery.v1", &["EndpointSlice"]),
    ("io.k8s.api.coordination.v1", &["Lease"]),
    ("io.k8s.api.events.v1", &["Event"]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", &["CustomResourceDefinition"]),
    ("io.k8s.api.policy.v1", &["PodDisruptionBudget", "Eviction"]),
    ("io.k8s.api.rbac.v1", &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    ("io.k8s.api.authorization.v1", &["SelfSubjectAccessReview"]),
    ("io.k8s.api.autoscaling.v1", &["Scale"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1", &["DeleteOptions"]),
];

async fn served() -> Map<String, Value> {
    let client = Cluster::shared().await.client();
    let mut schemas = Map::new();
    for document in DOCUMENTS {
        let request = http::Request::get(format!("/openapi/v3/{document}")).body(Vec::new()).unwrap();
        let document: Value = client.request(request).await.unwrap();
        schemas.extend(document["components"]["schemas"].as_object().unwrap().clone());
    }
    schemas
}

/// Without what is only for people.
fn without_descriptions(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "description");
            let clean = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                // A property may be called so.
                ("properties", Value::Object(fields)) => {
                    let fields =
                        fields.iter().map(|(name, field)| (name.clone(), without_descriptions(field)));
                    (key.clone(), Value::Object(fields.collect()))
                }
                _ => (key.clone(), without_descriptions(value)),
            };
            Value::Object(kept.map(clean).collect())
        }
        Value::Array(list) => list.iter().map(without_descriptions).collect(),
        other => other.clone(),
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => {
            let own = map
                .get("$ref")
                .and_then(Value::as_str)
                .map(|name| name.trim_start_matches(REFERENCE).to_owned());
            own.into_iter().chain(map.values().flat_map(references)).collect()
        }
        Value::Array(list) => list.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn reduced(schemas: &Map<String, Value>) -> BTreeMap<String, Value> {
    let names =
        ROOTS.iter().flat_map(|(package, kinds)| kinds.iter().map(move |kind| format!("{package}.{kind}")));
    let mut todo: Vec<String> = names.collect();
    let mut kept = BTreeMap::new();
    while let Some(name) = todo.pop() {
        if kept.contains_key(&name) {
            continue;
        }
        let schema = without_descriptions(&schemas[&name]);
        todo.extend(references(&schema));
        kept.insert(name, schema);
    }
    kept
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn the_schemas_are_those_of_the_cluster() {
    let schemas = reduced(&served().await);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if env::var_os("SEGUE_UPDATE").is_some() {
        fs::write(&path, serde_json::to_string(&schemas).unwrap()).unwrap();
    }
    let committed: BTreeMap<String, Value> =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let names = |schemas: &BTreeMap<String, Value>| schemas.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&schemas), names(&committed));
    for (name, schema) in &schemas {
        assert_eq!(*schema, committed[name], "{name}");
    }
}

const PLURALS: &[(&str, &str)] = &[
    ("Namespace", "/namespaces"),
    ("Node", "/nodes"),
    ("CustomResourceDefinition", "/customresourcedefinitions"),
    ("ClusterRole", "/clusterroles"),
    ("ClusterRoleBinding", "/clusterrolebindings"),
];

/// Where objects of the case's kind are.
fn collection(case: &Value) -> String {
    let (version, kind) = (case["apiVersion"].as_str().unwrap(), case["kind"].as_str().unwrap());
    let group = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    if let Some((_, plural)) = PLURALS.iter().find(|(of, _)| *of == kind) {
        return format!("{group}{plural}");
    }
    let plural = kind.to_lowercase();
    let end = if plural.ends_with('s') { "" } else { "s" };
    format!("{group}/namespaces/{NAMESPACE}/{plural}{end}")
}

async fn call(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await
}

/// An object of the case, as it is sent.
fn typed(case: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = case["apiVersion"].clone();
    object["kind"] = case["kind"].clone();
    object
}

/// What the cluster makes of a case, in the fields of the file.
async fn answer(client: &Client, case: &Value) -> (&'static str, Value) {
    let collection = collection(case);
    let name = case["sent"]["metadata"]["name"].as_str().unwrap_or("nameless").replace('%', "%25");
    let place = format!("{collection}/{name}");
    let sent = typed(case, &case["sent"]);
    let answer = match case.get("before") {
        None => call(client, Method::POST, &collection, &sent).await,
        Some(before) => {
            let old = call(client, Method::POST, &collection, &typed(case, before)).await.unwrap();
            let mut sent = sent;
            sent["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            let status = if case["status"] == true { "/status" } else { "" };
            call(client, Method::PUT, &format!("{place}{status}"), &sent).await
        }
    };
    // Whether there is something to delete does not matter.
    let _ = call(client, Method::DELETE, &format!("{place}?gracePeriodSeconds=0"), &Value::Null).await;
    match answer {
        Ok(stored) => ("stored", comparable(case, stored)),
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            ("refused", causes.map(|c| json!([c.reason, c.field, c.message])).collect())
        }
        Err(kube::Error::Api(status)) => ("error", json!(status.message)),
        Err(other) => panic!("{}: {other}", case["name"]),
    }
}

/// Without what differs from one cluster to the next.
fn comparable(case: &Value, mut object: Value) -> Value {
    let map = object.as_object_mut().unwrap();
    map.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    let ours = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"];
    object["metadata"].as_object_mut().unwrap().retain(|name, _| !ours.contains(&name.as_str()));
    match case["kind"].as_str().unwrap() {
        "Service" => without_addresses(&mut object["spec"]),
        "Node" => drop(object["spec"].as_object_mut().unwrap().remove("taints")),
        "PersistentVolumeClaim" => drop(object["metadata"].as_object_mut().unwrap().remove("finalizers")),
        _ => {}
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|c| c["reason"] == "SchedulingGated") {
        condition["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
    }
    object
}

fn without_addresses(spec: &mut Value) {
    if spec.get("clusterIP").is_some_and(|ip| ip != "None") {
        spec["clusterIP"] = json!("10.0.0.1");
        spec["clusterIPs"] = json!(["10.0.0.1"]);
    }
    if spec.get("healthCheckNodePort").is_some() {
        spec["healthCheckNodePort"] = json!(30000);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.get("nodePort").is_some() {
            port["nodePort"] = json!(30000);
        }
    }
}

/// Pods whose account mounts no token are stored as they were sent.
async fn prepare(client: &Client) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    call(client, Method::POST, "/api/v1/namespaces", &namespace).await.unwrap();
    let place = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    eventually("the default account", SOON, async || {
        let mut account = call(client, Method::GET, &place, &Value::Null).await.ok()?;
        account["automountServiceAccountToken"] = json!(false);
        call(client, Method::PUT, &place, &account).await.ok()
    })
    .await
    .unwrap();
}

/// Maps have no order in Go, and neither have the causes that come from them.
fn sorted(mut answer: Value) -> Value {
    if let Value::Array(causes) = &mut answer {
        causes.sort_by_key(ToString::to_string);
    }
    answer
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn the_cases_are_those_of_the_cluster() {
    let client = Cluster::shared().await.client();
    prepare(&client).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CASES);
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    for line in fs::read_to_string(&path).unwrap().lines() {
        let mut case: Value = serde_json::from_str(line).unwrap();
        let (outcome, found) = answer(&client, &case).await;
        if sorted(found.clone()) != sorted(case[outcome].clone()) {
            wrong.push(format!("{}: {outcome}: {found}", case["name"]));
        }
        let map = case.as_object_mut().unwrap();
        map.retain(|name, _| !matches!(name.as_str(), "stored" | "refused" | "error"));
        map.insert(outcome.to_owned(), found);
        lines.push(case.to_string() + "\n");
    }
    if env::var_os("SEGUE_UPDATE").is_some() {
        fs::write(&path, lines.concat()).unwrap();
    } else {
        assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
    }
}
