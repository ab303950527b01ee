//! Sends a sequence to a server and keeps the answers.
use std::{collections::HashMap, io};

use http::{Method, Request};
use kube::{Client, client::Body};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Mask, Sequence, WIDGETS, generate::Step};
use crate::{Error, eventually};

/// An answer without what is accidental.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The status of HTTP.
    pub code: u16,
    /// An object, a list, a `Status`, or the events of a watch.
    pub body: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    /// The `Warning` headers.
    pub warnings: Vec<String>,
}

/// A sequence with the answers that a kube-apiserver gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// What was sent.
    pub sequence: Sequence,
    /// What came back, one answer for each request.
    pub answers: Vec<Answer>,
}

impl Recording {
    /// Reads what [`Self::text`] wrote.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// As JSON, one request or answer per line: short enough to keep, and a change shows where it is.
    pub fn text(&self) -> String {
        let lines = |values: Vec<Value>| values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
        let steps = lines(self.sequence.steps.iter().map(|step| json!(step)).collect());
        let answers = lines(self.answers.iter().map(|answer| json!(answer)).collect());
        format!("{{\"sequence\":{{\"steps\":[\n{steps}\n]}},\"answers\":[\n{answers}\n]}}\n")
    }
}

/// Where two servers disagree.
#[derive(Debug)]
pub struct Difference {
    /// Which request of the sequence.
    pub step: usize,
    /// The request, for people.
    pub request: String,
    /// What the one that is right answered.
    pub expected: Answer,
    /// What the other one answered.
    pub found: Answer,
}

/// One server under comparison.
pub struct Runner {
    client: Client,
    namespace: String,
    mask: Mask,
    /// The last object that was seen under a path, and the first.
    last: HashMap<String, Value>,
    first: HashMap<String, Value>,
    continued: String,
    /// The revision of the namespace: a watch from there sees everything.
    began: String,
}

/// Makes a server ready: the kind that sequences use.
pub async fn prepare(client: &Client) -> Result<(), Error> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition: Value = serde_json::from_str(WIDGETS).unwrap_or_default();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    raw(client, "POST", path, "application/json", definition.to_string()).await?;
    eventually("the kind of the sequences", std::time::Duration::from_mins(1), async || {
        let found = raw(client, "GET", &format!("{path}/{name}"), "", String::new()).await.ok()?;
        let conditions = found.1["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let established = conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True");
        let listed = raw(client, "GET", "/apis/segue.test/v1/widgets", "", String::new()).await.ok()?;
        (established && listed.0 == 200).then_some(())
    })
    .await
}

type Raw = (u16, Value, Vec<String>);

async fn raw(client: &Client, method: &str, path: &str, media: &str, body: String) -> Result<Raw, Error> {
    request(client, method, path, media, "application/json", body).await
}

async fn request(
    client: &Client,
    method: &str,
    path: &str,
    media: &str,
    accept: &str,
    body: String,
) -> Result<Raw, Error> {
    let mut request =
        Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap_or_default()).uri(path);
    if !media.is_empty() {
        request = request.header("content-type", media);
    }
    let request = request
        .header("accept", accept)
        .header("user-agent", "differential/1")
        .body(Body::from(body.into_bytes()))
        .map_err(|error| Error::io("make a request")(io::Error::other(error)))?;
    let response = client.send(request).await.map_err(Error::kube("send a request"))?;
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|w| w.to_str().ok())
        .map(str::to_owned)
        .collect();
    let bytes = response.into_body().collect_bytes().await.map_err(Error::kube("read an answer"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let value = if path.contains("watch=true") {
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
    } else {
        serde_json::from_str(&text).unwrap_or_else(|_| json!(text))
    };
    Ok((code, value, warnings))
}

impl Runner {
    /// A runner in a namespace of its own.
    pub async fn new(client: Client, namespace: &str) -> Result<Self, Error> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let (_, made, _) =
            raw(&client, "POST", "/api/v1/namespaces", "application/json", body.to_string()).await?;
        let began = made["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        // What a cluster's controllers put into every namespace: there on both sides.
        for (kind, plural, name) in [
            ("ServiceAccount", "serviceaccounts", "default"),
            ("ConfigMap", "configmaps", "kube-root-ca.crt"),
        ] {
            let path = format!("/api/v1/namespaces/{namespace}/{plural}");
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            raw(&client, "POST", &path, "application/json", body.to_string()).await?;
        }
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            mask: Mask::default(),
            last: HashMap::new(),
            first: HashMap::new(),
            continued: String::new(),
            began,
        })
    }

    /// Sends all of a sequence.
    pub async fn run(&mut self, sequence: &Sequence) -> Result<Vec<Answer>, Error> {
        let mut answers = Vec::with_capacity(sequence.steps.len());
        for step in &sequence.steps {
            answers.push(self.step(step).await?);
        }
        Ok(answers)
    }

    async fn step(&mut self, step: &Step) -> Result<Answer, Error> {
        let path = step
            .path
            .replace("{ns}", &self.namespace)
            .replace("{continue}", &self.continued)
            .replace("{began}", &self.began);
        let body = self.filled(&step.body);
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let accept = if step.accept.is_empty() { "application/json" } else { &step.accept };
        let (code, value, warnings) =
            request(&self.client, &step.method, &path, &step.media, accept, text).await?;
        if let Some(token) = value["metadata"]["continue"].as_str() {
            self.continued = form_encoded(token);
        }
        if step.seen.is_empty() || code >= 300 || value["kind"] == "Status" {
            // Nothing to remember.
        } else {
            self.first.entry(step.seen.clone()).or_insert_with(|| value.clone());
            self.last.insert(step.seen.clone(), value.clone());
        }
        let mut body = self.mask.mask(&plain_items(value));
        if let Some(events) = body.as_array_mut() {
            drop_repeated(events);
            // Bookmarks come at any time; only the one that ends a list says something.
            let ends = |event: &Value| {
                event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            };
            events.retain(|event| event["type"] != "BOOKMARK" || ends(event));
            for event in events.iter_mut().filter(|event| event["type"] == "BOOKMARK") {
                // The rest of it is an empty Go struct.
                let meta = event["object"]["metadata"].clone();
                event["object"] = json!({"kind": event["object"]["kind"], "metadata": meta});
            }
        }
        Ok(Answer { code, body, warnings })
    }

    /// Puts in what only this server knows: `{"$from": path, "edit": merge patch}`, `"$revision:path"` and so on.
    fn filled(&self, body: &Value) -> Value {
        match body {
            Value::Object(fields) if fields.contains_key("$from") => {
                let path = fields["$from"].as_str().unwrap_or_default();
                let mut object = self.last.get(path).cloned().unwrap_or_else(|| fields["or"].clone());
                merge(&mut object, &self.filled(&fields["edit"]));
                object
            }
            Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), self.filled(v))).collect(),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::String(text) => {
                let known = |map: &HashMap<String, Value>, path: &str, field: &str| {
                    map.get(path).map_or_else(|| json!("1"), |object| object["metadata"][field].clone())
                };
                match text.split_once(':') {
                    Some(("$revision", path)) => known(&self.last, path, "resourceVersion"),
                    Some(("$stale", path)) => known(&self.first, path, "resourceVersion"),
                    Some(("$uid", path)) => known(&self.last, path, "uid"),
                    Some(("$ns", "")) => json!(self.namespace),
                    _ => body.clone(),
                }
            }
            other => other.clone(),
        }
    }
}

fn form_encoded(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.bytes()
        .map(|b| if plain(char::from(b)) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn merge(object: &mut Value, edit: &Value) {
    let Value::Object(edit) = edit else {
        *object = edit.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in edit {
        match object.as_object_mut() {
            Some(object) if value.is_null() => drop(object.remove(key)),
            Some(object) => merge(object.entry(key.clone()).or_insert(Value::Null), value),
            None => {}
        }
    }
}

/// A kube-apiserver sometimes writes an object again when only the times of its owners changed,
/// or when empty labels were applied.
fn drop_repeated(events: &mut Vec<Value>) {
    let mut last: HashMap<String, Value> = HashMap::new();
    events.retain(|event| {
        let name = event["object"]["metadata"]["name"].to_string();
        let before = last.insert(name, event["object"].clone());
        event["type"] != "MODIFIED" || before.as_ref() != Some(&event["object"])
    });
}

/// Typed lists of a kube-apiserver leave out what each item is; clients take both.
fn plain_items(mut value: Value) -> Value {
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.remove("apiVersion");
            item.remove("kind");
        }
    }
    value
}

/// Where two runs of a sequence differ.
pub fn compare(sequence: &Sequence, expected: &[Answer], found: &[Answer]) -> Vec<Difference> {
    let pairs = expected.iter().zip(found).enumerate();
    pairs
        .filter(|(_, (expected, found))| expected != found)
        .map(|(step, (expected, found))| Difference {
            step,
            request: sequence.steps[step].to_string(),
            expected: expected.clone(),
            found: found.clone(),
        })
        .collect()
}

/// Runs a sequence on both servers and compares. What differs is run again, twice: some answers of a kube-apiserver
/// depend on the second in which a request arrives (owners are sorted by their times, and an order that changes is a
/// write), and such a difference does not repeat.
pub async fn compare_both(
    sequence: &Sequence,
    name: &str,
    real: &Client,
    ours: &Client,
) -> Result<Vec<Difference>, Error> {
    let mut differences = Vec::new();
    for attempt in 0..3 {
        let namespace = format!("{name}-{attempt}");
        let expected = Runner::new(real.clone(), &namespace).await?.run(sequence).await?;
        let found = Runner::new(ours.clone(), &namespace).await?.run(sequence).await?;
        differences = compare(sequence, &expected, &found);
        if differences.is_empty() {
            break;
        }
    }
    Ok(differences)
}
