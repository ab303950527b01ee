//! ModelServing: what its revisions have in them, and what its spec can say. Roles are a list, and are written as a whole.

use serde_json::{Value, json};

use super::Shape;

pub(super) static SHAPE: Shape = Shape {
    kind: "ModelServing",
    name_label: "modelserving.volcano.sh/name",
    revision_label: "modelserving.volcano.sh/revision",
    pods,
    back,
    marked,
    rolls: "ServingGroupRollingUpdate",
};

/// What of a role is no part of a revision.
const NUMBERS: [&str; 4] = ["replicas", "maxUnavailable", "maxSurge", "partition"];

fn pods(data: &Value) -> Vec<&Value> {
    let roles = data["data"].as_array().into_iter().flatten();
    roles.flat_map(|role| [&role["entryTemplate"], &role["workerTemplate"]]).collect()
}

/// Templates go back, and how many there are of a role stays as it is now.
fn back(data: &Value, live: &Value) -> Value {
    let now = live["spec"]["template"]["roles"].as_array().cloned().unwrap_or_default();
    let mut roles = data["data"].as_array().cloned().unwrap_or_default();
    for role in &mut roles {
        let Some(now) = now.iter().find(|it| it["name"] == role["name"]) else { continue };
        for number in NUMBERS {
            let fields = role.as_object_mut();
            match now.get(number) {
                Some(value) => drop(fields.map(|role| role.insert(number.to_owned(), value.clone()))),
                None => drop(fields.map(|role| role.remove(number))),
            }
        }
    }
    json!({"spec": {"template": {"roles": roles}}})
}

fn marked(live: &Value, mark: &Value) -> Value {
    let mut roles = live["spec"]["template"]["roles"].as_array().cloned().unwrap_or_default();
    for role in &mut roles {
        for template in ["entryTemplate", "workerTemplate"] {
            if role[template].is_object() {
                for (annotation, value) in mark["metadata"]["annotations"].as_object().into_iter().flatten() {
                    role[template]["metadata"]["annotations"][annotation] = value.clone();
                }
            }
        }
    }
    json!({"spec": {"template": {"roles": roles}}})
}

#[cfg(test)]
mod tests {
    use super::{super::revision::Revision, *};

    fn role(name: &str, image: &str, replicas: u32) -> Value {
        let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        json!({"name": name, "replicas": replicas, "workerReplicas": 0, "entryTemplate": template})
    }

    #[test]
    fn going_back_brings_templates_back_and_leaves_numbers_alone() {
        let mut old = role("decode", "one", 4);
        old["partition"] = 2.into();
        let stored = json!({"revision": 1, "data": {"data": [old, role("router", "r", 3)]}});
        let revision = Revision::read(&stored, &SHAPE);
        assert_eq!(revision.images(&SHAPE), "one, r");
        let live =
            json!({"spec": {"template": {"roles": [role("decode", "two", 9), role("prefill", "p", 1)]}}});
        let expected = json!([role("decode", "one", 9), role("router", "r", 3)]);
        assert_eq!(back(&revision.data, &live), json!({"spec": {"template": {"roles": expected}}}));
    }

    #[test]
    fn every_template_is_marked_and_keeps_what_it_has() {
        let mut decode = role("decode", "one", 1);
        decode["entryTemplate"]["metadata"] = json!({"annotations": {"a": "b"}});
        let live = json!({"spec": {"template": {"roles": [decode, role("prefill", "p", 1)]}}});
        let patch = marked(&live, &json!({"metadata": {"annotations": {"m": "1"}}}));
        let roles = &patch["spec"]["template"]["roles"];
        assert_eq!(roles[0]["entryTemplate"]["metadata"]["annotations"], json!({"a": "b", "m": "1"}));
        assert_eq!(roles[1]["entryTemplate"]["metadata"]["annotations"], json!({"m": "1"}));
        assert!(roles[1]["workerTemplate"].is_null());
    }
}
