//! LeaderWorkerSet: what its revisions have in them, and what its spec can say.

use serde_json::{Value, json};

use super::Shape;

pub(super) static SHAPE: Shape = Shape {
    kind: "LeaderWorkerSet",
    name_label: "leaderworkerset.sigs.k8s.io/name",
    revision_label: "leaderworkerset.sigs.k8s.io/template-revision-hash",
    pods,
    back,
    marked,
    rolls: "RollingUpdate",
};

fn pods(data: &Value) -> Vec<&Value> {
    let template = &data["spec"]["leaderWorkerTemplate"];
    ["leaderTemplate", "workerTemplate"].map(|pods| &template[pods]).into()
}

/// What a revision does not have goes: a merge keeps what nobody mentions.
fn back(data: &Value, live: &Value) -> Value {
    let mut wanted = json!({});
    for part in ["leaderWorkerTemplate", "networkConfig"] {
        wanted[part] = data["spec"][part].clone();
        if let Some(fields) = wanted[part].as_object_mut() {
            // How the public operator says that all of it counts.
            fields.remove("$patch");
        }
        erase(&mut wanted[part], &live["spec"][part]);
    }
    json!({"spec": wanted})
}

fn marked(live: &Value, mark: &Value) -> Value {
    let mut template = json!({"workerTemplate": mark});
    if live["spec"]["leaderWorkerTemplate"]["leaderTemplate"].is_object() {
        template["leaderTemplate"] = mark.clone();
    }
    json!({"spec": {"leaderWorkerTemplate": template}})
}

/// Says of everything that is there and not wanted that it goes.
fn erase(wanted: &mut Value, live: &Value) {
    let (Some(wanted), Some(live)) = (wanted.as_object_mut(), live.as_object()) else { return };
    for (name, live) in live {
        match wanted.get_mut(name) {
            Some(wanted) => erase(wanted, live),
            None => drop(wanted.insert(name.clone(), Value::Null)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::revision::Revision, *};

    #[test]
    fn going_back_brings_everything_back_and_takes_the_rest_away() {
        let stored = json!({"revision": 1, "data": {"spec": {
            "leaderWorkerTemplate": {"$patch": "replace", "size": 2, "workerTemplate": {"spec": {"containers": [
                {"name": "c", "image": "one"},
            ]}}},
            "networkConfig": {"$patch": "replace", "subdomainPolicy": "Shared"},
        }}});
        let live = json!({"spec": {
            "replicas": 3,
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": {"spec": {}},
                "workerTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}},
            },
        }});
        let revision = Revision::read(&stored, &SHAPE);
        assert_eq!(revision.images(&SHAPE), "one");
        let patch = back(&revision.data, &live);
        assert_eq!(
            patch,
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
