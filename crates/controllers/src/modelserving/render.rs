//! The pods of a role replica, and the Service that names its entry.

use api::modelserving::{ModelServing, Role};
use kube::ResourceExt;
use planner::roles::RoleHash;
use serde_json::{Value, json};

use super::{observe::Id, plugin, revision::Roles};
use crate::{
    json::{lay, lead, push},
    labels, owner,
    revisions::Stored,
    runtime::Key,
};

/// Which pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) group: u32,
    pub(super) replica: &'a Id,
    /// 0 is the entry.
    pub(super) index: u32,
    pub(super) incarnation: u32,
    /// It is placed together with its group.
    pub(super) is_gang: bool,
    /// It is the one by which its group is counted.
    pub(super) counts: bool,
}

impl Place<'_> {
    pub(super) fn name(self, serving: &ModelServing) -> String {
        let Id { role, ordinal } = self.replica;
        format!("{}-{role}-{ordinal}-{}", group_name(serving, self.group), self.index)
    }
}

pub(super) fn group_name(serving: &ModelServing, group: u32) -> String {
    format!("{}-{group}", serving.name_any())
}

/// The labels by which everything of a role replica is found.
fn labels_of(serving: &ModelServing, group: u32, replica: &Id) -> Value {
    json!({
        labels::SERVING_NAME: serving.name_any(),
        labels::SERVING_GROUP: group_name(serving, group),
        labels::ROLE: replica.role,
        labels::ROLE_ID: replica.to_string(),
    })
}

/// A pod, made from one template and nothing else: a role replica never mixes two.
pub(super) fn pod(
    serving: &ModelServing,
    (template, role, hash): (&Stored<Roles>, &Role, &RoleHash),
    place: Place<'_>,
) -> Value {
    let is_entry = place.index == 0;
    let worker = role.worker_template.as_ref().filter(|_| !is_entry);
    let mut pod = worker.unwrap_or(&role.entry_template).json().clone();
    let namespace = serving.namespace().unwrap_or_default();
    let entry = Place { index: 0, ..place }.name(serving);

    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    let metadata = &mut pod["metadata"];
    metadata["name"] = place.name(serving).into();
    metadata["namespace"] = namespace.clone().into();
    metadata["ownerReferences"] = json!([owner(serving)]);
    let all = &mut metadata["labels"];
    // Ours lie over what a template says: pods are found by them.
    lay(all, labels_of(serving, place.group, place.replica));
    lay(all, json!({labels::SERVING_REVISION: template.key, labels::ROLE_HASH: hash.0}));
    if is_entry {
        lay(all, json!({labels::ENTRY: "true"}));
    }
    if place.counts {
        lay(all, json!({labels::COUNTS_GROUP: "true"}));
    }
    lay(&mut metadata["annotations"], json!({labels::INCARNATION: place.incarnation.to_string()}));
    if place.is_gang {
        let (group, task) = (group_name(serving, place.group), place.replica.to_string());
        lay(&mut metadata["annotations"], json!({labels::POD_GROUP: group, labels::TASK: task}));
    }

    let spec = &mut pod["spec"];
    spec["schedulerName"] = serving.spec.scheduler_name.clone().into();
    if is_entry {
        // Who takes requests is who leaves service first: the entry speaks for its replica.
        push(&mut spec["readinessGates"], json!({"conditionType": labels::IN_SERVICE}));
    }
    let ours = [
        ("GROUP_SIZE", (role.worker_replicas + 1).to_string()),
        ("ENTRY_ADDRESS", format!("{entry}.{namespace}")),
        ("WORKER_INDEX", place.index.to_string()),
    ];
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            lead(&mut container["env"], &ours);
        }
    }
    plugin::change(serving, role, place, &mut pod);
    pod
}

/// The Service that gives an entry the name that its workers look for.
pub(super) fn headless(serving: &ModelServing, group: u32, replica: &Id) -> (Key, Value) {
    let name =
        Place { group, replica, index: 0, incarnation: 0, is_gang: false, counts: false }.name(serving);
    let key = Key::of(serving).beside(name);
    let mut all = labels_of(serving, group, replica);
    all[labels::MANAGED_BY] = labels::SEGUE.into();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": all,
            "ownerReferences": [owner(serving)],
        },
        "spec": {
            "clusterIP": "None",
            // Workers look for their entry before anything is ready.
            "publishNotReadyAddresses": true,
            "selector": {
                labels::SERVING_GROUP: group_name(serving, group),
                labels::ROLE: replica.role,
                labels::ROLE_ID: replica.to_string(),
                labels::ENTRY: "true",
            },
        },
    });
    (key, body)
}
