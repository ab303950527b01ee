//! Who lists and then watches sees what who lists later sees.
use std::collections::{BTreeMap, BTreeSet};

use apiserver::Server;
use serde_json::Value;
use testbed::differential::Sequence;

use crate::support::{NAMESPACE, get, run, server, simulate};

const SEQUENCES: u64 = 25;
const LENGTH: usize = 60;
const SELECTORS: [&str; 6] = [
    "",
    "labelSelector=app%3Dx",
    "labelSelector=app+in+(x,y),tier",
    "labelSelector=!app",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name!%3Da&labelSelector=app",
];

/// Objects by name.
type Objects = BTreeMap<String, Value>;

struct Collection<'a> {
    server: &'a Server,
    /// `/api/v1/namespaces/random/pods`
    path: &'a str,
    selector: &'a str,
}

impl Collection<'_> {
    /// As of a revision, or now. The revision is that of the answer.
    async fn list(&self, at: Option<u64>) -> (u64, Objects) {
        let at = at.map(|at| format!("resourceVersion={at}&resourceVersionMatch=Exact")).unwrap_or_default();
        let body = get(self.server, &format!("{}?{at}&{}", self.path, self.selector)).await;
        let list: Value = serde_json::from_slice(&body).unwrap();
        let items = list["items"].as_array().unwrap().iter().cloned();
        (number(&list), items.map(|item| (name(&item), item)).collect())
    }

    /// What a watch from a revision on says, as changes to what was listed there.
    async fn follow(&self, from: u64, objects: &mut Objects) -> usize {
        let query = format!("watch=true&timeoutSeconds=1&resourceVersion={from}");
        let body = get(self.server, &format!("{}?{query}&{}", self.path, self.selector)).await;
        let mut seen = from;
        let mut count = 0;
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).unwrap();
            let object = &event["object"];
            let context = || format!("{} {} from {from}: {event}", self.path, self.selector);
            assert!(number(object) > seen, "revisions go on: {}", context());
            seen = number(object);
            let before = match event["type"].as_str().unwrap() {
                "DELETED" => objects.remove(&name(object)),
                _ => objects.insert(name(object), object.clone()),
            };
            let was_known = event["type"] != "ADDED";
            assert_eq!(before.is_some(), was_known, "{}", context());
            count += 1;
        }
        count
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn number(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[test]
fn the_events_since_any_revision_lead_from_its_list_to_the_list_now() {
    let (mut folded, mut events) = (0, 0);
    for seed in 0..SEQUENCES {
        let sequence = Sequence::random(1_000 + seed, LENGTH);
        let path = |path: &str| {
            let plain = path.split('?').next().unwrap_or_default().replace("{ns}", NAMESPACE);
            plain.split('/').take_while(|part| !["a", "b", "c"].contains(part)).collect::<Vec<_>>().join("/")
        };
        // Some requests lead nowhere on purpose.
        let leads_somewhere = |path: &&str| !path.contains("gadgets") && !path.contains("nowhere");
        let paths = sequence.steps.iter().map(|step| step.path.as_str()).filter(leads_somewhere);
        let paths: BTreeSet<String> = paths.map(path).collect();
        simulate(async {
            let server = server(seed);
            run(&server, &sequence).await;
            for path in &paths {
                for selector in SELECTORS {
                    let collection = Collection { server: &server, path, selector };
                    let (newest, now) = collection.list(None).await;
                    for revision in 1..=newest {
                        let (_, mut objects) = collection.list(Some(revision)).await;
                        events += collection.follow(revision, &mut objects).await;
                        assert_eq!(objects, now, "{path} {selector} from {revision}, sequence {seed}");
                        folded += 1;
                    }
                }
            }
        });
    }
    println!("{folded} lists, {events} events");
    assert!(events > folded, "a watch that says nothing proves nothing");
}
