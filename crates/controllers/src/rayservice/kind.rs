//! What there is to say of services beside how they are reconciled.

use serde_json::{Value, json};

use super::{Services, plan};
use crate::{
    conditions::rayservice as conditions,
    json::erase,
    kind::{Idle, OtherOperator, Progress, Renewed, Revisioned, Right, Served},
    labels,
    pipeline::{Controller, Pipeline},
};

const NEEDS: &[&api::Kind] = &[&api::raycluster::KIND];
const GATEWAY: &str = "gateway.networking.k8s.io";

/// The kind.
pub(crate) static SERVED: Served = Served {
    kind: &api::rayservice::KIND,
    label: labels::RAY_SERVICE,
    needs: NEEDS,
    rights: &[RIGHTS],
    other: Some(OtherOperator {
        lease: "ray-operator-leader",
        renewed: Renewed::Reconciles,
        webhooks: &["vrayservice.kb.io"],
        webhook_service: "kuberay-webhook-service",
    }),
    progress: Progress {
        noted: &[conditions::ROLLBACK_IN_PROGRESS, conditions::PAUSED, conditions::GIVEN_UP],
        busy: &[conditions::UPGRADE_IN_PROGRESS],
        idle: Idle::NothingWaitedFor,
        paused: Some(conditions::PAUSED),
        ..Progress::WAITS
    },
    revisions: Some(Revisioned { label: labels::SERVICE_REVISION, pods, back, marked, rolls: None }),
    requests: Services::REQUESTS,
    adoptable: None,
    adoptable_named: None,
    plan: plan::plan,
    fits: None,
    not_acted_on: |_| Vec::new(),
    reconciler: &Pipeline::<Services>::new(),
};

const RIGHTS: &[Right] = &[
    Right::new("ray.io", "rayclusters", "create, delete, get, list, patch, watch", "a version is a cluster"),
    Right::new("", "pods", "list, patch, watch", "know which pods of a cluster serve, and label them"),
    Right::new(
        "",
        "services",
        "create, delete, get, list, patch, watch",
        "the way to the clusters of a service",
    ),
    Right::new(
        "apps",
        "controllerrevisions",
        "create, delete, get, list, patch, watch",
        "keep what clusters were made from and told",
    ),
    Right::new("discovery.k8s.io", "endpointslices", "list, watch", "know what gets requests"),
    Right::new(GATEWAY, "gateways", "create, delete, get, list, patch, watch", "where requests come in"),
    Right::new(GATEWAY, "httproutes", "create, delete, get, list, patch, watch", "the weights of clusters"),
    Right::new(GATEWAY, "grpcroutes", "create, delete, get, list, patch, watch", "the weights of clusters"),
];

/// The parts of a spec that a revision has.
const STORED: [&str; 2] = ["rayClusterConfig", "serveConfigV2"];

fn pods(data: &Value) -> Vec<&Value> {
    let cluster = &data["spec"]["rayClusterConfig"];
    let workers = cluster["workerGroupSpecs"].as_array().into_iter().flatten();
    [&cluster["headGroupSpec"]["template"]].into_iter().chain(workers.map(|it| &it["template"])).collect()
}

/// A field that the revision does not have is removed: a merge patch keeps the fields that it does not name.
fn back(data: &Value, live: &Value) -> Value {
    let mut spec = json!({});
    for part in STORED {
        spec[part] = data["spec"][part].clone();
        erase(&mut spec[part], &live["spec"][part]);
    }
    json!({"spec": spec})
}

/// Worker groups are a list, which a merge replaces as a whole.
fn marked(live: &Value, mark: &Value) -> Value {
    let mut workers = live["spec"]["rayClusterConfig"]["workerGroupSpecs"].clone();
    for group in workers.as_array_mut().into_iter().flatten() {
        crate::json::lay(&mut group["template"], mark.clone());
    }
    let mut config = json!({"headGroupSpec": {"template": mark}});
    if workers.is_array() {
        config["workerGroupSpecs"] = workers;
    }
    json!({"spec": {"rayClusterConfig": config}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reaches_the_head_and_every_group_of_workers() {
        let live = json!({"spec": {"rayClusterConfig": {"workerGroupSpecs": [
            {"groupName": "a", "replicas": 2, "template": {"spec": {}}}, {"groupName": "b"},
        ]}}});
        let patch = marked(&live, &json!({"metadata": {"annotations": {"x": "y"}}}));
        let config = &patch["spec"]["rayClusterConfig"];
        assert_eq!(config["headGroupSpec"]["template"]["metadata"]["annotations"]["x"], "y");
        let groups = config["workerGroupSpecs"].as_array().unwrap();
        assert!(groups.iter().all(|group| group["template"]["metadata"]["annotations"]["x"] == "y"));
        assert_eq!(groups[0]["replicas"], 2);
    }
}
