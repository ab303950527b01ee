use std::collections::BTreeSet;

use clap::Parser;

use super::{rights::Granted, *};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn objects(flags: &[&str]) -> Vec<Value> {
    let line =
        Line::try_parse_from([&["manifests"], flags].concat()).unwrap_or_else(|error| panic!("{error}"));
    let Args { namespace, image, selection, without_webhooks, .. } = &line.args;
    let kinds = selection.kinds_or_all().unwrap();
    Install { namespace, image, kinds: &kinds, selection, webhooks: !without_webhooks }.objects()
}

fn of<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// `namespace group/resource verb` of every rule that has no names.
fn granted(objects: &[Value]) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    for role in objects.iter().filter(|object| !object["rules"].is_null()) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or("*");
        for rule in role["rules"].as_array().unwrap() {
            for verb in rule["verbs"].as_array().unwrap() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let resource = format!("{}/{}", text(&rule["apiGroups"][0]), text(&rule["resources"][0]));
                if rule["resourceNames"].is_null() {
                    granted.insert(format!("{place} {resource} {}", text(verb)));
                }
            }
        }
    }
    granted
}

#[test]
fn no_right_is_a_wildcard_and_none_is_given_twice() {
    for object in objects(&[]).iter().filter(|object| !object["rules"].is_null()) {
        let mut seen = BTreeSet::new();
        for rule in object["rules"].as_array().unwrap() {
            assert!(!rule.to_string().contains('*'), "{rule}");
            let key = format!("{}{}{}", rule["apiGroups"], rule["resources"], rule["resourceNames"]);
            assert!(seen.insert(key), "twice: {rule}");
        }
    }
}

/// The checks for other operators cover, by name, those of the kinds that are on.
#[test]
fn only_the_other_operators_of_the_kinds_that_are_on_are_looked_for() {
    let named = |kind: &str| {
        let objects = objects(&["--kinds", kind, "--without-webhooks", "--namespaces", "a"]);
        let rules = of(&objects, "ClusterRole")
            .into_iter()
            .flat_map(|role| role["rules"].as_array().unwrap().clone());
        let looked_for = ["leases", "services", "endpoints"];
        let rules = rules.filter(|rule| looked_for.contains(&rule["resources"][0].as_str().unwrap()));
        rules.map(|rule| rule["resourceNames"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named("leaderworkerset"), ["b8b2488c.x-k8s.io", "lws-webhook-service", "lws-webhook-service"]);
    let kthena = "kthena-controller-manager-webhook";
    assert_eq!(named("modelserving"), ["lease.kthena.controller-manager", kthena, kthena]);
}

#[test]
fn in_namespaces_only_nodes_and_names_are_read_in_the_whole_cluster() {
    let everywhere = granted(&objects(&[]));
    let confined = granted(&objects(&["--namespaces", "a,b"]));
    let cluster: Vec<&String> = confined.iter().filter(|right| right.starts_with('*')).collect();
    assert_eq!(
        cluster,
        [
            "* /nodes list",
            "* /nodes watch",
            "* admissionregistration.k8s.io/mutatingwebhookconfigurations list",
            "* admissionregistration.k8s.io/validatingwebhookconfigurations list",
            "* authentication.k8s.io/tokenreviews create",
            "* authorization.k8s.io/subjectaccessreviews create",
        ]
    );
    assert!(everywhere.contains("* /pods delete"));
    for namespace in ["a", "b"] {
        assert!(confined.contains(&format!("{namespace} /pods delete")));
    }
    // Secrets are those of the operator, wherever it works.
    let secrets: Vec<&String> = everywhere.iter().filter(|right| right.contains("secrets")).collect();
    assert_eq!(secrets, ["segue-system /secrets create"]);
}

#[test]
fn a_kind_that_is_off_costs_no_right() {
    let rights = granted(&objects(&["--kinds", "leaderworkerset", "--without-webhooks"]));
    let foreign = |right: &&String| {
        ["gateway", "segue.dev", "endpointslices", "secrets"].iter().any(|word| right.contains(word))
    };
    assert_eq!(rights.iter().find(foreign), None);
    assert!(!rights.contains("* leaderworkerset.x-k8s.io/leaderworkersets delete"));
}

/// The rights of a kind that was added follow from its description alone.
#[test]
fn a_kind_that_was_added_has_its_rights() {
    let line =
        Line::try_parse_from(["manifests", "--namespaces", "a"]).unwrap_or_else(|error| panic!("{error}"));
    let Args { namespace, image, selection, .. } = &line.args;
    let kinds: &[&'static Served] = &[&crate::toy::SERVED];
    let rights = granted(&Install { namespace, image, kinds, selection, webhooks: false }.objects());
    let expected = [
        "a /configmaps create",
        "a /configmaps list",
        "a /configmaps watch",
        "a test.segue.dev/notes get",
        "a test.segue.dev/notes list",
        "a test.segue.dev/notes patch",
        "a test.segue.dev/notes watch",
        "a test.segue.dev/notes/status update",
    ];
    let is_of_the_kind = |right: &&String| right.contains("configmaps") || right.contains("notes");
    let of_kinds: Vec<&String> = rights.iter().filter(is_of_the_kind).collect();
    assert_eq!(of_kinds, expected, "what the pipeline does with every kind follows from its names");
    let others = |right: &&String| right.contains("pods") || right.contains("leaderworkersets");
    assert_eq!(rights.iter().find(others), None);
}

#[test]
fn no_crd_and_no_webhook_that_can_lock_people_out() {
    let all = objects(&[]);
    assert!(of(&all, "CustomResourceDefinition").is_empty());
    let hooks = of(&all, "ValidatingWebhookConfiguration")[0]["webhooks"].as_array().unwrap();
    assert_eq!(hooks.len(), controllers::kind::KINDS.len());
    for hook in hooks {
        assert_eq!(hook["failurePolicy"], "Ignore");
        assert_eq!(hook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    }
    let confined = objects(&["--namespaces", "a"]);
    let hook = &of(&confined, "ValidatingWebhookConfiguration")[0]["webhooks"][0];
    assert_eq!(hook["namespaceSelector"]["matchExpressions"][0]["values"], json!(["a"]));
    let without = objects(&["--without-webhooks"]);
    assert!(of(&without, "ValidatingWebhookConfiguration").is_empty() && of(&without, "Service").is_empty());
}

#[test]
fn the_operator_is_told_what_the_rights_are_for() {
    let flags = ["--kinds", "lws", "--namespaces", "a,b", "--split-with-others", "--image", "x:1"];
    let container =
        &of(&objects(&flags), "Deployment")[0]["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(
        container["args"],
        json!([
            "operator",
            "--kinds=leaderworkerset",
            "--namespaces=a,b",
            "--split-with-others",
            "--health-port=8081",
            "--webhook-port=9443"
        ])
    );
    assert_eq!(container["image"], "x:1");
}

#[test]
fn two_installations_share_no_object() {
    let name = |object: &Value| {
        format!("{} {} {}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
    };
    let names = |flags: &[&str]| objects(flags).iter().map(name).collect::<BTreeSet<_>>();
    let (one, other) = (names(&["--namespaces", "a"]), names(&["--namespace", "other", "--namespaces", "a"]));
    assert_eq!(one.intersection(&other).count(), 0);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |flags: &[&str]| {
        let line = Line::try_parse_from([&["manifests"], flags].concat());
        match line {
            Ok(line) => line.args.selection.kinds_or_all().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    let said = refused(&["--kinds", "leaderworkerset,rayjob"]);
    assert!(said.contains("rayjob") && said.contains("modeldeployment, raycluster, rayservice"), "{said}");
    let said = refused(&["--kinds", "modeldeployment"]);
    assert!(said.contains("also needs leaderworkerset"), "{said}");
    let said = refused(&["--namespaces", "Team_A"]);
    assert!(said.contains("Team_A") && said.contains("lower-case"), "{said}");
    assert!(refused(&["--split-with-others"]).contains("--namespaces"));
}

/// The page that people grant rights by says all of them, and why.
#[test]
fn every_right_is_explained_in_the_documentation() {
    let page = include_str!("../../../../docs/operations.md");
    for Granted { right, .. } in rights::of(&controllers::kind::KINDS, true, "segue-system") {
        let group = if right.group.is_empty() { "core" } else { right.group };
        let row = format!("| `{}` | {group} | {} | ", right.path(), right.verbs);
        let line = page.lines().find(|line| line.starts_with(&row) && line.contains(right.why));
        assert!(line.is_some(), "not in docs/operations.md: {row}{} |", right.why);
    }
}

/// The image and the pod agree on who runs what.
#[test]
fn the_pod_runs_the_image_as_its_own_user() {
    let image = include_str!("../../../../Dockerfile");
    let pod = of(&objects(&[]), "Deployment")[0]["spec"]["template"]["spec"].clone();
    let user = &pod["securityContext"];
    assert!(image.contains(&format!("USER {}:{}\n", user["runAsUser"], user["runAsGroup"])));
    assert!(image.contains("\nFROM scratch\n") && image.contains("ENTRYPOINT [\"/segue\"]"));
    assert!(pod["containers"][0]["command"].is_null(), "the image knows its program");
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
}
