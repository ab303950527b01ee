//! A set as the public operator leaves it, with `StatefulSet`s that a real control plane has made pods for.

use std::{
    process::{Command, Output},
    time::Duration,
};

use serde_json::{Value, json};
use testbed::{eventually, inherited};

use crate::site::{Site, set};

const LONG: Duration = Duration::from_mins(3);

/// What the public operator makes of a set with one group of two.
pub async fn make_as_others_do(site: &Site) {
    site.apply(&set("x", 1, "one"));
    let live = site.get(&["-n", "default", "leaderworkerset/x"]);
    let mut template = live["spec"]["leaderWorkerTemplate"].clone();
    template["$patch"] = "replace".into();
    let owner = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "x",
        "uid": live["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    });
    site.apply(&json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": meta("x-revision-1", None, &owner),
        "data": {"spec": {
            "leaderWorkerTemplate": template,
            "networkConfig": {"subdomainPolicy": "Shared", "$patch": "replace"},
        }},
        "revision": 1,
    }));
    site.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta("x", None, &owner),
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"leaderworkerset.sigs.k8s.io/name": "x"},
        },
    }));
    site.apply(&stateful_set("x", 0, &owner));
    let leader = eventually("a leader", LONG, async || {
        let pods = site.get(&["-n", "default", "pods"]);
        pods["items"].as_array()?.iter().find(|pod| pod["metadata"]["name"] == "x-0").cloned()
    });
    let uid = leader.await.unwrap()["metadata"]["uid"].clone();
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": "x-0", "uid": uid, "controller": true, "blockOwnerDeletion": true,
    });
    site.apply(&stateful_set("x-0", 1, &owner));
    eventually("the pods are ready", LONG, async || (ready(site) == 2).then_some(())).await.unwrap();
}

/// What Kthena makes of a ModelServing called `pd`: two decodes of an entry and a worker, hashes of its own, and a revision.
pub async fn make_as_kthena_does(site: &Site) {
    site.apply(&serving("one"));
    let live = site.get(&["-n", "default", "modelserving/pd"]);
    let owner = json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "pd",
        "uid": live["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    });
    let meta = |name: &str, labels: Value| {
        let mut all =
            json!({"modelserving.volcano.sh/name": "pd", "modelserving.volcano.sh/revision": "6f7d8"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        json!({"name": name, "namespace": "default", "labels": all, "ownerReferences": [owner]})
    };
    // As Go prints what it has read: nobody wrote the resources.
    let mut roles = live["spec"]["template"]["roles"].clone();
    for template in ["entryTemplate", "workerTemplate"] {
        roles[0][template]["spec"]["containers"][0]["resources"] = json!({});
    }
    site.apply(&json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta("pd-6f7d8", json!({})),
        "data": {"data": roles}, "revision": 1,
    }));
    for replica in ["decode-0", "decode-1"] {
        for index in 0..2 {
            let mut labels = json!({
                "modelserving.volcano.sh/group-name": "pd-0", "modelserving.volcano.sh/role": "decode",
                "modelserving.volcano.sh/role-id": replica, "modelserving.volcano.sh/role-template-hash": "c4b5d",
            });
            if index == 0 {
                labels["modelserving.volcano.sh/entry"] = "true".into();
            }
            site.apply(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": meta(&format!("pd-0-{replica}-{index}"), labels),
                "spec": {"containers": [{"name": "c", "image": "one"}]},
            }));
        }
    }
    eventually("the pods are ready", LONG, async || (ready(site) == 4).then_some(())).await.unwrap();
}

/// Two decodes of an entry and a worker.
pub fn serving(image: &str) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {
            "name": "pd",
            "namespace": "default",
            "annotations": {"segue.dev/settle-seconds": "0", "segue.dev/drain-seconds": "0"},
        },
        "spec": {
            "replicas": 1,
            "schedulerName": "default-scheduler",
            "template": {"roles": [{
                "name": "decode", "replicas": 2, "workerReplicas": 1, "entryTemplate": pod, "workerTemplate": pod,
            }]},
        },
    })
}

/// Whether this image is what every pod runs, and all are ready.
pub async fn all_run(site: &Site, image: &str) {
    eventually(&format!("every pod runs {image}"), LONG, async || {
        let runs = |pod: &Value| pod["spec"]["containers"][0]["image"] == image;
        (pods(site).iter().all(runs) && ready(site) == 4).then_some(())
    })
    .await
    .unwrap();
}

fn meta(name: &str, worker: Option<u32>, owner: &Value) -> Value {
    let mut labels = json!({
        "leaderworkerset.sigs.k8s.io/name": "x",
        "leaderworkerset.sigs.k8s.io/template-revision-hash": inherited::KEY,
    });
    if let Some(index) = worker {
        labels["leaderworkerset.sigs.k8s.io/group-index"] = "0".into();
        labels["leaderworkerset.sigs.k8s.io/worker-index"] = index.to_string().into();
    }
    json!({"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]})
}

fn stateful_set(name: &str, worker: u32, owner: &Value) -> Value {
    let labels = meta(name, Some(worker), owner)["labels"].clone();
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta(name, Some(worker), owner),
        "spec": {
            "replicas": 1,
            "serviceName": "x",
            "podManagementPolicy": "Parallel",
            "ordinals": {"start": worker},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"leaderworkerset.sigs.k8s.io/size": "2"}},
                "spec": {"containers": [{"name": "c", "image": "one"}]},
            },
        },
    })
}

fn pods(site: &Site) -> Vec<Value> {
    site.get(&["-n", "default", "pods"])["items"].as_array().unwrap().clone()
}

fn ready(site: &Site) -> usize {
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    pods(site).iter().filter(is_ready).count()
}

/// Names and uids: what a restart would change.
pub fn identities(site: &Site) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    pods(site).iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect()
}

/// Runs `segue adopt` as the owner of the cluster.
pub fn try_to_adopt(site: &Site, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(["adopt", "-n", "default", "--kubeconfig"])
        .arg(site.cluster.kubeconfig())
        .args(flags)
        .output()
        .unwrap()
}

/// The same, to a good end.
pub fn adopt(site: &Site, flags: &[&str]) -> String {
    let output = try_to_adopt(site, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
