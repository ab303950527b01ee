//! Guarantees of the pipeline for every kind that is reconciled, shown with the examples of the kind.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stage;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use controllers::{Metrics, kind};
use http::Method;
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use stage::{Stage, passes};

/// All documents of one kind among the examples.
fn examples(kind: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|it| it.is_dir());
    let mut files: Vec<_> =
        folders.flat_map(|it| fs::read_dir(it).unwrap().map(|entry| entry.unwrap().path())).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    let documents = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
    });
    documents.filter(|document| document["kind"] == kind).collect()
}

/// Gives every container in a manifest another image.
fn change_images(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(image) if name == "image" => image.push_str("-changed"),
                    value => change_images(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(change_images),
        _ => {}
    }
}

/// The status writes of each object: how many passes of its controller had ended at each.
#[derive(Clone, Default)]
struct StatusWrites(Arc<Mutex<BTreeMap<String, Vec<u64>>>>);

impl StatusWrites {
    /// Notes a request if it writes the status of an object of ours.
    fn note(&self, metrics: &Metrics, method: &Method, path: &str) {
        let object =
            path.split('?').next().unwrap().strip_suffix("/status").filter(|_| *method == Method::PUT);
        let mut parts = object.into_iter().flat_map(|object| object.rsplit('/').skip(1));
        let served = parts.next().and_then(|plural| kind::KINDS.iter().find(|it| it.kind.plural == plural));
        if let (Some(object), Some(served)) = (object, served) {
            let ended = passes(metrics, served.kind.name);
            self.0.lock().unwrap().entry(object.to_owned()).or_default().push(ended);
        }
    }
}

/// An object is in one pass at a time, and a pass that ends is counted: two status writes of one object at the same count
/// are of the same pass.
#[tokio::test(start_paused = true)]
async fn a_pass_of_every_kind_writes_the_status_at_most_once() {
    for served in kind::KINDS {
        let name = served.kind.name;
        let examples = examples(name);
        assert!(!examples.is_empty(), "there is no example of a {name}");
        let mut stage = Stage::start().await;
        let (writes, metrics) = (StatusWrites::default(), stage.metrics());
        let (noted, counted, sent) = (writes.clone(), metrics.clone(), AtomicU64::new(0));
        // Some writes are refused, so that passes end in every way.
        let refusing = stage
            .refuse(move |method, path| {
                noted.note(&counted, method, path);
                *method != Method::GET && sent.fetch_add(1, SeqCst) % 7 == 6
            })
            .await;
        for mut example in examples.into_iter().take(2) {
            example["metadata"] = json!({
                "name": example["metadata"]["name"], "annotations": example["metadata"]["annotations"],
            });
            refusing.store(true, SeqCst);
            stage.apply(&example).await;
            tokio::time::sleep(Duration::from_mins(10)).await;
            change_images(&mut example);
            stage.apply(&example).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            // Something fails in the middle, is away for a while, and comes back.
            stage.kubelet.ready_if(|pod| !pod.name_any().ends_with('0'));
            tokio::time::sleep(Duration::from_mins(5)).await;
            refusing.store(false, SeqCst);
            stage.kubelet.ready_if(|_| true);
            tokio::time::sleep(Duration::from_mins(10)).await;
            let named = example["metadata"]["name"].as_str().unwrap();
            stage.api(&example).delete(named, &DeleteParams::default()).await.unwrap();
            tokio::time::sleep(Duration::from_mins(2)).await;
        }
        let writes = writes.0.lock().unwrap().clone();
        let all: usize = writes.values().map(Vec::len).sum();
        let ended = passes(&metrics, name);
        println!("{name}: {ended} passes, {all} status writes of {} objects", writes.len());
        assert!(all >= 10 && ended > 20, "{name}: {all} status writes in {ended} passes show nothing");
        for (object, counts) in writes {
            assert!(
                counts.is_sorted_by(|one, next| one < next),
                "{object} was written twice in a pass: {counts:?}"
            );
        }
    }
}
