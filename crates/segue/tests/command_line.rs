//! What a person at a terminal meets: help, answers, refusals and exit codes.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

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

/// `apply` finds it before it asks for a server, so that none is needed here.
#[test]
fn a_mistyped_field_is_refused_in_the_same_words_by_validate_apply_and_plan() {
    let mistyped = BAD.replace("replicas: -1", "replcias: 1");
    for command in ["validate", "apply", "plan"] {
        let output = with_input(&[command, "-f", "-"], &mistyped);
        let said = support::stdout(&output) + &support::stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        let refusal = "spec.replcias: Unknown field: correct its name, or remove it";
        assert_eq!(said.matches(refusal).count(), 1, "{command}: {said}");
        assert!(!said.contains("would be dropped"), "{command}: {said}");
    }
    let said =
        with_input(&["validate", "-f", "-"], &mistyped.replace("{name: chat}", "{name: chat, lables: {}}"));
    assert!(support::stdout(&said).contains("metadata.lables: Unknown field"), "{said:?}");
    let answer = with_input(&["validate", "-f", "-", "-o", "json"], &mistyped);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer[0]["violations"][0]["reason"], "Unknown field");
}

#[test]
fn what_cannot_be_read_is_said_and_exits_with_two() {
    for (arguments, input, says) in [
        (vec!["validate", "-f", "no-such-file.yaml"], "", "no-such-file.yaml"),
        (vec!["validate", "-f", "-"], "a: [1", "standard input as YAML: line 1, column 4: unclosed bracket"),
        (
            vec!["apply", "-f", "-"],
            "a: 1\na: 2",
            "line 2, column 1: the key a occurs twice; remove one of them",
        ),
        (vec!["validate", "-f", "-"], "", "holds no manifest"),
        (vec!["crds", "--kind", "Pod"], "", "unknown kind Pod; allowed are: "),
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
    assert!(table.contains("surge 20%, step 5%, every 10 s"), "{table}");
    assert!(table.ends_with("300 s in total, peak 120% of the capacity\n"), "{table}");
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

/// (old replicas, new replicas, new traffic) of a plan; without a split of traffic, 100.
fn rows(arguments: &[&str]) -> Vec<(i64, i64, i64)> {
    let mut all = vec!["plan", "-o", "json"];
    all.extend(arguments);
    let output = support::segue(&all);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &Value| value.as_i64().unwrap();
    let row = |row: &Value| {
        let weight = row["new"]["weight"].as_i64().unwrap_or(100);
        (number(&row["old"]["replicas"]), number(&row["new"]["replicas"]), weight)
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn every_strategy_of_a_model_service_is_rehearsed_within_its_room() {
    let folder = "examples/backendai-model-service-deployment";
    for (file, most) in [("rolling", 5), ("incremental", 5), ("canary", 5), ("blue-green", 8)] {
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
    assert!(by_groups.contains("peak 4 replicas") && by_groups.contains("surge group 3"), "{by_groups}");
    let by_roles = served("{type: RoleRollingUpdate}");
    assert!(by_roles.contains("peak 12 replicas"), "{by_roles}");
    for role in ["prefill", "decode"] {
        assert!(
            by_roles.contains(&format!("role {role} of every group: every replica serves")),
            "{by_roles}"
        );
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
    let peak = table.split("peak 5 replicas").nth(1).unwrap();
    let lines: Vec<&str> = peak.lines().skip(1).take(3).map(str::trim).collect();
    assert_eq!(lines, ["nvidia.com/gpu: 5", "cpu: 20", "memory: 80Gi"], "{table}");
    assert!(table.contains("faster: ") && table.contains("smaller: "), "{table}");
}

#[test]
fn the_same_workload_is_no_new_version() {
    let example = "examples/backendai-model-service-deployment/rolling.yaml";
    let output = support::segue(&["plan", "-f", example, "--from", example]);
    assert_eq!(output.status.code(), Some(0));
    assert!(support::stdout(&output).contains("there is no new version"));
}

/// What the controllers read as the same is the same here, and what they roll is rolled here.
#[test]
fn a_plan_reads_a_spec_as_the_controllers_do() {
    let set = |changes: &dyn Fn(&mut Value)| {
        let text = support::read("examples/lws-startup-policy/leaderworkerset.yaml");
        let mut set: Value = serde_saphyr::from_str(&text).unwrap();
        changes(&mut set);
        set.to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    let planned = |before: &str, after: &str| {
        std::fs::write(&old, before).unwrap();
        let output = with_input(&["plan", "-f", "-", "--from", old.to_str().unwrap()], after);
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        !support::stdout(&output).contains("there is no new revision")
    };
    let cpu = |amount: &'static str| {
        set(&move |set| {
            let template = &mut set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
            template["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": amount}});
        })
    };
    assert!(!planned(&cpu("0.5"), &cpu("500m")), "two texts of one amount");
    assert!(planned(&cpu("0.5"), &cpu("501m")));
    let unique = set(&|set| set["spec"]["networkConfig"] = json!({"subdomainPolicy": "UniquePerReplica"}));
    assert!(planned(&set(&|_| ()), &unique), "pods get other names");
}

#[test]
fn each_manifest_is_planned_from_the_one_of_the_same_object() {
    let set = |name: &str, image: &str| {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": name},
            "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {
                "containers": [{"name": "c", "image": image}],
            }}}},
        })
        .to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.yaml");
    std::fs::write(&old, format!("{}\n---\n{}\n", set("a", "one"), set("b", "one"))).unwrap();
    let new = format!("{}\n---\n{}\n---\n{}\n", set("b", "two"), set("a", "one"), set("c", "one"));
    let output = with_input(&["plan", "-f", "-", "--from", old.to_str().unwrap()], &new);
    let said = support::stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("LeaderWorkerSet b: 1 group,"), "{said}");
    assert!(said.contains("LeaderWorkerSet a: template and network are the same"), "{said}");
    assert!(said.contains("LeaderWorkerSet c: not in the old manifests"), "{said}");
}

/// A file of a service has what is beside it, too, and a new version may come with another number of replicas.
#[test]
fn a_plan_passes_over_what_nothing_upgrades_and_says_what_else_changes() {
    let folder = "examples/modelserving-role-upgrade-order";
    let output = support::segue(&["plan", "-f", &format!("{folder}/processes.yaml")]);
    let said = support::stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", support::stderr(&output));
    assert!(said.contains("Service pd: this kind is not upgraded in steps"), "{said}");
    let old = support::read("examples/backendai-model-service-deployment/rolling.yaml");
    let new = old.replace("replicas: 4", "replicas: 6").replace("image: ", "image: other/");
    assert_ne!(new, old);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.yaml");
    std::fs::write(&file, old).unwrap();
    let output = with_input(&["plan", "-f", "-", "--from", file.to_str().unwrap()], &new);
    let said = support::stderr(&output);
    assert!(said.contains("replicas change from 4 to 6"), "{said}{}", support::stdout(&output));
}

/// What is accepted and not acted on is said, and the exit code says that the plan is not what happens.
#[test]
fn a_plan_says_what_is_not_acted_on() {
    let folder = "examples/backendai-model-service-deployment";
    let output = support::segue(&["plan", "-f", &format!("{folder}/canary.yaml")]);
    let said = support::stderr(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("not acted on: ") && said.contains("analysis.bakeSeconds"), "{said}");
    let output = support::segue(&["plan", "-f", &format!("{folder}/rolling.yaml")]);
    assert_eq!((output.status.code(), support::stderr(&output).as_str()), (Some(0), ""));
    let ray = support::segue(&["plan", "-f", "examples/rayservice-incremental-upgrade/rayservice.yaml"]);
    assert_eq!((ray.status.code(), support::stderr(&ray).as_str()), (Some(0), ""));
    let roles = support::read(&format!("{folder}/rolling.yaml"));
    let roles = roles.replace(
        "type: Rolling\n    rolling:\n      maxSurge: 25%\n      maxUnavailable: 0",
        "type: InPlace",
    );
    let output = with_input(&["plan", "-f", "-"], &roles);
    assert_eq!(output.status.code(), Some(1));
    let said = support::stdout(&output);
    assert!(said.contains("the strategy InPlace is not served yet; use another one"), "{said}");
    assert_eq!(support::stderr(&output), "", "it is said once");
}

/// What the review of a kind warns of as without effect is no less without effect in a plan.
#[test]
fn a_plan_says_what_is_not_acted_on_of_sets_and_servings() {
    let told = |manifest: &Value| {
        let output = with_input(&["plan", "-f", "-"], &manifest.to_string());
        assert!(support::stdout(&output).contains("BECAUSE"), "the steps are shown: {output:?}");
        let said = support::stderr(&output).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(output.status.code(), Some(i32::from(!said.is_empty())), "{said:?}");
        said
    };
    let pods = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "x"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": pods}},
    });
    assert_eq!(told(&set), [""; 0]);
    set["spec"]["scheduling"] = json!({"policy": "gang"});
    set["spec"]["groupReplacementPolicy"] = json!("Immediate");
    let title = "not acted on: LeaderWorkerSet x: spec";
    assert_eq!(
        told(&set),
        [
            format!("{title}.scheduling: pods of a group are scheduled one by one"),
            format!("{title}.groupReplacementPolicy: Immediate: a group starts when the one before is gone"),
        ]
    );
    let mut serving = json!({
        "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "metadata": {"name": "pd"},
        "spec": {"replicas": 2, "template": {
            "roles": [{"name": "decode", "replicas": 1, "workerReplicas": 0, "entryTemplate": pods}],
            "gangPolicy": {"minRoleReplicas": {"decode": 1}},
        }},
    });
    assert_eq!(told(&serving), [""; 0], "Volcano places its pods");
    serving["spec"]["schedulerName"] = json!("default-scheduler");
    serving["spec"]["plugins"] = json!([{"name": "unheard-of", "type": "BuiltIn"}]);
    let said = told(&serving);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("because schedulerName is not volcano"), "{said:?}");
    assert!(said[1].contains("plugin unheard-of: unknown"), "{said:?}");
}

#[test]
fn a_ray_service_that_nothing_upgrades_has_no_plan() {
    let example = "examples/rayservice-incremental-upgrade/rayservice.yaml";
    let output = support::segue(&["plan", "-f", example, "--from", example]);
    assert_eq!(output.status.code(), Some(0));
    assert!(support::stdout(&output).contains("there is no new cluster"));
    let manifest = support::read("examples/rayservice-incremental-upgrade/blue-green.yaml");
    let output = with_input(&["plan", "-f", "-"], &manifest.replace("type: NewCluster", "type: None"));
    assert_eq!(output.status.code(), Some(0));
    assert!(support::stdout(&output).contains("nothing is upgraded"), "{}", support::stdout(&output));
}

/// What the controllers do nothing for has no plan, and the exit code says so.
#[test]
fn what_no_controller_acts_on_has_no_plan() {
    let cluster = support::read("examples/ray-gcs-ha/raycluster-secret.yaml");
    let service = support::read("examples/rayservice-incremental-upgrade/rayservice.yaml");
    let spec = |manifest: &str, field: &str, to: Value| {
        let mut manifest: Value = serde_saphyr::from_str(manifest).unwrap();
        manifest["spec"][field] = to;
        manifest
    };
    let rocksdb = json!({"backend": "rocksdb"});
    let inner = |field: &str, to: Value| {
        let mut manifest: Value = serde_saphyr::from_str(&service).unwrap();
        manifest["spec"]["rayClusterConfig"][field] = to;
        manifest
    };
    let kueue = json!("kueue.x-k8s.io/multikueue");
    for (manifest, says) in [
        (spec(&cluster, "authOptions", json!({"mode": "token"})), "mode is token, which is not served"),
        (
            spec(&cluster, "gcsFaultToleranceOptions", rocksdb.clone()),
            "backend is rocksdb, which is not served",
        ),
        (spec(&cluster, "managedBy", kueue.clone()), "hands this cluster to Kueue"),
        (spec(&service, "managedBy", kueue), "hands this service to Kueue"),
        (inner("authOptions", json!({"mode": "token"})), "mode is token, and the token is not sent"),
        (inner("gcsFaultToleranceOptions", rocksdb), "backend is rocksdb, which is not served"),
    ] {
        let output = with_input(&["plan", "-f", "-"], &manifest.to_string());
        let said = support::stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{said}{}", support::stderr(&output));
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_plan_says_that_all_pods_of_a_cluster_go_at_once() {
    let old = support::read("examples/ray-gcs-ha/raycluster.yaml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.yaml");
    std::fs::write(&file, &old).unwrap();
    let planned = |change: &dyn Fn(&mut Value)| {
        let mut new: Value = serde_saphyr::from_str(&old).unwrap();
        change(&mut new["spec"]);
        let output = with_input(&["plan", "-f", "-", "--from", file.to_str().unwrap()], &new.to_string());
        assert_eq!(output.status.code(), Some(0), "{}", support::stderr(&output));
        support::stdout(&output)
    };
    let said = planned(&|spec| spec["rayVersion"] = json!("2.53.0"));
    assert!(said.contains("running pods keep their templates"), "{said}");
    let said = planned(&|spec| {
        spec["rayVersion"] = json!("2.53.0");
        spec["upgradeStrategy"] = json!({"type": "Recreate"});
    });
    assert!(said.contains("Recreate: 3 pods are deleted at once, then created anew"), "{said}");
    let said = planned(&|spec| spec["suspend"] = json!(true));
    assert!(
        said.contains("spec.suspend is true: all pods of the cluster (3 pods) are deleted at once"),
        "{said}"
    );
    let said = planned(&|spec| spec["upgradeStrategy"] = json!({"type": "Recreate"}));
    assert!(said.contains("no running pod is replaced"), "{said}");
}

#[test]
fn a_plan_that_fails_says_so_and_exits_with_one() {
    let example = "examples/backendai-model-service-deployment/rolling.yaml";
    let output = support::segue(&["plan", "-f", example, "--start-seconds", "900"]);
    let said = support::stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the upgrade would fail after ") && !said.contains("faster: "), "{said}");
}

#[test]
fn a_rollback_after_the_end_is_an_error_that_names_the_end() {
    for (example, end) in [
        ("examples/backendai-model-service-deployment/rolling.yaml", 160),
        ("examples/rayservice-incremental-upgrade/rayservice.yaml", 300),
    ] {
        let at =
            |seconds: u32| support::segue(&["plan", "-f", example, "--rollback-at", &seconds.to_string()]);
        assert_eq!(at(end - 1).status.code(), Some(0), "{}", support::stderr(&at(end - 1)));
        let output = at(end);
        let said = support::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("--rollback-at is {end}, and the upgrade ends after {end} s")),
            "{said}"
        );
    }
}

#[test]
fn the_picture_in_the_readme_is_what_plan_draws() {
    let example = "examples/backendai-model-service-deployment/incremental.yaml";
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
