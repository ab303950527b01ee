//! Services: the addresses and families that the server gives them, and what they must satisfy.
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{
    address,
    cause::{Cause, each},
    meta, names,
};

/// What a service has to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    ClusterIp,
    NodePort,
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn has_cluster_ip(spec: &Value) -> bool {
    matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn has_node_ports(spec: &Value) -> bool {
    text(spec, "type") == "NodePort"
        || text(spec, "type") == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
}

fn has_health_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_headless(spec: &Value) -> bool {
    text(spec, "clusterIP") == "None"
}

/// Keeps what was allocated before, drops what the type has no use for, and fills in the families.
pub fn complete(old: Option<&Value>, new: &mut Value) {
    let spec = &mut new["spec"];
    if let Some(old) = old.map(|old| &old["spec"]) {
        // Who changes one and sends the other back as it was means the change.
        if spec["clusterIP"] != old["clusterIP"] && spec["clusterIPs"] == old["clusterIPs"] {
            remove(spec, &["clusterIPs"]);
        }
        mirror_cluster_ip(spec);
        drop_unused(old, spec);
        keep_allocated(old, spec);
    }
    mirror_cluster_ip(spec);
    families(old.map(|old| &old["spec"]), spec);
}

fn remove(spec: &mut Value, names: &[&str]) {
    if let Value::Object(map) = spec {
        map.retain(|name, _| !names.contains(&name.as_str()));
    }
}

fn ports_mut(spec: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// A change of type drops what only the old type needed, unless the same request changes that, too.
fn drop_unused(old: &Value, new: &mut Value) {
    if has_cluster_ip(old) && !has_cluster_ip(new) {
        let same = |name: &str| old[name] == new[name];
        let addresses = same("clusterIP") && same("clusterIPs");
        let mut unused: Vec<&str> =
            ["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|name| same(name)).collect();
        unused.extend(addresses.then_some(["clusterIP", "clusterIPs"]).into_iter().flatten());
        remove(new, &unused);
    }
    if has_node_ports(old) && !has_node_ports(new) {
        let numbers = |spec: &Value| {
            let ports = spec["ports"].as_array().into_iter().flatten();
            ports.map(|port| port["nodePort"].clone()).collect::<Vec<_>>()
        };
        if numbers(old) == numbers(new) {
            ports_mut(new).for_each(|port| drop(port.remove("nodePort")));
        }
    }
    if has_health_port(old)
        && !has_health_port(new)
        && old["healthCheckNodePort"] == new["healthCheckNodePort"]
    {
        remove(new, &["healthCheckNodePort"]);
    }
    if text(old, "type") == "LoadBalancer" && text(new, "type") != "LoadBalancer" {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if old[name] == new[name] {
                remove(new, &[name]);
            }
        }
    }
}

fn keep_allocated(old: &Value, new: &mut Value) {
    if has_health_port(old) && has_health_port(new) && new["healthCheckNodePort"].is_null() {
        new["healthCheckNodePort"] = old["healthCheckNodePort"].clone();
    }
    if has_cluster_ip(old) && has_cluster_ip(new) {
        for name in ["clusterIP", "clusterIPs"] {
            if new[name].is_null() && !old[name].is_null() {
                new[name] = old[name].clone();
            }
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        let list = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
        let used: HashSet<i64> = list(new).iter().filter_map(|port| port["nodePort"].as_i64()).collect();
        for port in ports_mut(new) {
            let name = |port: &Value| port["name"].clone();
            let mine = port.get("name").cloned().unwrap_or_default();
            let before =
                list(old).into_iter().find(|port| name(port) == mine).map(|port| port["nodePort"].clone());
            let before =
                before.filter(|number| number.as_i64().is_some_and(|number| !used.contains(&number)));
            if let (Some(before), false) = (before, port.contains_key("nodePort")) {
                port.insert("nodePort".to_owned(), before);
            }
        }
    }
}

/// Indexing a value writes what it did not find.
fn remove_null(spec: &mut Value) {
    if let Value::Object(map) = spec {
        map.retain(|_, value| !value.is_null());
    }
}

fn mirror_cluster_ip(spec: &mut Value) {
    remove_null(spec);
    if let (Some(address), true) = (spec.get("clusterIP").cloned(), spec.get("clusterIPs").is_none()) {
        spec["clusterIPs"] = json!([address]);
    }
}

/// One family, as in a cluster with IPv4 only. A headless service without a selector has both, because its endpoints are
/// written by a client.
fn families(old: Option<&Value>, spec: &mut Value) {
    if !has_cluster_ip(spec) {
        return;
    }
    let old = old.filter(|old| has_cluster_ip(old));
    let open = is_headless(spec) && spec.get("selector").is_none();
    let policy = old.and_then(|old| old.get("ipFamilyPolicy")).cloned();
    let policy = policy.unwrap_or_else(|| json!(if open { "RequireDualStack" } else { "SingleStack" }));
    let listed = old.and_then(|old| old.get("ipFamilies")).cloned();
    let listed = listed.unwrap_or_else(|| if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    let Value::Object(map) = spec else { return };
    map.entry("ipFamilyPolicy").or_insert(policy);
    map.entry("ipFamilies").or_insert(listed);
}

/// Gives a service the addresses and ports that it needs and has not; `give` answers with none when it has run out.
/// Answers with what could not be given.
pub fn allocate(service: &mut Value, give: &mut dyn FnMut(Need) -> Option<Value>) -> Option<Need> {
    let spec = &mut service["spec"];
    if !has_cluster_ip(spec) {
        return None;
    }
    if spec.get("clusterIP").is_none() {
        let Some(address) = give(Need::ClusterIp) else { return Some(Need::ClusterIp) };
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = address;
    }
    if has_node_ports(spec) {
        for port in ports_mut(spec).filter(|port| !port.contains_key("nodePort")) {
            let Some(number) = give(Need::NodePort) else { return Some(Need::NodePort) };
            port.insert("nodePort".to_owned(), number);
        }
    }
    if has_health_port(spec) && spec.get("healthCheckNodePort").is_none() {
        let Some(number) = give(Need::NodePort) else { return Some(Need::NodePort) };
        spec["healthCheckNodePort"] = number;
    }
    None
}

/// What is wrong with a service.
pub fn validate(service: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &service["spec"];
    let mut causes = Vec::new();
    if let Some(old) = old {
        causes.extend(address_change(&old["spec"], spec));
    }
    causes.extend(typed(spec));
    let ports: Vec<&Value> = spec["ports"].as_array().into_iter().flatten().collect();
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        causes.extend(validate_port(port, &format!("spec.ports[{i}]"), ports.len() > 1, &mut seen));
    }
    causes.extend(meta::labels(&spec["selector"], "spec.selector"));
    causes.extend(one_of(spec, "sessionAffinity", &["ClientIP", "None"]));
    let timeout = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if timeout.as_i64().is_some_and(|seconds| !(1..=86400).contains(&seconds)) {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        causes.push(Cause::invalid(field, timeout, "must be greater than 0 and less than 86400"));
    }
    let stacks = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    causes.extend(one_of(spec, "ipFamilyPolicy", stacks));
    causes.extend(cluster_ips(spec));
    causes.extend(external_ips(spec));
    causes.extend(one_of(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]));
    causes.extend(port_clashes(spec, &ports));
    causes.extend(policies(spec));
    causes
}

fn one_of(spec: &Value, name: &str, supported: &[&str]) -> Option<Cause> {
    let value = spec.get(name).filter(|value| !supported.contains(&value.as_str().unwrap_or_default()))?;
    Some(Cause::unsupported(format!("spec.{name}"), value, supported))
}

fn address_change(old: &Value, new: &Value) -> Option<Cause> {
    let fixed = has_cluster_ip(old) && has_cluster_ip(new);
    let changed = fixed && !old["clusterIP"].is_null() && old["clusterIPs"][0] != new["clusterIPs"][0];
    changed.then(|| Cause::invalid("spec.clusterIPs[0]", &new["clusterIPs"], "may not change once set"))
}

fn typed(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ty = text(spec, "type");
    if spec.get("ports").is_none() && !is_headless(spec) && ty != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if matches!(ty, "LoadBalancer" | "NodePort") && is_headless(spec) {
        let says = format!("may not be set to 'None' for {ty} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &says));
    }
    if ty == "ExternalName" {
        for name in
            ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|n| spec.get(n).is_some())
        {
            causes.push(Cause::forbidden(format!("spec.{name}"), "may not be set for ExternalName services"));
        }
        let name = text(spec, "externalName");
        match name.strip_suffix('.').unwrap_or(name) {
            "" => causes.push(Cause::required("spec.externalName", "")),
            name => causes.extend(each("spec.externalName", name, names::subdomain(name))),
        }
    }
    causes
}

fn validate_port(port: &Value, field: &str, named: bool, seen: &mut HashSet<String>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(port, "name");
    let at = |part: &str| format!("{field}.{part}");
    if name.is_empty() {
        causes.extend(named.then(|| Cause::required(at("name"), "")));
    } else {
        causes.extend(each(&at("name"), name, names::label(name)));
        if !seen.insert(name.to_owned()) {
            causes.push(Cause::duplicate(at("name"), &port["name"].to_string()));
        }
    }
    let number = names::port_number(port["port"].as_i64().unwrap_or_default());
    causes.extend(number.map(|says| Cause::invalid(at("port"), &port["port"], says)));
    if !matches!(text(port, "protocol"), "TCP" | "UDP" | "SCTP") {
        causes.push(Cause::unsupported(at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]));
    }
    causes.extend(target(&port["targetPort"], &at("targetPort")));
    if let Some(protocol) = port["appProtocol"].as_str() {
        causes.extend(each(&at("appProtocol"), protocol, names::qualified(protocol)));
    }
    causes
}

/// What is wrong with a port given by number or by name.
pub fn target(port: &Value, field: &str) -> Vec<Cause> {
    match port {
        Value::String(name) => each(field, name, names::port_name(name)).collect(),
        number => {
            let says = names::port_number(number.as_i64().unwrap_or_default());
            says.map(|says| Cause::invalid(field, number, says)).into_iter().collect()
        }
    }
}

fn cluster_ips(spec: &Value) -> Vec<Cause> {
    let list = spec["clusterIPs"].as_array().into_iter().flatten().enumerate();
    let wrong = list.filter(|(_, ip)| *ip != "None" && !address::is_ip(ip.as_str().unwrap_or_default()));
    wrong.map(|(i, ip)| Cause::invalid(format!("spec.clusterIPs[{i}]"), ip, address::NOT_AN_IP)).collect()
}

fn external_ips(spec: &Value) -> Vec<Cause> {
    let list = spec["externalIPs"].as_array().into_iter().flatten().enumerate();
    let judge = |(i, value): (usize, &Value)| {
        let field = format!("spec.externalIPs[{i}]");
        match value.as_str().unwrap_or_default().parse() {
            Err(_) => vec![Cause::invalid(field, value, address::NOT_AN_IP)],
            Ok(ip) => address::endpoint(ip, &field, value),
        }
    };
    list.flat_map(judge).collect()
}

fn port_clashes(spec: &Value, ports: &[&Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        if text(spec, "type") == "ClusterIP" && !port["nodePort"].is_null() {
            let says = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("spec.ports[{i}].nodePort"), says));
        }
    }
    let repeats = |name: &str, i: usize| {
        let key = |port: &Value| (port["protocol"].clone(), port[name].clone());
        !ports[i][name].is_null() && ports[..i].iter().any(|before| key(before) == key(ports[i]))
    };
    for i in (0..ports.len()).filter(|i| repeats("nodePort", *i)) {
        causes.push(Cause::duplicate(format!("spec.ports[{i}].nodePort"), &ports[i]["nodePort"].to_string()));
    }
    for i in (0..ports.len()).filter(|i| repeats("port", *i)) {
        // The Go struct of a port, with nothing in it but what must differ.
        let key = format!(
            r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
            ports[i]["protocol"], ports[i]["port"]
        );
        causes.push(Cause::duplicate(format!("spec.ports[{i}]"), &key));
    }
    causes
}

fn policies(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let reachable = has_node_type(spec) || spec.get("externalIPs").is_some();
    match spec.get("externalTrafficPolicy") {
        Some(policy) if !reachable => {
            let says = "may only be set for externally-accessible services";
            causes.push(Cause::invalid("spec.externalTrafficPolicy", policy, says));
        }
        _ => causes.extend(one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"])),
    }
    causes.extend(one_of(spec, "internalTrafficPolicy", &["Cluster", "Local"]));
    causes.extend(one_of(spec, "trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]));
    if text(spec, "type") != "LoadBalancer" && spec.get("loadBalancerSourceRanges").is_some() {
        let says = "may only be used when `type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("spec.LoadBalancerSourceRanges", says));
    }
    if text(spec, "type") != "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts").is_some() {
        let says = "may only be used when `type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("spec.allocateLoadBalancerNodePorts", says));
    }
    causes
}

fn has_node_type(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// What is wrong with the status of a service.
pub fn validate_status(service: &Value) -> Vec<Cause> {
    let points = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten().enumerate();
    let modeless = points.filter(|(_, point)| point.get("ip").is_some() && point.get("ipMode").is_none());
    let field = |i: usize| format!("status.loadBalancer.ingress[{i}].ipMode");
    modeless.map(|(i, _)| Cause::required(field(i), "must be specified when `ip` is set")).collect()
}
