//! The rows of services and of what stands behind them.
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::built_in::{age, list, name, or_none, text};

/// Of a list of endpoints, so many are shown.
const SHOWN: usize = 3;

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<_> = list(object, "/spec/ports").iter().map(port).collect();
    vec![
        name(object),
        text(object, "/spec/type").into(),
        or_none(text(object, "/spec/clusterIPs/0")),
        external(object).into(),
        or_none(&ports.join(",")),
        age(object, now),
        or_none(&selector(object)),
    ]
}

fn port(port: &Value) -> String {
    let protocol = text(port, "/protocol");
    match port["nodePort"].as_i64().unwrap_or_default() {
        0 => format!("{}/{protocol}", port["port"]),
        node => format!("{}:{node}/{protocol}", port["port"]),
    }
}

fn external(service: &Value) -> String {
    let mut addresses: Vec<&str> = match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => Vec::new(),
        "LoadBalancer" => balancers(service).into_iter().collect(),
        "ExternalName" => return text(service, "/spec/externalName").into(),
        _ => return "<unknown>".into(),
    };
    addresses.extend(list(service, "/spec/externalIPs").iter().filter_map(Value::as_str));
    match (addresses.is_empty(), text(service, "/spec/type")) {
        (false, _) => addresses.join(","),
        (true, "LoadBalancer") => "<pending>".into(),
        (true, _) => "<none>".into(),
    }
}

fn balancers(service: &Value) -> BTreeSet<&str> {
    let ingress = list(service, "/status/loadBalancer/ingress").iter();
    let address = ingress.map(|ingress| match text(ingress, "/ip") {
        "" => text(ingress, "/hostname"),
        ip => ip,
    });
    address.filter(|address| !address.is_empty()).collect()
}

fn selector(service: &Value) -> String {
    let labels = service.pointer("/spec/selector").and_then(Value::as_object);
    let mut pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    pairs.join(",")
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let addresses = || list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|ip| host_port(ip, &port["port"])));
        }
    }
    let shown = if list(object, "/subsets").is_empty() { "<none>".into() } else { shortened(&all) };
    vec![name(object), shown.into(), age(object, now)]
}

fn host_port(ip: &str, port: &Value) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn shortened(all: &[String]) -> String {
    match all.len().saturating_sub(SHOWN) {
        0 => all.join(","),
        more => format!("{} + {more} more...", all[..SHOWN].join(",")),
    }
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match (&port["port"], &port["name"]) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".into(),
    };
    let ports: Vec<String> = list(object, "/ports").iter().map(port).collect();
    let addresses = list(object, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    let or_unset = |all: &[String]| if all.is_empty() { "<unset>".into() } else { shortened(all) };
    vec![
        name(object),
        text(object, "/addressType").into(),
        or_unset(&ports).into(),
        or_unset(&addresses).into(),
        age(object, now),
    ]
}
