//! Revisions: the templates that groups are made from, each stored once.

use std::{collections::BTreeMap, sync::Arc};

use api::leaderworkerset::{LeaderWorkerSet, LeaderWorkerTemplate, SubdomainPolicy};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use planner::units::Revision;
use serde_json::{Value, json};

use crate::{
    labels, owner,
    runtime::{Context, Error, Key, World},
};

/// How many templates that nothing is made from are kept, to go back to.
const HISTORY: usize = 10;

/// A template, and what it is known by.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) key: String,
    pub(super) pods: LeaderWorkerTemplate,
    pub(super) subdomains: SubdomainPolicy,
}

/// The templates of a set.
#[derive(Debug)]
pub(super) struct Revisions {
    templates: BTreeMap<Revision, Template>,
    /// What the set should be made from.
    pub(super) target: Revision,
    /// What it comes from.
    pub(super) old: Revision,
}

/// What nothing is known of: whatever is made from it is outdated.
const UNKNOWN: Revision = Revision(0);

impl Revisions {
    pub(super) fn get(&self, revision: Revision) -> Option<&Template> {
        self.templates.get(&revision)
    }

    pub(super) fn target(&self) -> Option<&Template> {
        self.get(self.target)
    }

    pub(super) fn key(&self, revision: Revision) -> String {
        self.get(revision).map(|template| template.key.clone()).unwrap_or_default()
    }

    /// The revision that carries a key.
    pub(super) fn find(&self, key: &str) -> Revision {
        let found = self.templates.iter().find(|(_, template)| template.key == key);
        found.map_or(UNKNOWN, |(revision, _)| *revision)
    }
}

/// The set's templates, of which the wanted one is among them; nothing if it must be stored first.
pub(super) fn known(set: &LeaderWorkerSet, world: &World) -> Result<Option<Revisions>, Error> {
    let uid = set.uid().unwrap_or_default();
    let stored: Vec<&Arc<ControllerRevision>> = world.revisions.owned_by(&uid).collect();
    let wanted = data(set)?;
    let Some(target) = stored.iter().find(|stored| is(stored, &wanted)).map(|stored| number(stored)) else {
        return Ok(None);
    };
    let mut templates = BTreeMap::new();
    for stored in &stored {
        templates.insert(number(stored), template(stored)?);
    }
    let mut revisions = Revisions { templates, target, old: target };
    let current = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
    let current = current.map(|key| revisions.find(key)).filter(|revision| *revision != UNKNOWN);
    revisions.old = current.unwrap_or(target);
    Ok(Some(revisions))
}

/// Stores the wanted template. Its name follows from what is in it, so doing it twice does it once.
pub(super) async fn store(context: &Context, set: &LeaderWorkerSet) -> Result<(), Error> {
    let uid = set.uid().unwrap_or_default();
    let wanted = data(set)?;
    let (newest, names) = {
        let world = context.index.read();
        let stored = || world.revisions.owned_by(&uid);
        let newest = stored().map(|stored| number(stored).0).max().unwrap_or_default();
        (newest, stored().map(|stored| stored.name_any()).collect::<Vec<_>>())
    };
    let name = |key: &str| format!("{}-{key}", set.name_any());
    // Another template of the same key has the name already: the next key is tried.
    let key = (0..16)
        .map(|attempt| key(&wanted, attempt))
        .find(|key| !names.contains(&name(key)))
        .unwrap_or_default();
    let object = Key::of(set).beside(name(&key));
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": object.name,
            "namespace": object.namespace,
            "labels": {labels::SET_NAME: set.name_any(), labels::REVISION: key},
            "ownerReferences": [owner(set)],
        },
        "data": wanted,
        "revision": newest + 1,
    });
    context.create::<ControllerRevision>(&object, &uid, &body).await?;
    let note = format!("stored revision {key}");
    context.tell(set, false, "CreatingRevision", note).await;
    Ok(())
}

/// Forgets templates that nothing is made from, the oldest first, beyond those that are kept.
pub(super) async fn prune(context: &Context, set: &LeaderWorkerSet, used: &[Revision]) -> Result<(), Error> {
    let mut unused: Vec<Arc<ControllerRevision>> = {
        let world = context.index.read();
        let stored = world.revisions.owned_by(&set.uid().unwrap_or_default());
        stored.filter(|stored| !used.contains(&number(stored))).cloned().collect()
    };
    unused.sort_by_key(|stored| number(stored));
    let surplus = unused.len().saturating_sub(HISTORY);
    for stored in unused.iter().take(surplus) {
        context.delete(stored.as_ref(), true).await?;
    }
    Ok(())
}

fn number(stored: &ControllerRevision) -> Revision {
    Revision(u64::try_from(stored.revision).unwrap_or_default())
}

fn is(stored: &ControllerRevision, wanted: &Value) -> bool {
    stored.data.as_ref().is_some_and(|data| data.0 == *wanted)
}

/// What makes a revision: the template and the network, as the public operator stores them.
fn data(set: &LeaderWorkerSet) -> Result<Value, Error> {
    let malformed = |error: serde_json::Error| Error::Malformed {
        what: format!("LeaderWorkerSet {}", Key::of(set)),
        why: error.to_string(),
    };
    let mut template = serde_json::to_value(&set.spec.leader_worker_template).map_err(malformed)?;
    template["$patch"] = "replace".into();
    let network = json!({"subdomainPolicy": subdomains(set), "$patch": "replace"});
    Ok(json!({"spec": {"leaderWorkerTemplate": template, "networkConfig": network}}))
}

fn subdomains(set: &LeaderWorkerSet) -> SubdomainPolicy {
    set.spec.network_config.as_ref().map_or(SubdomainPolicy::Shared, |network| network.subdomain_policy)
}

fn template(stored: &ControllerRevision) -> Result<Template, Error> {
    let malformed =
        |why: String| Error::Malformed { what: format!("ControllerRevision {}", Key::of(stored)), why };
    let spec = stored.data.as_ref().map_or(&Value::Null, |data| &data.0["spec"]);
    let read =
        |value: &Value| serde_json::from_value(value.clone()).map_err(|error| malformed(error.to_string()));
    let policy: SubdomainPolicy = serde_json::from_value(spec["networkConfig"]["subdomainPolicy"].clone())
        .unwrap_or(SubdomainPolicy::Shared);
    let key = stored.labels().get(labels::REVISION).cloned();
    Ok(Template {
        key: key.ok_or_else(|| malformed(format!("it has no label {}", labels::REVISION)))?,
        pods: read(&spec["leaderWorkerTemplate"])?,
        subdomains: policy,
    })
}

/// The key of a revision: FNV-1 of 32 bits in the alphabet of Kubernetes, as the public operator makes it.
fn key(data: &Value, attempt: u32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = data.to_string();
    if attempt > 0 {
        text.push_str(&attempt.to_string());
    }
    let hash =
        text.bytes().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % 27])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of the contract; whoever changes the hash rolls every set that runs.
    #[test]
    fn keys_are_those_of_the_public_operator() {
        let pod = |name: &str, ports: Value| {
            let mut container = json!({
                "image": "docker.io/nginxinc/nginx-unprivileged:1.27", "name": name, "resources": {},
            });
            if !ports.is_null() {
                container["ports"] = ports;
            }
            json!({"metadata": {}, "spec": {"containers": [container]}})
        };
        let data = json!({"spec": {
            "leaderWorkerTemplate": {
                "$patch": "replace",
                "leaderTemplate": pod("leader", Value::Null),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "size": 2,
                "workerTemplate": pod("worker", json!([{"containerPort": 8080, "protocol": "TCP"}])),
            },
            "networkConfig": {"$patch": "replace", "subdomainPolicy": "Shared"},
        }});
        assert_eq!(key(&data, 0), "7bdcf6cbd6");
        assert_ne!(key(&data, 1), key(&data, 0));
    }
}
