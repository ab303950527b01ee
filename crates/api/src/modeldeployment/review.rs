//! What the CRD of a ModelDeployment cannot say.

use std::collections::BTreeSet;

use schema::Cause;
use serde_json::{Value, json};

use super::{ModelDeployment, StrategyType};
use crate::{embedded::PodTemplate, pods, validation::Review};

/// The class of our own gateway, which says when a change is applied.
const OUR_GATEWAY: &str = "segue";

/// The least wait with which no request failed on a Gateway of others (docs/data-plane.md).
const LEAST_SETTLE_SECONDS: i32 = 3;

pub(super) fn review(review: &mut Review<'_>) {
    let Some(deployment) = review.typed::<ModelDeployment>() else { return };
    let templates = templates(&deployment);
    for (field, template) in &templates {
        pods::review(review, field, template);
    }
    budget_moves(review, &deployment);
    env_names_containers(review, &deployment, &templates);
    steps_name_checks(review, &deployment);
    error_threshold_is_a_share(review, &deployment);
    worth_knowing(review, &deployment, &templates);
}

/// Every pod template of the workload, with its field.
fn templates(deployment: &ModelDeployment) -> Vec<(String, &PodTemplate)> {
    let workload = &deployment.spec.workload;
    let mut found = Vec::new();
    found.extend(workload.pod.iter().map(|pod| ("spec.workload.pod".to_owned(), pod)));
    if let Some(unit) = &workload.leader_worker {
        let leader = unit.leader_template.iter();
        found.extend(leader.map(|leader| ("spec.workload.leaderWorker.leaderTemplate".to_owned(), leader)));
        found.push(("spec.workload.leaderWorker.workerTemplate".to_owned(), &unit.worker_template));
    }
    for (index, role) in workload.roles.iter().flat_map(|roles| &roles.roles).enumerate() {
        let field = format!("spec.workload.roles.roles[{index}]");
        found.push((format!("{field}.entryTemplate"), &role.entry_template));
        found.extend(role.worker_template.iter().map(|worker| (format!("{field}.workerTemplate"), worker)));
    }
    found
}

/// A share that rounds to nothing is a budget of nothing.
fn budget_moves(review: &mut Review<'_>, deployment: &ModelDeployment) {
    let (spec, replicas) = (&deployment.spec, deployment.spec.replicas);
    if let Some(rolling) = &spec.strategy.rolling
        && replicas > 0
        && rolling.max_surge.ceil_of(replicas) == Some(0)
        && rolling.max_unavailable.floor_of(replicas) == Some(0)
    {
        let allowed = format!(
            "rounds down to 0 with replicas {replicas} while maxSurge is 0: the update could never move; raise one of them"
        );
        let value = json!(rolling.max_unavailable);
        review.refuse("spec.strategy.rolling.maxUnavailable", Cause::Invalid, Some(&value), allowed);
    }
    if let Some(in_place) = &spec.strategy.in_place
        && replicas > 0
        && in_place.max_unavailable.floor_of(replicas) == Some(0)
    {
        let allowed = format!(
            "rounds down to 0 with replicas {replicas}: an update in place could never move; allow at least 1"
        );
        let value = json!(in_place.max_unavailable);
        review.refuse("spec.strategy.inPlace.maxUnavailable", Cause::Invalid, Some(&value), allowed);
    }
}

fn env_names_containers(
    review: &mut Review<'_>,
    deployment: &ModelDeployment,
    templates: &[(String, &PodTemplate)],
) {
    let known: BTreeSet<&str> = templates
        .iter()
        .flat_map(|(_, template)| containers(template))
        .filter_map(|container| container["name"].as_str())
        .collect();
    for (index, env) in deployment.spec.env.iter().enumerate() {
        for (place, name) in
            env.containers.iter().enumerate().filter(|(_, name)| !known.contains(name.as_str()))
        {
            let list: Vec<&str> = known.iter().copied().collect();
            review.refuse(
                &format!("spec.env[{index}].containers[{place}]"),
                Cause::Unsupported,
                Some(&json!(name)),
                format!("no container of that name; there are: {}", list.join(", ")),
            );
        }
    }
}

fn containers(template: &PodTemplate) -> impl Iterator<Item = &Value> {
    template.json()["spec"]["containers"].as_array().into_iter().flatten()
}

fn steps_name_checks(review: &mut Review<'_>, deployment: &ModelDeployment) {
    let checks = deployment.spec.analysis.iter().flat_map(|analysis| &analysis.checks);
    let known: Vec<&str> = checks.map(|check| check.name.as_str()).collect();
    let steps = deployment.spec.strategy.canary.iter().flat_map(|canary| &canary.steps).enumerate();
    for (index, analysis) in steps.filter_map(|(index, step)| Some((index, step.analysis.as_ref()?))) {
        let field = format!("spec.strategy.canary.steps[{index}].analysis");
        if known.is_empty() {
            review.refuse(&field, Cause::Invalid, None, "needs checks in spec.analysis");
        }
        for (place, name) in
            analysis.checks.iter().enumerate().filter(|(_, name)| !known.contains(&name.as_str()))
        {
            review.refuse(
                &format!("{field}.checks[{place}]"),
                Cause::Unsupported,
                Some(&json!(name)),
                format!("no check of that name in spec.analysis; there are: {}", known.join(", ")),
            );
        }
    }
}

fn error_threshold_is_a_share(review: &mut Review<'_>, deployment: &ModelDeployment) {
    let checks = deployment.spec.analysis.iter().flat_map(|analysis| &analysis.checks).enumerate();
    for (index, limit) in checks.filter_map(|(index, check)| Some((index, check.max_error_percent.as_ref()?)))
    {
        if limit.millis().is_none_or(|millis| millis > 100_000) {
            let field = format!("spec.analysis.checks[{index}].maxErrorPercent");
            review.refuse(&field, Cause::Invalid, Some(&json!(limit)), "must be a percentage from 0 to 100");
        }
    }
}

/// Accepted, and likely to surprise.
fn worth_knowing(
    review: &mut Review<'_>,
    deployment: &ModelDeployment,
    templates: &[(String, &PodTemplate)],
) {
    if deployment.spec.strategy.ty == StrategyType::Recreate {
        review.warn("spec.strategy.type is Recreate: the service is down between the versions");
    }
    let traffic = &deployment.spec.traffic;
    let class = traffic.gateway.as_ref().map(|gateway| gateway.class_name.as_deref());
    if class.is_some_and(|class| class != Some(OUR_GATEWAY)) && traffic.settle_seconds < LEAST_SETTLE_SECONDS
    {
        review.warn(format!(
            "spec.traffic.settleSeconds is {}: requests may fail; Gateways may need {LEAST_SETTLE_SECONDS} s to apply a route \
             (docs/data-plane.md)",
            traffic.settle_seconds
        ));
    }
    ports_are_declared(review, deployment);
    let probed = |container: &Value| container.get("readinessProbe").is_some();
    if !templates.iter().any(|(_, template)| containers(template).any(probed)) {
        review.warn(
            "no container has a readinessProbe: a replica gets traffic as soon as its process runs, \
             before the model is loaded",
        );
    }
}

/// A port that no container listens on leads nowhere. Containers need not declare their ports; where some do, a port that
/// is not among them is likely a mistake.
fn ports_are_declared(review: &mut Review<'_>, deployment: &ModelDeployment) {
    let templates = serving_templates(deployment);
    let declared: BTreeSet<i64> = templates.into_iter().flat_map(declared_ports).collect();
    if declared.is_empty() {
        return;
    }
    let list: Vec<String> = declared.iter().map(ToString::to_string).collect();
    let ports = deployment.spec.traffic.ports.iter().enumerate();
    for (index, port) in ports.filter(|(_, port)| !declared.contains(&i64::from(port.port))) {
        review.warn(format!(
            "spec.traffic.ports[{index}].port is {}: no container declares this port; declared are: {}",
            port.port,
            list.join(", ")
        ));
    }
}

/// The templates of the pods that get requests: the leaders.
fn serving_templates(deployment: &ModelDeployment) -> Vec<&PodTemplate> {
    let workload = &deployment.spec.workload;
    let unit = workload.leader_worker.as_ref();
    let leader = unit.map(|unit| unit.leader_template.as_ref().unwrap_or(&unit.worker_template));
    let entries = workload.roles.iter().flat_map(|roles| &roles.roles).map(|role| &role.entry_template);
    workload.pod.iter().chain(leader).chain(entries).collect()
}

/// The TCP ports that containers declare, those of sidecars among them.
fn declared_ports(template: &PodTemplate) -> impl Iterator<Item = i64> {
    let spec = &template.json()["spec"];
    let sidecars = spec["initContainers"].as_array().into_iter().flatten();
    let ports =
        containers(template).chain(sidecars).flat_map(|it| it["ports"].as_array().into_iter().flatten());
    let is_tcp = |port: &&Value| port["protocol"].as_str().is_none_or(|protocol| protocol == "TCP");
    ports.filter(is_tcp).filter_map(|port| port["containerPort"].as_i64())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn warnings(spec: &Value) -> Vec<String> {
        let manifest = json!({"apiVersion": "segue.dev/v1alpha1", "kind": "ModelDeployment",
            "metadata": {"name": "chat"}, "spec": spec});
        let verdict = crate::validate(&manifest, None);
        assert!(verdict.accepted(), "{:?}", verdict.violations);
        verdict.warnings
    }

    fn spec(gateway: &Value, settle: i32) -> Value {
        json!({
            "workload": {"type": "Pod", "pod": {"spec": {"containers": [
                {"name": "a", "image": "b", "readinessProbe": {"httpGet": {"port": 80}}}]}}},
            "traffic": {"ports": [{"name": "http", "port": 80}], "gateway": gateway, "settleSeconds": settle},
        })
    }

    #[test]
    fn a_short_settle_time_is_a_warning_on_gateways_of_others_alone() {
        let others = [json!({"className": "traefik"}), json!({"parentRefs": [{"name": "shared"}]})];
        for gateway in others {
            assert!(warnings(&spec(&gateway, 2))[0].contains("settleSeconds is 2"));
            assert!(warnings(&spec(&gateway, 3)).is_empty());
        }
        assert!(warnings(&spec(&json!({"className": "segue"}), 0)).is_empty());
    }

    #[test]
    fn a_port_that_no_container_declares_is_a_warning_where_containers_declare_ports() {
        let mut declared = spec(&json!({"className": "segue"}), 5);
        let container = &mut declared["workload"]["pod"]["spec"]["containers"][0];
        container["ports"] = json!([{"containerPort": 8080}, {"containerPort": 80, "protocol": "UDP"}]);
        assert_eq!(
            warnings(&declared),
            ["spec.traffic.ports[0].port is 80: no container declares this port; declared are: 8080"]
        );
        let sidecar = json!([{"name": "proxy", "image": "p", "restartPolicy": "Always", "ports": [{"containerPort": 80}]}]);
        declared["workload"]["pod"]["spec"]["initContainers"] = sidecar;
        assert!(warnings(&declared).is_empty());
        let unit = json!({
            "size": 2,
            "leaderTemplate": {"spec": {"containers": [
                {"name": "a", "image": "b", "ports": [{"containerPort": 81}], "readinessProbe": {"httpGet": {"port": 80}}}]}},
            "workerTemplate": {"spec": {"containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 80}]}]}},
        });
        declared["workload"] = json!({"type": "LeaderWorker", "leaderWorker": unit});
        let said = warnings(&declared);
        assert!(
            said.len() == 1 && said[0].ends_with("declared are: 81"),
            "only leaders get requests: {said:?}"
        );
    }

    #[test]
    fn a_service_without_readiness_and_one_that_stops_are_warned_about() {
        let mut unprobed = spec(&json!({"className": "segue"}), 5);
        unprobed["workload"]["pod"]["spec"]["containers"][0]["readinessProbe"] = Value::Null;
        unprobed["strategy"] = json!({"type": "Recreate"});
        let warnings = warnings(&unprobed);
        assert!(warnings.iter().any(|w| w.contains("readinessProbe")), "{warnings:?}");
        assert!(warnings.iter().any(|w| w.contains("Recreate")), "{warnings:?}");
    }
}
