//! What the seeds say about fields, defaults and refusals, sentence by sentence. `docs/seeds.md` names these tests.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path};

use api::{KINDS, defaulted, validate};
use serde_json::{Value, json};

fn example(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The example with a value changed; null removes it.
fn with(example: &Value, pointer: &str, value: Value) -> Value {
    let mut manifest = example.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = manifest.pointer_mut(parent).unwrap();
    match value {
        Value::Null => drop(parent.as_object_mut().unwrap().remove(field)),
        value => parent[field] = value,
    }
    manifest
}

fn accepted(manifest: &Value) -> Value {
    let verdict = validate(manifest, None);
    assert!(verdict.accepted(), "{:?}", verdict.violations);
    defaulted(manifest).unwrap()
}

fn refused(manifest: &Value, field: &str) {
    let verdict = validate(manifest, None);
    let said: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|sentence| sentence.contains(field)), "{field}: {said:?}");
}

const OPTIONS: &str = "/spec/upgradeStrategy/incrementalUpgradeOptions";

fn ray_service() -> Value {
    example("rayservice-incremental-upgrade/rayservice.yaml")
}

#[test]
fn the_seeds_ray_service_is_accepted_with_its_own_words() {
    let options = accepted(&ray_service()).pointer(OPTIONS).unwrap().clone();
    assert_eq!(
        options,
        json!({"maxSurgePercent": 20, "stepSizePercent": 5, "intervalSeconds": 10, "gatewayClassName": "cluster-gateway"})
    );
}

#[test]
fn max_surge_is_a_percentage_that_defaults_to_100() {
    let surge = format!("{OPTIONS}/maxSurgePercent");
    let filled = accepted(&with(&ray_service(), &surge, Value::Null));
    assert_eq!(filled.pointer(&surge), Some(&json!(100)));
    for value in [1, 100] {
        accepted(&with(&ray_service(), &surge, json!(value)));
    }
    for value in [json!(-1), json!(0), json!(101), json!(1.5), json!("20")] {
        refused(&with(&ray_service(), &surge, value), "maxSurgePercent");
    }
}

#[test]
fn step_size_is_a_required_percentage_and_capped_by_the_surge() {
    let step = format!("{OPTIONS}/stepSizePercent");
    for value in [Value::Null, json!(0), json!(101), json!(-5)] {
        refused(&with(&ray_service(), &step, value), "stepSizePercent");
    }
    let above_the_surge = with(&ray_service(), &step, json!(100));
    accepted(&above_the_surge);
    let warnings = validate(&above_the_surge, None).warnings;
    assert!(warnings.iter().any(|warning| warning.contains("stepSizePercent")), "{warnings:?}");
}

#[test]
fn interval_is_required_and_may_be_nothing() {
    let interval = format!("{OPTIONS}/intervalSeconds");
    for value in [Value::Null, json!(-1)] {
        refused(&with(&ray_service(), &interval, value), "intervalSeconds");
    }
    for value in [0, 1, i32::MAX] {
        accepted(&with(&ray_service(), &interval, json!(value)));
    }
}

#[test]
fn the_gateway_class_is_needed_unless_a_gateway_is_named() {
    let class = format!("{OPTIONS}/gatewayClassName");
    let without = with(&ray_service(), &class, Value::Null);
    refused(&without, "gatewayClassName");
    refused(&with(&ray_service(), &class, json!(7)), "gatewayClassName");
    accepted(&with(&without, &format!("{OPTIONS}/gateway"), json!({"parentRefs": [{"name": "shared"}]})));
}

#[test]
fn upgrade_types_are_those_of_the_seed_and_the_shipped_one() {
    let strategy = "/spec/upgradeStrategy";
    for ty in ["NewCluster", "None"] {
        accepted(&with(&ray_service(), strategy, json!({"type": ty})));
    }
    accepted(&with(&ray_service(), strategy, Value::Null));
    accepted(&example("rayservice-incremental-upgrade/shipped-spelling.yaml"));
    refused(&with(&ray_service(), strategy, json!({"type": "Incremental"})), "spec.upgradeStrategy.type");
    refused(
        &with(&ray_service(), strategy, json!({"type": "IncrementalUpgrade"})),
        "incrementalUpgradeOptions",
    );
}

#[test]
fn a_ray_service_without_autoscaling_is_refused_unless_we_may_switch_it_on() {
    let off = with(&ray_service(), "/spec/rayClusterConfig/enableInTreeAutoscaling", json!(false));
    refused(&off, "enableInTreeAutoscaling");
    accepted(&with(&off, "/metadata/annotations", json!({"segue.dev/enable-autoscaling": "true"})));
}

#[test]
fn the_status_of_a_ray_service_shows_capacity_and_traffic_of_both() {
    let crd = KINDS.iter().find(|kind| kind.name == "RayService").unwrap().crd();
    let status =
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    for side in ["activeServiceStatus", "pendingServiceStatus"] {
        for field in ["targetCapacity", "trafficRoutedPercent"] {
            assert_eq!(status[side]["properties"][field]["type"], "integer", "{side}.{field}");
            let required = status[side]["required"].as_array().cloned().unwrap_or_default();
            assert!(!required.contains(&json!(field)), "{side}.{field} is optional");
        }
    }
}

#[test]
fn the_seeds_highly_available_cluster_is_accepted() {
    let cluster = example("ray-gcs-ha/raycluster.yaml");
    let annotations = &accepted(&cluster)["metadata"]["annotations"];
    assert_eq!(annotations["ray.io/ha-enabled"], "true");
    assert_eq!(annotations["ray.io/external-storage-namespace"], "my-raycluster-storage-namespace");
}

const STEPS: &str = "/spec/rolloutStrategy/rollingUpdateConfiguration/roleUpgrade/steps";

fn model_serving() -> Value {
    example("modelserving-role-upgrade-order/modelserving.yaml")
}

#[test]
fn the_seeds_four_steps_are_accepted_and_kept_in_order() {
    let filled = accepted(&model_serving());
    assert_eq!(
        filled.pointer(STEPS),
        Some(&json!([
            {"role": "decode", "updateTo": 1},
            {"role": "prefill", "updateTo": 1},
            {"role": "prefill", "updateTo": "100%"},
            {"role": "decode", "updateTo": "100%"},
        ]))
    );
    let strategy = &filled["spec"]["rolloutStrategy"];
    assert_eq!(strategy["type"], "ServingGroupRollingUpdate");
    assert_eq!(strategy["rollingUpdateConfiguration"]["partition"], 0);
}

#[test]
fn without_role_upgrade_a_model_serving_is_what_it_was() {
    let configuration = "/spec/rolloutStrategy/rollingUpdateConfiguration";
    accepted(&with(&model_serving(), &format!("{configuration}/roleUpgrade"), Value::Null));
    accepted(&with(&model_serving(), "/spec/rolloutStrategy", Value::Null));
    accepted(&with(&model_serving(), "/spec/rolloutStrategy", json!({"type": "RoleRollingUpdate"})));
    refused(
        &with(&model_serving(), "/spec/rolloutStrategy/type", json!("RoleUpgrade")),
        "spec.rolloutStrategy.type",
    );
}

#[test]
fn steps_name_roles_that_exist_with_targets_that_can_be_met_and_never_fall() {
    let steps = |steps: Value| with(&model_serving(), STEPS, steps);
    for good in [
        json!([{"role": "decode", "updateTo": 4}]),
        json!([{"role": "decode", "updateTo": "1%"}]),
        json!([{"role": "decode", "updateTo": 1}, {"role": "decode", "updateTo": 1}, {"role": "decode", "updateTo": 3}]),
    ] {
        accepted(&steps(good));
    }
    for (bad, field) in [
        (json!([{"role": "encode", "updateTo": 1}]), "steps"),
        (json!([{"role": "decode", "updateTo": 0}]), "steps[0].updateTo"),
        (json!([{"role": "decode", "updateTo": -1}]), "steps[0].updateTo"),
        (json!([{"role": "decode", "updateTo": 5}]), "steps[0].updateTo"),
        (json!([{"role": "decode", "updateTo": "0%"}]), "steps[0].updateTo"),
        (json!([{"role": "decode", "updateTo": "101%"}]), "steps[0].updateTo"),
        (json!([{"role": "decode", "updateTo": 2}, {"role": "decode", "updateTo": 1}]), "steps[1].updateTo"),
        (
            json!([{"role": "decode", "updateTo": "50%"}, {"role": "decode", "updateTo": "25%"}]),
            "steps[1].updateTo",
        ),
        (json!([{"role": "decode"}]), "steps[0].updateTo"),
        (json!([{"updateTo": 1}]), "steps[0].role"),
    ] {
        refused(&steps(bad), field);
    }
}

#[test]
fn a_role_may_shrink_below_its_steps() {
    let old = with(&model_serving(), STEPS, json!([{"role": "decode", "updateTo": 4}]));
    let mut new = old.clone();
    for role in new["spec"]["template"]["roles"].as_array_mut().unwrap() {
        role["replicas"] = json!(2);
    }
    let verdict = validate(&new, Some(&old));
    assert!(verdict.accepted(), "{:?}", verdict.violations);
    assert!(verdict.warnings.iter().any(|warning| warning.contains("updateTo")), "{:?}", verdict.warnings);
}

fn leader_worker_set() -> Value {
    example("lws-startup-policy/leaderworkerset.yaml")
}

#[test]
fn startup_policy_defaults_to_leader_created() {
    let policy = "/spec/startupPolicy";
    assert_eq!(accepted(&leader_worker_set()).pointer(policy), Some(&json!("LeaderReady")));
    let filled = accepted(&with(&leader_worker_set(), policy, Value::Null));
    assert_eq!(filled.pointer(policy), Some(&json!("LeaderCreated")));
    for value in ["LeaderCreated", "LeaderReady", "LeaderHasAddress"] {
        accepted(&with(&leader_worker_set(), policy, json!(value)));
    }
    for value in [json!("Leader"), json!(""), json!(1)] {
        refused(&with(&leader_worker_set(), policy, value), "spec.startupPolicy");
    }
}
