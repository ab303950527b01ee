//! A set as the public operator leaves it when its `StatefulSet`s are let go of: pods without an owner.

use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

const PREFIX: &str = "leaderworkerset.sigs.k8s.io";

/// The key of the revision that the other operator stored. The value does not matter: adoption keeps it.
pub const KEY: &str = "64bdfd5784";

/// Applies a set and makes its pods, its Service and its revision as the other operator does.
pub async fn inherit(client: &Client, namespace: &str, set: &Value) -> Result<(), kube::Error> {
    let api = |group: &str, version: &str, kind: &str| -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let sets = api("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet");
    let live = sets.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(set)).await?;
    let owner = json!([{
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": name, "uid": live.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let labels = json!({format!("{PREFIX}/name"): name, format!("{PREFIX}/template-revision-hash"): KEY});
    let mut template = live.data["spec"]["leaderWorkerTemplate"].clone();
    template["$patch"] = "replace".into();
    let network = json!({"subdomainPolicy": "Shared", "$patch": "replace"});
    let mut made = vec![
        (
            "apps",
            "ControllerRevision",
            json!({
                "metadata": {"name": format!("{name}-{KEY}-1"), "labels": labels, "ownerReferences": owner},
                "data": {"spec": {"leaderWorkerTemplate": template, "networkConfig": network}},
                "revision": 1,
            }),
        ),
        (
            "",
            "Service",
            json!({
                "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
                "spec": {
                    "clusterIP": "None", "publishNotReadyAddresses": true,
                    "selector": {format!("{PREFIX}/name"): name},
                },
            }),
        ),
    ];
    let spec = &live.data["spec"];
    let size = spec["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
    for group in 0..spec["replicas"].as_u64().unwrap_or(1) {
        made.extend((0..size).map(|index| ("", "Pod", pod(name, spec, group, index))));
    }
    for (group, kind, body) in made {
        let object = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
        api(group, "v1", kind).create(&PostParams::default(), &object).await?;
    }
    Ok(())
}

fn pod(set: &str, spec: &Value, group: u64, index: u64) -> Value {
    let template = &spec["leaderWorkerTemplate"];
    let leader = &template["leaderTemplate"];
    let mut pod = if index == 0 && leader.is_object() { leader } else { &template["workerTemplate"] }.clone();
    let leader = format!("{set}-{group}");
    let name = if index == 0 { leader.clone() } else { format!("{leader}-{index}") };
    pod["metadata"]["name"] = name.clone().into();
    for (label, value) in [
        ("name", set.to_owned()),
        ("group-index", group.to_string()),
        ("worker-index", index.to_string()),
        ("template-revision-hash", KEY.to_owned()),
    ] {
        pod["metadata"]["labels"][format!("{PREFIX}/{label}")] = value.into();
    }
    pod["metadata"]["annotations"][format!("{PREFIX}/size")] = template["size"].to_string().into();
    pod["spec"]["hostname"] = name.into();
    pod["spec"]["subdomain"] = set.into();
    pod
}
