//! The containers of a pod.
use std::collections::HashSet;

use schema::quantity::Quantity;
use serde_json::{Value, json};

use super::{list, one_of, text};
use crate::builtin::{
    cause::{Cause, each},
    names, service,
};

/// What a container's names may refer to.
pub struct Containers<'a> {
    pub volumes: &'a HashSet<&'a str>,
}

const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];
/// What an environment variable may take its value from.
const SOURCES: &[&str] = &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
/// The fields of a pod that an environment variable may name, maps apart.
const FIELD_PATHS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

impl Containers<'_> {
    pub fn validate(&self, spec: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if list(spec, "containers").is_empty() {
            causes.push(Cause::required("spec.containers", ""));
        }
        let mut seen = HashSet::new();
        let mut taken = HashSet::new();
        for group in ["containers", "initContainers"] {
            for (i, container) in list(spec, group).iter().enumerate() {
                let field = format!("spec.{group}[{i}]");
                causes.extend(self.container(container, &field));
                let name = text(container, "name");
                if !name.is_empty() && !seen.insert(name) {
                    causes.push(Cause::duplicate(format!("{field}.name"), &container["name"].to_string()));
                }
                let host = HostPorts { network: spec["hostNetwork"] == true, shared: group == "containers" };
                causes.extend(host.validate(container, &field, &mut taken));
                let restarts = group == "initContainers" && text(container, "restartPolicy") != "Always";
                causes.extend(probes(container, &field, restarts));
                causes.extend(one_of(container, "restartPolicy", &field, &["Always", "Never", "OnFailure"]));
            }
        }
        causes
    }

    fn container(&self, container: &Value, field: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        let at = |part: &str| format!("{field}.{part}");
        match text(container, "name") {
            "" => causes.push(Cause::required(at("name"), "")),
            name => causes.extend(each(&at("name"), name, names::label(name))),
        }
        let image = text(container, "image");
        if image.is_empty() {
            causes.push(Cause::required(at("image"), ""));
        } else if image.trim() != image {
            let says = "must not have leading or trailing whitespace";
            causes.push(Cause::invalid(at("image"), &json!(image), says));
        }
        let policies = &["File", "FallbackToLogsOnError"];
        causes.extend(one_of(container, "terminationMessagePolicy", field, policies));
        causes.extend(ports(list(container, "ports"), &at("ports")));
        causes.extend(environment(list(container, "env"), &at("env")));
        causes.extend(sources(list(container, "envFrom"), &at("envFrom")));
        causes.extend(self.mounts(list(container, "volumeMounts"), &at("volumeMounts")));
        causes.extend(one_of(container, "imagePullPolicy", field, &["Always", "IfNotPresent", "Never"]));
        causes.extend(resources(&container["resources"], &at("resources")));
        causes
    }

    fn mounts(&self, mounts: &[Value], field: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut seen = HashSet::new();
        for (i, mount) in mounts.iter().enumerate() {
            let at = |part: &str| format!("{field}[{i}].{part}");
            match text(mount, "name") {
                "" => causes.push(Cause::required(at("name"), "")),
                name if !self.volumes.contains(name) => {
                    causes.push(Cause::not_found(at("name"), &mount["name"]));
                }
                _ => {}
            }
            match text(mount, "mountPath") {
                "" => causes.push(Cause::required(at("mountPath"), "")),
                path if !seen.insert(path) => {
                    causes.push(Cause::invalid(at("mountPath"), &mount["mountPath"], "must be unique"));
                }
                _ => {}
            }
            // Upstream forgets the index here.
            let at = format!("{field}.subPath");
            match text(mount, "subPath") {
                path if path.starts_with('/') => {
                    causes.push(Cause::invalid(at, &mount["subPath"], "must be a relative path"));
                }
                path if path.split('/').any(|part| part == "..") => {
                    causes.push(Cause::invalid(at, &mount["subPath"], "must not contain '..'"));
                }
                _ => {}
            }
        }
        causes
    }
}

/// The ports of a host, which all containers that run at the same time share.
struct HostPorts {
    network: bool,
    shared: bool,
}

impl HostPorts {
    fn validate(&self, container: &Value, field: &str, taken: &mut HashSet<String>) -> Vec<Cause> {
        let mut causes = Vec::new();
        for (i, port) in list(container, "ports").iter().enumerate() {
            let Some(host) = port["hostPort"].as_i64().filter(|host| *host != 0) else { continue };
            let at = format!("{field}.ports[{i}].hostPort");
            if self.network && port["hostPort"] != port["containerPort"] {
                let says = "must match `containerPort` when `hostNetwork` is true";
                causes.push(Cause::invalid(&at, &port["hostPort"], says));
            }
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if self.shared && !taken.insert(key.clone()) {
                causes.push(Cause::duplicate(at, &json!(key).to_string()));
            }
        }
        causes
    }
}

fn ports(ports: &[Value], field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = |part: &str| format!("{field}[{i}].{part}");
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && !seen.insert(name) {
                causes.push(Cause::duplicate(at("name"), &port["name"].to_string()));
            }
            causes.extend(each(&at("name"), name, wrong));
        }
        for (name, needed) in [("containerPort", true), ("hostPort", false)] {
            match port[name].as_i64().unwrap_or_default() {
                0 if needed => causes.push(Cause::required(at(name), "")),
                0 => {}
                number => {
                    let says = names::port_number(number);
                    causes.extend(says.map(|says| Cause::invalid(at(name), &port[name], says)));
                }
            }
        }
        causes.extend(one_of(port, "protocol", &format!("{field}[{i}]"), &["SCTP", "TCP", "UDP"]));
    }
    causes
}

fn environment(variables: &[Value], field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, variable) in variables.iter().enumerate() {
        let at = |part: &str| format!("{field}[{i}].{part}");
        match text(variable, "name") {
            "" => causes.push(Cause::required(at("name"), "")),
            name => {
                causes
                    .extend(names::env_name(name).map(|says| Cause::invalid(at("name"), &json!(name), says)));
            }
        }
        if let Some(from) = variable.get("valueFrom") {
            causes.extend(value_from(from, !text(variable, "value").is_empty(), &at("valueFrom")));
        }
    }
    causes
}

fn value_from(from: &Value, has_value: bool, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given = SOURCES.iter().filter(|source| from.get(**source).is_some()).count();
    let nothing = json!("");
    if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
        let map = path.starts_with("metadata.labels[") || path.starts_with("metadata.annotations[");
        if path.is_empty() {
            causes.push(Cause::required(format!("{field}.fieldRef.fieldPath"), ""));
        } else if !map && !FIELD_PATHS.contains(&path) {
            let says = format!("error converting fieldPath: field label not supported: {path}");
            causes.push(Cause::invalid(format!("{field}.fieldRef.fieldPath"), &json!(path), &says));
        }
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = from.get(source) {
            causes.extend(key_of(reference, &format!("{field}.{source}")));
        }
    }
    if given == 0 {
        let says = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        causes.push(Cause::invalid(field, &nothing, says));
    } else if has_value {
        causes.push(Cause::invalid(field, &nothing, "may not be specified when `value` is not empty"));
    } else if given > 1 {
        causes.push(Cause::invalid(field, &nothing, "may not have more than one field specified at a time"));
    }
    causes
}

fn sources(sources: &[Value], field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let given: Vec<&str> =
            ["configMapRef", "secretRef"].into_iter().filter(|r| source.get(*r).is_some()).collect();
        for reference in &given {
            let at = format!("{field}[{i}].{reference}.name");
            match text(&source[*reference], "name") {
                "" => causes.push(Cause::required(at, "")),
                name => causes.extend(each(&at, name, names::subdomain(name))),
            }
        }
        // Upstream names the list, not the element.
        match given.len() {
            0 => {
                let says = "must specify one of: `configMapRef` or `secretRef`";
                causes.push(Cause::invalid(field, &json!(""), says));
            }
            1 => {}
            _ => {
                let says = "may not have more than one field specified at a time";
                causes.push(Cause::invalid(field, &json!(""), says));
            }
        }
    }
    causes
}

fn key_of(reference: &Value, field: &str) -> Vec<Cause> {
    let (name, key) = (text(reference, "name"), text(reference, "key"));
    let mut causes: Vec<Cause> = each(&format!("{field}.name"), name, names::subdomain(name)).collect();
    match key {
        "" => causes.push(Cause::required(format!("{field}.key"), "")),
        key => causes.extend(each(&format!("{field}.key"), key, names::config_key(key))),
    }
    causes
}

fn probes(container: &Value, field: &str, forbidden: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in PROBES {
        let Some(probe) = container.get(*name) else { continue };
        let field = format!("{field}.{name}");
        if forbidden {
            causes.push(Cause::forbidden(
                field,
                "may not be set for init containers without restartPolicy=Always",
            ));
            continue;
        }
        causes.extend(handler(probe, &field));
        for number in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            if probe[number].as_i64().is_some_and(|n| n < 0) {
                let says = "must be greater than or equal to 0";
                causes.push(Cause::invalid(format!("{field}.{number}"), &probe[number], says));
            }
        }
        if *name != "readinessProbe" && probe["successThreshold"].as_i64().is_some_and(|n| n > 1) {
            let at = format!("{field}.successThreshold");
            causes.push(Cause::invalid(at, &probe["successThreshold"], "must be 1"));
        }
    }
    causes
}

fn handler(probe: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given: Vec<&str> = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter(|handler| probe.get(*handler).is_some())
        .collect();
    let Some(first) = given.first() else {
        return vec![Cause::required(field, "must specify a handler type")];
    };
    if *first == "exec" && list(&probe["exec"], "command").is_empty() {
        causes.push(Cause::required(format!("{field}.exec.command"), ""));
    }
    if *first != "exec" {
        causes.extend(service::target(&probe[*first]["port"], &format!("{field}.{first}.port")));
    }
    if *first == "httpGet" {
        causes.extend(one_of(&probe["httpGet"], "scheme", &format!("{field}.httpGet"), &["HTTP", "HTTPS"]));
    }
    let more = given.iter().skip(1);
    causes.extend(more.map(|handler| {
        Cause::forbidden(format!("{field}.{handler}"), "may not specify more than 1 handler type")
    }));
    causes
}

fn resources(resources: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for way in ["limits", "requests"] {
        for (name, quantity) in resources[way].as_object().into_iter().flatten() {
            let at = format!("{field}.{way}[{name}]");
            causes.extend(resource_name(name, &at));
            causes.extend(quantity_of(name, quantity, &at));
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let Some(limit) = resources["limits"].get(name) else {
            if is_extended(name) {
                let says = "Limit must be set for non overcommitable resources";
                causes.push(Cause::required(format!("{field}.limits"), says));
            }
            continue;
        };
        if size(request).zip(size(limit)).is_some_and(|(request, limit)| request > limit) {
            let says = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            causes.push(Cause::invalid(format!("{field}.requests"), request, &says));
        }
    }
    causes
}

fn size(quantity: &Value) -> Option<Quantity> {
    Quantity::read(quantity).ok()
}

/// A resource that Kubernetes does not know: a device, of which there are whole ones.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"))
}

fn quantity_of(name: &str, quantity: &Value, field: &str) -> Option<Cause> {
    let size = size(quantity)?;
    if size < Quantity::ZERO {
        return Some(Cause::invalid(field, quantity, "must be greater than or equal to 0"));
    }
    (is_extended(name) && size != Quantity::from_units(size.units()))
        .then(|| Cause::invalid(field, quantity, "must be an integer"))
}

fn resource_name(name: &str, field: &str) -> Vec<Cause> {
    let value = json!(name);
    let mut causes: Vec<Cause> = each(field, name, names::qualified(name)).collect();
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if causes.is_empty() && !name.contains('/') && !known {
        causes.push(Cause::invalid(field, &value, "must be a standard resource type or fully qualified"));
        causes.push(Cause::invalid(field, &value, "must be a standard resource for containers"));
    }
    causes
}
