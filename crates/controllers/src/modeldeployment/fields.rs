//! Every field of the spec is acted on, and a test shows it, or it is told that it is not.

use std::collections::BTreeSet;

use api::modeldeployment::ModelDeployment;
use serde_json::{Value, json};

use super::wanted::not_acted_on;

/// The fields that are acted on, by the beginning of their path, each with a test that shows it.
const ACTED_ON: &[(&str, &str)] = &[
    ("analysis.checks[].failures", "errors_beyond_the_limit_fail_after_so_many_windows_in_a_row"),
    ("analysis.checks[].maxErrorPercent", "a_canary_that_answers_errors_is_rolled_back_with_the_numbers"),
    ("analysis.checks[].minRequests", "too_few_answers_are_what_the_policy_says"),
    ("analysis.checks[].name", "a_canary_that_answers_errors_is_rolled_back_with_the_numbers"),
    ("analysis.checks[].noData", "too_few_answers_are_what_the_policy_says"),
    ("analysis.checks[].windowSeconds", "errors_beyond_the_limit_fail_after_so_many_windows_in_a_row"),
    ("analysis.checks[].http", "a_version_that_a_check_rejects_never_gets_traffic"),
    ("analysis.checks[].max", "every_value_of_a_query_is_within_its_bounds"),
    ("analysis.checks[].min", "every_value_of_a_query_is_within_its_bounds"),
    ("analysis.checks[].prometheus", "a_query_beyond_its_bound_takes_a_canary_back"),
    ("analysis.checks[].when", "a_version_that_a_check_rejects_never_gets_traffic"),
    ("health.probe", "a_version_gets_no_traffic_until_its_probe_answers"),
    ("capacity", "a_rollout_that_does_not_fit_is_refused_and_begins_when_there_is_room"),
    ("env[]", "variables_are_laid_over_the_containers_that_they_name"),
    ("replicas", "an_abort_goes_back_and_stays_back_until_a_retry"),
    ("rollback.maxRestarts", "a_crash_loop_is_rolled_back_before_the_deadline"),
    ("rollback.onFailure", "a_failure_that_pauses_moves_nothing_and_says_so"),
    (
        "rollback.progressDeadlineSeconds",
        "a_rollout_that_failed_names_version_and_cause_when_its_pods_are_gone",
    ),
    ("strategy.blueGreen.retainSeconds", "the_version_before_goes_when_its_time_is_up"),
    ("strategy.blueGreen", "green_is_looked_at_from_when_it_is_whole_and_gets_everything_at_once"),
    ("strategy.canary", "a_pause_of_a_canary_says_where_until_when_and_what_then"),
    ("strategy.incremental", "with_a_gateway_weights_move_as_units_become_ready"),
    ("strategy.rolling", "shares_are_exact_where_percents_do_not_fit"),
    ("strategy.type", "with_a_gateway_weights_move_as_units_become_ready"),
    ("traffic.drainSeconds", "what_a_deployment_says_of_waits_holds_for_versions_that_exist"),
    ("traffic.gateway", "a_service_that_wants_no_gateway_any_more_has_none"),
    ("traffic.ports[]", "a_port_may_change_its_number_and_its_name_and_the_next_version_comes"),
    ("traffic.settleSeconds", "what_a_deployment_says_of_waits_holds_for_versions_that_exist"),
    ("version", "with_a_gateway_weights_move_as_units_become_ready"),
    ("workload.leaderWorker", "a_group_has_the_size_and_the_templates_that_it_says"),
    ("workload.pod", "a_version_is_what_runs_and_nothing_else"),
    ("workload.type", "a_group_has_the_size_and_the_templates_that_it_says"),
];

/// Where these tests stand.
const TESTS: &[&str] = &[
    include_str!("outside_checks.rs"),
    include_str!("version.rs"),
    include_str!("../../tests/modeldeployment/main.rs"),
    include_str!("../../tests/modeldeployment/capacity.rs"),
    include_str!("../../tests/modeldeployment/checks.rs"),
    include_str!("../../tests/modeldeployment/traffic_ports.rs"),
    include_str!("../../tests/modeldeployment/outside_checks.rs"),
    include_str!("../../tests/modeldeployment/retained.rs"),
    include_str!("../../tests/modeldeployment/strategies.rs"),
    include_str!("../../tests/modeldeployment/truth.rs"),
    include_str!("../../tests/modeldeployment/verbs.rs"),
    include_str!("../../../planner/src/handover/checks.rs"),
    include_str!("../../../planner/src/handover/weights.rs"),
];

/// The fields that have no effect, by the beginning of their path, each with a spec that sets it.
fn told() -> Vec<(&'static str, Value)> {
    let check = |check: Value| json!({"analysis": {"checks": [check]}});
    let latency = json!({"name": "a", "maxLatencyMillis": 1, "percentile": 99});
    vec![
        ("analysis.bakeSeconds", json!({"analysis": {"bakeSeconds": 1, "checks": []}})),
        (
            "analysis.checks[].comparedTo",
            check(json!({"name": "a", "maxErrorPercent": 1, "comparedTo": "Stable"})),
        ),
        ("analysis.checks[].maxLatencyMillis", check(latency.clone())),
        ("analysis.checks[].percentile", check(latency)),
        ("health.readyDeadlineSeconds", json!({"health": {"readyDeadlineSeconds": 1}})),
        ("revisionHistoryLimit", json!({"revisionHistoryLimit": 3})),
        ("strategy.inPlace", json!({"strategy": {"type": "InPlace", "inPlace": {}}})),
        ("workload.roles", json!({"workload": {"type": "Roles"}})),
    ]
}

/// The paths of the leaves of a schema. What a pod template, or the source of a variable, is made of is not ours.
fn leaves(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    let is_opaque = ["template", "Template", "pod", "valueFrom"]
        .iter()
        .any(|name| path.rsplit('.').next().is_some_and(|last| last.ends_with(name)));
    if let Some(fields) = schema["properties"].as_object().filter(|_| !is_opaque) {
        for (name, field) in fields {
            leaves(&format!("{path}.{name}"), field, found);
        }
    } else if schema["items"]["properties"].is_object() && !is_opaque {
        leaves(&format!("{path}[]"), &schema["items"], found);
    } else {
        found.insert(path.trim_start_matches('.').to_owned());
    }
}

/// The longest of these beginnings that a path has: what is said of one field goes before what is said of its parent.
fn beginning<'a>(path: &str, beginnings: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let begins = |it: &&str| {
        path.strip_prefix(it)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']) || it.ends_with("[]"))
    };
    beginnings.filter(begins).max_by_key(|it| it.len())
}

#[test]
fn every_field_is_acted_on_or_told() {
    let crd = api::modeldeployment::KIND.crd();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = BTreeSet::new();
    leaves("", schema, &mut fields);
    assert!(fields.len() > 60, "{fields:?}");
    let told = told();
    let known = || ACTED_ON.iter().map(|(path, _)| *path).chain(told.iter().map(|(path, _)| *path));
    for field in &fields {
        assert!(beginning(field, known()).is_some(), "{field} is neither acted on nor reported");
    }
    for path in known() {
        assert!(fields.iter().any(|field| beginning(field, known()) == Some(path)), "there is no {path}");
    }
}

#[test]
fn what_is_acted_on_has_a_test() {
    for (path, test) in ACTED_ON {
        let name = format!("fn {test}(");
        assert!(TESTS.iter().any(|source| source.contains(&name)), "{path}: there is no test {test}");
    }
}

/// Values that have no effect, of fields that have one otherwise.
fn told_values() -> Vec<(&'static str, Value)> {
    let check = |check: Value| json!({"analysis": {"checks": [check]}});
    vec![
        ("when: After", check(json!({"name": "a", "maxErrorPercent": 1, "when": "After"}))),
        ("errors before traffic", check(json!({"name": "a", "maxErrorPercent": 1, "when": "BeforeTraffic"}))),
        ("a check over https", check(json!({"name": "a", "http": {"url": "https://a"}}))),
    ]
}

#[test]
fn what_has_no_effect_is_told() {
    for (path, patch) in told().into_iter().chain(told_values()) {
        let mut spec = json!({
            "workload": {"type": "Pod", "pod": {"spec": {"containers": []}}},
            "traffic": {"ports": [], "gateway": {"className": "segue"}},
        });
        for (field, value) in patch.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let deployment = json!({"metadata": {"name": "chat"}, "spec": spec});
        let deployment: ModelDeployment = serde_json::from_value(deployment).unwrap();
        assert!(!not_acted_on(&deployment.spec).is_empty(), "{path} is accepted in silence");
    }
}
