//! `ModelServing`: serving groups of roles, such as prefill and decode.

mod act;
mod adopt;
mod decide;
mod disruption;
mod events;
mod gang;
mod kind;
mod observe;
mod plan;
mod plugin;
mod read;
mod render;
mod revision;
mod status;
#[cfg(test)]
mod tests;
mod wanted;

use std::sync::Arc;

use api::{
    Kind,
    modelserving::{ModelServing, ModelServingStatus},
    volcano::PodGroup,
};
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Node, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use planner::{Time, roles, sets::State};

pub(crate) use self::kind::SERVED;
use self::{
    decide::{Decision, GroupDecision, Whole, id_of},
    observe::Observed,
    read::{Group, Replica},
};
use crate::{
    Answer, count, labels, nodes,
    pipeline::{Controller, Executor, Found, History, Inputs, PodCheck},
    runtime::{Error, Event, Requeue, Select, Watches, controllers_of},
    units::record::is_recreated,
};

/// The controller of `ModelServing`s.
#[derive(Debug)]
pub(crate) struct Servings;

impl Controller for Servings {
    type Object = ModelServing;
    type Observed = Observed;
    type Decision = Decision;

    const HAS_OTHER_OPERATORS: bool = true;

    fn kind() -> &'static Kind {
        &api::modelserving::KIND
    }

    fn watches(watches: &mut Watches<'_>) {
        let labelled = labels::SERVING_NAME;
        watches.own::<ModelServing>();
        watches.controlled::<Pod>(Self::kind(), Select::labelled(labelled));
        watches.controlled::<PodDisruptionBudget>(Self::kind(), Select::all());
        watches.mapped::<Node>(Select::all(), |node, cache| nodes::owners(node, cache, Self::kind()));
        watches.controlled::<ControllerRevision>(Self::kind(), Select::labelled(labelled));
        watches.controlled::<Service>(Self::kind(), Select::labelled(labels::OURS));
        // By their owner: those that Kthena made may have any label.
        let is_ours = |group: &PodGroup| !controllers_of(group, Self::kind()).is_empty();
        watches.controlled::<PodGroup>(Self::kind(), Select::all().keeping(is_ours));
    }

    fn observe(inputs: &Inputs<'_>, serving: &Arc<ModelServing>) -> Result<Found<Observed>, Error> {
        observe::observe(inputs, serving)
    }

    fn decide(observed: &Observed, now: Time) -> Decision {
        decide::decide(observed, now)
    }

    /// What is made again loses what it has: its failure must be one, and not a pod that is not heard of yet. The same for
    /// what is replaced without a place in the budget, because it does not serve: one old pod of a group makes all of it
    /// look so.
    fn pods_to_check(observed: &Observed, decision: &Decision) -> Vec<PodCheck> {
        let doubt = |(ordinal, decided): (&u32, &GroupDecision)| {
            let group = decision.read.get(ordinal)?;
            let fails = decided.units.values().any(|(ops, _)| is_recreated(ops));
            (fails || decided.failure.is_some() || takes_what_does_not_serve(group, decided)).then(|| {
                let members = group.replicas.values().flat_map(|it| &it.pods);
                let pods = members.map(|member| Arc::clone(&member.pod)).collect();
                PodCheck { selector: observed.selector(*ordinal), pods }
            })
        };
        decision.groups.iter().filter_map(doubt).collect()
    }

    fn needs_current_spec(decision: &Decision) -> bool {
        let takes_away = |group: &GroupDecision| {
            let ops = &group.ops;
            group.whole != Whole::Stays || ops.iter().any(|op| !matches!(op, roles::Op::Create { .. }))
        };
        decision.groups.values().any(takes_away)
    }

    fn status(observed: &Observed, decision: &Decision, _: &[Answer], now: Time) -> ModelServingStatus {
        status::status(observed, decision, now)
    }

    fn events(
        observed: &Observed,
        _: &Decision,
        before: &ModelServingStatus,
        after: &ModelServingStatus,
    ) -> Vec<Event> {
        events::of_transitions(before, after, observed.wanted.group.steps.len())
    }

    async fn act(
        executor: &Executor<'_, ModelServing>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        act::act(executor, observed, decision).await
    }

    fn history(observed: &Observed, decision: &Decision) -> Option<History> {
        let used = decision.view(observed).used().into_iter().collect();
        let limit = observed.serving.spec.revision_history_limit.unwrap_or(revision::HISTORY);
        Some(History { label: labels::SERVING_REVISION, used, limit: count(limit) as usize })
    }

    fn requeue(_: &Observed, decision: &Decision, now: Time) -> Requeue {
        let groups = decision.groups.values();
        let reasons =
            groups.flat_map(|group| group.units.values().map(|(_, reason)| reason).chain([&group.reason]));
        let at = reasons.chain([&decision.reason]).filter_map(|reason| reason.until);
        let at = at.chain(decision.changes_at).filter(|at| *at > now).min();
        let mut replicas = decision.read.values().flat_map(|group| group.replicas.values());
        Requeue { at, outside: replicas.any(|replica| matches!(replica.state, State::Leaving { .. })) }
    }
}

fn takes_what_does_not_serve(group: &Group, decided: &GroupDecision) -> bool {
    let idles = |replica: &Replica| matches!(replica.state, State::Starting | State::Lapsed);
    if decided.whole != Whole::Stays {
        return group.replicas.values().any(idles);
    }
    let taken = decided.ops.iter().filter(|op| !matches!(op, roles::Op::Create { .. }));
    taken.filter_map(|op| group.replicas.get(&id_of(op))).any(idles)
}
