//! What there is to say of sets beside how they are reconciled.

use api::leaderworkerset::LeaderWorkerSet;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Sets, adopt, is_same, plan, wanted::subdomains};
use crate::{
    conditions::leaderworkerset as contract,
    json::erase,
    kind::{OtherOperator, Progress, Renewed, Revisioned, Right, Served},
    labels,
    pipeline::{Controller, Pipeline},
    runtime::Cache,
    units,
};

/// The kind.
pub static SERVED: Served = Served {
    kind: &api::leaderworkerset::KIND,
    label: labels::SET_NAME,
    needs: &[],
    rights: &[RIGHTS, units::RIGHTS],
    other: Some(OtherOperator {
        lease: "b8b2488c.x-k8s.io",
        renewed: Renewed::Reconciles,
        webhooks: &["mleaderworkerset.kb.io", "vleaderworkerset.kb.io", "mpod.kb.io", "vpod.kb.io"],
        webhook_service: "lws-webhook-service",
    }),
    progress: Progress { busy: &[contract::UPDATE_IN_PROGRESS, contract::PROGRESSING], ..Progress::WAITS },
    revisions: Some(Revisioned { label: labels::REVISION, pods, back, marked, rolls: Some("RollingUpdate") }),
    requests: Sets::REQUESTS,
    adoptable: Some(|client, namespace| Box::pin(adopt::adoptable(client, namespace))),
    adoptable_named: Some(|client, namespace, name| Box::pin(adopt::named(client, namespace, name))),
    plan: plan::plan,
    // `api::validate` warns of each.
    fits: None,
    not_acted_on: |_| Vec::new(),
    reconciler: &Pipeline::<Sets>::new(),
};

const RIGHTS: &[Right] = &[
    Right::new(
        "",
        "persistentvolumeclaims",
        "create, delete, get, list, patch, watch",
        "the volumes of groups, and their deletion where the set requests it",
    ),
    Right::new(
        "policy",
        "poddisruptionbudgets",
        "list, watch",
        "name budgets that Kubernetes cannot count for these pods",
    ),
];

fn pods(data: &Value) -> Vec<&Value> {
    let template = &data["spec"]["leaderWorkerTemplate"];
    ["leaderTemplate", "workerTemplate"].map(|pods| &template[pods]).into()
}

/// Fields that a revision does not have are removed by name: a merge keeps what it does not mention.
fn back(data: &Value, live: &Value) -> Value {
    let mut wanted = stored(data);
    for part in STORED {
        erase(&mut wanted[part], &live["spec"][part]);
    }
    json!({"spec": wanted})
}

/// What of a spec is in a revision.
const STORED: [&str; 2] = ["leaderWorkerTemplate", "networkConfig"];

/// The parts of a spec that a revision has.
fn stored(data: &Value) -> Value {
    let mut parts = json!({});
    for part in STORED {
        parts[part] = data["spec"][part].clone();
        if let Some(fields) = parts[part].as_object_mut() {
            // How the public operator says that all of it counts.
            fields.remove("$patch");
        }
    }
    parts
}

/// The change of the spec that makes a set what its first revision stored, where it is something else by now.
pub(crate) fn as_made(cache: &Cache, live: &LeaderWorkerSet) -> Option<Value> {
    let revisions = cache.owned_by::<ControllerRevision>(&live.uid()?);
    let first = revisions.min_by_key(|it| (it.creation_timestamp().map(|time| time.0), it.revision))?;
    let data = &first.data.as_ref()?.0;
    let mut made = serde_json::to_value(live).ok()?;
    let mut change = back(data, &made)["spec"].take();
    let mut parts = stored(data);
    for part in STORED {
        made["spec"][part] = parts[part].take();
    }
    let made: LeaderWorkerSet = serde_json::from_value(made).ok()?;
    if subdomains(live) == subdomains(&made) {
        // It may be left away, and is stored all the same.
        change.as_object_mut()?.remove("networkConfig");
    }
    let same = is_same(live, &made).unwrap_or(true);
    (!same).then_some(change)
}

fn marked(live: &Value, mark: &Value) -> Value {
    let mut template = json!({"workerTemplate": mark});
    if live["spec"]["leaderWorkerTemplate"]["leaderTemplate"].is_object() {
        template["leaderTemplate"] = mark.clone();
    }
    json!({"spec": {"leaderWorkerTemplate": template}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_back_brings_everything_back_and_takes_the_rest_away() {
        let stored = json!({"spec": {
            "leaderWorkerTemplate": {"$patch": "replace", "size": 2, "workerTemplate": {"spec": {"containers": [
                {"name": "c", "image": "one"},
            ]}}},
            "networkConfig": {"$patch": "replace", "subdomainPolicy": "Shared"},
        }});
        let live = json!({"spec": {
            "replicas": 3,
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": {"spec": {}},
                "workerTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}},
            },
        }});
        assert_eq!(
            back(&stored, &live),
            json!({"spec": {
                "leaderWorkerTemplate": {
                    "size": 2,
                    "leaderTemplate": null,
                    "workerTemplate": {"metadata": null, "spec": {
                        "nodeName": null, "containers": [{"name": "c", "image": "one"}],
                    }},
                },
                "networkConfig": {"subdomainPolicy": "Shared"},
            }})
        );
    }
}
