//! The end of a run, to be compared with that of another.

use std::collections::BTreeMap;

use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

/// Everything that the controllers made, without what differs from run to run.
pub(super) async fn end_state(client: &Client) -> BTreeMap<String, Value> {
    let kinds = [
        ("", "v1", "Pod"),
        ("", "v1", "Service"),
        ("apps", "v1", "ControllerRevision"),
        ("policy", "v1", "PodDisruptionBudget"),
        ("scheduling.volcano.sh", "v1beta1", "PodGroup"),
        ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        ("workload.serving.volcano.sh", "v1alpha1", "ModelServing"),
        ("segue.dev", "v1alpha1", "ModelDeployment"),
        ("ray.io", "v1", "RayCluster"),
        ("gateway.networking.k8s.io", "v1", "HTTPRoute"),
        ("gateway.networking.k8s.io", "v1", "Gateway"),
    ];
    let (mut end, mut uids) = (BTreeMap::new(), Vec::new());
    for (group, version, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let mut meta = object.metadata.clone();
            // A digest of what was applied, owner included, and the resourceVersion of a set when a request to scale it was
            // withdrawn: uids differ from seed to seed, and which requests are withdrawn depends on which are lost.
            for varies in ["segue.dev/applied", "segue.dev/weighed-at", "segue.dev/withdrawn-scale"] {
                meta.annotations.get_or_insert_default().remove(varies);
            }
            let mut seen = json!({
                "labels": meta.labels, "annotations": meta.annotations, "going": meta.deletion_timestamp.is_some(),
                "spec": object.data["spec"], "data": object.data["data"],
            });
            // The address of a Service depends on how many Services were made before.
            if seen["spec"]["clusterIP"] != "None"
                && let Some(spec) = seen["spec"].as_object_mut()
            {
                spec.retain(|name, _| !matches!(name.as_str(), "clusterIP" | "clusterIPs"));
            }
            if matches!(kind, "LeaderWorkerSet" | "ModelServing" | "ModelDeployment" | "RayCluster") {
                seen["status"] = object.data["status"].clone();
                forget_times(&mut seen["status"]);
                // Found by their type: their order is that in which they were first true.
                if let Some(conditions) = seen["status"]["conditions"].as_array_mut() {
                    conditions.sort_by_key(|condition| condition["type"].to_string());
                }
                // A revision that was never rolled out fully may have been skipped: which one comes before is told by
                // the one that is.
                seen["status"]["message"] = Value::Null;
            }
            let name = format!("{kind} {}", object.name_any());
            if kind == "RayCluster" {
                uids.extend(object.uid());
                // A condition that is false is there if it was seen true in between.
                if let Some(conditions) = seen["status"]["conditions"].as_array_mut() {
                    conditions.retain(|condition| condition["status"] == "True");
                }
            }
            end.insert(name, seen);
        }
    }
    if uids.is_empty() {
        return end;
    }
    let same =
        |text: &str| without_hashes(&uids.iter().fold(text.to_owned(), |text, uid| text.replace(uid, "UID")));
    let entries = end.into_iter().map(|(name, seen)| {
        (same(&name), serde_json::from_str(&same(&seen.to_string())).unwrap_or_default())
    });
    entries.collect()
}

/// A text whose names of pods do not differ by the uid of their cluster, of which they carry a hash.
fn without_hashes(text: &str) -> String {
    let is_hash = |part: &str| part.len() == 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> =
        text.split_inclusive(|character: char| !character.is_ascii_alphanumeric()).collect();
    let same = |part: &&str| {
        let end = part.len() - usize::from(part.ends_with(|it: char| !it.is_ascii_alphanumeric()));
        let (word, separator) = part.split_at(end);
        if is_hash(word) { format!("HASH{separator}") } else { (*part).to_owned() }
    };
    parts.iter().map(same).collect()
}

/// Fields that hold a time, or count what depends on it.
const TIMES: [&str; 18] = [
    "lastTransitionTime",
    "time",
    "startedAt",
    "finishedAt",
    "stepSince",
    "movedAt",
    "progressedAt",
    "since",
    "deadline",
    "furthest",
    "adjustedAt",
    "lastScale",
    "lastUpdateTime",
    "stateTransitionTimes",
    "replacedAt",
    // The node gives addresses in the order in which pods start.
    "podIP",
    "serviceIP",
    // What is remembered of places depends on which pods were seen while they went. Names of pods, which follow from it, are
    // compared.
    "places",
];

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}
