//! Revisions: the roles that pods are made from.

use std::collections::BTreeMap;

use api::{
    Kind,
    modelserving::{ModelServing, Role},
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use planner::{
    roles::{Recorded, RoleHash},
    units::Revision,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    count,
    digest::digest,
    json::canonical::pod_template,
    labels,
    revisions::{self, NewRevision, Revisions, Stored, Template, UNKNOWN},
    runtime::{Error, Key},
};

/// How many revisions that nothing is made from are kept to go back to, by default.
pub(super) const HISTORY: i32 = 10;

/// What of a role is no part of its template: how many there are, and how they are replaced.
pub(super) const NUMBERS: [&str; 4] = ["replicas", "maxUnavailable", "maxSurge", "partition"];

/// The roles of one revision, each with what it is made from.
#[derive(Clone, Debug)]
pub(crate) struct Roles(Vec<(Role, RoleHash)>);

impl Roles {
    fn of(roles: Vec<Role>) -> Result<Self, String> {
        let hashed = roles.into_iter().map(|role| Ok((role.clone(), hash(&role)?)));
        hashed.collect::<Result<_, String>>().map(Self)
    }

    pub(super) fn hash(&self, role: &str) -> Option<&RoleHash> {
        self.0.iter().find(|(it, _)| it.name == role).map(|(_, hash)| hash)
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.0.iter().map(|(role, _)| role)
    }

    /// The roles as something that a group comes from.
    pub(super) fn recorded(&self) -> Vec<Recorded> {
        let record = |(role, hash): &(Role, RoleHash)| Recorded {
            role: role.name.clone(),
            hash: hash.clone(),
            replicas: count(role.replicas),
        };
        self.0.iter().map(record).collect()
    }

    /// By name: the order in which roles are written is no part of a revision.
    fn hashes(&self) -> BTreeMap<&str, &str> {
        self.0.iter().map(|(role, hash)| (role.name.as_str(), hash.0.as_str())).collect()
    }
}

impl Template for Roles {
    const LABEL: &'static str = labels::SERVING_REVISION;

    fn kind() -> &'static Kind {
        &api::modelserving::KIND
    }

    /// As it is written here and by the other operator, and as that one will write it: a patch of the spec.
    fn read(data: &Value) -> Result<Self, String> {
        let data = if data["data"].is_null() { &data["spec"]["template"]["roles"] } else { &data["data"] };
        Self::of(Vec::deserialize(data).map_err(|error| error.to_string())?)
    }

    fn meaning(&self) -> Result<String, String> {
        Ok(json!(self.hashes()).to_string())
    }
}

/// The revisions of a ModelServing.
pub(super) type Known = Revisions<Roles>;

impl Known {
    /// The revision with a key, if it is stored.
    pub(super) fn named(&self, key: &str) -> Option<&Stored<Roles>> {
        self.get(self.find(key))
    }

    /// The revision and the role to make a replica from: what is wanted now, if it is the same there.
    pub(super) fn making(&self, role: &str, hash: &RoleHash) -> Option<(&Stored<Roles>, &Role)> {
        let mut fitting = self.all().rev().filter(|(_, stored)| stored.hash(role) == Some(hash));
        let (_, stored) = fitting.next()?;
        Some((stored, stored.roles().find(|it| it.name == role)?))
    }

    /// A number for what a role is made from: the same for the same template, whichever revision names it.
    pub(super) fn number(&self, role: &str, hash: &RoleHash) -> Revision {
        let mut fitting = self.all().filter(|(_, stored)| stored.hash(role) == Some(hash));
        fitting.next().map_or(UNKNOWN, |(number, _)| number)
    }

    /// What a role with this number is made from.
    pub(super) fn hash_of(&self, role: &str, number: Revision) -> Option<&RoleHash> {
        self.get(number).and_then(|stored| stored.hash(role))
    }
}

/// The revision that a ModelServing asks for.
pub(super) fn wanted(serving: &ModelServing) -> Result<NewRevision, Error> {
    let malformed =
        |why: String| Error::Malformed { what: format!("ModelServing {}", Key::of(serving)), why };
    let roles = Roles::of(serving.spec.template.roles.clone()).map_err(malformed)?;
    let data = json!({"data": serving.spec.template.roles});
    NewRevision::of(&roles, data, key, labels::SERVING_NAME).map_err(malformed)
}

/// The key of a revision: a digest of what its roles are made from.
fn key(data: &Value, attempt: u32) -> String {
    let roles = Roles::read(data).ok();
    let hashes = roles.as_ref().map(Roles::hashes);
    if attempt == 0 { digest(&json!(hashes)) } else { digest(&json!([hashes, attempt])) }
}

/// Whether a stored revision can be read.
pub(super) fn readable(stored: &ControllerRevision) -> Result<(), Error> {
    revisions::read::<Roles>(stored).map(drop)
}

/// Whether a role is made from the same in a stored revision and in the spec.
pub(super) fn is_same_role(stored: &ControllerRevision, serving: &ModelServing, role: &str) -> bool {
    let wanted = serving.spec.template.roles.iter().find(|it| it.name == role);
    let wanted = wanted.and_then(|role| hash(role).ok());
    let stored = revisions::read::<Roles>(stored).ok();
    wanted.is_some() && stored.as_ref().and_then(|stored| stored.hash(role)) == wanted.as_ref()
}

/// A role without its numbers, in the words of who else may have stored it.
fn without_numbers(role: &Role) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(role)?;
    for number in NUMBERS {
        value.as_object_mut().map(|role| role.remove(number));
    }
    for template in ["entryTemplate", "workerTemplate"] {
        value.get_mut(template).map(pod_template);
    }
    Ok(value)
}

/// What a role is made from: the same for every way to write it.
pub(super) fn hash(role: &Role) -> Result<RoleHash, String> {
    let value = without_numbers(role).map_err(|error| format!("role {}: {error}", role.name))?;
    Ok(RoleHash(digest(&value)))
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
        let meaning = |roles: Vec<Role>| Roles::of(roles).unwrap().meaning().unwrap();
        let one = meaning(vec![decode.clone(), prefill.clone()]);
        assert_eq!(one, meaning(vec![prefill, decode.clone()]));
        assert_ne!(one, meaning(vec![decode]));
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
        let read = |data: Value| Roles::read(&data);
        let wanted = hash(&role("decode", &json!({}))).unwrap();
        for data in [json!({"data": [bare]}), json!({"spec": {"plugins": [], "template": {"roles": [bare]}}})]
        {
            assert_eq!(read(data).unwrap().hash("decode"), Some(&wanted));
        }
        assert!(read(json!({"roles": []})).is_err());
    }
}
