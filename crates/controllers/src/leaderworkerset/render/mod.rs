//! The pods of a group, and the Services that give them names.

mod claims;
mod placement;
#[cfg(test)]
mod tests;
mod tpu;

use api::leaderworkerset::{LeaderWorkerSet, SubdomainPolicy};
use kube::ResourceExt;
use serde_json::{Value, json};

pub(super) use self::claims::{Claim, claims, goes_with};
use super::revision::GroupTemplate;
use crate::{
    digest::sha1,
    json::{lay, lead, push},
    labels, owner,
    runtime::Key,
};

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
pub(super) fn pod(set: &LeaderWorkerSet, template: &GroupTemplate, place: Place) -> Value {
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
    placement::place(&mut pod, set, template, place);
    let told = tpu::Pod {
        place,
        size: crate::count(pods.size),
        leader: &leader_name,
        subdomain: &subdomain,
        leader_asks: tpu::leader_asks(template),
        subgroup: placement::subgroup(template, place),
    };
    tpu::set_environment(&mut pod, &told);
    let spec = &mut pod["spec"];
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
