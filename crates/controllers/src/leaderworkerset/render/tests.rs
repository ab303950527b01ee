//! What is written on a pod, row by row of the contract.

use super::*;
use crate::leaderworkerset::revision::Groups;

/// A set with a leader and workers, changed at the given places (JSON pointers), and its template.
fn set(changes: &[(&str, Value)]) -> (LeaderWorkerSet, GroupTemplate) {
    let mut object = json!({
        "metadata": {"name": "x", "namespace": "ns", "uid": "u", "annotations": {}, "labels": {}},
        "spec": {
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": 3,
                "leaderTemplate": {"spec": {"containers": [{"name": "l"}]}},
                "workerTemplate": {
                    "metadata": {"labels": {"mine": "stays"}},
                    "spec": {
                        "readinessGates": [{"conditionType": "theirs"}],
                        "initContainers": [{"name": "i"}],
                        "containers": [{"name": "w", "env": [
                            {"name": "LWS_GROUP_SIZE", "value": "9"},
                            {"name": "AT", "value": "$(LWS_LEADER_ADDRESS)"},
                        ]}],
                    },
                },
            },
        },
    });
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    let set: LeaderWorkerSet = serde_json::from_value(object).unwrap();
    let groups = Groups {
        pods: set.spec.leader_worker_template.clone(),
        subdomains: set.spec.network_config.as_ref().unwrap().subdomain_policy,
    };
    (set, GroupTemplate::test("abc", groups))
}

const TEMPLATE: &str = "/spec/leaderWorkerTemplate";

fn made(changes: &[(&str, Value)], group: u32, index: u32) -> Value {
    let (set, template) = set(changes);
    pod(&set, &template, Place { group, index, incarnation: 1 })
}

/// The variables of a container, in order.
fn env(container: &Value) -> Vec<(&str, &str)> {
    let entries = container["env"].as_array().unwrap().iter();
    entries.map(|entry| (entry["name"].as_str().unwrap(), entry["value"].as_str().unwrap())).collect()
}

fn value<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    env(container).into_iter().find(|(entry, _)| *entry == name).map(|(_, value)| value)
}

/// Rows of 1.5: labels and annotations, and 8.1: those that tools expect of `StatefulSets`.
#[test]
fn a_worker_knows_its_leader_its_group_and_its_place() {
    let pod = made(&[], 4, 2);
    let metadata = &pod["metadata"];
    assert_eq!(metadata["name"], "x-4-2");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("x-4-2"), &json!("x")));
    assert_eq!(
        metadata["labels"],
        json!({
            "mine": "stays",
            "leaderworkerset.sigs.k8s.io/name": "x",
            "leaderworkerset.sigs.k8s.io/group-index": "4",
            "leaderworkerset.sigs.k8s.io/worker-index": "2",
            "leaderworkerset.sigs.k8s.io/group-key": sha1("ns/x-4"),
            "leaderworkerset.sigs.k8s.io/template-revision-hash": "abc",
            "apps.kubernetes.io/pod-index": "2",
            "statefulset.kubernetes.io/pod-name": "x-4-2",
            "controller-revision-hash": "abc",
        })
    );
    assert_eq!(sha1("ns/x-4").len(), 40);
    assert_eq!(sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_eq!(
        metadata["annotations"],
        json!({
            "leaderworkerset.sigs.k8s.io/size": "3",
            "leaderworkerset.sigs.k8s.io/leader-name": "x-4",
            "segue.dev/incarnation": "1",
        })
    );
    assert_eq!(pod["spec"]["readinessGates"], json!([{"conditionType": "theirs"}]));
    assert_eq!(metadata["ownerReferences"][0]["kind"], "LeaderWorkerSet");
}

/// Rows of 1.6: all containers and init containers, ours first, and the user's of the same name dropped.
#[test]
fn containers_know_their_group_before_anything_else() {
    let pod = made(&[], 4, 2);
    let ours = [("LWS_LEADER_ADDRESS", "x-4.x.ns"), ("LWS_GROUP_SIZE", "3"), ("LWS_WORKER_INDEX", "2")];
    let mut all = ours.to_vec();
    all.push(("AT", "$(LWS_LEADER_ADDRESS)"));
    assert_eq!(env(&pod["spec"]["containers"][0]), all);
    assert_eq!(env(&pod["spec"]["initContainers"][0]), ours);
}

#[test]
fn the_leader_carries_the_gate_and_may_have_a_subdomain_of_its_own() {
    let unique = ("/spec/networkConfig/subdomainPolicy", json!("UniquePerReplica"));
    let leader = made(std::slice::from_ref(&unique), 4, 0);
    assert_eq!((&leader["metadata"]["name"], &leader["spec"]["subdomain"]), (&json!("x-4"), &json!("x-4")));
    assert_eq!(leader["spec"]["containers"][0]["name"], "l");
    assert_eq!(leader["spec"]["readinessGates"], json!([{"conditionType": labels::IN_SERVICE}]));
    assert_eq!(leader["metadata"]["annotations"][labels::SUBDOMAIN_POLICY], "UniquePerReplica");
    assert_eq!(leader["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "4");
    assert_eq!(value(&leader["spec"]["containers"][0], "LWS_LEADER_ADDRESS"), Some("x-4.x-4.ns"));
    let worker = made(std::slice::from_ref(&unique), 4, 1);
    assert_eq!(worker["metadata"]["annotations"][labels::SUBDOMAIN_POLICY], Value::Null);
    assert_eq!(value(&worker["spec"]["containers"][0], "LWS_LEADER_ADDRESS"), Some("x-4.x-4.ns"));
    let (set, _) = set(&[unique]);
    let (key, service) = headless(&set, Some(4));
    assert_eq!(key.name, "x-4");
    assert_eq!(service["spec"]["selector"][labels::GROUP_INDEX], "4");
}

#[test]
fn without_a_template_of_its_own_a_leader_is_made_like_a_worker() {
    let leader = made(&[(&format!("{TEMPLATE}/leaderTemplate"), Value::Null)], 0, 0);
    assert_eq!(leader["spec"]["containers"][0]["name"], "w");
    assert_eq!(leader["metadata"]["labels"]["mine"], "stays");
}

/// Bug 6.13: everything written on the set is copied to what is made for it.
#[test]
fn what_is_written_on_the_set_is_not_copied_to_its_pods() {
    let (mut set, template) = set(&[]);
    set.annotations_mut().insert("kubectl.kubernetes.io/last-applied-configuration".into(), "{}".into());
    set.labels_mut().insert("team".into(), "a".into());
    let made = pod(&set, &template, Place { group: 0, index: 1, incarnation: 1 });
    assert_eq!(made, self::made(&[], 0, 1));
}

/// Rows of 2.8: the subgroup of every pod.
#[test]
fn pods_are_counted_into_subgroups() {
    let index = |size: u32, subgroup: u32, policy: &str, worker: u32| {
        let changes = [
            ("/spec/leaderWorkerTemplate/size", json!(size)),
            (
                "/spec/leaderWorkerTemplate/subGroupPolicy",
                json!({"subGroupSize": subgroup, "subGroupPolicyType": policy}),
            ),
        ];
        let pod = made(&changes, 1, worker);
        let labels = &pod["metadata"]["labels"];
        let index = labels[labels::SUBGROUP_INDEX].as_str().map(ToOwned::to_owned);
        let key = index.as_ref().map(|index| json!(sha1(&format!("x-1/{index}"))));
        assert_eq!(labels[labels::SUBGROUP_KEY], key.unwrap_or_default());
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations[labels::SUBGROUP_SIZE], subgroup.to_string());
        assert_eq!(annotations[labels::SUBGROUP_POLICY_TYPE], policy);
        index
    };
    let all = |size, subgroup, policy: &str| -> Vec<Option<String>> {
        (0..size).map(|worker| index(size, subgroup, policy, worker)).collect()
    };
    let some = |indices: &[u32]| indices.iter().map(|index| Some(index.to_string())).collect::<Vec<_>>();
    assert_eq!(all(4, 2, "LeaderWorker"), some(&[0, 0, 1, 1]));
    assert_eq!(all(5, 2, "LeaderWorker"), some(&[0, 0, 0, 1, 1]), "the leader is one more");
    assert_eq!(all(3, 1, "LeaderWorker"), some(&[0, 1, 2]));
    let mut without = vec![None];
    without.extend(some(&[0, 0, 1, 1]));
    assert_eq!(all(5, 2, "LeaderExcluded"), without);
}

/// Bug 6.12: `subGroupPolicy: {}` and a size of 0 end the public operator's webhook.
#[test]
fn subgroups_without_a_size_are_none() {
    for policy in [json!({}), json!({"subGroupSize": 0})] {
        let pod = made(&[(&format!("{TEMPLATE}/subGroupPolicy"), policy)], 0, 1);
        assert_eq!(pod["metadata"]["labels"][labels::SUBGROUP_INDEX], Value::Null);
    }
}

fn annotated(annotations: &[(&str, &str)], changes: &[(&str, Value)], index: u32) -> Value {
    let (mut set, template) = set(changes);
    for (name, value) in annotations {
        set.annotations_mut().insert((*name).to_owned(), (*value).to_owned());
    }
    pod(&set, &template, Place { group: 0, index, incarnation: 0 })
}

/// The labels by which a pod is kept together with some and apart from others, by topology.
fn terms(pod: &Value, kind: &str) -> Vec<(String, String)> {
    let terms = pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let term = |term: &Value| {
        let expression = &term["labelSelector"]["matchExpressions"][0];
        let label = expression["key"].as_str().unwrap_or("theirs").rsplit('/').next().unwrap().to_owned();
        (label, text(&term["topologyKey"]))
    };
    terms.into_iter().flatten().map(term).collect()
}

/// Rows of 2.8, for every pod of the group and not for its leader alone.
#[test]
fn a_group_has_its_topology_domain_for_itself() {
    for index in [0, 2] {
        let pod = annotated(&[(labels::EXCLUSIVE_TOPOLOGY, "rack")], &[], index);
        assert_eq!(pod["metadata"]["annotations"][labels::EXCLUSIVE_TOPOLOGY], "rack");
        let term = |expressions| {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "rack"},
            ]})
        };
        let key = sha1("ns/x-0");
        let own = json!([{"key": labels::GROUP_KEY, "operator": "In", "values": [key]}]);
        let others = json!([
            {"key": labels::GROUP_KEY, "operator": "Exists"},
            {"key": labels::GROUP_KEY, "operator": "NotIn", "values": [key]},
        ]);
        assert_eq!(
            pod["spec"]["affinity"],
            json!({"podAffinity": term(own), "podAntiAffinity": term(others)})
        );
        assert_eq!(pod["spec"]["nodeSelector"], Value::Null, "no worker waits for the leader's node");
    }
}

/// Bug 6.15: a term of the user's on the same topology, or the same topology for subgroups, turns exclusive placement
/// off; an empty annotation turns it on.
#[test]
fn exclusive_placement_holds_beside_what_the_template_asks_for() {
    let theirs = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "rack"},
    ]});
    let changes = [
        (
            "/spec/leaderWorkerTemplate/workerTemplate/spec/affinity",
            json!({"podAffinity": theirs, "podAntiAffinity": theirs}),
        ),
        ("/spec/leaderWorkerTemplate/size", json!(4)),
        ("/spec/leaderWorkerTemplate/subGroupPolicy", json!({"subGroupSize": 2})),
    ];
    let both = [(labels::EXCLUSIVE_TOPOLOGY, "rack"), (labels::SUBGROUP_EXCLUSIVE_TOPOLOGY, "rack")];
    let pod = annotated(&both, &changes, 2);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let at = |label: &str| (label.to_owned(), "rack".to_owned());
        assert_eq!(terms(&pod, kind), [at("theirs"), at("group-key"), at("subgroup-key")]);
    }
    assert_eq!(pod["metadata"]["annotations"][labels::SUBGROUP_EXCLUSIVE_TOPOLOGY], "rack");
    let empty = annotated(&[(labels::EXCLUSIVE_TOPOLOGY, "")], &[], 1);
    assert_eq!(empty["spec"]["affinity"], Value::Null);
    assert_eq!(empty["metadata"]["annotations"][labels::EXCLUSIVE_TOPOLOGY], Value::Null);
}

#[test]
fn a_leader_in_no_subgroup_is_not_placed_with_one() {
    let changes = [(
        "/spec/leaderWorkerTemplate/subGroupPolicy",
        json!({"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}),
    )];
    let topology = [(labels::SUBGROUP_EXCLUSIVE_TOPOLOGY, "rack")];
    assert_eq!(annotated(&topology, &changes, 0)["spec"]["affinity"], Value::Null);
    assert_eq!(terms(&annotated(&topology, &changes, 1), "podAffinity").len(), 1);
}

fn tpu(name: &str) -> Value {
    json!({"name": name, "resources": {"limits": {"google.com/tpu": "4"}}})
}

/// Rows of 2.9 without subgroups: who is counted, and as which.
#[test]
fn containers_with_tpus_know_their_peers() {
    let worker = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers";
    let leader = "/spec/leaderWorkerTemplate/leaderTemplate/spec/containers";
    let environment = |changes: &[(&str, Value)], index: u32, container: usize| {
        let pod = made(changes, 0, index);
        let container = &pod["spec"]["containers"][container];
        let names = [
            "TPU_WORKER_HOSTNAMES",
            "TPU_WORKER_ID",
            "TPU_NAME",
            "TPU_PROCESS_ADDRESSES",
            "TPU_PROCESS_PORT",
        ];
        let environment = names.map(|name| value(container, name).unwrap_or("-").to_owned());
        let annotation = pod["metadata"]["annotations"][labels::LEADER_REQUESTS_TPUS].clone();
        (environment, annotation)
    };
    let row = |hosts: &str, id: &str, addresses: &str, port: &str| {
        [hosts, id, "x-0", addresses, port].map(ToOwned::to_owned)
    };
    let workers_only = [(worker, json!([tpu("w")]))];
    let hosts = row("x-0-1.x,x-0-2.x", "1", "x-0-1.x:8476,x-0-2.x:8476", "8476");
    assert_eq!(environment(&workers_only, 2, 0), (hosts, Value::Null));
    assert_eq!(environment(&workers_only, 0, 0).0[0], "-", "the leader has none");

    let all = [(worker, json!([tpu("w")])), (leader, json!([tpu("l")]))];
    let (hosts, addresses) = ("x-0.x,x-0-1.x,x-0-2.x", "x-0.x:8476,x-0-1.x:8476,x-0-2.x:8476");
    assert_eq!(environment(&all, 2, 0), (row(hosts, "2", addresses, "8476"), json!("true")));
    assert_eq!(environment(&all, 0, 0), (row(hosts, "0", addresses, "8476"), Value::Null));

    let two = [(worker, json!([tpu("a"), {"name": "plain"}, tpu("b")]))];
    let (hosts, addresses) =
        ("x-0-1.x,x-0-1.x,x-0-2.x,x-0-2.x", "x-0-1.x:8476,x-0-1.x:8477,x-0-2.x:8476,x-0-2.x:8477");
    assert_eq!(environment(&two, 2, 2).0, row(hosts, "3", addresses, "8477"));
    assert_eq!(environment(&two, 2, 1).0[0], "-", "a container without");

    let mut own_port = tpu("w");
    own_port["env"] = json!([{"name": "TPU_PROCESS_PORT", "value": "9000"}]);
    assert_eq!(environment(&[(worker, json!([own_port]))], 1, 0).0[3], "x-0-1.x:9000,x-0-2.x:9000");
    let mut own_id = tpu("w");
    own_id["env"] = json!([{"name": "TPU_WORKER_ID", "value": "7"}]);
    assert_eq!(environment(&[(worker, json!([own_id]))], 1, 0).0, ["-", "7", "-", "-", "-"]);
    let none = json!([{"name": "w", "resources": {"limits": {"google.com/tpu": 0}}}]);
    assert_eq!(environment(&[(worker, none)], 1, 0).0[0], "-");
}

/// Rows of 2.9 with subgroups.
#[test]
fn containers_with_tpus_know_the_peers_of_their_subgroup() {
    let environment = |size: u32, subgroup: u32, policy: &str, leader: bool, index: u32| {
        let mut changes = vec![
            ("/spec/leaderWorkerTemplate/size", json!(size)),
            ("/spec/leaderWorkerTemplate/workerTemplate/spec/containers", json!([tpu("w")])),
            (
                "/spec/leaderWorkerTemplate/subGroupPolicy",
                json!({"subGroupSize": subgroup, "subGroupPolicyType": policy}),
            ),
        ];
        if leader {
            changes.push(("/spec/leaderWorkerTemplate/leaderTemplate/spec/containers", json!([tpu("l")])));
        }
        let pod = made(&changes, 0, index);
        let container = &pod["spec"]["containers"][0];
        let of = |name: &str| value(container, name).unwrap_or("-").to_owned();
        (of("TPU_WORKER_HOSTNAMES"), of("TPU_WORKER_ID"))
    };
    let row = |hosts: &str, id: &str| (hosts.to_owned(), id.to_owned());
    // The leader has TPUs: it is the first of the first subgroup.
    assert_eq!(environment(4, 2, "LeaderWorker", true, 0), row("x-0.x,x-0-1.x", "0"));
    assert_eq!(environment(4, 2, "LeaderWorker", true, 1), row("x-0.x,x-0-1.x", "1"));
    assert_eq!(environment(4, 2, "LeaderWorker", true, 2), row("x-0-2.x,x-0-3.x", "0"));
    // It has none: the subgroups are of workers.
    assert_eq!(environment(5, 2, "LeaderWorker", false, 2), row("x-0-1.x,x-0-2.x", "1"));
    assert_eq!(environment(5, 2, "LeaderWorker", false, 3), row("x-0-3.x,x-0-4.x", "0"));
    // It has some and belongs to no subgroup: it gets no variables, and shifts no worker.
    assert_eq!(environment(5, 2, "LeaderExcluded", true, 0), row("-", "-"));
    assert_eq!(environment(5, 2, "LeaderExcluded", true, 2), row("x-0-1.x,x-0-2.x", "1"));
}

/// A volume of the template gives way to the claim of its name, as in `StatefulSets`.
#[test]
fn claims_are_volumes_of_their_pods() {
    let changes = [
        (
            "/spec/leaderWorkerTemplate/volumeClaimTemplates",
            json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]),
        ),
        (
            "/spec/leaderWorkerTemplate/workerTemplate/spec/volumes",
            json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]),
        ),
    ];
    let pod = made(&changes, 4, 2);
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-x-4-2"}},
        ])
    );
    let (set, template) = set(&changes);
    let claim = &claims(&set, &template, Place { group: 4, index: 0, incarnation: 0 })[0];
    assert_eq!(claim.key.name, "data-x-4");
    assert_eq!(claim.body["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
}
