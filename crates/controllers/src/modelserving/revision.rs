//! Revisions: the roles that pods are made from, each stored once.

use std::{collections::BTreeMap, sync::Arc};

use api::modelserving::{ModelServing, Role};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use planner::{
    roles::{Recorded, RoleHash},
    units::Revision,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    count,
    digest::digest,
    labels, owner, printed,
    runtime::{Context, Error, Key, World},
};

/// How many revisions that nothing is made from are kept, to go back to, where nobody says.
const HISTORY: i32 = 10;

/// What of a role is no part of its template: how many there are, and how they are replaced.
const NUMBERS: [&str; 4] = ["replicas", "maxUnavailable", "maxSurge", "partition"];

/// The roles of one revision.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) key: String,
    pub(super) number: Revision,
    roles: Vec<(Role, RoleHash)>,
}

impl Template {
    pub(super) fn hash(&self, role: &str) -> Option<&RoleHash> {
        self.roles.iter().find(|(it, _)| it.name == role).map(|(_, hash)| hash)
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.iter().map(|(role, _)| role)
    }

    /// The roles as something that a group comes from.
    pub(super) fn recorded(&self) -> Vec<Recorded> {
        let record = |(role, hash): &(Role, RoleHash)| Recorded {
            role: role.name.clone(),
            hash: hash.clone(),
            replicas: count(role.replicas),
        };
        self.roles.iter().map(record).collect()
    }
}

/// The revisions of a ModelServing, by their number.
#[derive(Debug)]
pub(super) struct Revisions {
    templates: BTreeMap<Revision, Template>,
    /// What it should be made from.
    target: Template,
}

impl Revisions {
    pub(super) fn target(&self) -> &Template {
        &self.target
    }

    pub(super) fn find(&self, key: &str) -> Option<&Template> {
        self.templates.values().find(|template| template.key == key)
    }

    /// The newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Template> {
        self.templates.values().rev()
    }

    /// The template and the role to make a replica from: the one that is wanted now, if it is the same there.
    pub(super) fn making(&self, role: &str, hash: &RoleHash) -> Option<(&Template, &Role)> {
        let all = std::iter::once(&self.target).chain(self.newest_first());
        let mut fitting = all.filter(|template| template.hash(role) == Some(hash));
        fitting.next().and_then(|template| Some((template, template.roles().find(|it| it.name == role)?)))
    }

    /// A number for what a role is made from: the same for the same template, whichever revision names it.
    pub(super) fn number(&self, role: &str, hash: &RoleHash) -> Revision {
        let first = self.templates.values().find(|template| template.hash(role) == Some(hash));
        first.map_or(UNKNOWN, |template| template.number)
    }

    /// What a role with this number is made from.
    pub(super) fn hash_of(&self, role: &str, number: Revision) -> Option<&RoleHash> {
        self.templates.get(&number).and_then(|template| template.hash(role))
    }
}

/// What nothing is known of: whatever is made from it is outdated.
pub(super) const UNKNOWN: Revision = Revision(0);

/// The stored revisions, if the wanted one is among them. Which one it is is told by what is in it, never by its name:
/// another operator named it otherwise.
pub(super) fn known(serving: &ModelServing, world: &World) -> Result<Option<Revisions>, Error> {
    let wanted = hashes(&serving.spec.template.roles)?;
    let mut stored: Vec<_> = world.revisions.owned_by(&serving.uid().unwrap_or_default()).collect();
    stored.sort_by_key(|stored| (stored.revision, stored.name_any()));
    let mut templates = BTreeMap::new();
    for (place, stored) in stored.into_iter().enumerate() {
        // By its place: two leaders may have given two of them the same number.
        let number = Revision(place as u64 + 1);
        templates.insert(number, template(stored, number)?);
    }
    let fits = |template: &&Template| {
        let roles = template.roles.iter().map(|(role, hash)| (role.name.as_str(), hash.clone()));
        roles.collect::<BTreeMap<_, _>>() == wanted
    };
    let target = templates.values().rev().find(fits).cloned();
    Ok(target.map(|target| Revisions { templates, target }))
}

/// Stores the wanted roles. The name follows from what is in it, so doing it twice does it once.
pub(super) async fn store(context: &Context, serving: &ModelServing) -> Result<(), Error> {
    let uid = serving.uid().unwrap_or_default();
    let wanted = hashes(&serving.spec.template.roles)?;
    let wanted: BTreeMap<&str, &str> = wanted.iter().map(|(name, hash)| (*name, hash.0.as_str())).collect();
    let (newest, names) = {
        let world = context.index.read();
        let stored = || world.revisions.owned_by(&uid);
        let newest = stored().map(|stored| stored.revision).max().unwrap_or_default();
        (newest, stored().map(|stored| stored.name_any()).collect::<Vec<_>>())
    };
    let name = |key: &str| format!("{}-{key}", serving.name_any());
    // Another revision of the same key has the name already: the next key is tried.
    let key = (0..16)
        .map(|attempt| if attempt == 0 { digest(&json!(wanted)) } else { digest(&json!([wanted, attempt])) })
        .find(|key| !names.contains(&name(key)))
        .unwrap_or_default();
    let object = Key::of(serving).beside(name(&key));
    context.create::<ControllerRevision>(&object, &uid, &stored(serving, &key, newest + 1)).await
}

/// The wanted roles as a revision of this key.
pub(super) fn stored(serving: &ModelServing, key: &str, number: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{}-{key}", serving.name_any()),
            "namespace": serving.namespace(),
            "labels": {labels::SERVING_NAME: serving.name_any(), labels::SERVING_REVISION: key},
            "ownerReferences": [owner(serving)],
        },
        "data": {"data": serving.spec.template.roles},
        "revision": number,
    })
}

/// Whether a stored revision can be read.
pub(super) fn readable(stored: &ControllerRevision) -> Result<(), Error> {
    template(stored, UNKNOWN).map(drop)
}

/// Whether a role is made from the same in a stored revision and in the spec.
pub(super) fn is_same_role(stored: &ControllerRevision, serving: &ModelServing, role: &str) -> bool {
    let wanted = serving.spec.template.roles.iter().find(|it| it.name == role);
    let wanted = wanted.and_then(|role| hash(role).ok());
    let stored = template(stored, UNKNOWN).ok();
    wanted.is_some() && stored.as_ref().and_then(|stored| stored.hash(role)) == wanted.as_ref()
}

/// Forgets revisions that nothing is made from, the oldest first, beyond those that are kept.
pub(super) async fn prune(
    context: &Context,
    serving: &ModelServing,
    is_used: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let mut unused: Vec<Arc<ControllerRevision>> = {
        let world = context.index.read();
        let stored = world.revisions.owned_by(&serving.uid().unwrap_or_default());
        let key = |stored: &ControllerRevision| stored.labels().get(labels::SERVING_REVISION).cloned();
        stored.filter(|stored| !is_used(&key(stored).unwrap_or_default())).cloned().collect()
    };
    unused.sort_by_key(|stored| stored.revision);
    let kept = count(serving.spec.revision_history_limit.unwrap_or(HISTORY)) as usize;
    let surplus = unused.len().saturating_sub(kept);
    for stored in unused.iter().take(surplus) {
        context.delete(stored.as_ref(), true).await?;
    }
    Ok(())
}

fn template(stored: &ControllerRevision, number: Revision) -> Result<Template, Error> {
    let malformed =
        |why: String| Error::Malformed { what: format!("ControllerRevision {}", Key::of(stored)), why };
    let data = stored.data.as_ref().map_or(&Value::Null, |data| &data.0);
    // As it is written here and by the other operator, and as that one will write it: a patch of the spec.
    let data = if data["data"].is_null() { &data["spec"]["template"]["roles"] } else { &data["data"] };
    let roles: Vec<Role> = Vec::deserialize(data).map_err(|error| malformed(error.to_string()))?;
    let key = stored.labels().get(labels::SERVING_REVISION).cloned();
    let hashed = roles.into_iter().map(|role| Ok((role.clone(), hash(&role)?)));
    Ok(Template {
        key: key.ok_or_else(|| malformed(format!("it has no label {}", labels::SERVING_REVISION)))?,
        number,
        roles: hashed.collect::<Result<_, Error>>()?,
    })
}

/// What each role is made from, by name: the order in which they are written is no part of a revision.
fn hashes(roles: &[Role]) -> Result<BTreeMap<&str, RoleHash>, Error> {
    roles.iter().map(|role| Ok((role.name.as_str(), hash(role)?))).collect()
}

/// A role without its numbers, in the words of who else may have stored it.
fn without_numbers(role: &Role) -> Result<Value, Error> {
    let malformed = |error: serde_json::Error| Error::Malformed {
        what: format!("role {}", role.name),
        why: error.to_string(),
    };
    let mut value = serde_json::to_value(role).map_err(malformed)?;
    for number in NUMBERS {
        value.as_object_mut().map(|role| role.remove(number));
    }
    for template in ["entryTemplate", "workerTemplate"] {
        value.get_mut(template).map(printed::pod);
    }
    Ok(value)
}

fn hash(role: &Role) -> Result<RoleHash, Error> {
    Ok(RoleHash(digest(&without_numbers(role)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, changes: &Value) -> Role {
        let mut role = json!({
            "name": name, "workerReplicas": 0,
            "entryTemplate": {"spec": {"containers": [{"name": "c", "image": "one"}]}},
        });
        if let (Some(role), Some(changes)) = (role.as_object_mut(), changes.as_object()) {
            role.extend(changes.clone());
        }
        serde_json::from_value(role).unwrap()
    }

    #[test]
    fn numbers_are_no_part_of_a_template_and_workers_are() {
        let plain = hash(&role("decode", &json!({}))).unwrap();
        let numbers = json!({"replicas": 9, "maxUnavailable": "50%", "maxSurge": 1, "partition": 1});
        assert_eq!(plain, hash(&role("decode", &numbers)).unwrap());
        assert_ne!(plain, hash(&role("decode", &json!({"workerReplicas": 1}))).unwrap());
    }

    #[test]
    fn the_order_of_roles_is_no_part_of_a_revision() {
        let (decode, prefill) = (role("decode", &json!({})), role("prefill", &json!({"replicas": 2})));
        let both = [decode.clone(), prefill.clone()];
        let one = hashes(&both).unwrap();
        assert_eq!(one, hashes(&[prefill, decode.clone()]).unwrap());
        assert_ne!(one, hashes(&[decode]).unwrap());
    }

    /// What people write is not what Go prints of it: both mean the same pods.
    #[test]
    fn a_role_is_the_same_after_it_has_passed_through_go() {
        let container =
            json!({"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "0.5"}}});
        let pod =
            json!({"spec": {"containers": [container, {"name": "d", "image": "i"}], "hostNetwork": false}});
        let written = json!({"workerReplicas": 1, "entryTemplate": pod, "workerTemplate": pod});
        let container = json!({"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "500m"}}});
        let other = json!({"name": "d", "image": "i", "resources": {}});
        let pod = json!({"metadata": {}, "spec": {"containers": [container, other]}});
        let printed = json!({"workerReplicas": 1, "entryTemplate": pod, "workerTemplate": pod});
        let (written, printed) = (role("decode", &written), role("decode", &printed));
        assert_eq!(hash(&written).unwrap(), hash(&printed).unwrap());
        assert_ne!(hash(&written).unwrap(), hash(&role("decode", &json!({"workerReplicas": 1}))).unwrap());
    }

    /// The other operator will store patches of the spec, without numbers.
    #[test]
    fn both_shapes_of_stored_roles_are_read() {
        let mut bare = json!(role("decode", &json!({"workerReplicas": 0})));
        bare.as_object_mut().unwrap().remove("replicas");
        let read = |data: Value| {
            let stored = json!({"metadata": {"name": "r", "labels": {labels::SERVING_REVISION: "k"}},
                "data": data, "revision": 1});
            template(&serde_json::from_value(stored).unwrap(), UNKNOWN)
        };
        let wanted = hash(&role("decode", &json!({}))).unwrap();
        for data in [json!({"data": [bare]}), json!({"spec": {"plugins": [], "template": {"roles": [bare]}}})]
        {
            assert_eq!(read(data).unwrap().hash("decode"), Some(&wanted));
        }
        assert!(read(json!({"roles": []})).is_err());
    }
}
