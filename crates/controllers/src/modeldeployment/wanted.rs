//! A spec, in the planner's words: what the controller acts on and what `segue plan` rehearses.

use std::time::Duration;

use api::modeldeployment::{
    self as spec, CanaryStep, Check, ModelDeployment, ModelDeploymentSpec, Protocol, StrategyType,
    WorkloadType,
};
use kube::ResourceExt;
use planner::{
    Amount, Budget,
    handover::{OnFailure, Policy, Step, VersionId, Wanted},
};

use super::{checks, outside_checks, version::labels_of};
use crate::{
    Protections, amount, count, owner,
    traffic::{self, Parents, Traffic, TrafficPort},
};

/// What is said of workloads that are not served yet.
pub(super) const NOT_SERVED_ROLES: &str = "a workload of roles is not served yet; use Pod or LeaderWorker";

/// What is said of strategies that are not served yet.
pub(super) const NOT_SERVED_IN_PLACE: &str = "the strategy InPlace is not served yet; use another one";

/// What a deployment wants of its handover; nothing for an update in place, which layer 1 rolls.
pub(super) fn wanted(spec: &ModelDeploymentSpec, target: VersionId) -> Option<Wanted> {
    let replicas = count(spec.replicas);
    let (budget, policy) = policy(spec, replicas)?;
    let on_failure = match spec.rollback.on_failure {
        spec::OnFailure::Rollback => OnFailure::RollBack,
        spec::OnFailure::Pause => OnFailure::Pause,
    };
    let progress_deadline = Some(seconds(spec.rollback.progress_deadline_seconds));
    Some(Wanted { target, replicas, budget, policy, progress_deadline, on_failure })
}

/// The room that a rollout may take.
pub(super) fn budget(spec: &ModelDeploymentSpec) -> Option<Budget> {
    policy(spec, count(spec.replicas)).map(|(budget, _)| budget)
}

fn policy(spec: &ModelDeploymentSpec, replicas: u32) -> Option<(Budget, Policy)> {
    let strategy = &spec.strategy;
    Some(match strategy.ty {
        StrategyType::Rolling => {
            let rolling = strategy.rolling.clone().unwrap_or_default();
            let budget = Budget::of(replicas, amount(&rolling.max_surge), amount(&rolling.max_unavailable));
            (budget, Policy::Rolling)
        }
        StrategyType::BlueGreen => {
            let options = strategy.blue_green.clone().unwrap_or_default();
            let policy = Policy::BlueGreen {
                auto_promote: options.auto_promote,
                delay: seconds(options.promote_delay_seconds),
                preview: amount(&options.preview_replicas),
                retain: seconds(options.retain_seconds),
            };
            (Budget { surge: replicas, unavailable: 0 }, policy)
        }
        StrategyType::Canary => {
            let canary = strategy.canary.as_ref()?;
            let steps = canary.steps.iter().filter_map(step).collect();
            (Budget::of(replicas, amount(&canary.max_surge), Amount::Count(0)), Policy::Canary(steps))
        }
        StrategyType::Incremental => {
            let options = strategy.incremental.as_ref()?;
            let surge = Amount::Percent(count(options.max_surge_percent));
            let policy = Policy::Incremental {
                step: count(options.step_size_percent),
                interval: seconds(options.interval_seconds),
            };
            (Budget::of(replicas, surge, Amount::Count(0)), policy)
        }
        StrategyType::Recreate => (Budget { surge: 0, unavailable: replicas }, Policy::Recreate),
        StrategyType::InPlace => return None,
    })
}

fn step(step: &CanaryStep) -> Option<Step> {
    let weight = step.weight.map(|weight| Step::Weight(count(weight), step.replicas.as_ref().map(amount)));
    let pause = step.pause.as_ref().map(|pause| Step::Pause(pause.seconds.map(seconds)));
    let analysis = step.analysis.as_ref().map(|analysis| Step::Analysis(seconds(analysis.seconds)));
    weight.or(pause).or(analysis)
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::from(count(seconds)))
}

/// Fields that are kept and have no effect yet, each with what happens instead. What is as it would be anyway is not told.
pub(super) fn not_acted_on(spec: &ModelDeploymentSpec) -> Vec<String> {
    let strategy = &spec.strategy;
    let checks = || spec.analysis.iter().flat_map(|analysis| &analysis.checks);
    let class = spec.traffic.gateway.as_ref().and_then(|gateway| gateway.class_name.as_deref());
    let counts = class == Some("segue");
    let told = [
        (spec.workload.ty == WorkloadType::Roles, NOT_SERVED_ROLES),
        (strategy.ty == StrategyType::InPlace, NOT_SERVED_IN_PLACE),
        (
            checks().any(|check| !is_made(check)),
            "analysis.checks: latency, comparedTo, when: After, https, and errors before traffic are not checked",
        ),
        (
            checks().any(checks::is_counted) && !counts,
            "analysis.checks: answers are counted by Gateways of the class segue alone; without, noData decides",
        ),
        (
            spec.analysis.as_ref().is_some_and(|it| it.bake_seconds > 0),
            "analysis.bakeSeconds: nothing is checked after promotion",
        ),
        (
            spec.health.ready_deadline_seconds != spec::Health::default().ready_deadline_seconds,
            "health.readyDeadlineSeconds: rollback.progressDeadlineSeconds alone ends a rollout that is not ready",
        ),
        (
            spec.revision_history_limit != 10,
            "revisionHistoryLimit: versions go when they have no replica left",
        ),
    ];
    told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what.to_owned()).collect()
}

/// Whether a check is made at all.
fn is_made(check: &Check) -> bool {
    checks::is_counted(check) || outside_checks::is_made(check)
}

/// How long a gateway of others may take to do what it accepted.
pub(super) fn settle(deployment: &ModelDeployment, protections: Protections) -> Duration {
    if protections.settle { seconds(deployment.spec.traffic.settle_seconds) } else { Duration::ZERO }
}

/// How traffic reaches a deployment.
pub(super) fn traffic(deployment: &ModelDeployment, protections: Protections) -> Traffic {
    let name = deployment.name_any();
    let traffic_port = |port: &spec::Port| TrafficPort {
        name: port.name.clone(),
        protocol: match port.protocol {
            Protocol::Http => traffic::Protocol::Http,
            Protocol::Grpc => traffic::Protocol::Grpc,
        },
        route: format!("{name}-{}", port.name),
        listens: port.port,
        port: port.port,
    };
    let gateway = deployment.spec.traffic.gateway.as_ref().map(|gateway| Parents {
        own: gateway.class_name.clone().map(|class| (name.clone(), class)),
        existing: gateway.parent_refs.clone(),
        hostnames: gateway.hostnames.clone(),
        paths: gateway.paths.clone(),
    });
    Traffic {
        namespace: deployment.namespace().unwrap_or_default(),
        owner: owner(deployment),
        labels: labels_of(deployment, None),
        ports: deployment.spec.traffic.ports.iter().map(traffic_port).collect(),
        gateway,
        settle: settle(deployment, protections),
    }
}
