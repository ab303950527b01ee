//! Serving groups that are placed together or not at all: a PodGroup for each, where Volcano places pods.

use api::{
    PodTemplate,
    modelserving::{ModelServing, Role},
    volcano::PodGroup,
};
use kube::ResourceExt;
use schema::quantity::{Form, Quantity};
use serde_json::{Map, Value, json};

use super::{observe::Observed, read::Group, render::group_name};
use crate::{
    count, labels, owner,
    runtime::{Cache, Key},
};

/// The scheduler that knows what a PodGroup is.
const VOLCANO: &str = "volcano";

/// Whether the scheduler of this serving knows `PodGroups`.
pub(super) fn is_known(serving: &ModelServing, cache: &Cache) -> bool {
    serving.spec.scheduler_name == VOLCANO && cache.is_served::<PodGroup>()
}

/// A role, as far as a group needs it to begin.
struct Needed<'a> {
    role: &'a Role,
    /// How many replicas.
    replicas: u32,
}

impl Needed<'_> {
    /// Pods of one replica.
    fn size(&self) -> u32 {
        1 + count(self.role.worker_replicas)
    }
}

/// The PodGroup of a serving group. `live` is what is known of it.
pub(super) fn pod_group(
    observed: &Observed,
    (ordinal, group): (u32, &Group),
    live: Option<&PodGroup>,
) -> (Key, Value) {
    let serving = observed.serving.as_ref();
    let key = Key::of(serving).beside(group_name(serving, ordinal));
    let needed = needed(observed, group);
    let topology = serving.spec.template.network_topology.as_ref();
    let mut spec = json!({
        "minMember": needed.iter().map(|it| it.replicas * it.size()).sum::<u32>(),
        "minResources": resources(&needed),
    });
    if let Some(queue) = serving.annotations().get(labels::QUEUE) {
        spec["queue"] = queue.as_str().into();
    }
    if let Some(policy) = topology.and_then(|topology| topology.group_policy.as_ref()) {
        spec["networkTopology"] = json!(policy);
    }
    // Older ones do not know parts of groups, and drop what is said of them: then no more is said.
    if live.is_none_or(|live| !live.spec[PARTS].is_null()) {
        let policy = topology.and_then(|topology| topology.role_policy.as_ref());
        let part = |it: &Needed<'_>| {
            let mut part = json!({
                "name": it.role.name,
                "labelSelector": {"matchLabels": {
                    labels::SERVING_NAME: serving.name_any(),
                    labels::ROLE: it.role.name,
                }},
                "matchLabelKeys": [labels::ROLE_ID],
                "subGroupSize": it.size(),
                "minSubGroups": it.replicas,
            });
            if let Some(policy) = policy {
                part["networkTopology"] = json!(policy);
            }
            part
        };
        spec[PARTS] = needed.iter().map(part).collect();
    }
    let body = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {
                labels::SERVING_NAME: serving.name_any(),
                labels::SERVING_GROUP: key.name,
                labels::MANAGED_BY: labels::SEGUE,
            },
            "ownerReferences": [owner(serving)],
        },
        "spec": spec,
    });
    (key, body)
}

/// The field of a PodGroup that is about its parts.
const PARTS: &str = "subGroupPolicy";

/// What is not said of every PodGroup.
pub(super) const MAY_GO: [&str; 2] = ["queue", "networkTopology"];

/// The fields of a PodGroup that are compared as a whole. An older Volcano keeps no parts of groups, and has none to
/// compare.
pub(super) fn exact(live: Option<&PodGroup>) -> &'static [&'static str] {
    match live {
        Some(live) if live.spec[PARTS].is_null() => &["minResources", "networkTopology"],
        _ => &["minResources", "networkTopology", PARTS],
    }
}

/// The pods that a group needs to be placed. A group of another revision has roles as they were: it never needs more
/// pods than it has, because then no pod that is made again would be placed.
fn needed<'a>(observed: &'a Observed, group: &Group) -> Vec<Needed<'a>> {
    let template = &observed.serving.spec.template;
    let least = template.gang_policy.as_ref().and_then(|gang| gang.min_role_replicas.as_ref());
    let before = group.from.as_ref().and_then(|key| observed.revisions.named(key));
    let needed = template.roles.iter().filter_map(|role| {
        let mut role = role;
        if let Some(before) = before {
            let was = before.roles().find(|it| it.name == role.name)?;
            if was.worker_replicas < role.worker_replicas {
                role = was;
            }
        }
        let replicas = observed.wanted.replicas_of(&role.name)?;
        let least = least.and_then(|least| least.get(&role.name)).map_or(replicas, |it| count(*it));
        Some(Needed { role, replicas: least.min(replicas) })
    });
    needed.collect()
}

/// What their containers ask for, together.
fn resources(needed: &[Needed<'_>]) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for it in needed {
        let workers = it.role.worker_template.as_ref().map(|worker| (worker, it.size() - 1));
        for (template, pods) in workers.into_iter().chain([(&it.role.entry_template, 1)]) {
            for (name, amount) in requests(template) {
                let amount = amount.times(pods * it.replicas);
                let before = all.get(&name).and_then(|it| Quantity::read(it).ok());
                let sum = before.map_or(amount, |before| before.plus(amount));
                all.insert(name, sum.text(Form::DecimalSi).into());
            }
        }
    }
    Value::Object(all)
}

fn requests(template: &PodTemplate) -> Vec<(String, Quantity)> {
    let containers = template.json()["spec"]["containers"].as_array().into_iter().flatten();
    let requests = containers.filter_map(|container| container["resources"]["requests"].as_object());
    let read = requests.flatten().filter_map(|(name, it)| Some((name.clone(), Quantity::read(it).ok()?)));
    read.collect()
}
