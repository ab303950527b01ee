//! What a person at a terminal meets: help, answers, refusals and exit codes.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::Value;

fn with_input(arguments: &[&str], input: &str) -> std::process::Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const BAD: &str = "
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: chat}
spec:
  replicas: -1
  leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: a, image: b}]}}}
";

#[test]
fn help_has_examples_for_every_command() {
    let help = support::stdout(&support::segue(&["--help"]));
    for command in [
        "demo",
        "up",
        "operator",
        "apply",
        "get",
        "logs",
        "delete",
        "plan",
        "validate",
        "crds",
        "manifests",
        "model-server",
    ] {
        assert!(help.contains(command), "{help}");
        let help = support::stdout(&support::segue(&[command, "--help"]));
        assert!(help.contains("Example"), "{command}: {help}");
    }
}

#[test]
fn a_refusal_names_field_value_and_limit_and_exits_with_one() {
    let output = with_input(&["validate", "-f", "-"], BAD);
    assert_eq!(output.status.code(), Some(1));
    let said = support::stdout(&output);
    assert!(
        said.contains(
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"
        ),
        "{said}"
    );
}

#[test]
fn a_refusal_is_data_where_asked() {
    let output = with_input(&["validate", "-f", "-", "-o", "json"], BAD);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer[0]["accepted"], false);
    assert_eq!(answer[0]["violations"][0]["field"], "spec.replicas");
    assert_eq!(answer[0]["violations"][0]["value"], -1);
}

#[test]
fn a_mistyped_field_is_pointed_out() {
    let mistyped = BAD.replace("replicas: -1", "replcias: 1");
    let output = with_input(&["validate", "-f", "-"], &mistyped);
    assert_eq!(output.status.code(), Some(0));
    assert!(support::stdout(&output).contains("unknown field \"spec.replcias\""));
}

#[test]
fn what_cannot_be_read_is_said_and_exits_with_two() {
    for (arguments, input, says) in [
        (vec!["validate", "-f", "no-such-file.yaml"], "", "no-such-file.yaml"),
        (vec!["validate", "-f", "-"], "a: [1", "YAML"),
        (vec!["validate", "-f", "-"], "", "holds no manifest"),
        (vec!["crds", "--kind", "Pod"], "", "unknown kind \"Pod\"; there are: "),
        (vec!["plan", "-f", "-"], "kind: List\nitems: []", "holds no manifest"),
        (vec!["nonsense"], "", "unrecognized subcommand"),
    ] {
        let output = with_input(&arguments, input);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = support::stderr(&output);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn yaml_that_grows_without_end_is_refused() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (previous, this) in ('a'..='h').zip('b'..='i') {
        bomb += &format!("{this}: &{this} [{}]\n", vec![format!("*{previous}"); 9].join(", "));
    }
    let output = with_input(&["validate", "-f", "-"], &bomb);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn several_manifests_are_judged_one_by_one() {
    let good = support::read("examples/lws-startup-policy/leaderworkerset.yaml");
    let output = with_input(&["validate", "-f", "-"], &format!("{good}\n---\n{BAD}"));
    assert_eq!(output.status.code(), Some(1));
    let said = support::stdout(&output);
    assert!(said.contains("accepted") && said.contains("refused"), "{said}");
}

#[test]
fn the_seeds_example_is_rehearsed() {
    let example = "examples/rayservice-incremental-upgrade/rayservice.yaml";
    let table = support::stdout(&support::segue(&["plan", "-f", example]));
    assert!(table.contains("surge 20%, step 5%, every 10s"), "{table}");
    assert!(table.ends_with("300s in all, peak 120% of the capacity\n"), "{table}");
    let output = support::segue(&["plan", "-f", example, "-o", "json"]);
    let moments: Value = serde_json::from_slice(&output.stdout).unwrap();
    let moments = moments.as_array().unwrap();
    assert_eq!(moments[0]["new"]["capacity"], 20);
    for moment in moments {
        let sum =
            |field: &str| moment["old"][field].as_i64().unwrap() + moment["new"][field].as_i64().unwrap();
        assert!(sum("capacity") <= 120, "{moment}");
        assert_eq!(sum("weight"), 100, "{moment}");
    }
    let last = moments.last().unwrap();
    assert_eq!((&last["new"]["weight"], &last["old"]["capacity"]), (&Value::from(100), &Value::from(0)));
}

/// (old units, new units, new traffic) of a plan.
fn rows(arguments: &[&str]) -> Vec<(i64, i64, i64)> {
    let mut all = vec!["plan", "-o", "json"];
    all.extend(arguments);
    let output = support::segue(&all);
    assert!(output.status.success(), "{}", support::stderr(&output));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &Value| value.as_i64().unwrap();
    let row = |row: &Value| {
        (number(&row["old"]["units"]), number(&row["new"]["units"]), number(&row["new"]["weight"]))
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn every_strategy_of_a_model_service_is_rehearsed_within_its_room() {
    let folder = "examples/backendai-model-service-deployment";
    for (file, most) in [("rolling", 5), ("canary", 5), ("blue-green", 8)] {
        let rows = rows(&["-f", &format!("{folder}/{file}.yaml")]);
        assert!(rows.iter().all(|(old, new, _)| old + new <= most), "{file}: {rows:?}");
        assert!(rows.windows(2).all(|pair| pair[0].2 <= pair[1].2), "{file}: {rows:?}");
        assert_eq!(rows.last(), Some(&(0, 4, 100)), "{file}");
    }
}

#[test]
fn sets_and_roles_are_rehearsed_too() {
    let groups = rows(&["-f", "examples/lws-startup-policy/leaderworkerset.yaml"]);
    assert!(groups.iter().all(|(old, new, _)| (1..=2).contains(&(old + new))), "{groups:?}");
    assert_eq!(groups.last(), Some(&(0, 2, 100)));
    let folder = "examples/modelserving-role-upgrade-order";
    let (old, new) = (format!("{folder}/modelserving.yaml"), format!("{folder}/modelserving-v2.yaml"));
    let replicas = rows(&["-f", &new, "--from", &old]);
    // Two groups of eight, one replica at a time in one group at a time.
    assert!(replicas.iter().all(|(old, new, _)| old + new >= 15), "{replicas:?}");
    assert_eq!(replicas.last(), Some(&(0, 16, 100)));
    let table = support::stdout(&support::segue(&["plan", "-f", &new, "--from", &old]));
    let order: Vec<&str> = table
        .lines()
        .filter(|line| line.contains("group 1") && line.contains("replaces"))
        .map(|line| line.split("replaces ").nth(1).unwrap().split('-').next().unwrap())
        .collect();
    let seed = ["decode", "prefill", "prefill", "prefill", "prefill", "decode", "decode", "decode"];
    assert_eq!(order, seed);
}

/// Without steps whole groups are replaced, or each role by itself: a plan shows what the controllers do.
#[test]
fn servings_without_steps_are_rehearsed_as_they_are_replaced() {
    let served = |strategy: &str| {
        let pods = "entryTemplate: {spec: {containers: [{name: c, image: i}]}}";
        let role = |name: &str| format!("{{name: {name}, replicas: 2, workerReplicas: 0, {pods}}}");
        let roles = format!("[{}, {}]", role("prefill"), role("decode"));
        let manifest = format!(
            "{{apiVersion: workload.serving.volcano.sh/v1alpha1, kind: ModelServing, metadata: {{name: pd}}, \
             spec: {{replicas: 3, template: {{roles: {roles}}}, rolloutStrategy: {strategy}}}}}"
        );
        support::stdout(&with_input(&["plan", "-f", "-"], &manifest))
    };
    let by_groups = served(
        "{type: ServingGroupRollingUpdate, rollingUpdateConfiguration: {maxUnavailable: 0, maxSurge: 1}}",
    );
    assert!(by_groups.contains("3 groups, 1 more and 0 fewer allowed"), "{by_groups}");
    assert!(by_groups.contains("peak 4 units") && by_groups.contains("unit 3 is"), "{by_groups}");
    let by_roles = served("{type: RoleRollingUpdate}");
    assert!(by_roles.contains("peak 12 units"), "{by_roles}");
    for role in ["prefill", "decode"] {
        assert!(by_roles.contains(&format!("role {role} of every group: all 2 units serve")), "{by_roles}");
    }
    assert!(by_roles.contains("the scheduler `volcano`"), "{by_roles}");
}

#[test]
fn a_rollback_is_rehearsed_too() {
    let rows =
        rows(&["-f", "examples/backendai-model-service-deployment/rolling.yaml", "--rollback-at", "100"]);
    assert!(rows.iter().any(|(_, _, traffic)| *traffic > 0), "{rows:?}");
    assert_eq!(rows.last(), Some(&(4, 0, 0)));
}

#[test]
fn the_table_names_the_peak_of_each_resource_with_accelerators_first() {
    let example = "examples/backendai-model-service-deployment/rolling.yaml";
    let table = support::stdout(&support::segue(&["plan", "-f", example]));
    let peak = table.split("peak 5 units").nth(1).unwrap();
    let lines: Vec<&str> = peak.lines().skip(1).take(3).map(str::trim).collect();
    assert_eq!(lines, ["nvidia.com/gpu: 5", "cpu: 20", "memory: 80Gi"], "{table}");
    assert!(table.contains("faster: ") && table.contains("smaller: "), "{table}");
}

#[test]
fn the_same_workload_is_no_new_version() {
    let example = "examples/backendai-model-service-deployment/rolling.yaml";
    let output = support::segue(&["plan", "-f", example, "--from", example]);
    assert_eq!(output.status.code(), Some(2));
    assert!(support::stderr(&output).contains("there is no new version"));
}

#[test]
fn a_ray_service_that_nothing_upgrades_has_no_plan() {
    let example = "examples/rayservice-incremental-upgrade/rayservice.yaml";
    let output = support::segue(&["plan", "-f", example, "--from", example]);
    assert_eq!(output.status.code(), Some(2));
    assert!(support::stderr(&output).contains("there is no new cluster"));
    let manifest = support::read("examples/rayservice-incremental-upgrade/blue-green.yaml");
    let output = with_input(&["plan", "-f", "-"], &manifest.replace("type: NewCluster", "type: None"));
    assert_eq!(output.status.code(), Some(2));
    assert!(support::stderr(&output).contains("nothing is upgraded"), "{}", support::stderr(&output));
}

#[test]
fn the_picture_in_the_readme_is_what_plan_draws() {
    let example = "examples/rayservice-incremental-upgrade/rayservice.yaml";
    let drawn = support::stdout(&support::segue(&["plan", "-f", example, "-o", "svg"]));
    assert_eq!(drawn, support::read("docs/upgrade.svg"), "segue plan -f {example} -o svg > docs/upgrade.svg");
}

#[test]
fn a_plan_of_a_bad_manifest_is_refused() {
    let example = support::read("examples/rayservice-incremental-upgrade/rayservice.yaml");
    let output =
        with_input(&["plan", "-f", "-"], &example.replace("stepSizePercent: 5", "stepSizePercent: 0"));
    assert_eq!(output.status.code(), Some(1));
    assert!(support::stderr(&output).contains("stepSizePercent"), "{}", support::stderr(&output));
}

#[test]
fn crds_fit_a_plain_apply() {
    // `kubectl apply` stores what was applied in an annotation, and annotations may have 262144 bytes.
    let output = support::segue(&["crds", "-o", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    for crd in list["items"].as_array().unwrap() {
        let size = crd.to_string().len();
        println!("{}: {size} bytes", crd["metadata"]["name"]);
        assert!(size < 262_144, "{}: {size} bytes", crd["metadata"]["name"]);
    }
}
