//! Where the pods of a group may run: subgroups, and topology domains that groups do not share.

use api::leaderworkerset::{LeaderWorkerSet, SubGroupPolicyType};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Place, push};
use crate::{digest::sha1, labels, leaderworkerset::revision::GroupTemplate};

/// The subgroup of a pod.
pub(super) struct Subgroup {
    pub(super) size: u32,
    /// Whether leaders belong to one.
    pub(super) has_leaders: bool,
    /// Its number. A leader may have none.
    pub(super) index: Option<u32>,
}

/// The subgroup of a pod, where its group has subgroups.
pub(super) fn subgroup(template: &GroupTemplate, place: Place) -> Option<Subgroup> {
    let policy = template.pods.sub_group_policy.as_ref()?;
    let size = crate::count(policy.sub_group_size?);
    let pods = crate::count(template.pods.size);
    let excluded = policy.sub_group_policy_type == SubGroupPolicyType::LeaderExcluded;
    let index = match place.index {
        _ if size == 0 => None,
        0 => (!excluded).then_some(0),
        // One pod more than the subgroups hold: the leader, which shares the first.
        worker if (pods - 1).is_multiple_of(size) && !pods.is_multiple_of(size) => Some((worker - 1) / size),
        worker => Some(worker / size),
    };
    Some(Subgroup { size, has_leaders: !excluded, index })
}

/// The topology keys that a set asks for: for its groups, and for their subgroups. An empty one asks for nothing.
struct Topologies<'a> {
    groups: Option<&'a String>,
    subgroups: Option<&'a String>,
}

impl<'a> Topologies<'a> {
    fn of(set: &'a LeaderWorkerSet) -> Self {
        let key = |annotation| set.annotations().get(annotation).filter(|key| !key.is_empty());
        Self { groups: key(labels::EXCLUSIVE_TOPOLOGY), subgroups: key(labels::SUBGROUP_EXCLUSIVE_TOPOLOGY) }
    }
}

/// Labels and annotations of subgroups and topologies, and the terms of affinity that follow from them.
///
/// Every pod carries the terms, its workers too. The public operator copies the node selector of the leader's domain to
/// the workers, which therefore cannot exist before the leader runs; with the terms all pods of a group can be made and
/// scheduled at once, in any order, and end in the same place: the first one picks the domain, for it matches its own
/// term. Terms without namespaces hold within the pod's own.
pub(super) fn place(pod: &mut Value, set: &LeaderWorkerSet, template: &GroupTemplate, place: Place) {
    let leader = Place { index: 0, ..place }.name(set);
    let subgroup = subgroup(template, place);
    let topologies = Topologies::of(set);
    if let Some(subgroup) = &subgroup {
        let annotations = &mut pod["metadata"]["annotations"];
        let policy = template.pods.sub_group_policy.as_ref().map(|policy| policy.sub_group_policy_type);
        annotations[labels::SUBGROUP_SIZE] = subgroup.size.to_string().into();
        annotations[labels::SUBGROUP_POLICY_TYPE] = json!(policy);
        if let Some(topology) = topologies.subgroups {
            annotations[labels::SUBGROUP_EXCLUSIVE_TOPOLOGY] = topology.clone().into();
        }
    }
    if let Some(topology) = topologies.groups {
        pod["metadata"]["annotations"][labels::EXCLUSIVE_TOPOLOGY] = topology.clone().into();
        let key = pod["metadata"]["labels"][labels::GROUP_KEY].clone();
        keep_apart(&mut pod["spec"]["affinity"], topology, labels::GROUP_KEY, &key);
    }
    if let Some(index) = subgroup.and_then(|subgroup| subgroup.index) {
        let key = json!(sha1(&format!("{leader}/{index}")));
        if let Some(topology) = topologies.subgroups {
            keep_apart(&mut pod["spec"]["affinity"], topology, labels::SUBGROUP_KEY, &key);
        }
        let labels = &mut pod["metadata"]["labels"];
        labels[labels::SUBGROUP_INDEX] = index.to_string().into();
        labels[labels::SUBGROUP_KEY] = key;
    }
}

/// Together with the pods of the same key, and apart from those of another. What the author of the template asks for
/// besides stays.
fn keep_apart(affinity: &mut Value, topology: &str, label: &str, key: &Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = |expressions: Value| json!({"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology});
    let own = json!([{"key": label, "operator": "In", "values": [key]}]);
    let others = json!([
        {"key": label, "operator": "Exists"},
        {"key": label, "operator": "NotIn", "values": [key]},
    ]);
    push(&mut affinity["podAffinity"][REQUIRED], term(own));
    push(&mut affinity["podAntiAffinity"][REQUIRED], term(others));
}
