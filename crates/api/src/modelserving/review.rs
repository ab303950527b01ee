//! The rules of a ModelServing that its CRD cannot express.

use std::collections::BTreeSet;

use schema::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ModelServing, ModelServingSpec, Plugin, Role, RoleUpgradeStep, RolloutStrategyType};
use crate::{embedded::PodTemplate, percent::IntOrPercent, pods, validation::Review};

const BUDGET: &str = "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable";
const STEPS: &str = "spec.rolloutStrategy.rollingUpdateConfiguration.roleUpgrade.steps";
/// Labels by which the controller, the router and the autoscaler find pods.
const RESERVED_LABELS: &str = "modelserving.volcano.sh/";
const PLUGINS: [&str; 2] = ["demo-pod-tweaks", "lws-standard-labels"];

pub(super) fn review(review: &mut Review<'_>) {
    let Some(serving) = review.typed::<ModelServing>() else { return };
    let spec = &serving.spec;
    let old = review.old.and_then(|old| ModelServingSpec::deserialize(&old["spec"]).ok());
    let old = old.as_ref();
    for (index, role) in spec.template.roles.iter().enumerate() {
        let field = format!("spec.template.roles[{index}]");
        review_template(review, &format!("{field}.entryTemplate"), &role.entry_template);
        if let Some(worker) = &role.worker_template {
            review_template(review, &format!("{field}.workerTemplate"), worker);
        }
        role_budget_moves(review, &field, role, spec, old);
    }
    group_budget_moves(review, spec, old);
    steps_can_be_met(review, spec, old);
    plugins_are_known(review, spec);
    review.times(&["segue.dev/drain-seconds", "segue.dev/settle-seconds", "segue.dev/progress-seconds"]);
}

/// Refuses a number that its author just wrote, and warns of one that only no longer fits because `replicas` changed:
/// the autoscaler writes `replicas` through the main resource, and a refusal would keep it from scaling.
fn refuse_or_warn(review: &mut Review<'_>, just_written: bool, field: &str, value: &Value, problem: &str) {
    if just_written {
        review.refuse(field, Cause::Invalid, Some(value), problem);
    } else {
        review.warn(format!("{field} is {value}: {problem}; accepted as it was there before"));
    }
}

fn review_template(review: &mut Review<'_>, field: &str, template: &PodTemplate) {
    pods::review(review, field, template);
    let labels = template.json()["metadata"]["labels"].as_object();
    let keys = labels.into_iter().flat_map(|labels| labels.keys());
    // A warning and no more: manifests that set them are in use.
    for key in keys.filter(|key| key.starts_with(RESERVED_LABELS)) {
        let why = "pods are found by it; leave it to the controller";
        review.warn(format!("{field}.metadata.labels sets \"{key}\": {why}"));
    }
}

/// A share that rounds to nothing is a budget of nothing: 25% of 2 groups.
fn group_budget_moves(review: &mut Review<'_>, spec: &ModelServingSpec, old: Option<&ModelServingSpec>) {
    let budget = |spec: &ModelServingSpec| {
        let configuration = spec.rollout_strategy.as_ref()?.rolling_update_configuration.as_ref()?;
        Some((configuration.max_unavailable.clone(), configuration.max_surge.clone()))
    };
    let Some((max_unavailable, max_surge)) = budget(spec) else { return };
    if stands_still(&max_unavailable, max_surge.as_ref(), spec.replicas) {
        let just_written = old.and_then(budget) != Some((max_unavailable.clone(), max_surge));
        let problem = rounds_to_nothing(spec.replicas, "groups");
        refuse_or_warn(review, just_written, BUDGET, &json!(max_unavailable), &problem);
    }
}

fn role_budget_moves(
    review: &mut Review<'_>,
    field: &str,
    role: &Role,
    spec: &ModelServingSpec,
    old: Option<&ModelServingSpec>,
) {
    if !uses_role_budgets(spec) {
        return;
    }
    let old = old.filter(|old| uses_role_budgets(old)).and_then(|old| role_named(old, &role.name));
    let just_written = old.map(|old| (&old.max_unavailable, &old.max_surge))
        != Some((&role.max_unavailable, &role.max_surge));
    let field = format!("{field}.maxUnavailable");
    let value = json!(role.max_unavailable);
    if stands_still(&role.max_unavailable, role.max_surge.as_ref(), role.replicas) {
        refuse_or_warn(review, just_written, &field, &value, &rounds_to_nothing(role.replicas, "replicas"));
    }
    // A role without replicas keeps its default of 1: scaling to zero is no mistake.
    let exceeds = role.replicas > 0 && role.max_unavailable.floor_of(role.replicas) > Some(role.replicas);
    if exceeds && is_by_role(spec) {
        let problem =
            format!("may not exceed the replicas of role \"{}\", which are {}", role.name, role.replicas);
        refuse_or_warn(review, just_written, &field, &value, &problem);
    }
}

/// Whether nothing may be missing and nothing may be added, although there is something to replace.
fn stands_still(max_unavailable: &IntOrPercent, max_surge: Option<&IntOrPercent>, replicas: i32) -> bool {
    replicas > 0
        && max_unavailable.floor_of(replicas) == Some(0)
        && max_surge.is_none_or(|surge| surge.ceil_of(replicas) == Some(0))
}

fn rounds_to_nothing(replicas: i32, of_what: &str) -> String {
    let why = "there is no maxSurge: the update could never move; raise one of them";
    format!("rounds down to 0 of {replicas} {of_what} and {why}")
}

/// A target that no role reaches would hold the upgrade for ever, and a target that falls is not what its author meant.
fn steps_can_be_met(review: &mut Review<'_>, spec: &ModelServingSpec, old: Option<&ModelServingSpec>) {
    let steps = steps(spec);
    let just_written = old.is_none_or(|old| self::steps(old) != steps || role_names(old) != role_names(spec));
    for (index, step) in steps.iter().enumerate() {
        let Some(role) = role_named(spec, &step.role) else { continue };
        let field = format!("{STEPS}[{index}].updateTo");
        let value = json!(step.update_to);
        let Role { name, replicas, .. } = role;
        if matches!(step.update_to, IntOrPercent::Count(count) if count > *replicas) {
            let problem = format!("may be at most the replicas of role \"{name}\", which are {replicas}");
            refuse_or_warn(review, just_written, &field, &value, &problem);
        }
        let mut earlier = steps[..index].iter().rev().filter(|earlier| earlier.role == step.role);
        if let Some(larger) = earlier.find(|earlier| exceeds(&earlier.update_to, &step.update_to, *replicas))
        {
            let larger = json!(larger.update_to);
            let problem = format!(
                "falls below an earlier step of role \"{name}\", {larger} of {replicas} replicas: targets count what \
                 earlier steps upgraded and may not fall"
            );
            refuse_or_warn(review, just_written, &field, &value, &problem);
        }
    }
}

/// Whether one target is above another. Two of a kind are compared as written, whatever the number of replicas is today.
fn exceeds(one: &IntOrPercent, other: &IntOrPercent, replicas: i32) -> bool {
    match (one, other) {
        (IntOrPercent::Count(one), IntOrPercent::Count(other)) => one > other,
        (IntOrPercent::Percent(_), IntOrPercent::Percent(_)) => one.floor_of(100) > other.floor_of(100),
        _ => one.ceil_of(replicas).min(Some(replicas)) > other.ceil_of(replicas).min(Some(replicas)),
    }
}

/// A plugin that does not exist does nothing here, and keeps the controller of the public API from doing anything.
fn plugins_are_known(review: &mut Review<'_>, spec: &ModelServingSpec) {
    for (index, plugin) in spec.plugins.iter().enumerate() {
        let Plugin { name, scope, .. } = plugin;
        if !PLUGINS.contains(&name.as_str()) {
            let known = PLUGINS.join(", ");
            review.warn(format!("spec.plugins[{index}].name is \"{name}\": known plugins are {known}"));
        }
        for role in scope.iter().flat_map(|scope| &scope.roles) {
            if role_named(spec, role).is_none() {
                review.warn(format!(
                    "spec.plugins[{index}].scope.roles names \"{role}\": there is no such role"
                ));
            }
        }
    }
}

/// Whether replicas of roles are replaced one by one, so that a role's own budget counts.
fn uses_role_budgets(spec: &ModelServingSpec) -> bool {
    is_by_role(spec) || !steps(spec).is_empty()
}

fn is_by_role(spec: &ModelServingSpec) -> bool {
    spec.rollout_strategy
        .as_ref()
        .is_some_and(|strategy| strategy.ty == RolloutStrategyType::RoleRollingUpdate)
}

fn steps(spec: &ModelServingSpec) -> &[RoleUpgradeStep] {
    let configuration = spec.rollout_strategy.as_ref().and_then(|s| s.rolling_update_configuration.as_ref());
    configuration
        .and_then(|c| c.role_upgrade.as_ref())
        .map(|upgrade| upgrade.steps.as_slice())
        .unwrap_or_default()
}

fn role_named<'a>(spec: &'a ModelServingSpec, name: &str) -> Option<&'a Role> {
    spec.template.roles.iter().find(|role| role.name == name)
}

fn role_names(spec: &ModelServingSpec) -> BTreeSet<&str> {
    spec.template.roles.iter().map(|role| role.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    fn serving(replicas: i32) -> Value {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
        json!({
            "apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "metadata": {"name": "pd"},
            "spec": {
                "rolloutStrategy": {"rollingUpdateConfiguration": {"roleUpgrade": {"steps": [
                    {"role": "decode", "updateTo": 3}, {"role": "decode", "updateTo": "75%"}]}}},
                "template": {"roles": [
                    {"name": "decode", "replicas": replicas, "workerReplicas": 0, "entryTemplate": pod}]},
            },
        })
    }

    fn warnings(manifest: &Value, old: Option<&Value>) -> Vec<String> {
        let verdict = validate(manifest, old);
        assert!(verdict.accepted(), "{:?}", verdict.violations);
        verdict.warnings
    }

    #[test]
    fn a_role_that_was_scaled_below_its_steps_is_a_warning() {
        assert!(warnings(&serving(4), None).is_empty());
        assert!(warnings(&serving(3), Some(&serving(4))).is_empty());
        let scaled = warnings(&serving(2), Some(&serving(4)));
        let expected =
            format!("{STEPS}[0].updateTo is 3: may be at most the replicas of role \"decode\", which are 2");
        assert!(scaled.len() == 1 && scaled[0].starts_with(&expected), "{scaled:?}");
        assert!(!validate(&serving(2), None).accepted(), "who creates it so hears no");
    }

    #[test]
    fn a_share_that_scaling_rounds_to_nothing_is_a_warning() {
        let with_share = |replicas: i32| {
            let mut manifest = serving(replicas);
            manifest["spec"]["rolloutStrategy"] = json!({"type": "RoleRollingUpdate"});
            manifest["spec"]["template"]["roles"][0]["maxUnavailable"] = json!("25%");
            manifest
        };
        let scaled = warnings(&with_share(3), Some(&with_share(4)));
        assert!(
            scaled[0].starts_with("spec.template.roles[0].maxUnavailable is \"25%\": rounds down to 0"),
            "{scaled:?}"
        );
        assert!(warnings(&with_share(0), Some(&with_share(4))).is_empty(), "scaling to zero is no mistake");
    }

    #[test]
    fn what_works_with_the_public_controller_is_a_warning_at_most() {
        let mut manifest = serving(4);
        let reserved = json!({"labels": {"modelserving.volcano.sh/group-name": "mine", "mine": "x"}});
        manifest["spec"]["template"]["roles"][0]["entryTemplate"]["metadata"] = reserved;
        manifest["spec"]["plugins"] = json!([
            {"name": "ranktable"},
            {"name": "demo-pod-tweaks", "scope": {"roles": ["decode", "encode"]}},
        ]);
        let said = warnings(&manifest, None);
        let parts = ["\"modelserving.volcano.sh/group-name\"", "\"ranktable\"", "\"encode\""];
        assert_eq!(said.len(), parts.len(), "{said:?}");
        for (sentence, part) in said.iter().zip(parts) {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
