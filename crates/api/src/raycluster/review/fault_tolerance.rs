//! Fault tolerance can be asked for in three ways, and half of it by environment: the ways may not contradict.

use schema::Cause;
use serde_json::{Value, json};

use super::{head_container, head_variable, refuse_variable, storage_namespace_annotation};
use crate::{
    raycluster::{
        EXTERNAL_STORAGE_NAMESPACE, FT_ENABLED, GcsBackend, GcsFaultToleranceOptions, HA_ENABLED,
        RayClusterSpec,
    },
    validation::Review,
};

const REDIS_ADDRESS: &str = "RAY_REDIS_ADDRESS";

/// The volume that we add for a RocksDB, and where the head finds it: names of KubeRay's, which an adopted cluster has.
const STORAGE_VOLUME: &str = "gcs-storage";
const STORAGE_PATH: &str = "/data/gcs";

pub(super) fn review(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec) {
    let options = spec.gcs_fault_tolerance_options.as_ref();
    let by_annotation = annotations(review, options.is_some());
    if options.is_none() && !by_annotation && head_variable(spec, REDIS_ADDRESS).is_some() {
        let allowed =
            "use gcsFaultToleranceOptions, or the annotation ray.io/ha-enabled: \"true\" of the cluster";
        refuse_variable(review, field, REDIS_ADDRESS, allowed);
    }
    if head_variable(spec, "REDIS_USERNAME").is_some() {
        refuse_variable(review, field, "REDIS_USERNAME", "use gcsFaultToleranceOptions.redisUsername");
    }
    if let Some(options) = options {
        said_twice(review, field, spec);
        if options.backend == Some(GcsBackend::RocksDb) {
            volume_is_ours(review, field, spec);
        }
    }
    redis_has_an_address(review, field, spec, by_annotation);
}

/// Whether an annotation turns fault tolerance on. Refuses values that are neither yes nor no, annotations that
/// contradict each other, and annotations beside the field that replaced them.
fn annotations(review: &mut Review<'_>, has_options: bool) -> bool {
    let mut answers = Vec::new();
    for key in [HA_ENABLED, FT_ENABLED] {
        // KubeRay takes an empty annotation for none, and any case for the same.
        let Some(value) = review.annotation(key).filter(|value| !value.is_empty()).map(str::to_owned) else {
            continue;
        };
        let on = value.eq_ignore_ascii_case("true");
        let allowed = if !on && !value.eq_ignore_ascii_case("false") {
            "must be \"true\" or \"false\""
        } else if has_options {
            "the spec has gcsFaultToleranceOptions, which says it already; remove the annotation"
        } else if answers.iter().any(|answer| *answer != on) {
            "contradicts ray.io/ha-enabled, which means the same; remove one of them"
        } else {
            answers.push(on);
            continue;
        };
        review.refuse(&format!("metadata.annotations.{key}"), Cause::Invalid, Some(&json!(value)), allowed);
    }
    answers.contains(&true)
}

/// What the options say may not be said again elsewhere.
fn said_twice(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec) {
    let variables = [
        ("REDIS_PASSWORD", "use gcsFaultToleranceOptions.redisPassword"),
        (REDIS_ADDRESS, "use gcsFaultToleranceOptions.redisAddress"),
    ];
    for (name, allowed) in variables {
        if head_variable(spec, name).is_some() {
            refuse_variable(review, field, name, allowed);
        }
    }
    if let Some(value) = storage_namespace_annotation(review) {
        review.refuse(
            &format!("metadata.annotations.{EXTERNAL_STORAGE_NAMESPACE}"),
            Cause::Invalid,
            Some(&json!(value)),
            "use gcsFaultToleranceOptions.externalStorageNamespace, beside the other options",
        );
    }
}

/// A RocksDB's volume, path and settings are ours to set.
fn volume_is_ours(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec) {
    for name in ["RAY_gcs_storage", "RAY_gcs_storage_path"] {
        if head_variable(spec, name).is_some() {
            refuse_variable(review, field, name, "is set for you with backend rocksdb; remove the variable");
        }
    }
    let pod = &spec.head_group_spec.template.json()["spec"];
    let field = format!("{field}.headGroupSpec.template.spec");
    for (index, mount) in list(&head_container(spec)["volumeMounts"]).enumerate() {
        if mount["name"] == STORAGE_VOLUME || mount["mountPath"] == STORAGE_PATH {
            let field = format!("{field}.containers[0].volumeMounts[{index}]");
            let allowed = "/data/gcs and the volume gcs-storage are taken with backend rocksdb";
            review.refuse(&field, Cause::Invalid, Some(&mount["mountPath"]), allowed);
        }
    }
    for (index, volume) in list(&pod["volumes"]).enumerate() {
        if volume["name"] == STORAGE_VOLUME {
            let allowed = "this name is taken with backend rocksdb";
            review.refuse(
                &format!("{field}.volumes[{index}].name"),
                Cause::Invalid,
                Some(&volume["name"]),
                allowed,
            );
        }
    }
}

/// Without an address the head keeps its state to itself and the cluster dies with it. No reason to refuse: the address
/// can come from a ConfigMap that we do not see.
fn redis_has_an_address(review: &mut Review<'_>, field: &str, spec: &RayClusterSpec, by_annotation: bool) {
    let by_options = |options: &GcsFaultToleranceOptions| {
        let address = options.redis_address.as_deref().unwrap_or_default();
        options.backend != Some(GcsBackend::RocksDb) && address.is_empty()
    };
    let missing = match &spec.gcs_fault_tolerance_options {
        Some(options) => by_options(options),
        None => by_annotation && head_variable(spec, REDIS_ADDRESS).is_none(),
    };
    if missing && list(&head_container(spec)["envFrom"]).next().is_none() {
        review.warn(format!(
            "{field}: GCS fault tolerance is on, but no address of Redis is given: the cluster would die with \
             its head"
        ));
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
