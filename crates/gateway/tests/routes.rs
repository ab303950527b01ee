//! Routing as a function: objects in, the rule that answers and the conditions out.
#![allow(clippy::unwrap_used, reason = "clippy does not know a helper of tests for one")]

use gateway::{
    Settings,
    cache::{Cache, Kind, Name},
    routes::{Compiled, Condition, Head, compile},
};
use http::Request;
use serde_json::{Value, json};

fn put(cache: &mut Cache, kind: Kind, namespace: &str, name: &str, mut object: Value) {
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
    cache.put(kind, serde_json::from_value(object).unwrap());
}

/// A class, a Gateway with this listener, and the Services `a` to `d` in `here`.
fn cache(listeners: &Value) -> Cache {
    let mut cache = Cache::default();
    put(
        &mut cache,
        Kind::GatewayClass,
        "",
        "segue",
        json!({"spec": {"controllerName": "segue.dev/gateway"}}),
    );
    let spec =
        json!({"gatewayClassName": "segue", "listeners": listeners, "addresses": [{"value": "127.80.0.1"}]});
    put(&mut cache, Kind::Gateway, "here", "front", json!({"spec": spec}));
    for name in ["a", "b", "c", "d"] {
        put(&mut cache, Kind::Service, "here", name, json!({"spec": {"ports": [{"port": 80}]}}));
    }
    cache
}

fn http(name: &str, hostname: &str) -> Value {
    json!({"name": name, "port": 8080, "protocol": "HTTP", "hostname": hostname})
}

fn route(cache: &mut Cache, name: &str, age: u8, hostnames: &[&str], rules: &[(&str, Value)]) {
    let rules: Vec<Value> = rules
        .iter()
        .map(|(service, matching)| json!({"matches": [matching], "backendRefs": [{"name": service, "port": 80}]}))
        .collect();
    put(
        cache,
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
    let frontend = &compiled.config.frontends[&"127.80.0.1:8080".parse().unwrap()];
    let rule = &compiled.config.rules[frontend.find(&Head::of(request))?];
    rule.backends[0].target.as_ref().map(|target| target.service.name.clone())
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

fn parent(compiled: &Compiled, route: &str) -> (Condition, Condition) {
    let status = &compiled.statuses.http_routes[&Name::new("here", route)].parents[0];
    (status.accepted.clone(), status.resolved.clone())
}

#[test]
fn the_most_specific_match_answers() {
    let mut cache = cache(&json!([http("http", "")]));
    route(
        &mut cache,
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
        &mut cache,
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
    let compiled = compile(&cache, &Settings::default());
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
fn a_regular_expression_matches_the_whole_of_a_value() {
    let mut cache = cache(&json!([http("http", "")]));
    let regular =
        |name: &str, value: &str| json!([{"type": "RegularExpression", "name": name, "value": value}]);
    route(
        &mut cache,
        "main",
        1,
        &[],
        &[
            ("a", json!({"path": {"type": "RegularExpression", "value": "/v[12]/[a-z]+"}})),
            ("b", json!({"headers": regular("x-tier", "gold|silver")})),
            ("c", json!({"queryParams": regular("n", "[0-9]+")})),
            ("d", json!({"path": {"type": "PathPrefix", "value": "/v1/models"}})),
        ],
    );
    let compiled = compile(&cache, &Settings::default());
    let tier = |tier: &str| Request::get("/").header("x-tier", tier).body(()).unwrap();
    let table = [
        (get("/v1/models"), Some("a")),
        (get("/v1/models/7"), Some("d")),
        (get("/v3/models"), None),
        (get("/x/v1/models"), None),
        (tier("silver"), Some("b")),
        (tier("silvern"), None),
        (get("/?n=42"), Some("c")),
        (get("/?n=x42"), None),
    ];
    for (request, service) in table {
        assert_eq!(answers(&compiled, &request).as_deref(), service, "{request:?}");
    }
}

#[test]
fn a_grpc_route_answers_the_calls_of_its_methods() {
    let mut listener = http("http", "");
    listener["allowedRoutes"] = json!({"kinds": [{"kind": "GRPCRoute"}]});
    let mut cache = cache(&json!([listener]));
    let rule = |service: &str, method: Value| json!({"matches": [{"method": method}], "backendRefs": [{"name": service, "port": 80}]});
    let rules = json!([
        rule("a", json!({"service": "llm.Chat", "method": "Say"})),
        rule("b", json!({"service": "llm.Chat"})),
        rule("c", json!({"method": "Check"})),
    ]);
    let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
    put(&mut cache, Kind::GrpcRoute, "here", "calls", json!({"spec": spec}));
    route(&mut cache, "other", 1, &[], &[("d", json!({}))]);
    let compiled = compile(&cache, &Settings::default());
    let calls = [
        ("/llm.Chat/Say", Some("a")),
        ("/llm.Chat/Hear", Some("b")),
        ("/grpc.health.v1.Health/Check", Some("c")),
        ("/llm.Chats/Hear", None),
    ];
    for (path, service) in calls {
        let call = Request::post(format!("http://front{path}")).body(()).unwrap();
        assert_eq!(answers(&compiled, &call).as_deref(), service, "{path}");
    }
    // The listener takes no HTTPRoutes.
    assert_eq!(parent(&compiled, "other").0.reason, "NotAllowedByListeners");
    let gateway = &compiled.statuses.gateways[&Name::new("here", "front")];
    assert_eq!((gateway.listeners[0].attached, &gateway.listeners[0].kinds[..]), (1, &["GRPCRoute"][..]));
}

#[test]
fn between_equals_the_older_route_answers_then_the_first_by_name() {
    let mut cache = cache(&json!([http("http", "")]));
    let all = json!({"path": {"type": "PathPrefix", "value": "/x"}});
    route(&mut cache, "young", 9, &[], &[("a", all.clone())]);
    route(&mut cache, "old-b", 1, &[], &[("b", all.clone())]);
    route(&mut cache, "old-a", 1, &[], &[("c", all.clone()), ("d", all)]);
    assert_eq!(answers(&compile(&cache, &Settings::default()), &get("/x")).as_deref(), Some("c"));
}

#[test]
fn hosts_choose_the_listener_first_and_the_route_then() {
    let mut cache =
        cache(&json!([http("all", ""), http("below", "*.models.dev"), http("one", "chat.models.dev")]));
    let all = json!({"path": {"type": "PathPrefix", "value": "/"}});
    let x = json!({"path": {"type": "PathPrefix", "value": "/x"}});
    route(&mut cache, "any", 1, &[], &[("a", x)]);
    route(&mut cache, "below", 1, &["*.models.dev"], &[("b", all.clone())]);
    route(&mut cache, "exact", 1, &["code.models.dev"], &[("c", all.clone())]);
    let compiled = compile(&cache, &Settings::default());
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
        (json!({"filters": [{"type": "CORS", "cors": {}}]}), "rules[0]: the filter CORS"),
        (
            json!({"matches": [{"path": {"type": "RegularExpression", "value": "/("}}]}),
            "path: \"/(\" is not a regular expression",
        ),
        (
            json!({"matches": [{"headers": [{"type": "RegularExpression", "name": "a", "value": "x{1000}{1000}"}]}]}),
            "header a: \"x{1000}{1000}\" needs more than",
        ),
        (
            json!({"backendRefs": [{"name": "a", "port": 80, "filters": [{"type": "URLRewrite"}]}]}),
            "the filter URLRewrite of one backend",
        ),
        (json!({"timeouts": {"request": "1 minute"}}), "is not a duration"),
    ];
    for (rule, says) in table {
        let mut cache = cache(&json!([http("http", "")]));
        let spec = json!({"parentRefs": [{"name": "front"}], "rules": [rule]});
        put(&mut cache, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
        let compiled = compile(&cache, &Settings::default());
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
        let mut cache = cache(&json!([http("http", "")]));
        let rules = json!([{"backendRefs": [{"name": "a", "port": 80, "weight": 3}, reference]}]);
        let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
        put(&mut cache, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
        let compiled = compile(&cache, &Settings::default());
        let (accepted, resolved) = parent(&compiled, "main");
        assert_eq!((accepted.holds, resolved.holds, resolved.reason), (true, false, reason));
        let backends: Vec<_> =
            compiled.config.rules[0].backends.iter().map(|b| (b.weight, b.target.is_some())).collect();
        assert_eq!(backends, [(3, true), (1, false)]);
        let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": reference}});
        let rules = json!([{"backendRefs": [{"name": "a", "port": 80}], "filters": [mirror]}]);
        let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
        put(&mut cache, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
        let compiled = compile(&cache, &Settings::default());
        assert_eq!(parent(&compiled, "main").1.reason, reason, "a mirror is a reference too");
        assert_eq!(compiled.config.rules[0].mirrors[0].target, None);
    }
}

#[test]
fn a_grant_lets_a_route_refer_across_namespaces() {
    let mut cache = cache(&json!([http("http", "")]));
    put(&mut cache, Kind::Service, "there", "a", json!({"spec": {"ports": [{"port": 80}]}}));
    let rules = json!([{"backendRefs": [{"name": "a", "namespace": "there", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "front"}], "rules": rules});
    put(&mut cache, Kind::HttpRoute, "here", "main", json!({"spec": spec}));
    let from = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "here"});
    for (name, permitted) in [("b", false), ("a", true)] {
        let to = json!({"group": "", "kind": "Service", "name": name});
        put(
            &mut cache,
            Kind::ReferenceGrant,
            "there",
            "grant",
            json!({"spec": {"from": [from], "to": [to]}}),
        );
        assert_eq!(parent(&compile(&cache, &Settings::default()), "main").1.holds, permitted);
    }
}

#[test]
fn a_route_attaches_where_it_may() {
    let listener = http("http", "only.dev");
    let table = [
        (json!({"name": "front", "sectionName": "https"}), "here", vec![], "NoMatchingParent"),
        (json!({"name": "front", "port": 1}), "here", vec![], "NoMatchingParent"),
        (json!({"name": "front"}), "here", vec!["other.dev"], "NoMatchingListenerHostname"),
        (json!({"name": "front", "namespace": "here"}), "there", vec![], "NotAllowedByListeners"),
        (json!({"name": "front", "sectionName": "http", "port": 8080}), "here", vec!["*.dev"], "Accepted"),
    ];
    for (parent, namespace, hostnames, reason) in table {
        let mut cache = cache(&json!([listener]));
        let spec = json!({"parentRefs": [parent], "hostnames": hostnames});
        put(&mut cache, Kind::HttpRoute, namespace, "main", json!({"spec": spec}));
        let statuses = compile(&cache, &Settings::default()).statuses;
        let accepted = &statuses.http_routes[&Name::new(namespace, "main")].parents[0].accepted;
        assert_eq!(accepted.reason, reason, "{}", accepted.message);
        let attached = statuses.gateways[&Name::new("here", "front")].listeners[0].attached;
        assert_eq!(attached, usize::from(reason == "Accepted"));
    }
}

#[test]
fn a_listener_lets_in_the_namespaces_that_its_selector_matches() {
    let requires = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let table = [
        (json!({}), true),
        (json!({"matchLabels": {"team": "models"}}), true),
        (json!({"matchLabels": {"team": "models", "tier": "gold"}}), false),
        (requires("team", "In", &["models", "data"]), true),
        (requires("team", "In", &["data"]), false),
        (requires("team", "NotIn", &["data"]), true),
        (requires("team", "NotIn", &["models"]), false),
        (requires("tier", "NotIn", &["gold"]), true),
        (requires("team", "Exists", &[]), true),
        (requires("tier", "Exists", &[]), false),
        (requires("tier", "DoesNotExist", &[]), true),
        (requires("team", "DoesNotExist", &[]), false),
        (requires("team", "Like", &["models"]), false),
    ];
    for (selector, allows) in table {
        let mut listener = http("http", "only.dev");
        listener["allowedRoutes"] = json!({"namespaces": {"from": "Selector", "selector": selector}});
        let mut cache = cache(&json!([listener]));
        put(&mut cache, Kind::Namespace, "", "there", json!({"metadata": {"labels": {"team": "models"}}}));
        let spec = json!({"parentRefs": [{"name": "front", "namespace": "here"}]});
        for namespace in ["there", "unknown"] {
            put(&mut cache, Kind::HttpRoute, namespace, "main", json!({"spec": spec}));
        }
        let statuses = compile(&cache, &Settings::default()).statuses;
        let holds = |namespace| statuses.http_routes[&Name::new(namespace, "main")].parents[0].accepted.holds;
        assert_eq!(holds("there"), allows, "{selector}");
        assert!(!holds("unknown"), "nothing is known of the labels of this namespace: {selector}");
    }
}

#[test]
fn what_is_not_ours_is_left_alone_and_what_we_cannot_do_is_refused() {
    let mut cache = cache(&json!([
        http("http", ""), {"name": "tls", "port": 8443, "protocol": "TLS"},
    ]));
    put(
        &mut cache,
        Kind::GatewayClass,
        "",
        "other",
        json!({"spec": {"controllerName": "example.com/other"}}),
    );
    put(&mut cache, Kind::Gateway, "here", "theirs", json!({"spec": {"gatewayClassName": "other"}}));
    let spec = json!({"parentRefs": [{"name": "theirs"}]});
    put(&mut cache, Kind::HttpRoute, "here", "theirs", json!({"spec": spec}));
    let spec = json!({"parentRefs": [{"name": "front"}]});
    put(&mut cache, Kind::GrpcRoute, "here", "grpc", json!({"spec": spec}));
    let statuses = compile(&cache, &Settings::default()).statuses;
    assert_eq!(statuses.gateways.len(), 1);
    assert!(statuses.http_routes[&Name::new("here", "theirs")].parents.is_empty());
    assert!(statuses.grpc_routes[&Name::new("here", "grpc")].parents[0].accepted.holds);
    let tls = &statuses.gateways[&Name::new("here", "front")].listeners[1];
    assert_eq!((tls.accepted.reason, tls.frontend), ("UnsupportedProtocol", None));
}

/// A Secret with these, of the type for TLS.
fn certificate(certificate: &str, key: &str) -> Value {
    let encoded = |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.into())).unwrap();
    json!({"type": "kubernetes.io/tls", "data": {"tls.crt": encoded(certificate), "tls.key": encoded(key)}})
}

#[test]
fn an_https_listener_is_served_with_the_certificates_that_its_references_lead_to() {
    let make = || rcgen::generate_simple_self_signed(["a.dev".to_owned()]).unwrap();
    let (one, two) = (make(), make());
    let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let good = certificate(&chain, &key);
    let mut opaque = good.clone();
    opaque["type"] = json!("Opaque");
    let secrets = [
        ("good", good.clone()),
        ("opaque", opaque),
        ("empty", json!({"type": "kubernetes.io/tls"})),
        ("garbled", certificate("garbled", &key)),
        ("keyless", certificate(&chain, "garbled")),
        ("mixed", certificate(&chain, &two.signing_key.serialize_pem())),
    ];
    let wrong = "InvalidCertificateRef";
    let table = [
        (json!([{"name": "good"}]), true, "ResolvedRefs", "every reference is valid"),
        (json!([{"name": "opaque"}]), false, wrong, "its type is \"Opaque\" and not kubernetes.io/tls"),
        (json!([{"name": "empty"}]), false, wrong, "it has no tls.crt"),
        (json!([{"name": "garbled"}]), false, wrong, "tls.crt is not a certificate"),
        (json!([{"name": "keyless"}]), false, wrong, "tls.key is not a private key"),
        (json!([{"name": "mixed"}]), false, wrong, "do not go together"),
        (json!([{"name": "missing"}]), false, wrong, "there is no Secret here/missing"),
        (json!([{"name": "good", "kind": "ConfigMap"}]), false, wrong, "not in a ConfigMap"),
        (json!([]), false, wrong, "needs a certificate"),
        (
            json!([{"name": "good", "namespace": "there"}]),
            false,
            "RefNotPermitted",
            "no ReferenceGrant in there",
        ),
        (json!([{"name": "good", "namespace": "granted"}]), true, "ResolvedRefs", ""),
        // What leads somewhere is served.
        (json!([{"name": "missing"}, {"name": "good"}]), true, wrong, "there is no Secret here/missing"),
    ];
    for (references, is_served, reason, says) in table {
        let tls = json!({"certificateRefs": references});
        let mut cache = cache(&json!([{"name": "tls", "port": 8443, "protocol": "HTTPS", "tls": tls}]));
        for (name, secret) in &secrets {
            put(&mut cache, Kind::Secret, "here", name, secret.clone());
        }
        put(&mut cache, Kind::Secret, "there", "good", good.clone());
        put(&mut cache, Kind::Secret, "granted", "good", good.clone());
        let from = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "here"});
        let grant = json!({"spec": {"from": [from], "to": [{"group": "", "kind": "Secret"}]}});
        put(&mut cache, Kind::ReferenceGrant, "granted", "grant", grant);
        // Of Services only.
        let grant = json!({"spec": {"from": [from], "to": [{"group": "", "kind": "Service"}]}});
        put(&mut cache, Kind::ReferenceGrant, "there", "grant", grant);
        let compiled = compile(&cache, &Settings::default());
        let listener = &compiled.statuses.gateways[&Name::new("here", "front")].listeners[0];
        let served = (listener.accepted.holds, listener.frontend.is_some());
        assert_eq!((served, listener.resolved.reason), ((true, is_served), reason), "{references}");
        assert!(listener.resolved.message.contains(says), "{}", listener.resolved.message);
        assert_eq!(compiled.config.frontends.len(), usize::from(is_served));
    }
}

#[test]
fn a_port_has_one_protocol_and_no_client_is_asked_for_a_certificate() {
    let https = json!({"name": "tls", "port": 8080, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "x"}]}});
    let cache = cache(&json!([http("http", ""), https]));
    let compiled = compile(&cache, &Settings::default());
    let listeners = &compiled.statuses.gateways[&Name::new("here", "front")].listeners;
    assert_eq!(
        (listeners[0].accepted.reason, listeners[1].accepted.reason, listeners[1].frontend),
        ("Accepted", "PortUnavailable", None)
    );
    let mut cache = Cache::default();
    let class = json!({"spec": {"controllerName": "segue.dev/gateway"}});
    put(&mut cache, Kind::GatewayClass, "", "segue", class);
    let frontend = json!({"default": {"validation": {"caCertificateRefs": []}}});
    let spec = json!({"gatewayClassName": "segue", "listeners": [https], "tls": {"frontend": frontend}});
    put(&mut cache, Kind::Gateway, "here", "front", json!({"spec": spec}));
    let compiled = compile(&cache, &Settings::default());
    let listener = &compiled.statuses.gateways[&Name::new("here", "front")].listeners[0];
    assert_eq!((listener.accepted.reason, listener.frontend), ("UnsupportedValue", None));
}

#[test]
fn every_gateway_has_an_address_of_its_own_and_keeps_it() {
    let mut cache = Cache::default();
    put(
        &mut cache,
        Kind::GatewayClass,
        "",
        "segue",
        json!({"spec": {"controllerName": "segue.dev/gateway"}}),
    );
    let spec = json!({"gatewayClassName": "segue"});
    for number in 0..300 {
        put(&mut cache, Kind::Gateway, "here", &format!("g{number}"), json!({"spec": spec}));
    }
    let held = json!({"spec": spec, "status": {"addresses": [{"value": "127.80.7.7"}]}});
    put(&mut cache, Kind::Gateway, "here", "z", held);
    for (name, value) in [("asks", "127.80.9.9"), ("asks-too", "127.80.9.9"), ("far", "10.0.0.1")] {
        let spec = json!({"gatewayClassName": "segue", "addresses": [{"value": value}]});
        put(&mut cache, Kind::Gateway, "here", name, json!({"spec": spec}));
    }
    let gateways = compile(&cache, &Settings::default()).statuses.gateways;
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
    let mut cache = cache(&json!([http("http", "")]));
    let endpoint =
        |address: &str, conditions: Value| json!({"addresses": [address], "conditions": conditions});
    put(
        &mut cache,
        Kind::EndpointSlice,
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
        &mut cache,
        Kind::EndpointSlice,
        "here",
        "a-2",
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "a"}},
            "ports": [{"port": 8000}],
            "endpoints": [endpoint("127.0.0.2", json!({})), endpoint("127.0.0.6", json!({}))],
        }),
    );
    let ready = compile(&cache, &Settings::default()).config.ready;
    let of_a = ready.iter().find(|(key, _)| key.service.name == "a").unwrap().1;
    let addresses: Vec<String> = of_a.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.2:8000", "127.0.0.5:8000", "127.0.0.6:8000"]);
}
