//! What Go fills in when an object is read: mostly a table, by the struct in which the field stands.
use serde_json::{Map, Value, json};

use super::{
    BuiltIn,
    structs::{self, Field, Is, Type, is_zero},
};

/// Struct, field, and the JSON that stands there when nothing was sent.
const TABLE: &[(&str, &str, &str)] = &[
    ("core/v1.PodSpec", "dnsPolicy", r#""ClusterFirst""#),
    ("core/v1.PodSpec", "restartPolicy", r#""Always""#),
    ("core/v1.PodSpec", "securityContext", "{}"),
    ("core/v1.PodSpec", "terminationGracePeriodSeconds", "30"),
    ("core/v1.PodSpec", "schedulerName", r#""default-scheduler""#),
    ("core/v1.PodSpec", "enableServiceLinks", "true"),
    ("core/v1.Container", "terminationMessagePath", r#""/dev/termination-log""#),
    ("core/v1.Container", "terminationMessagePolicy", r#""File""#),
    ("core/v1.EphemeralContainer", "terminationMessagePath", r#""/dev/termination-log""#),
    ("core/v1.EphemeralContainer", "terminationMessagePolicy", r#""File""#),
    ("core/v1.ContainerPort", "protocol", r#""TCP""#),
    ("core/v1.Probe", "timeoutSeconds", "1"),
    ("core/v1.Probe", "periodSeconds", "10"),
    ("core/v1.Probe", "successThreshold", "1"),
    ("core/v1.Probe", "failureThreshold", "3"),
    ("core/v1.HTTPGetAction", "path", r#""/""#),
    ("core/v1.HTTPGetAction", "scheme", r#""HTTP""#),
    ("core/v1.GRPCAction", "service", r#""""#),
    ("core/v1.ObjectFieldSelector", "apiVersion", r#""v1""#),
    ("core/v1.SecretVolumeSource", "defaultMode", "420"),
    ("core/v1.ConfigMapVolumeSource", "defaultMode", "420"),
    ("core/v1.DownwardAPIVolumeSource", "defaultMode", "420"),
    ("core/v1.ProjectedVolumeSource", "defaultMode", "420"),
    ("core/v1.ServiceAccountTokenProjection", "expirationSeconds", "3600"),
    ("core/v1.HostPathVolumeSource", "type", r#""""#),
    ("core/v1.ISCSIVolumeSource", "iscsiInterface", r#""default""#),
    ("core/v1.RBDVolumeSource", "pool", r#""rbd""#),
    ("core/v1.RBDVolumeSource", "user", r#""admin""#),
    ("core/v1.RBDVolumeSource", "keyring", r#""/etc/ceph/keyring""#),
    ("core/v1.AzureDiskVolumeSource", "cachingMode", r#""ReadWrite""#),
    ("core/v1.AzureDiskVolumeSource", "kind", r#""Shared""#),
    ("core/v1.AzureDiskVolumeSource", "fsType", r#""ext4""#),
    ("core/v1.AzureDiskVolumeSource", "readOnly", "false"),
    ("core/v1.ScaleIOVolumeSource", "storageMode", r#""ThinProvisioned""#),
    ("core/v1.ScaleIOVolumeSource", "fsType", r#""xfs""#),
    ("core/v1.PersistentVolumeClaimSpec", "volumeMode", r#""Filesystem""#),
    ("core/v1.PersistentVolumeClaimStatus", "phase", r#""Pending""#),
    ("core/v1.ServiceSpec", "sessionAffinity", r#""None""#),
    ("core/v1.ServiceSpec", "type", r#""ClusterIP""#),
    ("core/v1.ServicePort", "protocol", r#""TCP""#),
    ("core/v1.EndpointPort", "protocol", r#""TCP""#),
    ("core/v1.Secret", "type", r#""Opaque""#),
    ("core/v1.NamespaceStatus", "phase", r#""Active""#),
    ("discovery/v1.EndpointPort", "name", r#""""#),
    ("discovery/v1.EndpointPort", "protocol", r#""TCP""#),
    ("rbac/v1.RoleRef", "apiGroup", r#""rbac.authorization.k8s.io""#),
    ("apiextensions/v1.CustomResourceDefinitionSpec", "conversion", r#"{"strategy":"None"}"#),
    ("apiextensions/v1.ServiceReference", "port", "443"),
];

/// Fills in what a reader of this kind would find.
pub fn default(kind: &BuiltIn, object: &mut Value) {
    fill(kind.go, object);
}

fn fill(of: &str, value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (_, name, text) in TABLE.iter().filter(|(owner, ..)| *owner == of) {
        if let Some(field) = structs::field(of, name)
            && unset(field, map)
            && let Ok(value) = serde_json::from_str(text)
        {
            map.insert((*name).to_owned(), value);
        }
    }
    special(of, map);
    // After the struct itself, which may have filled in one of its fields.
    for field in structs::fields(of) {
        if let Some(value) = map.get_mut(field.name) {
            within(&field.ty, value);
        }
    }
}

fn within(ty: &Type, value: &mut Value) {
    match (&ty.is, value) {
        (Is::Pointer(of), value) => within(of, value),
        (Is::Struct, value) => fill(ty.name(), value),
        (Is::List(of), Value::Array(list)) => list.iter_mut().for_each(|item| within(of, item)),
        _ => {}
    }
}

/// Whether Go sees no value: only a pointer tells zero from nothing.
fn unset(field: &Field, map: &Map<String, Value>) -> bool {
    let value = map.get(field.name).unwrap_or(&Value::Null);
    if matches!(field.ty.is, Is::Pointer(_)) { value.is_null() } else { is_zero(value) }
}

/// The defaults that depend on something.
fn special(of: &str, map: &mut Map<String, Value>) {
    match of {
        "core/v1.Container" | "core/v1.EphemeralContainer" => pull_policy(map, "image", "imagePullPolicy"),
        "core/v1.ImageVolumeSource" => pull_policy(map, "reference", "pullPolicy"),
        "core/v1.Volume" if map.keys().all(|key| key == "name") => {
            map.insert("emptyDir".to_owned(), json!({}));
        }
        "core/v1.PodSpec" => pod_spec(map),
        "core/v1.ServiceSpec" => service_spec(map),
        "core/v1.Service" => load_balancer(map),
        "core/v1.Namespace" => namespace(map),
        "core/v1.NodeStatus" => {
            if let Some(capacity) = map.get("capacity").filter(|_| !map.contains_key("allocatable")).cloned()
            {
                map.insert("allocatable".to_owned(), capacity);
            }
        }
        "rbac/v1.Subject" => subject(map),
        "apiextensions/v1.CustomResourceDefinitionNames" => crd_names(map),
        _ => {}
    }
}

fn pull_policy(map: &mut Map<String, Value>, image: &str, policy: &str) {
    if map.get(policy).is_none_or(is_zero) {
        let image = map.get(image).and_then(Value::as_str).unwrap_or_default();
        let value = if latest(image) { "Always" } else { "IfNotPresent" };
        map.insert(policy.to_owned(), json!(value));
    }
}

/// Whether an image has the tag `latest`, written or not. A port of the registry is no tag, and a digest needs none.
fn latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        // An image that cannot be parsed has no tag either.
        None => digest.is_none() && !name.is_empty() && !name.contains(char::is_whitespace),
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    let host = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            requests(&mut container["resources"]);
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|_| host) {
                if port["hostPort"].is_null() {
                    port["hostPort"] = port["containerPort"].clone();
                }
            }
        }
    }
    pod_requests(spec);
    // No grace at all is asked for with zero; what is below was once taken to mean "at once".
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
}

/// A pod that is limited as a whole requests what its containers do, or else its limit. Requests of several containers
/// are not added up here.
fn pod_requests(spec: &mut Map<String, Value>) {
    let limits = spec.get("resources").and_then(|own| own.get("limits")).and_then(Value::as_object).cloned();
    for (name, limit) in limits.into_iter().flatten() {
        let containers = spec.get("containers").and_then(Value::as_array).into_iter().flatten();
        let asked: Vec<Value> =
            containers.filter_map(|c| c["resources"]["requests"].get(&name).cloned()).collect();
        let request = match &asked[..] {
            [] => limit,
            [one] => one.clone(),
            _ => continue,
        };
        if let Some(own) = spec.get_mut("resources").filter(|own| own["requests"].get(&name).is_none()) {
            own["requests"][&name] = request;
        }
    }
}

/// What is limited is requested, too.
fn requests(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    for (name, limit) in limits {
        if resources["requests"][&name].is_null() {
            resources["requests"][&name] = limit;
        }
    }
}

fn service_spec(spec: &mut Map<String, Value>) {
    let text =
        |spec: &Map<String, Value>, name: &str| spec.get(name).and_then(Value::as_str).map(str::to_owned);
    match text(spec, "sessionAffinity").as_deref() {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP")
            if spec
                .get("sessionAffinityConfig")
                .is_none_or(|c| c["clientIP"]["timeoutSeconds"].is_null()) =>
        {
            spec.insert(
                "sessionAffinityConfig".to_owned(),
                json!({ "clientIP": { "timeoutSeconds": 10800 } }),
            );
        }
        _ => {}
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if is_zero(&port["targetPort"]) {
            port["targetPort"] = port["port"].clone();
        }
    }
    let ty = text(spec, "type").unwrap_or_default();
    let external = matches!(ty.as_str(), "NodePort" | "LoadBalancer")
        || ty == "ClusterIP" && spec.get("externalIPs").is_some_and(|ips| !is_zero(ips));
    let mut absent = |wanted: bool, name: &str, value: Value| {
        if wanted && spec.get(name).is_none_or(|v| v.is_null() || v == "") {
            spec.insert(name.to_owned(), value);
        }
    };
    absent(external, "externalTrafficPolicy", json!("Cluster"));
    absent(
        matches!(ty.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer"),
        "internalTrafficPolicy",
        json!("Cluster"),
    );
    absent(ty == "LoadBalancer", "allocateLoadBalancerNodePorts", json!(true));
}

fn load_balancer(service: &mut Map<String, Value>) {
    if service.get("spec").is_none_or(|spec| spec["type"] != "LoadBalancer") {
        return;
    }
    let ingress = service.get_mut("status").and_then(|status| status.pointer_mut("/loadBalancer/ingress"));
    for point in ingress.and_then(Value::as_array_mut).into_iter().flatten() {
        if point.get("ip").is_some() && point.get("ipMode").is_none() {
            point["ipMode"] = json!("VIP");
        }
    }
}

/// The label by which selectors find a namespace; a name that is still to be generated gets it later.
pub fn namespace(namespace: &mut Map<String, Value>) {
    let Some(metadata) = namespace.get_mut("metadata") else { return };
    if let Some(name) = metadata.get("name").cloned() {
        metadata["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

fn subject(subject: &mut Map<String, Value>) {
    let user = matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group"));
    if user && !subject.contains_key("apiGroup") {
        subject.insert("apiGroup".to_owned(), json!("rbac.authorization.k8s.io"));
    }
}

fn crd_names(names: &mut Map<String, Value>) {
    let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned) else { return };
    // The names that were accepted are empty until they are, and stay so.
    if kind.is_empty() {
        return;
    }
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
}
