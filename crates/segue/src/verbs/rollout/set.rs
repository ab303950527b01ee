//! What can be said of a set by its spec.

use serde_json::{Value, json};

use super::Subject;
use crate::verbs::{
    client::{Ask, with_query},
    failure::Failure,
};

/// The annotation by which a set remembers its partition while it is held.
pub(in crate::verbs) const HELD: &str = "segue.dev/partition-before-pause";

const LABEL: &str = "leaderworkerset.sigs.k8s.io";

/// A template that the set was made from.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub number: i64,
    pub key: String,
    pub stored: String,
    data: Value,
}

impl Revision {
    fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            number: object["revision"].as_i64().unwrap_or_default(),
            key: text(&object["metadata"]["labels"][format!("{LABEL}/template-revision-hash")]),
            stored: text(&object["metadata"]["creationTimestamp"]),
            data: object["data"]["spec"].clone(),
        }
    }

    /// What its containers run, for people.
    pub fn images(&self) -> String {
        let template = &self.data["leaderWorkerTemplate"];
        let mut images: Vec<&str> = Vec::new();
        for pods in ["leaderTemplate", "workerTemplate"] {
            let containers = template[pods]["spec"]["containers"].as_array();
            for image in containers.into_iter().flatten().filter_map(|it| it["image"].as_str()) {
                if !images.contains(&image) {
                    images.push(image);
                }
            }
        }
        images.join(", ")
    }

    /// The change of the spec that goes back to it. What it does not have goes: a merge keeps what nobody mentions.
    pub fn patch(&self, live: &Value) -> Value {
        let mut wanted = json!({
            "leaderWorkerTemplate": self.data["leaderWorkerTemplate"],
            "networkConfig": self.data["networkConfig"],
        });
        for part in ["leaderWorkerTemplate", "networkConfig"] {
            if let Some(fields) = wanted[part].as_object_mut() {
                // How the public operator says that all of it counts.
                fields.remove("$patch");
            }
            erase(&mut wanted[part], &live["spec"][part]);
        }
        json!({"spec": wanted})
    }
}

/// Says of everything that is there and not wanted that it goes.
fn erase(wanted: &mut Value, live: &Value) {
    let (Some(wanted), Some(live)) = (wanted.as_object_mut(), live.as_object()) else { return };
    for (name, live) in live {
        match wanted.get_mut(name) {
            Some(wanted) => erase(wanted, live),
            None => drop(wanted.insert(name.clone(), Value::Null)),
        }
    }
}

impl Subject {
    /// The templates that the set was made from, the newest first.
    pub(super) async fn revisions(&self) -> Result<Vec<Revision>, Failure> {
        let label = format!("{LABEL}/name={}", self.target.name);
        let path = format!("/apis/apps/v1/namespaces/{}/controllerrevisions", self.target.namespace);
        let list = self.cluster.ask(Ask::get(with_query(&path, &[("labelSelector", &label)]))).await?;
        let list = list.granted()?;
        let uid = &self.object["metadata"]["uid"];
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let ours = |object: &&Value| owners(object).iter().any(|owner| owner["uid"] == *uid);
        let mut revisions: Vec<Revision> =
            list["items"].as_array().into_iter().flatten().filter(ours).map(Revision::read).collect();
        revisions.sort_by_key(|revision| -revision.number);
        Ok(revisions)
    }

    /// The key of the template that the spec asks for.
    pub(super) fn wanted_key(&self) -> &str {
        self.object["status"]["updateRevision"].as_str().unwrap_or_default()
    }

    /// The key of the template that the set comes from.
    pub(super) fn current_key(&self) -> &str {
        self.object["status"]["currentRevision"].as_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_back_brings_everything_back_and_takes_the_rest_away() {
        let stored = json!({"revision": 1, "data": {"spec": {
            "leaderWorkerTemplate": {"$patch": "replace", "size": 2, "workerTemplate": {"spec": {"containers": [
                {"name": "c", "image": "one"},
            ]}}},
            "networkConfig": {"$patch": "replace", "subdomainPolicy": "Shared"},
        }}});
        let live = json!({"spec": {
            "replicas": 3,
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": {"spec": {}},
                "workerTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}},
            },
        }});
        let revision = Revision::read(&stored);
        assert_eq!(revision.images(), "one");
        let patch = revision.patch(&live);
        assert_eq!(
            patch,
            json!({"spec": {
                "leaderWorkerTemplate": {
                    "size": 2,
                    "leaderTemplate": null,
                    "workerTemplate": {"metadata": null, "spec": {
                        "nodeName": null, "containers": [{"name": "c", "image": "one"}],
                    }},
                },
                "networkConfig": {"subdomainPolicy": "Shared"},
            }})
        );
    }
}
