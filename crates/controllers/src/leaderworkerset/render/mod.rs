//! The pods of a group, and the Services that give them names.

mod claims;

use api::leaderworkerset::{LeaderWorkerSet, SubdomainPolicy};
use kube::ResourceExt;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Value, json};

pub(super) use self::claims::{Claim, claims, goes_with};
use super::revision::Template;
use crate::{labels, owner, runtime::Key};

/// Which pod of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) group: u32,
    pub(super) index: u32,
    pub(super) incarnation: u32,
}

impl Place {
    pub(super) fn name(self, set: &LeaderWorkerSet) -> String {
        let leader = format!("{}-{}", set.name_any(), self.group);
        if self.index == 0 { leader } else { format!("{leader}-{}", self.index) }
    }
}

/// A pod, made from one template and nothing else: a group never mixes two.
pub(super) fn pod(set: &LeaderWorkerSet, template: &Template, place: Place) -> Value {
    let pods = &template.pods;
    let leader = pods.leader_template.as_ref().filter(|_| place.index == 0);
    let mut pod = leader.unwrap_or(&pods.worker_template).json().clone();
    let name = place.name(set);
    let leader_name = Place { index: 0, ..place }.name(set);
    let namespace = set.namespace().unwrap_or_default();
    let subdomain = match template.subdomains {
        SubdomainPolicy::Shared => set.name_any(),
        SubdomainPolicy::UniquePerReplica => leader_name.clone(),
    };

    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    let metadata = &mut pod["metadata"];
    metadata["name"] = name.clone().into();
    metadata["namespace"] = namespace.clone().into();
    metadata["ownerReferences"] = json!([owner(set)]);
    lay(
        &mut metadata["labels"],
        json!({
            labels::SET_NAME: set.name_any(),
            labels::GROUP_INDEX: place.group.to_string(),
            labels::WORKER_INDEX: place.index.to_string(),
            labels::GROUP_KEY: sha1(&format!("{namespace}/{leader_name}")),
            labels::REVISION: template.key,
            // What tools look for on pods with a place of their own.
            "apps.kubernetes.io/pod-index": if place.index == 0 { place.group } else { place.index }.to_string(),
            "statefulset.kubernetes.io/pod-name": name,
            "controller-revision-hash": template.key,
        }),
    );
    lay(
        &mut metadata["annotations"],
        json!({
            labels::SIZE: pods.size.to_string(),
            labels::INCARNATION: place.incarnation.to_string(),
        }),
    );
    if place.index > 0 {
        metadata["annotations"][labels::LEADER_NAME] = leader_name.clone().into();
    } else if template.subdomains == SubdomainPolicy::UniquePerReplica {
        metadata["annotations"][labels::SUBDOMAIN_POLICY] = "UniquePerReplica".into();
    }

    let spec = &mut pod["spec"];
    spec["hostname"] = name.into();
    spec["subdomain"] = subdomain.clone().into();
    if place.index == 0 {
        // Who takes requests is who leaves service first: the leader speaks for its group.
        push(&mut spec["readinessGates"], json!({"conditionType": labels::IN_SERVICE}));
    }
    claims::mount(spec, &claims(set, template, place));
    let ours = [
        ("LWS_LEADER_ADDRESS", format!("{leader_name}.{subdomain}.{namespace}")),
        ("LWS_GROUP_SIZE", pods.size.to_string()),
        ("LWS_WORKER_INDEX", place.index.to_string()),
    ];
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            lead(&mut container["env"], &ours);
        }
    }
    pod
}

/// The Service that gives the pods of a set their names, or of one group where each has its own.
pub(super) fn headless(set: &LeaderWorkerSet, group: Option<u32>) -> (Key, Value) {
    let name = group.map_or_else(|| set.name_any(), |group| format!("{}-{group}", set.name_any()));
    let key = Key::of(set).beside(name);
    let mut selector = json!({labels::SET_NAME: set.name_any()});
    if let Some(group) = group {
        selector[labels::GROUP_INDEX] = group.to_string().into();
    }
    let published = set.spec.network_config.as_ref().and_then(|network| network.publish_not_ready_addresses);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {labels::SET_NAME: set.name_any(), labels::MANAGED_BY: labels::SEGUE},
            "ownerReferences": [owner(set)],
        },
        "spec": {
            "clusterIP": "None",
            // Workers look for their leader before anything is ready.
            "publishNotReadyAddresses": published.unwrap_or(true),
            "selector": selector,
        },
    });
    (key, body)
}

/// Lays entries over an object that may not be there.
fn lay(under: &mut Value, over: Value) {
    if !under.is_object() {
        *under = json!({});
    }
    if let (Some(under), Value::Object(over)) = (under.as_object_mut(), over) {
        under.extend(over);
    }
}

fn push(list: &mut Value, entry: Value) {
    match list.as_array_mut() {
        Some(list) if !list.contains(&entry) => list.push(entry),
        Some(_) => {}
        None => *list = json!([entry]),
    }
}

/// Puts variables in front, so that others can refer to them; those of the same name give way.
fn lead(env: &mut Value, ours: &[(&str, String)]) {
    let mut list: Vec<Value> =
        ours.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let theirs = env.as_array().into_iter().flatten();
    list.extend(theirs.filter(|theirs| ours.iter().all(|(name, _)| theirs["name"] != *name)).cloned());
    *env = list.into();
}

fn sha1(text: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    hash.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(size: i32, subdomains: &str) -> (LeaderWorkerSet, Template) {
        let set: LeaderWorkerSet = serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
            "spec": {
                "networkConfig": {"subdomainPolicy": subdomains},
                "leaderWorkerTemplate": {
                    "size": size,
                    "leaderTemplate": {"spec": {"containers": [{"name": "l"}]}},
                    "workerTemplate": {
                        "metadata": {"labels": {"mine": "stays"}},
                        "spec": {
                            "readinessGates": [{"conditionType": "theirs"}],
                            "initContainers": [{"name": "i"}],
                            "containers": [{"name": "w", "env": [
                                {"name": "LWS_GROUP_SIZE", "value": "9"},
                                {"name": "AT", "value": "$(LWS_LEADER_ADDRESS)"},
                            ]}],
                        },
                    },
                },
            },
        }))
        .unwrap();
        let template = Template {
            key: "abc".to_owned(),
            pods: set.spec.leader_worker_template.clone(),
            subdomains: set.spec.network_config.as_ref().unwrap().subdomain_policy,
        };
        (set, template)
    }

    #[test]
    fn a_worker_knows_its_leader_its_group_and_its_place() {
        let (set, template) = set(3, "Shared");
        let pod = pod(&set, &template, Place { group: 4, index: 2, incarnation: 1 });
        assert_eq!(pod["metadata"]["name"], "x-4-2");
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("x-4-2"), &json!("x")));
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["mine"], "stays");
        assert_eq!(labels[labels::GROUP_INDEX], "4");
        assert_eq!(labels[labels::WORKER_INDEX], "2");
        // sha1 of "ns/x-4"
        assert_eq!(labels[labels::GROUP_KEY].as_str().unwrap().len(), 40);
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations[labels::LEADER_NAME], "x-4");
        assert_eq!(annotations[labels::SIZE], "3");
        assert_eq!(annotations[labels::INCARNATION], "1");
        let env = &pod["spec"]["containers"][0]["env"];
        assert_eq!(env[0], json!({"name": "LWS_LEADER_ADDRESS", "value": "x-4.x.ns"}));
        assert_eq!(env[1], json!({"name": "LWS_GROUP_SIZE", "value": "3"}));
        assert_eq!(env[3], json!({"name": "AT", "value": "$(LWS_LEADER_ADDRESS)"}));
        assert_eq!(env.as_array().unwrap().len(), 4);
        assert_eq!(pod["spec"]["initContainers"][0]["env"][2]["value"], "2");
        assert_eq!(pod["spec"]["readinessGates"], json!([{"conditionType": "theirs"}]));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "LeaderWorkerSet");
    }

    #[test]
    fn the_leader_carries_the_gate_and_may_have_a_subdomain_of_its_own() {
        let (set, template) = set(3, "UniquePerReplica");
        let pod = pod(&set, &template, Place { group: 4, index: 0, incarnation: 0 });
        assert_eq!((&pod["metadata"]["name"], &pod["spec"]["subdomain"]), (&json!("x-4"), &json!("x-4")));
        assert_eq!(pod["spec"]["containers"][0]["name"], "l");
        assert_eq!(pod["spec"]["readinessGates"], json!([{"conditionType": labels::IN_SERVICE}]));
        assert_eq!(pod["metadata"]["annotations"][labels::SUBDOMAIN_POLICY], "UniquePerReplica");
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "x-4.x-4.ns");
        let (key, service) = headless(&set, Some(4));
        assert_eq!(key.name, "x-4");
        assert_eq!(service["spec"]["selector"][labels::GROUP_INDEX], "4");
    }
}
