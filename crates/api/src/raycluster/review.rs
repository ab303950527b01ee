//! The rules of a RayCluster that its CRD cannot express; a RayService applies them to its cluster.

mod fault_tolerance;

use std::collections::BTreeSet;

use schema::Cause;
use serde_json::{Value, json};

use super::{AutoscalerVersion, EXTERNAL_STORAGE_NAMESPACE, RayCluster, RayClusterSpec, WorkerGroupSpec};
use crate::{
    embedded::{Embedded, Texts},
    pods,
    validation::Review,
};

/// Chooses the autoscaler by environment, as it was done before `autoscalerOptions.version`.
const ENABLE_AUTOSCALER_V2: &str = "RAY_enable_autoscaler_v2";

pub(super) fn review(review: &mut Review<'_>) {
    let Some(object) = review.typed::<RayCluster>() else { return };
    let autoscaling = object.spec.enable_in_tree_autoscaling == Some(true);
    cluster(review, "spec", &object.spec, autoscaling);
}

/// Reviews the cluster at `field`; `autoscaling` is whether the autoscaler will run, by either of its switches.
pub(crate) fn cluster(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec, autoscaling: bool) {
    let head = format!("{field}.headGroupSpec");
    pods::review(review, &format!("{head}.template"), &spec.head_group_spec.template);
    label_keys(review, &head, spec.head_group_spec.labels.as_ref());
    if let Some(Err(error)) = spec.head_group_spec.head_service.as_ref().map(Embedded::typed) {
        review.refuse(&format!("{head}.headService"), Cause::Invalid, None, error.to_string());
    }
    let mut names = BTreeSet::new();
    for (index, group) in spec.worker_group_specs.iter().enumerate() {
        let field = format!("{field}.workerGroupSpecs[{index}]");
        pods::review(review, &format!("{field}.template"), &group.template);
        label_keys(review, &field, group.labels.as_ref());
        // Names of pods are in lower case.
        if !names.insert(group.group_name.to_lowercase()) {
            let allowed =
                "another group has this name but for capitals, and pods are named after their group";
            review.refuse(
                &format!("{field}.groupName"),
                Cause::Duplicate,
                Some(&json!(group.group_name)),
                allowed,
            );
        }
        only_second_autoscaler(review, &field, spec, group);
        if autoscaling && group.suspend == Some(true) {
            let allowed = "the autoscaler would start the group again; turn one of them off";
            review.refuse(&format!("{field}.suspend"), Cause::Invalid, Some(&json!(true)), allowed);
        }
        clamped(review, &field, group);
    }
    autoscaler_is_chosen_once(review, field, spec, autoscaling);
    fault_tolerance::review(review, field, spec);
    not_acted_on(review, field, spec);
}

/// The storage namespace that an annotation fixes. KubeRay takes an empty annotation for none.
pub(crate) fn storage_namespace_annotation(review: &Review<'_>) -> Option<String> {
    review.annotation(EXTERNAL_STORAGE_NAMESPACE).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Keys of labels, which a schema does not see.
fn label_keys(review: &mut Review<'_>, field: &str, labels: Option<&Texts>) {
    for (key, value) in labels.into_iter().flatten() {
        if !is_label_key(key) {
            review.refuse(
                &format!("{field}.labels.{key}"),
                Cause::Invalid,
                Some(&json!(value)),
                "the name of a label has 1 to 63 letters, digits, \"-\", \"_\" and \".\", and may have a domain and \
                 \"/\" before it",
            );
        }
    }
}

fn is_label_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let ends = |text: &str| text.starts_with(char_of_name) && text.ends_with(char_of_name);
    let named = name.len() <= 63 && ends(name) && name.chars().all(|c| char_of_name(c) || "-_.".contains(c));
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let placed = domain.is_none_or(|domain| {
        domain.len() <= 253
            && domain.split('.').all(|part| {
                part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || c == '-')
            })
    });
    named && placed
}

fn char_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// The first autoscaler does not know these fields and would pass over them in silence.
fn only_second_autoscaler(
    review: &mut Review<'_>,
    field: &str,
    spec: &RayClusterSpec,
    group: &WorkerGroupSpec,
) {
    let by_version = version(spec) == Some(AutoscalerVersion::V2);
    if by_version || is_on(head_variable(spec, ENABLE_AUTOSCALER_V2)) {
        return;
    }
    // KubeRay writes a priority of 0 into every group.
    let fields = [
        ("idleTimeoutSeconds", group.idle_timeout_seconds),
        ("priority", group.priority.filter(|priority| *priority != 0)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            let allowed = "only with autoscalerOptions.version v2";
            review.refuse(&format!("{field}.{name}"), Cause::Invalid, Some(&json!(value)), allowed);
        }
    }
}

fn autoscaler_is_chosen_once(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec, autoscaling: bool) {
    let variable = head_variable(spec, ENABLE_AUTOSCALER_V2);
    let allowed = match (variable, autoscaling, version(spec)) {
        (Some(_), true, Some(_)) => "autoscalerOptions.version says it already; remove the variable",
        (Some(_), false, _) if is_on(variable) => {
            "chooses an autoscaler that does not run: set enableInTreeAutoscaling to true, or remove the variable"
        }
        _ => return,
    };
    refuse_variable(review, field, ENABLE_AUTOSCALER_V2, allowed);
}

/// Too many or too few is no reason to refuse, but it is not what will run. 0 is also what an absent number becomes, so
/// nothing is said of it.
fn clamped(review: &mut Review<'_>, field: &str, group: &WorkerGroupSpec) {
    let WorkerGroupSpec { replicas, min_replicas, max_replicas, .. } = *group;
    let runs = replicas.clamp(min_replicas, max_replicas.max(min_replicas));
    if replicas != 0 && runs != replicas {
        review.warn(format!(
            "{field}.replicas is {replicas}, outside minReplicas {min_replicas} and maxReplicas {max_replicas}: \
             {runs} will run"
        ));
    }
}

/// Fields of the public API that are kept and do nothing here yet. Who sets one should not find out later.
fn not_acted_on(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec) {
    let encrypted = spec.tls_options.as_ref().is_some_and(|options| options.enabled == Some(true));
    let fields = [
        ("historyServerOptions", spec.history_server_options.is_some()),
        ("networkPolicy", spec.network_policy.is_some()),
        ("tlsOptions", encrypted),
        ("headGroupSpec.ingressOptions", spec.head_group_spec.ingress_options.is_some()),
    ];
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        review.ignore(&format!("{field}.{name}"), "it has no effect yet");
    }
}

fn version(spec: &RayClusterSpec) -> Option<AutoscalerVersion> {
    spec.autoscaler_options.as_ref().and_then(|options| options.version)
}

/// The container of the head that runs Ray: the first.
fn head_container(spec: &RayClusterSpec) -> &Value {
    &spec.head_group_spec.template.json()["spec"]["containers"][0]
}

/// An environment variable of the head.
fn head_variable<'a>(spec: &'a RayClusterSpec, name: &str) -> Option<&'a Value> {
    head_container(spec)["env"].as_array()?.iter().find(|variable| variable["name"] == name)
}

/// Says which variable of the head may not be there. Its value is left out: it may be a password.
fn refuse_variable(review: &mut Review<'_>, field: &str, name: &str, allowed: &str) {
    let field = format!("{field}.headGroupSpec.template.spec.containers[0].env");
    review.refuse(&field, Cause::Invalid, Some(&json!(name)), allowed);
}

fn is_on(variable: Option<&Value>) -> bool {
    variable.is_some_and(|variable| variable["value"] == "1" || variable["value"] == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    fn warnings(annotations: &Value, spec: &Value) -> Vec<String> {
        let mut manifest = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c", "annotations": annotations},
            "spec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "image": "x"}]}}}},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            manifest["spec"][field] = value.clone();
        }
        let verdict = validate(&manifest, None);
        assert!(verdict.accepted(), "{:?}", verdict.violations);
        verdict.warnings
    }

    #[test]
    fn replicas_out_of_bounds_are_a_warning_and_absent_ones_are_not() {
        let group = |bounds: Value| {
            let pod = json!({"spec": {"containers": [{"name": "w", "image": "x"}]}});
            let mut group = json!({"groupName": "g", "template": pod});
            group.as_object_mut().unwrap().extend(bounds.as_object().cloned().unwrap());
            warnings(&json!({}), &json!({"workerGroupSpecs": [group]}))
        };
        assert!(group(json!({"minReplicas": 3})).is_empty());
        assert!(group(json!({"replicas": 3, "minReplicas": 3, "maxReplicas": 3})).is_empty());
        let few = group(json!({"replicas": 1, "minReplicas": 3}));
        assert!(few[0].contains("replicas is 1") && few[0].ends_with("3 will run"), "{few:?}");
        let many = group(json!({"replicas": 9, "maxReplicas": 4}));
        assert!(many[0].contains("replicas is 9") && many[0].ends_with("4 will run"), "{many:?}");
    }

    #[test]
    fn fault_tolerance_without_redis_is_a_warning() {
        let on = json!({"ray.io/ha-enabled": "true"});
        let head =
            |container: Value| json!({"headGroupSpec": {"template": {"spec": {"containers": [container]}}}});
        assert!(warnings(&on, &json!({}))[0].contains("no address of Redis"));
        assert!(
            warnings(&json!({}), &json!({"gcsFaultToleranceOptions": {}}))[0].contains("no address of Redis")
        );
        let from = head(json!({"name": "h", "image": "x", "envFrom": [{"configMapRef": {"name": "redis"}}]}));
        assert!(warnings(&on, &from).is_empty(), "it may be in there");
        let env = json!([{"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}]);
        assert!(warnings(&on, &head(json!({"name": "h", "image": "x", "env": env}))).is_empty());
        assert!(
            warnings(&json!({}), &json!({"gcsFaultToleranceOptions": {"backend": "rocksdb"}})).is_empty()
        );
    }

    #[test]
    fn what_is_kept_and_not_acted_on_is_a_warning() {
        let said = warnings(&json!({}), &json!({"networkPolicy": {}, "tlsOptions": {"enabled": true}}));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(warnings(&json!({}), &json!({"tlsOptions": {"enabled": false}})).is_empty());
    }

    #[test]
    fn label_keys_are_names_with_or_without_a_domain() {
        for key in ["a", "ray.io/group", "A_b.c-d", "x.y-z.io/A", &"a".repeat(63)] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "-a", "a-", "a b", "/a", "a/", "a/b/c", "Ray.io/a", ".io/a", "é", &"a".repeat(64)] {
            assert!(!is_label_key(key), "{key}");
        }
    }
}
