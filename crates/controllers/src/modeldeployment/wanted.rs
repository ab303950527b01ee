//! A spec, in the planner's words.

use std::time::Duration;

use api::modeldeployment::{self as spec, CanaryStep, ModelDeploymentSpec, StrategyType};
use planner::{
    Amount, Budget,
    handover::{OnFailure, Policy, Step, VersionId, Wanted},
};

use crate::{amount, count};

/// What a deployment wants of its handover; nothing for an update in place, which layer 1 rolls.
pub fn wanted(spec: &ModelDeploymentSpec, target: VersionId) -> Option<Wanted> {
    let replicas = count(spec.replicas);
    let (budget, policy) = policy(spec, replicas)?;
    let on_failure = match spec.rollback.on_failure {
        spec::OnFailure::Rollback => OnFailure::RollBack,
        spec::OnFailure::Pause => OnFailure::Pause,
    };
    let progress_deadline = Some(seconds(spec.rollback.progress_deadline_seconds));
    Some(Wanted { target, replicas, budget, policy, progress_deadline, on_failure })
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
