//! What a Service's slices are, for every kind of pod and every change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// An object as the API has it.
fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn service(spec: &Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "service-uid", "labels": {"team": "a"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    merge(&mut service["spec"], spec);
    read(service)
}

/// A pod that is ready; `change` is what is otherwise.
fn pod(number: u8, change: &Value) -> Arc<Pod> {
    let address = format!("10.1.0.{number}");
    let mut pod = json!({
        "metadata": {
            "name": format!("web-{number:03}"), "namespace": "ns", "uid": format!("uid-{number}"),
            "labels": {"app": "web"},
        },
        "spec": {"nodeName": "node", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    merge(&mut pod, change);
    Arc::new(read(pod))
}

/// As a merge patch does.
fn merge(into: &mut Value, change: &Value) {
    let (Some(fields), Some(changes)) = (into.as_object_mut(), change.as_object()) else {
        into.clone_from(change);
        return;
    };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

fn pods(numbers: impl IntoIterator<Item = u8>) -> Vec<Arc<Pod>> {
    numbers.into_iter().map(|number| pod(number, &json!({}))).collect()
}

/// Ready, serving, terminating.
fn conditions(service: &Service, pod: Arc<Pod>) -> Option<(bool, bool, bool)> {
    let slices = wanted_slices(service, &[pod]);
    let endpoint = slices.first()?.endpoints.as_ref()?.first()?.conditions.clone()?;
    Some((endpoint.ready?, endpoint.serving?, endpoint.terminating?))
}

fn names(slice: &EndpointSlice) -> Vec<String> {
    let endpoints = slice.endpoints.iter().flatten();
    endpoints.map(|endpoint| endpoint.target_ref.clone().unwrap().name.unwrap()).collect()
}

fn numbers(slice: &EndpointSlice) -> Vec<i32> {
    slice.ports.iter().flatten().filter_map(|port| port.port).collect()
}

const NOT_READY: &str = r#"{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}"#;
const GOING: &str = r#"{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}"#;

fn otherwise(change: &str) -> Value {
    serde_json::from_str(change).unwrap()
}

#[test]
fn a_slice_says_who_and_where_and_whose() {
    let slices = wanted_slices(&service(&json!({})), &pods([1]));
    assert_eq!(slices.len(), 1);
    let mut slice = serde_json::to_value(&slices[0]).unwrap();
    assert!(slice["metadata"]["name"].take().as_str().unwrap().starts_with("web-"));
    let expected = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": null, "namespace": "ns",
            "labels": {
                "team": "a", "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service-uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{
            "addresses": ["10.1.0.1"], "nodeName": "node",
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "name": "web-001", "namespace": "ns", "uid": "uid-1"},
        }],
    });
    assert_eq!(slice, expected);
}

#[test]
fn a_pod_is_ready_with_its_gates_and_until_it_goes() {
    let (plain, all) = (service(&json!({})), service(&json!({"publishNotReadyAddresses": true})));
    let gate = json!({"status": {"conditions": [
        {"type": "ContainersReady", "status": "True"},
        {"type": "segue.dev/in-service", "status": "False"},
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
    ]}});
    assert_eq!(conditions(&plain, pod(1, &gate)), Some((false, false, false)));
    assert_eq!(conditions(&plain, pod(1, &otherwise(GOING))), Some((false, true, true)));
    assert_eq!(conditions(&all, pod(1, &otherwise(NOT_READY))), Some((true, false, false)));
    assert_eq!(conditions(&all, pod(1, &otherwise(GOING))), Some((true, true, true)));
}

#[test]
fn a_pod_without_an_address_or_a_node_or_a_life_is_no_endpoint() {
    let plain = service(&json!({}));
    let nowhere = json!({"status": {"podIP": null, "podIPs": null}});
    let unbound = json!({"spec": {"nodeName": null}});
    for change in [
        nowhere,
        unbound.clone(),
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"phase": "Succeeded"}}),
        json!({"metadata": {"labels": {"app": "other"}}}),
        json!({"metadata": {"namespace": "other"}}),
    ] {
        assert_eq!(conditions(&plain, pod(1, &change)), None, "{change}");
    }
    let all = service(&json!({"publishNotReadyAddresses": true}));
    assert_eq!(conditions(&all, pod(1, &unbound)), Some((true, true, false)));
}

#[test]
fn a_service_that_selects_nothing_is_left_alone_and_one_without_pods_has_an_empty_slice() {
    for spec in
        [json!({"selector": null}), json!({"selector": {"app": null}}), json!({"type": "ExternalName"})]
    {
        let slices = wanted_slices(&service(&spec), &pods([1]));
        assert_eq!(slices, [], "{spec}");
    }
    let slices = wanted_slices(&service(&json!({})), &[]);
    let lists: Vec<_> = slices.iter().map(|slice| (names(slice).len(), numbers(slice).len())).collect();
    assert_eq!(lists, [(0, 0)]);
}

#[test]
fn each_pod_says_which_number_a_named_port_has() {
    let spec = json!({"ports": [
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web", "appProtocol": "http"},
        {"name": "metrics", "port": 90, "protocol": "TCP", "targetPort": 9090},
    ]});
    let listens = |number: i32, protocol: &str| {
        json!({"spec": {"containers": [{"name": "main", "ports": [
            {"name": "web", "containerPort": number, "protocol": protocol},
        ]}]}})
    };
    let sidecar = json!({"spec": {"initContainers": [
        {"name": "early", "ports": [{"name": "web", "containerPort": 1}]},
        {"name": "beside", "restartPolicy": "Always", "ports": [{"name": "web", "containerPort": 8000}]},
    ]}});
    let pods = [
        pod(1, &listens(8000, "TCP")),
        pod(2, &listens(8001, "TCP")),
        pod(3, &sidecar),
        pod(4, &listens(8000, "UDP")),
    ];
    let slices = wanted_slices(&service(&spec), &pods);
    let mut lists: Vec<_> = slices.iter().map(|slice| (numbers(slice), names(slice))).collect();
    lists.sort();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    // A port that a pod has not is left out, and the pod stays an endpoint of the others.
    assert_eq!(
        lists,
        [
            (vec![8000, 9090], names(&["web-001", "web-003"])),
            (vec![8001, 9090], names(&["web-002"])),
            (vec![9090], names(&["web-004"])),
        ]
    );
    let all_names: BTreeSet<_> = slices.iter().map(ResourceExt::name_any).collect();
    assert_eq!(all_names.len(), 3);
    assert_eq!(slices[0].ports.as_ref().unwrap()[0].app_protocol.as_deref(), Some("http"));
}

#[test]
fn a_headless_service_has_host_names_and_may_have_no_ports() {
    let headless = service(&json!({"clusterIP": "None", "ports": null}));
    let named = |subdomain: &str| json!({"spec": {"hostname": "leader", "subdomain": subdomain}});
    let slices = wanted_slices(&headless, &[pod(1, &named("web")), pod(2, &named("other"))]);
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].labels().get("service.kubernetes.io/headless").map(String::as_str), Some(""));
    assert_eq!(numbers(&slices[0]), Vec::<i32>::new());
    let hosts: Vec<_> = slices[0].endpoints.iter().flatten().map(|it| it.hostname.as_deref()).collect();
    assert_eq!(hosts, [Some("leader"), None]);
}

#[test]
fn each_family_has_its_slices() {
    let both = service(&json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let addresses = json!({"status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "FD00:0::1"}]}});
    let slices = wanted_slices(&both, &[pod(1, &addresses), pod(2, &json!({}))]);
    let lists: Vec<_> =
        slices.iter().map(|slice| (slice.address_type.as_str(), names(slice).len())).collect();
    assert_eq!(lists, [("IPv4", 2), ("IPv6", 1)]);
    assert_eq!(slices[1].endpoints.as_ref().unwrap()[0].addresses, ["fd00::1"]);
}

#[test]
fn the_order_of_pods_does_not_matter_and_a_slice_holds_a_hundred() {
    let service = service(&json!({}));
    let slices = wanted_slices(&service, &pods(0..250));
    assert_eq!(slices.iter().map(|slice| names(slice).len()).collect::<Vec<_>>(), [100, 100, 50]);
    assert_eq!(wanted_slices(&service, &pods((0..250).rev())), slices);
    assert!(slices.iter().all(|slice| names(slice).is_sorted()));
}

/// What a cluster would have after these writes.
fn written(mut slices: Vec<Arc<EndpointSlice>>, writes: Vec<Write>) -> Vec<Arc<EndpointSlice>> {
    for write in writes {
        match write {
            Write::Create(slice) => slices.push(Arc::new(slice)),
            Write::Change { live, wanted } => {
                slices.retain(|slice| *slice != live);
                slices.push(Arc::new(wanted));
            }
            Write::Delete(live) => slices.retain(|slice| *slice != live),
        }
    }
    slices.sort_by_key(|slice| slice.name_any());
    slices
}

fn next(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Vec<Write> {
    placement::writes(service, pods, slices, |name| slices.iter().any(|slice| slice.name_any() == name))
}

#[test]
fn what_is_done_is_not_done_again() {
    let service = service(&json!({}));
    for count in [0, 1, 100, 101, 250] {
        let slices = written(Vec::new(), next(&service, &pods(0..count), &[]));
        assert_eq!(next(&service, &pods(0..count), &slices), [], "{count}");
        // Not seen yet: the same names again, and so the same objects.
        assert_eq!(written(Vec::new(), next(&service, &pods(0..count), &[])), slices);
    }
}

#[test]
fn who_stays_keeps_the_place_and_who_comes_takes_a_free_one() {
    let service = service(&json!({}));
    let slices = written(Vec::new(), next(&service, &pods(0..250), &[]));
    let gone = next(&service, &pods((0..250).filter(|number| *number != 7)), &slices);
    assert!(
        matches!(gone.as_slice(), [Write::Change { wanted, .. }] if names(wanted).len() == 99),
        "{gone:?}"
    );
    let slices = written(slices, gone);
    let back = next(&service, &pods(0..250), &slices);
    let [Write::Change { wanted, .. }] = back.as_slice() else { panic!("{back:?}") };
    assert_eq!((names(wanted).len(), names(wanted).is_sorted()), (100, true));
    // Who comes while others go takes one of their places, though another slice is fuller.
    let slices = written(slices, back);
    let exchanged = next(&service, &pods(60..=250), &slices);
    let [Write::Change { wanted, .. }] = exchanged.as_slice() else { panic!("{exchanged:?}") };
    assert_eq!(names(wanted).len(), 41);
}

#[test]
fn what_goes_out_of_service_is_written_first() {
    let service = service(&json!({}));
    let slices = written(Vec::new(), next(&service, &pods(0..200), &[]));
    let first = |pods: &[Arc<Pod>], name: &str| {
        let writes = next(&service, pods, &slices);
        // Both slices are full, so that a new one is to be made as well.
        assert!(writes.iter().any(|write| matches!(write, Write::Create(_))), "{writes:?}");
        matches!(writes.first(), Some(Write::Change { live, .. }) if names(live).contains(&name.to_owned()))
    };
    for number in [3, 120] {
        let name = format!("web-{number:03}");
        let others = pods((0..=255).filter(|it| *it != number));
        assert!(first(&others, &name), "{name} is gone");
        for change in [NOT_READY, GOING] {
            let mut all = others.clone();
            all.push(pod(number, &otherwise(change)));
            assert!(first(&all, &name), "{name}: {change}");
        }
    }
}

#[test]
fn an_endpoint_that_moves_is_never_in_no_slice() {
    // Each pod of one slice gets a number of its own, so that one stays and the others move to new slices.
    let listens = |number: u8| {
        let port = json!({"name": "web", "containerPort": 8000 + i32::from(number)});
        pod(number, &json!({"spec": {"containers": [{"name": "main", "ports": [port]}]}}))
    };
    let pods: Vec<_> = (0..3).map(listens).collect();
    let slices = written(Vec::new(), next(&service(&json!({})), &pods, &[]));
    let named = service(&json!({"ports": [{"name": "http", "port": 80, "targetPort": "web"}]}));
    let writes = next(&named, &pods, &slices);
    let [Write::Create(_), Write::Create(_), Write::Change { .. }] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    // And back into one: the others go when it is there.
    let slices = written(slices, writes);
    let writes = next(&service(&json!({})), &pods, &slices);
    let [Write::Change { wanted, .. }, Write::Delete(_), Write::Delete(_)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!(names(wanted).len(), 3);
}

#[test]
fn a_slice_that_is_needed_no_more_goes_and_the_last_one_stays_empty() {
    let service = service(&json!({}));
    let slices = written(Vec::new(), next(&service, &pods(0..150), &[]));
    let fewer = next(&service, &pods(0..20), &slices);
    assert!(fewer.iter().any(|write| matches!(write, Write::Delete(_))), "{fewer:?}");
    let slices = written(slices, fewer);
    assert_eq!(slices.len(), 1);
    let none = next(&service, &[], &slices);
    assert!(matches!(none.as_slice(), [Write::Change { wanted, .. }] if names(wanted).is_empty()));
    let slices = written(slices, none);
    assert_eq!(next(&service, &[], &slices), []);
}

#[test]
fn another_port_changes_the_slice_at_once_and_in_place() {
    let slices = written(Vec::new(), next(&service(&json!({})), &pods(0..3), &[]));
    let other = service(&json!({"ports": [{"name": "http", "port": 80, "targetPort": 9000}]}));
    let writes = next(&other, &pods(0..3), &slices);
    let [Write::Change { wanted, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((numbers(wanted), names(wanted).len()), (vec![9000], 3));
}

#[test]
fn slices_of_others_are_left_alone() {
    let service = service(&json!({}));
    let mut theirs = wanted_slices(&service, &pods([9])).remove(0);
    theirs.labels_mut().insert(MANAGED_BY.to_owned(), "somebody".to_owned());
    let slices = [Arc::new(theirs)];
    let writes = next(&service, &pods([1]), &slices);
    // And the name is taken.
    assert!(
        matches!(writes.as_slice(), [Write::Create(slice)] if slice.name_any() != slices[0].name_any()),
        "{writes:?}"
    );
    let selectorless = self::service(&json!({"selector": null}));
    assert_eq!(next(&selectorless, &[], &[Arc::new(wanted_slices(&service, &pods([1])).remove(0))]), []);
}

#[test]
fn a_service_that_goes_gets_no_new_slice() {
    let mut service = service(&json!({}));
    service.metadata.deletion_timestamp = pod(1, &otherwise(GOING)).metadata.deletion_timestamp.clone();
    assert_eq!(next(&service, &pods([1]), &[]), []);
}

#[test]
fn a_change_takes_labels_away_that_the_service_lost() {
    let service = service(&json!({}));
    let mut live = wanted_slices(&service, &pods([1])).remove(0);
    let wanted = live.clone();
    live.labels_mut().insert("old".to_owned(), "x".to_owned());
    let writes = next(&service, &pods([1]), &[Arc::new(live.clone())]);
    assert!(matches!(writes.as_slice(), [Write::Change { .. }]));
    let patch = patch(&live, &wanted);
    assert_eq!(
        (&patch["metadata"]["labels"]["old"], &patch["metadata"]["labels"]["team"]),
        (&Value::Null, &json!("a"))
    );
}

#[test]
fn a_slice_is_known_by_the_label_of_its_service() {
    let slice = wanted_slices(&service(&json!({})), &[]).remove(0);
    assert_eq!(service_of(&slice), Some(Key::new("ns", "web")));
    assert_eq!(service_of(&EndpointSlice::default()), None);
}
