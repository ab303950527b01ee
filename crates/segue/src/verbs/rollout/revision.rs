//! The revisions of an object, whatever its kind keeps in them.

use controllers::kind::Revisioned;
use serde_json::Value;

use super::Subject;
use crate::verbs::{
    client::{ApiRequest, with_query},
    failure::Failure,
};

/// A template that the object was made from.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub number: i64,
    pub key: String,
    pub stored: String,
    pub data: Value,
}

impl Revision {
    pub fn read(object: &Value, shape: Revisioned) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            number: object["revision"].as_i64().unwrap_or_default(),
            key: text(&object["metadata"]["labels"][shape.label]),
            stored: text(&object["metadata"]["creationTimestamp"]),
            data: object["data"].clone(),
        }
    }

    /// What its containers run, for people.
    pub fn images(&self, shape: Revisioned) -> String {
        let mut images: Vec<&str> = Vec::new();
        for pods in (shape.pods)(&self.data) {
            let containers = pods["spec"]["containers"].as_array();
            for image in containers.into_iter().flatten().filter_map(|it| it["image"].as_str()) {
                if !images.contains(&image) {
                    images.push(image);
                }
            }
        }
        images.join(", ")
    }
}

impl Subject {
    /// The templates that the object was made from, the newest first.
    pub(super) async fn revisions(&self) -> Result<Vec<Revision>, Failure> {
        let shape = self.revisioned()?;
        let label = format!("{}={}", self.served.label, self.target.name);
        let path = format!("/apis/apps/v1/namespaces/{}/controllerrevisions", self.target.namespace);
        let list = self.cluster.ask(ApiRequest::get(with_query(&path, &[("labelSelector", &label)]))).await?;
        let list = list.into_body()?;
        let uid = &self.object["metadata"]["uid"];
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let ours = |object: &&Value| owners(object).iter().any(|owner| owner["uid"] == *uid);
        let all = list["items"].as_array().into_iter().flatten().filter(ours);
        let mut revisions: Vec<Revision> = all.map(|object| Revision::read(object, shape)).collect();
        revisions.sort_by_key(|revision| -revision.number);
        Ok(revisions)
    }

    /// The key of the template that the spec asks for.
    pub(super) fn wanted_key(&self) -> &str {
        self.object["status"]["updateRevision"].as_str().unwrap_or_default()
    }

    /// The key of the template that the object comes from.
    pub(super) fn current_key(&self) -> &str {
        self.object["status"]["currentRevision"].as_str().unwrap_or_default()
    }
}
