//! Routing as a function: objects in, the rule that answers and the verdicts out.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

use gateway::{
    Settings,
    routes::{Compiled, Condition, Head, compile},
    world::{Kind, Name, World},
};
use http::Request;
use serde_json::{Value, json};

fn put(world: &mut World, kind: Kind, namespace: &str, name: &str, mut object: Value) {
    let gvk = kind.gvk();
    object["kind"] = json!(gvk.kind);
    object["apiVersion"] = json!(gvk.api_version());
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = json!(name);
    object["metadata"]["generation"] = json!(1);
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    world.put(kind, serde_json::from_value(object).unwrap());
}

/// A class, a Gateway with this listener, and the Services `a` to `d` in `here`.
fn world(listeners: &Value) -> World {
    let mut world = World::default();
    put(&mut world, Kind::Class, "", "segue", json!({"spec": {"controllerName": "segue.dev/gateway"}}));
    let spec =
        json!({"gatewayClassName": "segue", "listeners": listeners, "addresses": [{"value": "127.80.0.1"}]});
    put(&mut world, Kind::Gateway, "here", "front", json!({"spec": spec}));
    for name in ["a", "b", "c", "d"] {
        put(&mut world, Kind::Service, "here", name, json!({"spec": {"ports": [{"port": 80}]}}));
    }
    world
}

fn http(name: &str, hostname: &str) -> Value {
    json!({"name": name, "port": 8080, "protocol": "HTTP", "hostname": hostname})
}

fn route(world: &mut World, name: &str, age: u8, hostnames: &[&str], rules: &[(&str, Value)]) {
    let rules: Vec<Value> = rules
        .iter()
        .map(|(service, matching)| json!({"matches": [matching], "backendRefs": [{"name": service, "port": 80}]}))
        .collect();
    put(
        world,
        Kind::HttpRoute,
        "here",
        name,
        json!({
            "metadata": {"creationTimestamp": format!("2026-01-{age:02}T00:00:00Z")},
            "spec": {"parentRefs": [{"name": "front"}], "hostnames": hostnames, "rules": rules},
        }),
    );
}

/// The Service that answers, or nothing.
fn answers(compiled: &Compiled, request: &Request<()>) -> Option<String> {
    let site = &compiled.plan.sites[&"127.80.0.1:8080".parse().unwrap()];
    let rule = &compiled.plan.rules[site.find(&Head::of(request))?];
    rule.backends[0].target.as_ref().map(|target| target.service.name.clone())
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

fn parent(compiled: &Compiled, route: &str) -> (Condition, Condition) {
    let verdict = &compiled.verdicts.http_routes[&Name::new("here", route)].parents[0];
    (verdict.accepted.clone(), verdict.resolved.clone())
}

#[test]
fn the_most_specific_match_answers() {
    let mut world = world(&json!([http("http", "")]));
    route(
        &mut world,
        "one",
        1,
        &[],
        &[
            ("a", json!({"path": {"type": "PathPrefix", "value": "/"}})),
            ("b", json!({"path": {"type": "PathPrefix", "value": "/models/"}})),
            ("c", json!({"path": {"type": "Exact", "value": "/models"}})),
            ("d", json!({"path": {"type": "PathPrefix", "value": "/models"}, "method": "POST"})),
        ],
    );
    route(
        &mut world,
        "two",
        2,
        &[],
        &[
            ("a", json!({"path": {"type": "PathPrefix", "value": "/h"}})),
            (
                "b",
                json!({"path": {"type": "PathPrefix", "value": "/h"}, "headers": [{"name": "X-A", "value": "1"}]}),
            ),
            (
                "c",
                json!({"path": {"type": "PathPrefix", "value": "/h"},
            "headers": [{"name": "x-a", "value": "1"}, {"name": "x-b", "value": "2"}]}),
            ),
            (
                "d",
                json!({"path": {"type": "PathPrefix", "value": "/h"}, "queryParams": [{"name": "q", "value": "a b"}]}),
            ),
        ],
    );
    let compiled = compile(&world, &Settings::default());
    let table = [
        (get("/"), "a"),
        (get("/modelsx"), "a"),
        (get("/models"), "c"),
        (get("/models/"), "b"),
        (get("/models/x?y"), "b"),
        (Request::post("/models/x").body(()).unwrap(), "d"),
        (Request::post("/models").body(()).unwrap(), "c"),
        (get("/h"), "a"),
        (Request::get("/h").header("x-a", "1").body(()).unwrap(), "b"),
        (Request::get("/h").header("x-a", "2").body(()).unwrap(), "a"),
        (Request::get("/h").header("x-a", "1").header("X-B", "2").body(()).unwrap(), "c"),
        (get("/h?q=a%20b"), "d"),
        (get("/h?q=a&q=a%20b"), "a"),
    ];
    for (request, service) in table {
        assert_eq!(answers(&compiled, &request).as_deref(), Some(service), "{request:?}");
    }
}

#[test]
fn between_equals_the_older_route_answers_then_the_first_by_name() {
    let mut world = world(&json!([http("http", "")]));
    let all = json!({"path": {"type": "PathPrefix", "value": "/x"}});
    route(&mut world, "young", 9, &[], &[("a", all.clone())]);
    route(&mut world, "old-b", 1, &[], &[("b", all.clone())]);
    route(&mut world, "old-a", 1, &[], &[("c", all.clone()), ("d", all)]);
    assert_eq!(answers(&compile(&world, &Settings::default()), &get("/x")).as_deref(), Some("c"));
}

#[test]
fn hosts_choose_the_listener_first_and_the_route_then() {
    let mut world =
        world(&json!([http("all", ""), http("below", "*.models.dev"), http("one", "chat.models.dev")]));
    let all = json!({"path": {"type": "PathPrefix", "value": "/"}});
    let x = json!({"path": {"type": "PathPrefix", "value": "/x"}});
    route(&mut world, "any", 1, &[], &[("a", x)]);
    route(&mut world, "below", 1, &["*.models.dev"], &[("b", all.clone())]);
    route(&mut world, "exact", 1, &["code.models.dev"], &[("c", all.clone())]);
    let compiled = compile(&world, &Settings::default());
    let table = [
        ("http://other.dev/x", Some("a")),
        ("http://other.dev/y", None),
        ("http://chat.models.dev/y", Some("b")),
        ("http://CODE.models.dev:8080/y", Some("c")),
        ("http://deep.code.models.dev/y", Some("b")),
        ("http://models.dev/y", None),
    ];
    for (uri, service) in table {
        assert_eq!(answers(&compiled, &get(uri)).as_deref(), service, "{uri}");
    }
    let named = Request::get("/y").header("host", "code.models.dev:8080").body(()).unwrap();
    assert_eq!(answers(&compiled, &named).as_deref(), Some("c"));
}

#[test]
fn what_is_not_supported_is_said_and_not_served() {
    let table = [
        (
            json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {}}]}),
            "the filter RequestRedirect",
        ),
        (
            json!({"matches": [{"path": {"type": "RegularExpression", "value": "/.*"}}]}),
            "path matches of type",
        ),
        (
            json!({"matches": [{"headers": [{"type": "RegularExpression", "name": "a", "value": "b"}]}]}),
            "header matches",
        ),
        (
            json!({"backendRefs": [{"name": "a", "port": 80, "filters": [{"type": "URLRewrite"}]}]}),
            "filters of one",
        ),
        (json!({"timeouts": {"request": "1 minute"}}), "is not a duration"),
    ];
    for (rule, says) in table {
        let mut world = world(&json!([http("http", "")]));
        let spec = json!({"parentRefs": [{"name": "front"}], "rules": [rule]});
        put(&mut world, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
        let compiled = compile(&world, &Settings::default());
        let accepted = parent(&compiled, "main").0;
        assert_eq!((accepted.holds, accepted.reason), (false, "UnsupportedValue"));
        assert!(accepted.message.contains(says), "{}", accepted.message);
        assert_eq!(answers(&compiled, &get("/")), None);
    }
}

#[test]
fn a_reference_that_leads_nowhere_keeps_its_share() {
    let table = [
        (json!({"name": "missing", "port": 80}), "BackendNotFound"),
        (json!({"name": "a", "port": 81}), "BackendNotFound"),
        (json!({"name": "a", "kind": "Pod", "port": 80}), "InvalidKind"),
        (json!({"name": "a", "namespace": "there", "port": 80}), "RefNotPermitted"),
    ];
    for (reference, reason) in table {
        let mut world = world(&json!([http("http", "")]));
        let rules = json!([{"backendRefs": [{"name": "a", "port": 80, "weight": 3}, reference]}]);
        let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
        put(&mut world, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
        let compiled = compile(&world, &Settings::default());
        let (accepted, resolved) = parent(&compiled, "main");
        assert_eq!((accepted.holds, resolved.holds, resolved.reason), (true, false, reason));
        let backends: Vec<_> =
            compiled.plan.rules[0].backends.iter().map(|b| (b.weight, b.target.is_some())).collect();
        assert_eq!(backends, [(3, true), (1, false)]);
    }
}

#[test]
fn a_grant_lets_a_route_refer_across_namespaces() {
    let mut world = world(&json!([http("http", "")]));
    put(&mut world, Kind::Service, "there", "a", json!({"spec": {"ports": [{"port": 80}]}}));
    let rules = json!([{"backendRefs": [{"name": "a", "namespace": "there", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
    put(&mut world, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
    let from = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "here"});
    for (name, permitted) in [("b", false), ("a", true)] {
        let to = json!({"group": "", "kind": "Service", "name": name});
        put(&mut world, Kind::Grant, "there", "grant", json!({"spec": {"from": [from], "to": [to]}}));
        assert_eq!(parent(&compile(&world, &Settings::default()), "main").1.holds, permitted);
    }
}

#[test]
fn a_route_attaches_where_it_may() {
    let mut listener = http("http", "only.dev");
    let table = [
        (json!({"name": "front", "sectionName": "https"}), "here", vec![], "NoMatchingParent"),
        (json!({"name": "front", "port": 1}), "here", vec![], "NoMatchingParent"),
        (json!({"name": "front"}), "here", vec!["other.dev"], "NoMatchingListenerHostname"),
        (json!({"name": "front", "namespace": "here"}), "there", vec![], "NotAllowedByListeners"),
        (json!({"name": "front", "sectionName": "http", "port": 8080}), "here", vec!["*.dev"], "Accepted"),
    ];
    for (parent, namespace, hostnames, reason) in table {
        let mut world = world(&json!([listener]));
        let spec = json!({"parentRefs": [parent], "hostnames": hostnames});
        put(&mut world, Kind::HttpRoute, namespace, "main", json!({"spec": spec}));
        let verdicts = compile(&world, &Settings::default()).verdicts;
        let accepted = &verdicts.http_routes[&Name::new(namespace, "main")].parents[0].accepted;
        assert_eq!(accepted.reason, reason, "{}", accepted.message);
        let attached = verdicts.gateways[&Name::new("here", "front")].listeners[0].attached;
        assert_eq!(attached, usize::from(reason == "Accepted"));
    }
    listener["allowedRoutes"] =
        json!({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "models"}}}});
    let mut world = world(&json!([listener]));
    put(&mut world, Kind::Namespace, "", "there", json!({"metadata": {"labels": {"team": "models"}}}));
    let spec = json!({"parentRefs": [{"name": "front", "namespace": "here"}]});
    put(&mut world, Kind::HttpRoute, "there", "main", json!({"spec": spec}));
    let verdicts = compile(&world, &Settings::default()).verdicts;
    assert!(verdicts.http_routes[&Name::new("there", "main")].parents[0].accepted.holds);
}

#[test]
fn what_is_not_ours_is_left_alone_and_what_we_cannot_do_is_refused() {
    let mut world = world(&json!([
        http("http", ""), {"name": "tls", "port": 8443, "protocol": "HTTPS"},
    ]));
    put(&mut world, Kind::Class, "", "other", json!({"spec": {"controllerName": "example.com/other"}}));
    put(&mut world, Kind::Gateway, "here", "theirs", json!({"spec": {"gatewayClassName": "other"}}));
    let spec = json!({"parentRefs": [{"name": "theirs"}]});
    put(&mut world, Kind::HttpRoute, "here", "theirs", json!({"spec": spec}));
    let spec = json!({"parentRefs": [{"name": "front"}]});
    put(&mut world, Kind::GrpcRoute, "here", "grpc", json!({"spec": spec}));
    let verdicts = compile(&world, &Settings::default()).verdicts;
    assert_eq!(verdicts.gateways.len(), 1);
    assert!(verdicts.http_routes[&Name::new("here", "theirs")].parents.is_empty());
    let grpc = &verdicts.grpc_routes[&Name::new("here", "grpc")].parents[0].accepted;
    assert!(!grpc.holds && grpc.message.contains("not supported yet"));
    let tls = &verdicts.gateways[&Name::new("here", "front")].listeners[1];
    assert_eq!((tls.accepted.reason, tls.site), ("UnsupportedProtocol", None));
}

#[test]
fn every_gateway_has_an_address_of_its_own_and_keeps_it() {
    let mut world = World::default();
    put(&mut world, Kind::Class, "", "segue", json!({"spec": {"controllerName": "segue.dev/gateway"}}));
    let spec = json!({"gatewayClassName": "segue"});
    for number in 0..300 {
        put(&mut world, Kind::Gateway, "here", &format!("g{number}"), json!({"spec": spec}));
    }
    let held = json!({"spec": spec, "status": {"addresses": [{"value": "127.80.7.7"}]}});
    put(&mut world, Kind::Gateway, "here", "z", held);
    for (name, value) in [("asks", "127.80.9.9"), ("asks-too", "127.80.9.9"), ("far", "10.0.0.1")] {
        let spec = json!({"gatewayClassName": "segue", "addresses": [{"value": value}]});
        put(&mut world, Kind::Gateway, "here", name, json!({"spec": spec}));
    }
    let gateways = compile(&world, &Settings::default()).verdicts.gateways;
    let of = |name: &str| gateways[&Name::new("here", name)].address.clone();
    assert_eq!(of("z").unwrap().to_string(), "127.80.7.7");
    assert_eq!(of("asks").unwrap().to_string(), "127.80.9.9");
    assert_eq!(of("asks-too").unwrap_err(), "127.80.9.9 is another Gateway's");
    assert!(of("far").unwrap_err().contains("127.0.0.0/8"));
    let mut given: Vec<_> = gateways.values().filter_map(|gateway| gateway.address.clone().ok()).collect();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 302);
}

#[test]
fn only_ready_endpoints_that_stay_get_requests() {
    let mut world = world(&json!([http("http", "")]));
    let endpoint =
        |address: &str, conditions: Value| json!({"addresses": [address], "conditions": conditions});
    put(
        &mut world,
        Kind::Slice,
        "here",
        "a-1",
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "a"}},
            "ports": [{"name": "metrics", "port": 1}, {"name": "", "port": 8000}],
            "endpoints": [
                endpoint("127.0.0.2", json!({"ready": true})),
                endpoint("127.0.0.3", json!({"ready": false, "serving": true})),
                endpoint("127.0.0.4", json!({"ready": true, "terminating": true})),
                endpoint("127.0.0.5", json!({})),
            ],
        }),
    );
    put(
        &mut world,
        Kind::Slice,
        "here",
        "a-2",
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "a"}},
            "ports": [{"port": 8000}],
            "endpoints": [endpoint("127.0.0.2", json!({})), endpoint("127.0.0.6", json!({}))],
        }),
    );
    let ready = compile(&world, &Settings::default()).plan.ready;
    let of_a = ready.iter().find(|(key, _)| key.service.name == "a").unwrap().1;
    let addresses: Vec<String> = of_a.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.2:8000", "127.0.0.5:8000", "127.0.0.6:8000"]);
}
