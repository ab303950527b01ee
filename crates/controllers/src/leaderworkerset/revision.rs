//! Revisions: the templates that groups are made from, each stored once.

use std::{collections::BTreeMap, sync::Arc};

use api::leaderworkerset::{LeaderWorkerSet, LeaderWorkerTemplate, SubdomainPolicy};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use planner::units::Revision;
use serde_json::{Value, json};

use super::normal;
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

/// The set's templates, of which the wanted one is the newest; nothing if that must be written first.
pub(super) fn known(set: &LeaderWorkerSet, world: &World) -> Result<Option<Revisions>, Error> {
    let uid = set.uid().unwrap_or_default();
    let mut stored: Vec<&Arc<ControllerRevision>> = world.revisions.owned_by(&uid).collect();
    stored.sort_by_key(|stored| (number(stored), stored.name_any()));
    let found = find(set, stored.iter().copied())?.map(|stored| stored.name_any());
    if found.is_none() || found != stored.last().map(|newest| newest.name_any()) {
        return Ok(None);
    }
    let mut templates = BTreeMap::new();
    for (place, stored) in stored.iter().enumerate() {
        // By its place: two leaders may have given two of them the same number.
        templates.insert(Revision(place as u64 + 1), template(stored)?);
    }
    let target = Revision(stored.len() as u64);
    let mut revisions = Revisions { templates, target, old: target };
    let current = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
    let current = current.map(|key| revisions.find(key)).filter(|revision| *revision != UNKNOWN);
    revisions.old = current.unwrap_or(target);
    Ok(Some(revisions))
}

/// The stored template that the set asks for. First by what was written, which is nearly always so; then by what it
/// means, so that another way to write the same replaces no group.
fn find<'a>(
    set: &LeaderWorkerSet,
    stored: impl Iterator<Item = &'a Arc<ControllerRevision>> + Clone,
) -> Result<Option<&'a Arc<ControllerRevision>>, Error> {
    let wanted = wanted(set)?;
    let is_written =
        |stored: &&Arc<ControllerRevision>| stored.data.as_ref().is_some_and(|data| data.0 == wanted);
    if let Some(stored) = stored.clone().find(is_written) {
        return Ok(Some(stored));
    }
    for stored in stored {
        let template = template(stored)?;
        if data(&template.pods, template.subdomains).is_ok_and(|data| data == wanted) {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

/// Stores the wanted template. Its name follows from what is in it, so doing it twice does it once. One that was wanted
/// before becomes the newest again: whoever goes back from it comes to the one before.
pub(super) async fn store(context: &Context, set: &LeaderWorkerSet) -> Result<(), Error> {
    let uid = set.uid().unwrap_or_default();
    let wanted = wanted(set)?;
    let stored: Vec<Arc<ControllerRevision>> =
        context.index.read().revisions.owned_by(&uid).cloned().collect();
    let newest = stored.iter().map(|stored| number(stored).0).max().unwrap_or_default();
    if let Some(known) = find(set, stored.iter())? {
        return context.change(known.as_ref(), json!({"revision": newest + 1})).await;
    }
    let names: Vec<String> = stored.iter().map(|stored| stored.name_any()).collect();
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
    context.tell_of(set, false, ("Create", "CreatingRevision"), note).await;
    Ok(())
}

/// Forgets templates that nothing is made from, the oldest first, beyond those that are kept.
pub(super) async fn prune(context: &Context, set: &LeaderWorkerSet, used: &[String]) -> Result<(), Error> {
    let is_used = |stored: &ControllerRevision| {
        stored.labels().get(labels::REVISION).is_some_and(|key| used.contains(key))
    };
    let mut unused: Vec<Arc<ControllerRevision>> = {
        let world = context.index.read();
        let stored = world.revisions.owned_by(&set.uid().unwrap_or_default());
        stored.filter(|stored| !is_used(stored)).cloned().collect()
    };
    unused.sort_by_key(|stored| (number(stored), stored.name_any()));
    let surplus = unused.len().saturating_sub(HISTORY);
    for stored in unused.iter().take(surplus) {
        context.delete(stored.as_ref(), true).await?;
    }
    Ok(())
}

fn number(stored: &ControllerRevision) -> Revision {
    Revision(u64::try_from(stored.revision).unwrap_or_default())
}

/// What makes a revision: the template and the network, as the public operator stores them.
fn data(template: &LeaderWorkerTemplate, subdomains: SubdomainPolicy) -> Result<Value, serde_json::Error> {
    let mut template = normal::normal(template)?;
    template["$patch"] = "replace".into();
    let network = json!({"subdomainPolicy": subdomains, "$patch": "replace"});
    Ok(json!({"spec": {"leaderWorkerTemplate": template, "networkConfig": network}}))
}

/// The data of the revision that a set asks for.
fn wanted(set: &LeaderWorkerSet) -> Result<Value, Error> {
    data(&set.spec.leader_worker_template, subdomains(set)).map_err(|error| Error::Malformed {
        what: format!("LeaderWorkerSet {}", Key::of(set)),
        why: error.to_string(),
    })
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
    let mut text = normal::text(data);
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
        let container =
            |name: &str| json!({"image": "docker.io/nginxinc/nginx-unprivileged:1.27", "name": name});
        let mut worker = container("worker");
        worker["ports"] = json!([{"containerPort": 8080, "protocol": "TCP"}]);
        // As it is written by hand; nothing of what Go adds is in it.
        let template = json!({
            "leaderTemplate": {"spec": {"containers": [container("leader")]}},
            "size": 2,
            "workerTemplate": {"metadata": {"creationTimestamp": null}, "spec": {"containers": [worker]}},
        });
        let data = data(&serde_json::from_value(template).unwrap(), SubdomainPolicy::Shared).unwrap();
        assert_eq!(
            normal::text(&data),
            concat!(
                r#"{"spec":{"leaderWorkerTemplate":{"$patch":"replace","leaderTemplate":{"metadata":{},"spec":"#,
                r#"{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"leader","#,
                r#""resources":{}}]}},"restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":"#,
                r#"{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","#,
                r#""name":"worker","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}}},"#,
                r#""networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}"#,
            )
        );
        assert_eq!(key(&data, 0), "7bdcf6cbd6");
        assert_ne!(key(&data, 1), key(&data, 0));
    }

    fn stored(number: i64, template: &Value, network: &Value) -> Arc<ControllerRevision> {
        let data = json!({"spec": {"leaderWorkerTemplate": template, "networkConfig": network}});
        let object = json!({
            "metadata": {"name": "r", "namespace": "ns", "labels": {labels::REVISION: "theirs"}},
            "data": data,
            "revision": number,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Rows of 2.2 and decision 2: a revision that somebody stored in other words is the same one, and keeps its key.
    #[test]
    fn another_text_of_the_same_template_is_the_same_revision() {
        let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "0.5"}}});
        let set: LeaderWorkerSet = serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "ns"},
            "spec": {"leaderWorkerTemplate": {
                "size": 2, "restartPolicy": "Default",
                "workerTemplate": {"spec": {"containers": [container], "hostNetwork": false}},
            }},
        }))
        .unwrap();
        // As client-go before 0.34 wrote it.
        let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m"}}});
        let spec = json!({"containers": [container]});
        let mut theirs = json!({
            "$patch": "replace", "size": 2, "restartPolicy": "None",
            "workerTemplate": {"metadata": {"creationTimestamp": null}, "spec": spec},
        });
        let shared = json!({"$patch": "replace", "subdomainPolicy": "Shared"});
        let same = stored(1, &theirs, &shared);
        assert!(find(&set, [&same].into_iter()).unwrap().is_some());
        let unique = stored(1, &theirs, &json!({"subdomainPolicy": "UniquePerReplica"}));
        theirs["size"] = json!(3);
        let larger = stored(1, &theirs, &shared);
        assert!(find(&set, [&unique, &larger].into_iter()).unwrap().is_none());
    }

    /// Two leaders that both stored one at once gave both the same number; a template must never be taken for the other.
    #[test]
    fn two_revisions_of_one_number_stay_two() {
        let template = |image: &str| json!({"size": 1, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}}});
        let set: LeaderWorkerSet = serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
            "spec": {"leaderWorkerTemplate": template("wanted")},
        }))
        .unwrap();
        let shared = json!({"subdomainPolicy": "Shared"});
        let named = |name: &str, image: &str| {
            let mut stored = stored(1, &template(image), &shared).as_ref().clone();
            stored.metadata.name = Some(name.to_owned());
            stored.metadata.resource_version = Some("1".to_owned());
            stored
                .metadata
                .labels
                .get_or_insert_default()
                .insert(labels::REVISION.to_owned(), name.to_owned());
            stored.metadata.owner_references = Some(vec![owner(&set)]);
            stored
        };
        let known = |first: &str, last: &str| {
            let world = World::with([named("a", first), named("b", last)]);
            known(&set, &world).unwrap().map(|revisions| {
                let keys = ["a", "b"].map(|key| revisions.key(revisions.find(key)));
                (revisions.key(revisions.target), keys)
            })
        };
        let each_its_own = ["a", "b"].map(ToOwned::to_owned);
        assert_eq!(known("other", "wanted"), Some(("b".to_owned(), each_its_own)));
        assert_eq!(known("wanted", "other"), None, "it must become the newest first");
    }
}
