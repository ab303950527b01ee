//! The environment of a container: values, references and `$(NAME)`.
use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, EnvVarSource, Pod};

use crate::{
    network::address::HOST,
    resources::{Resources, text},
    volume::sources::Sources,
};

/// A reference that cannot be resolved. The container waits with this message and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("{0} not found")]
    NoObject(String),
    #[error("couldn't find key {key} in {object}")]
    NoKey { object: String, key: String },
    #[error("field {0:?} is not one that a container can refer to")]
    Field(String),
    #[error("environment variable {0:?} has a source that this node does not know")]
    Source(String),
}

/// A pod with its node and address, the source of `fieldRef`s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodInfo<'a> {
    pub pod: &'a Pod,
    pub node: &'a str,
    pub address: Ipv4Addr,
}

/// The value of a `fieldRef`.
pub(crate) fn field(place: PodInfo<'_>, path: &str) -> Result<String, EnvironmentError> {
    let meta = &place.pod.metadata;
    let map = |map: &Option<BTreeMap<String, String>>| {
        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let of = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    if let Some((path, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return match path {
            "metadata.labels" => Ok(of(&meta.labels, key)),
            "metadata.annotations" => Ok(of(&meta.annotations, key)),
            _ => Err(EnvironmentError::Field(path.to_owned())),
        };
    }
    let spec = place.pod.spec.as_ref();
    match path {
        "metadata.name" => Ok(meta.name.clone().unwrap_or_default()),
        "metadata.namespace" => Ok(meta.namespace.clone().unwrap_or_default()),
        "metadata.uid" => Ok(meta.uid.clone().unwrap_or_default()),
        "metadata.labels" => Ok(map(&meta.labels)),
        "metadata.annotations" => Ok(map(&meta.annotations)),
        "spec.nodeName" => Ok(place.node.to_owned()),
        "spec.serviceAccountName" => {
            Ok(spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default())
        }
        "status.podIP" | "status.podIPs" => Ok(place.address.to_string()),
        "status.hostIP" | "status.hostIPs" => Ok(HOST.to_string()),
        _ => Err(EnvironmentError::Field(path.to_owned())),
    }
}

/// The value of a `resourceFieldRef`: whole units of the divisor, rounded up.
pub(crate) fn resource(
    container: &Container,
    path: &str,
    divisor: Option<&str>,
) -> Result<String, EnvironmentError> {
    let unknown = || EnvironmentError::Field(path.to_owned());
    let (list, name) = path.split_once('.').ok_or_else(unknown)?;
    let resources = container.resources.clone().unwrap_or_default();
    let list = match list {
        "limits" => resources.limits.or(resources.requests),
        "requests" => resources.requests.or(resources.limits),
        _ => return Err(unknown()),
    };
    let amount = Resources::read(list.as_ref()).get(name);
    let divisor = divisor.filter(|text| !text.is_empty() && *text != "0").unwrap_or("1");
    let unit = Resources::of([(name, divisor)]).get(name);
    if unit.is_zero() {
        return Ok(text(name, amount));
    }
    // Milli-units hold both a millicpu and every whole amount that a machine has.
    let (amount, unit) = (amount.millis(), unit.millis().max(1));
    Ok(amount.saturating_add(unit - 1).div_euclid(unit).to_string())
}

/// Replaces `$(NAME)` by its value; what is not known stays, and `$$` is a dollar.
pub(crate) fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let reference = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match reference {
            Some((name, after)) => {
                match known.get(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded.push_str(&format!("$({name})")),
                }
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    expanded
}

/// Adds `env` and `envFrom` of the container to `environment`, in order: later values may refer to earlier ones.
pub(crate) fn build(
    place: PodInfo<'_>,
    container: &Container,
    sources: &Sources,
    environment: &mut BTreeMap<String, String>,
) -> Result<(), EnvironmentError> {
    for source in container.env_from.iter().flatten() {
        add_all(source, sources, environment)?;
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), environment)),
            Some(source) => from_source(place, container, sources, variable, source)?,
        };
        if let Some(value) = value {
            environment.insert(variable.name.clone(), value);
        }
    }
    Ok(())
}

fn add_all(
    from: &EnvFromSource,
    sources: &Sources,
    environment: &mut BTreeMap<String, String>,
) -> Result<(), EnvironmentError> {
    let prefix = from.prefix.as_deref().unwrap_or_default();
    let entries = match (&from.config_map_ref, &from.secret_ref) {
        (Some(map), _) => sources.config_map(&map.name, map.optional)?,
        (None, Some(secret)) => sources.secret(&secret.name, secret.optional)?,
        (None, None) => None,
    };
    for (key, value) in entries.into_iter().flatten() {
        environment.insert(format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned());
    }
    Ok(())
}

fn from_source(
    place: PodInfo<'_>,
    container: &Container,
    sources: &Sources,
    variable: &EnvVar,
    source: &EnvVarSource,
) -> Result<Option<String>, EnvironmentError> {
    if let Some(reference) = &source.field_ref {
        return field(place, &reference.field_path).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
        return resource(container, &reference.resource, divisor).map(Some);
    }
    let (object, entries, key, optional) = if let Some(r) = &source.config_map_key_ref {
        (format!("configmap {}", r.name), sources.config_map(&r.name, r.optional)?, &r.key, r.optional)
    } else if let Some(r) = &source.secret_key_ref {
        (format!("secret {}", r.name), sources.secret(&r.name, r.optional)?, &r.key, r.optional)
    } else {
        return Err(EnvironmentError::Source(variable.name.clone()));
    };
    match entries.and_then(|entries| entries.get(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => Err(EnvironmentError::NoKey { object, key: key.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::unwrap_in_result, reason = "what it is given is a container")]
    fn built(container: Value) -> Result<BTreeMap<String, String>, EnvironmentError> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app.x/y": "z"}},
            "spec": {"containers": []},
        });
        let pod = serde_json::from_value(pod).unwrap();
        let place = PodInfo { pod: &pod, node: "here", address: Ipv4Addr::new(127, 64, 0, 9) };
        let mut sources = Sources::default();
        sources.add_config_map("config", Some([("mode".to_owned(), b"fast".to_vec())].into()));
        sources.add_config_map("missing", None);
        let mut environment = BTreeMap::new();
        let container = serde_json::from_value(container).unwrap();
        build(place, &container, &sources, &mut environment).map(|()| environment)
    }

    #[test]
    fn references_are_expanded_once_and_unknown_ones_stay() {
        let known = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())].into();
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y$(A)"),
            ("$(NO)", "$(NO)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
        ];
        for (text, wanted) in cases {
            assert_eq!(expand(text, &known), wanted, "{text}");
        }
    }

    #[test]
    fn values_come_from_fields_config_maps_and_resources_in_order() {
        let environment = built(json!({
            "name": "c",
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
            "envFrom": [{"prefix": "ALL_", "configMapRef": {"name": "config"}}],
            "env": [
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "URL", "value": "http://$(IP):80/$(LATER)"},
                {"name": "LATER", "value": "no"},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app.x/y']"}}},
                {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "mode"}}},
                {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
                {"name": "OPTIONAL", "valueFrom": {"configMapKeyRef": {"name": "missing", "key": "k", "optional": true}}},
            ],
        }));
        let wanted = [
            ("ALL_mode", "fast"),
            ("IP", "127.64.0.9"),
            ("URL", "http://127.64.0.9:80/$(LATER)"),
            ("LATER", "no"),
            ("LABEL", "z"),
            ("MODE", "fast"),
            ("CPUS", "2"),
            ("MIB", "1024"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(environment, Ok(wanted));
    }

    #[test]
    fn what_is_missing_is_named() {
        let asks = |from: Value| built(json!({"name": "c", "env": [{"name": "X", "valueFrom": from}]}));
        let error = asks(json!({"configMapKeyRef": {"name": "missing", "key": "k"}})).unwrap_err();
        assert_eq!(error.to_string(), "configmap missing not found");
        let error = asks(json!({"configMapKeyRef": {"name": "config", "key": "k"}})).unwrap_err();
        assert_eq!(error.to_string(), "couldn't find key k in configmap config");
        let error = asks(json!({"fieldRef": {"fieldPath": "spec.x"}})).unwrap_err();
        assert!(matches!(error, EnvironmentError::Field(_)));
    }
}
