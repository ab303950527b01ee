//! What there is to say of `ModelServing`s beside how they are reconciled.

use api::modelserving::{ModelServing, StepStatus};
use serde_json::{Value, json};

use super::{Servings, adopt, plan, plugin, revision::NUMBERS};
use crate::{
    conditions::modelserving as contract,
    kind::{OtherOperator, Progress, Renewed, Revisioned, Right, Served, Step},
    labels,
    pipeline::{Controller, Pipeline},
    rehearsal::typed,
    units,
};

/// The kind.
pub static SERVED: Served = Served {
    kind: &api::modelserving::KIND,
    label: labels::SERVING_NAME,
    needs: &[],
    rights: &[RIGHTS, units::RIGHTS],
    // Leader election is optional there, and its autoscaler leads by the same Lease.
    other: Some(OtherOperator {
        lease: "lease.kthena.controller-manager",
        renewed: Renewed::MayReconcile("leave modelserving out of its --controllers, or stop it"),
        webhooks: &["validate-workload-ai-v1alpha1-modelserving.volcano.sh"],
        webhook_service: "kthena-controller-manager-webhook",
    }),
    progress: Progress {
        busy: &[contract::UPDATE_IN_PROGRESS, contract::PROGRESSING],
        step,
        ..Progress::WAITS
    },
    revisions: Some(Revisioned {
        label: labels::SERVING_REVISION,
        pods,
        back,
        marked,
        rolls: Some("ServingGroupRollingUpdate"),
    }),
    requests: Servings::REQUESTS,
    adoptable: Some(|client, namespace| Box::pin(adopt::adoptable(client, namespace))),
    adoptable_named: Some(|client, namespace, name| Box::pin(adopt::named(client, namespace, name))),
    plan: plan::plan,
    fits: None,
    not_acted_on: |manifest| typed(manifest).map(|it| not_acted_on(&it)).unwrap_or_default(),
    reconciler: &Pipeline::<Servings>::new(),
};

const RIGHTS: &[Right] = &[
    Right::new(
        "scheduling.volcano.sh",
        "podgroups",
        "create, delete, get, list, patch, watch",
        "groups that are placed together, where Volcano is",
    ),
    Right::new(
        "policy",
        "poddisruptionbudgets",
        "create, delete, get, list, patch, watch",
        "disruption budgets, where the serving requests them",
    ),
];

/// The fields that have no effect on any cluster. Whether Volcano is installed is not seen from a manifest: that
/// `gangPolicy` has no effect without it is said by the condition `NotActedOn` alone.
fn not_acted_on(serving: &ModelServing) -> Vec<String> {
    let template = &serving.spec.template;
    let gang = template.gang_policy.is_some() || template.network_topology.is_some();
    let alone = (gang && serving.spec.scheduler_name != "volcano").then(|| {
        "template.gangPolicy and networkTopology: pods are placed one by one, because schedulerName is not volcano"
            .to_owned()
    });
    let unknown = plugin::unknown(serving).map(|name| format!("plugin {name}: unknown"));
    alone.into_iter().chain(unknown).collect()
}

/// The step of the role upgrade that a group is in; after the last one comes what no step names.
fn step(serving: &Value, group: &Value) -> Option<Step> {
    let StepStatus { index, role, required, satisfied, blocking_pod, reason } =
        serde_json::from_value(group["step"].clone()).ok()?;
    let steps = &serving["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["roleUpgrade"]["steps"];
    let steps = steps.as_array().map_or(0, Vec::len);
    let which = match usize::try_from(index) {
        Ok(index) if index < steps => format!("step {} of {steps}", index + 1),
        _ => "what is left after the steps".to_owned(),
    };
    let what = format!("{which}: {satisfied} of {required} {role} updated and Ready");
    Some(Step { what, pod: blocking_pod, why: reason })
}

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
    use super::*;

    fn role(name: &str, image: &str, replicas: u32) -> Value {
        let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        json!({"name": name, "replicas": replicas, "workerReplicas": 0, "entryTemplate": template})
    }

    #[test]
    fn going_back_brings_templates_back_and_leaves_numbers_alone() {
        let mut old = role("decode", "one", 4);
        old["partition"] = 2.into();
        let stored = json!({"data": [old, role("router", "r", 3)]});
        assert_eq!(pods(&stored).len(), 4);
        let live =
            json!({"spec": {"template": {"roles": [role("decode", "two", 9), role("prefill", "p", 1)]}}});
        let expected = json!([role("decode", "one", 9), role("router", "r", 3)]);
        assert_eq!(back(&stored, &live), json!({"spec": {"template": {"roles": expected}}}));
    }

    #[test]
    fn a_step_is_shown_with_its_place_and_its_pod() {
        let config = json!({"roleUpgrade": {"steps": [{}, {}]}});
        let serving = json!({"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": config}}});
        let step_of = |index: u32| {
            let at =
                json!({"index": index, "role": "decode", "required": 2, "satisfied": 1, "blockingPod": "p"});
            step(&serving, &json!({"step": at})).unwrap()
        };
        assert_eq!(step_of(1).what, "step 2 of 2: 1 of 2 decode updated and Ready");
        assert_eq!(step_of(2).what, "what is left after the steps: 1 of 2 decode updated and Ready");
        assert_eq!(step_of(1).pod.as_deref(), Some("p"));
        assert_eq!(step(&serving, &json!({"index": 0})), None);
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
