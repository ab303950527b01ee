//! Sets that another operator made. What it made of them stays as it is; only who owns it changes.
//!
//! The other operator keeps pods in `StatefulSet`s: one for the leaders, one for the workers of each group. They are
//! let go of without their pods, and the pods become the set's own.

use api::leaderworkerset::LeaderWorkerSet;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::observe::{index, number};
use crate::{
    adopt::{Adoptable, Step, controller, list},
    labels, owner, units,
};

/// A set, and what bears its label.
#[derive(Debug)]
struct Labelled {
    /// The set.
    set: LeaderWorkerSet,
    /// Those of its leaders and of its workers.
    stateful_sets: Vec<StatefulSet>,
    /// Its pods.
    pods: Vec<Pod>,
    /// Its Services.
    services: Vec<Service>,
}

impl Labelled {
    /// What is left to write; nothing if the set is wholly ours. An error names objects of an unknown owner.
    fn steps(&self) -> Result<Vec<Step>, String> {
        let mut writes = Vec::new();
        for stateful_set in &self.stateful_sets {
            self.must_be_known(stateful_set)?;
            writes.push(Step::Release {
                name: stateful_set.name_any(),
                uid: stateful_set.uid().unwrap_or_default(),
            });
        }
        for service in self.services.iter().filter(|service| !self.is_named(service)) {
            self.must_be_known(service)?;
            let name = service.name_any();
            writes.push(Step::Name { name, patch: self.name(service) });
        }
        for pod in self.pods.iter().filter(|pod| !self.owns(*pod)) {
            self.must_be_known(pod)?;
            if place(pod).is_none() {
                return Err(format!("pod {} has no place in a group; remove its label", pod.name_any()));
            }
            writes.push(Step::Own { name: pod.name_any(), patch: self.own(pod) });
        }
        Ok(writes)
    }

    fn owns(&self, object: &impl Resource) -> bool {
        controller(object).is_some_and(|owner| Some(&owner.uid) == self.set.metadata.uid.as_ref())
    }

    /// Ours look for their Services by label.
    fn is_named(&self, service: &Service) -> bool {
        let mark = service.labels().get(labels::MANAGED_BY).map(String::as_str);
        self.owns(service) && mark == Some(labels::SEGUE)
    }

    /// The other operator owns by the set, by a leader, or by a `StatefulSet` of either; whatever it let go of has no
    /// owner.
    fn must_be_known(&self, object: &(impl Resource<DynamicType = ()> + Resource)) -> Result<(), String> {
        let Some(owner) = controller(object) else { return Ok(()) };
        let set = self.set.name_any();
        let of_a_group = |name: &str| {
            let group = name.strip_prefix(&set).and_then(|rest| rest.strip_prefix('-'));
            group.is_some_and(|group| group.parse::<u32>().is_ok())
        };
        let known = match owner.kind.as_str() {
            "LeaderWorkerSet" => self.owns(object),
            "StatefulSet" => owner.name == set || of_a_group(&owner.name),
            "Pod" => of_a_group(&owner.name),
            _ => false,
        };
        if known {
            return Ok(());
        }
        let name = object.meta().name.as_deref().unwrap_or_default();
        let OwnerReference { kind, name: by, .. } = owner;
        Err(format!(
            "{name} has the label of {set}, but belongs to {kind} {by}; remove the label or the object"
        ))
    }

    fn name(&self, service: &Service) -> Value {
        json!({"metadata": {
            "uid": service.uid(),
            "labels": {labels::MANAGED_BY: labels::SEGUE},
            "ownerReferences": [owner(&self.set)],
        }})
    }

    /// What restarted under the other operator is no failure under us.
    fn own(&self, pod: &Pod) -> Value {
        json!({"metadata": {
            "uid": pod.uid(),
            "annotations": {labels::RESTARTS_AT_START: units::restarts(pod).to_string(), labels::INCARNATION: "0"},
            "ownerReferences": [owner(&self.set)],
        }})
    }
}

/// The sets of a namespace, and what is left to do for each.
pub(super) async fn adoptable(client: Client, namespace: String) -> Result<Vec<Adoptable>, kube::Error> {
    let sets: Vec<LeaderWorkerSet> = list(&client, &namespace, None).await?;
    let mut found = Vec::new();
    for set in sets.into_iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
        found.push(of(&client, &namespace, set).await?);
    }
    Ok(found)
}

/// The set of a name, and what is left to do for it.
pub(super) async fn named(
    client: Client,
    namespace: String,
    name: String,
) -> Result<Option<Adoptable>, kube::Error> {
    let set = Api::<LeaderWorkerSet>::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    match set.filter(|set| set.metadata.deletion_timestamp.is_none()) {
        Some(set) => of(&client, &namespace, set).await.map(Some),
        None => Ok(None),
    }
}

async fn of(client: &Client, namespace: &str, set: LeaderWorkerSet) -> Result<Adoptable, kube::Error> {
    let label = format!("{}={}", labels::SET_NAME, set.name_any());
    let label = Some(label.as_str());
    let set = Labelled {
        stateful_sets: list(client, namespace, label).await?,
        pods: list(client, namespace, label).await?,
        services: list(client, namespace, label).await?,
        set,
    };
    let (kind, name) = (&api::leaderworkerset::KIND, set.set.name_any());
    Ok(Adoptable { kind, name, steps: set.steps(), outdated: Vec::new() })
}

/// Whether another operator made a pod for this set, and it is not adopted: nothing is done for the set until it is.
pub(super) fn has_other_owner(set: &LeaderWorkerSet, pod: &Pod) -> bool {
    let of_this_set = pod.labels().get(labels::SET_NAME) == set.metadata.name.as_ref();
    // Of an earlier set of this name: it goes by itself.
    let of_a_set = controller(pod).is_some_and(|owner| owner.kind == "LeaderWorkerSet");
    of_this_set && !of_a_set && place(pod).is_some()
}

fn place(pod: &Pod) -> Option<(u32, u32)> {
    number(pod, labels::GROUP_INDEX).zip(index(pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
    }

    fn pod(name: &str, owners: &Value, (group, index): (u32, u32)) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "ownerReferences": owners, "labels": {
                labels::SET_NAME: "x",
                labels::GROUP_INDEX: group.to_string(),
                labels::WORKER_INDEX: index.to_string(),
            }},
            "status": {"containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
            }]},
        }))
        .unwrap()
    }

    fn stateful_set(name: &str, owners: &Value) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}-pods"), "ownerReferences": owners},
        }))
        .unwrap()
    }

    fn left() -> Labelled {
        let set = json!({
            "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
            "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": []}}}},
        });
        let service = json!({"metadata": {
            "name": "x", "uid": "uid-service", "ownerReferences": owned_by("LeaderWorkerSet", "x", "u"),
        }});
        Labelled {
            set: serde_json::from_value(set).unwrap(),
            stateful_sets: vec![
                stateful_set("x", &owned_by("LeaderWorkerSet", "x", "u")),
                stateful_set("x-0", &owned_by("Pod", "x-0", "uid-x-0")),
            ],
            pods: vec![
                pod("x-0", &owned_by("StatefulSet", "x", "uid-x-pods"), (0, 0)),
                pod("x-0-1", &owned_by("StatefulSet", "x-0", "uid-x-0-pods"), (0, 1)),
            ],
            services: vec![serde_json::from_value(service).unwrap()],
        }
    }

    #[test]
    fn stateful_sets_go_first_and_pods_keep_what_they_have() {
        let writes = left().steps().unwrap();
        let names: Vec<&str> = writes
            .iter()
            .map(|write| match write {
                Step::Release { name, .. } | Step::Name { name, .. } | Step::Own { name, .. } => {
                    name.as_str()
                }
                Step::Store { .. } => "a revision",
            })
            .collect();
        assert_eq!(names, ["x", "x-0", "x", "x-0", "x-0-1"]);
        let Step::Own { patch, .. } = &writes[4] else { panic!("{writes:?}") };
        assert_eq!(patch["metadata"]["uid"], "uid-x-0-1");
        assert_eq!(patch["metadata"]["annotations"][labels::RESTARTS_AT_START], "2");
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "u");
        assert!(patch["spec"].is_null() && patch["metadata"]["labels"].is_null(), "{patch}");
    }

    #[test]
    fn an_adoption_that_stopped_goes_on_and_nothing_is_left_at_the_end() {
        let mut left = left();
        left.stateful_sets.clear();
        left.pods[0] = pod("x-0", &owned_by("LeaderWorkerSet", "x", "u"), (0, 0));
        left.pods[1] = pod("x-0-1", &json!([]), (0, 1));
        let writes = left.steps().unwrap();
        assert!(matches!(&writes[..], [Step::Name { .. }, Step::Own { name, .. }] if name == "x-0-1"));
        left.pods[1] = pod("x-0-1", &owned_by("LeaderWorkerSet", "x", "u"), (0, 1));
        left.services[0].labels_mut().insert(labels::MANAGED_BY.to_owned(), labels::SEGUE.to_owned());
        assert_eq!(left.steps(), Ok(Vec::new()));
    }

    #[test]
    fn an_unknown_owner_is_named() {
        let mut left = left();
        left.pods[1] = pod("x-0-1", &owned_by("ReplicaSet", "mine", "r"), (0, 1));
        assert_eq!(
            left.steps().unwrap_err(),
            "x-0-1 has the label of x, but belongs to ReplicaSet mine; remove the label or the object"
        );
        left.pods[1] = pod("x-0-1", &owned_by("StatefulSet", "xy-0", "r"), (0, 1));
        assert!(left.steps().is_err());
    }

    #[test]
    fn a_pod_is_anothers_until_it_is_taken_over() {
        let left = left();
        assert!(has_other_owner(&left.set, &left.pods[0]));
        assert!(has_other_owner(&left.set, &pod("x-0", &json!([]), (0, 0))));
        assert!(!has_other_owner(&left.set, &pod("x-0", &owned_by("LeaderWorkerSet", "x", "u"), (0, 0))));
        // Of an earlier set of the same name.
        assert!(!has_other_owner(&left.set, &pod("x-0", &owned_by("LeaderWorkerSet", "x", "old"), (0, 0))));
        let mut unplaced = pod("x-web", &json!([]), (0, 0));
        unplaced.labels_mut().remove(labels::GROUP_INDEX);
        assert!(!has_other_owner(&left.set, &unplaced));
    }
}
