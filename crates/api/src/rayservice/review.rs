//! The rules of a RayService that its CRD cannot express.

use schema::Cause;
use serde_json::{Value, json};

use super::{
    ENABLE_AUTOSCALING, INITIALIZING_TIMEOUT, READINESS_PATH, ROLLBACK_AFTER, RayService, UpgradeStrategy,
    applications, initializing_timeout,
};
use crate::{embedded::Embedded, raycluster, validation::Review};

const CLUSTER: &str = "spec.rayClusterConfig";

pub(super) fn review(review: &mut Review<'_>) {
    let Some(service) = review.typed::<RayService>() else { return };
    let strategy = service.spec.upgrade_strategy.clone().unwrap_or_default();
    let autoscaling = autoscaler_runs(review, &service, &strategy);
    raycluster::review::cluster(review, CLUSTER, &service.spec.ray_cluster_config, autoscaling);
    if let Some(Err(error)) = service.spec.serve_service.as_ref().map(Embedded::typed) {
        review.refuse("spec.serveService", Cause::Invalid, None, error.to_string());
    }
    steps(review, &strategy);
    timeout(review);
    rollback_after(review);
    readiness_path(review);
    applications_are_read(review, &service);
    storage_is_shared(review, &service);
    not_acted_on(review, &service);
}

/// Whether the autoscaler will run. An incremental upgrade without it is refused: nothing would shrink the old cluster
/// or grow the new one.
fn autoscaler_runs(review: &mut Review<'_>, service: &RayService, strategy: &UpgradeStrategy) -> bool {
    let asked = service.spec.ray_cluster_config.enable_in_tree_autoscaling;
    let incremental = strategy.incremental().is_some();
    let allowed_to = incremental && review.annotation(ENABLE_AUTOSCALING) == Some("true");
    let runs = asked == Some(true) || allowed_to;
    if incremental && !runs {
        review.refuse(
            &format!("{CLUSTER}.enableInTreeAutoscaling"),
            Cause::Invalid,
            asked.map(Value::from).as_ref(),
            format!(
                "an incremental upgrade needs the autoscaler: must be true, or let us turn it on with the annotation \
                 {ENABLE_AUTOSCALING}: \"true\""
            ),
        );
    }
    runs
}

/// Steps that are not quite what they say.
fn steps(review: &mut Review<'_>, strategy: &UpgradeStrategy) {
    let Some(options) = strategy.incremental() else { return };
    let (step, surge) = (options.step_size_percent, options.max_surge_percent);
    if step > surge {
        review.warn(format!(
            "spec.upgradeStrategy: stepSizePercent is {step}, more than maxSurgePercent: steps of {surge} are made"
        ));
    }
    if options.gateway.is_some() && options.gateway_class_name.is_some() {
        review.warn(
            "spec.upgradeStrategy: gatewayClassName is not used, because gateway names a Gateway that exists",
        );
    }
}

fn timeout(review: &mut Review<'_>) {
    // KubeRay takes an empty annotation for none.
    let Some(text) = review.annotation(INITIALIZING_TIMEOUT).filter(|text| !text.is_empty()) else { return };
    if initializing_timeout(text).is_none() {
        let value = json!(text);
        let allowed = "must be a length of time such as \"5m\" or \"1h30m\", or a number of seconds, above 0";
        review.refuse(
            &format!("metadata.annotations.{INITIALIZING_TIMEOUT}"),
            Cause::Invalid,
            Some(&value),
            allowed,
        );
    }
}

fn rollback_after(review: &mut Review<'_>) {
    let Some(text) = review.annotation(ROLLBACK_AFTER) else { return };
    if !text.parse::<u32>().is_ok_and(|seconds| seconds > 0) {
        let value = json!(text);
        let allowed = "must be a whole number of seconds above 0, as a string";
        review.refuse(
            &format!("metadata.annotations.{ROLLBACK_AFTER}"),
            Cause::Invalid,
            Some(&value),
            allowed,
        );
    }
}

/// The path of the readiness check, as an URL has it.
fn readiness_path(review: &mut Review<'_>) {
    let Some(path) = review.annotation(READINESS_PATH) else { return };
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.starts_with('/') || !is_plain {
        let value = json!(path);
        let allowed = "must be the path of a URL: \"/\" and printable ASCII characters without spaces";
        let field = format!("metadata.annotations.{READINESS_PATH}");
        review.refuse(&field, Cause::Invalid, Some(&value), allowed);
    }
}

/// What Serve is told must be readable. What it means, Serve judges.
fn applications_are_read(review: &mut Review<'_>, service: &RayService) {
    let text = service.spec.serve_config_v2.as_deref().unwrap_or_default();
    if let Err(why) = applications(text) {
        review.refuse("spec.serveConfigV2", Cause::Invalid, None, why);
    }
}

/// Two clusters in one storage namespace would read each other's state, and the end of one would erase the other's.
fn storage_is_shared(review: &mut Review<'_>, service: &RayService) {
    let options = service.spec.ray_cluster_config.gcs_fault_tolerance_options.as_ref();
    let by_options = options.and_then(|options| options.external_storage_namespace.clone());
    let by_annotation = raycluster::review::storage_namespace_annotation(review);
    let places = [
        (format!("{CLUSTER}.gcsFaultToleranceOptions.externalStorageNamespace"), by_options),
        (format!("metadata.annotations.{}", raycluster::EXTERNAL_STORAGE_NAMESPACE), by_annotation),
    ];
    for (field, value) in places {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            review.warn(format!(
                "{field} is \"{value}\": the old and the new cluster would share their state, so the name of each \
                 cluster is appended"
            ));
        }
    }
}

/// Fields of the public API that are kept and do nothing. Who sets one should not find out later.
fn not_acted_on(review: &mut Review<'_>, service: &RayService) {
    let fields = [
        ("serviceUnhealthySecondThreshold", service.spec.service_unhealthy_second_threshold),
        ("deploymentUnhealthySecondThreshold", service.spec.deployment_unhealthy_second_threshold),
    ];
    for (name, _) in fields.iter().filter(|(_, value)| value.is_some()) {
        review.ignore(&format!("spec.{name}"), "an application that stays unhealthy is left as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    fn service(annotations: &Value, options: &Value) -> Value {
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "s", "annotations": annotations},
            "spec": {
                "upgradeStrategy": {"type": "IncrementalUpgrade", "incrementalUpgradeOptions": options},
                "rayClusterConfig": {
                    "enableInTreeAutoscaling": true,
                    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "image": "x"}]}}},
                },
            },
        })
    }

    fn warnings(manifest: &Value) -> Vec<String> {
        let verdict = validate(manifest, None);
        assert!(verdict.accepted(), "{:?}", verdict.violations);
        verdict.warnings
    }

    #[test]
    fn a_step_above_the_surge_is_capped_with_a_warning() {
        let steps = |step: i32, surge: i32| {
            let options = json!({"maxSurgePercent": surge, "stepSizePercent": step, "intervalSeconds": 0});
            let mut service = service(&json!({}), &options);
            service["spec"]["upgradeStrategy"]["incrementalUpgradeOptions"]["gatewayClassName"] = json!("g");
            warnings(&service)
        };
        assert!(steps(20, 20).is_empty());
        let said = steps(50, 20);
        assert!(said.len() == 1 && said[0].contains("is 50") && said[0].contains("steps of 20"), "{said:?}");
    }

    #[test]
    fn a_gateway_of_ones_own_leaves_nothing_for_the_class_to_do() {
        let mut options =
            json!({"stepSizePercent": 5, "intervalSeconds": 0, "gateway": {"parentRefs": [{"name": "a"}]}});
        assert!(warnings(&service(&json!({}), &options)).is_empty());
        options["gatewayClassName"] = json!("g");
        assert!(warnings(&service(&json!({}), &options))[0].contains("gatewayClassName is not used"));
    }

    #[test]
    fn a_readiness_path_is_the_path_of_a_url() {
        let refused = |path: &str| {
            let mut manifest = service(&json!({READINESS_PATH: path}), &json!({}));
            manifest["spec"]["upgradeStrategy"] = json!({"type": "NewCluster"});
            let verdict = validate(&manifest, None);
            verdict.violations.iter().any(|it| it.field.ends_with(READINESS_PATH))
        };
        assert!(!refused("/ready?deep=1"));
        assert!(refused("ready") && refused("/rea dy") && refused(""));
    }

    #[test]
    fn a_fixed_storage_namespace_is_a_warning_wherever_it_is_fixed() {
        let options = json!({"stepSizePercent": 5, "intervalSeconds": 0, "gatewayClassName": "g"});
        let by_annotation = service(&json!({"ray.io/external-storage-namespace": "mine"}), &options);
        assert!(warnings(&by_annotation)[0].contains("\"mine\": the old and the new cluster would share"));
        let mut by_options = service(&json!({}), &options);
        by_options["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"] =
            json!({"redisAddress": "redis:6379", "externalStorageNamespace": "mine"});
        assert!(warnings(&by_options)[0].starts_with("spec.rayClusterConfig.gcsFaultToleranceOptions"));
    }
}
