//! `LeaderWorkerSet`: groups of a leader and its workers.

mod act;
pub mod adopt;
mod budgets;
mod canonical;
mod claims;
mod decide;
mod events;
mod kind;
mod observe;
mod plan;
mod render;
mod revision;
mod services;
mod status;
mod wanted;

use std::sync::Arc;

use api::{
    Kind,
    leaderworkerset::{LeaderWorkerSet, LeaderWorkerSetStatus},
};
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Node, PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use planner::{Time, sets::State};

use self::{decide::Decision, observe::Observed};
pub(crate) use self::{
    kind::{SERVED, as_made},
    revision::is_same,
    wanted::set_spec,
};
use crate::{
    Answer, labels, nodes,
    pipeline::{Controller, Executor, Found, History, Inputs, PodCheck},
    request::verbs::RETRY,
    runtime::{Error, Event, Key, Requeue, Select, Watches, controllers_of},
    units::record::is_recreated,
};

/// The controller of sets.
#[derive(Debug)]
pub(crate) struct Sets;

impl Controller for Sets {
    type Object = LeaderWorkerSet;
    type Observed = Observed;
    type Decision = Decision;

    const REQUESTS: &'static [(&'static str, &'static str)] =
        &[(RETRY, "groups in back-off are recreated at once")];
    const HAS_OTHER_OPERATORS: bool = true;

    fn kind() -> &'static Kind {
        &api::leaderworkerset::KIND
    }

    fn watches(watches: &mut Watches<'_>) {
        let labelled = labels::SET_NAME;
        watches.own::<LeaderWorkerSet>();
        watches.mapped::<Pod>(Select::labelled(labelled), |pod, _| {
            let owners = controllers_of(pod, Self::kind());
            // Of another operator: the set that waits for its adoption.
            let named = pod.labels().get(labels::SET_NAME).filter(|_| owners.is_empty());
            owners.into_iter().chain(named.map(|name| Key::of(pod).beside(name))).collect()
        });
        // A claim that stays when its set goes has no owner.
        watches.mapped::<PersistentVolumeClaim>(Select::labelled(labelled), |claim, _| {
            claim.labels().get(labels::SET_NAME).map(|name| Key::of(claim).beside(name)).into_iter().collect()
        });
        watches.mapped::<PodDisruptionBudget>(Select::all(), |budget, cache| {
            let sets = cache.within::<LeaderWorkerSet>(&budget.namespace().unwrap_or_default());
            sets.map(|set| Key::of(set.as_ref())).collect()
        });
        watches.mapped::<Node>(Select::all(), |node, cache| nodes::owners(node, cache, Self::kind()));
        watches.controlled::<ControllerRevision>(Self::kind(), Select::labelled(labelled));
        watches.controlled::<Service>(Self::kind(), Select::labelled(labels::OURS));
    }

    fn observe(inputs: &Inputs<'_>, set: &Arc<LeaderWorkerSet>) -> Result<Found<Observed>, Error> {
        observe::observe(inputs, set)
    }

    fn decide(observed: &Observed, now: Time) -> Decision {
        decide::decide(observed, now)
    }

    /// A group that is made again loses what it has: its failure must be one, and not a pod that is not heard of yet.
    fn pods_to_check(observed: &Observed, decision: &Decision) -> Vec<PodCheck> {
        let failing = decision.units.iter().filter(|(_, (ops, _))| is_recreated(ops));
        let doubt = |(place, _): (&u32, _)| {
            let pods = observed.groups.get(place)?.pods.iter().map(|member| Arc::clone(&member.pod));
            let name = observed.set.name_any();
            let selector = format!("{}={name},{}={place}", labels::SET_NAME, labels::GROUP_INDEX);
            Some(PodCheck { selector, pods: pods.collect() })
        };
        failing.filter_map(doubt).collect()
    }

    fn needs_current_spec(decision: &Decision) -> bool {
        // Creations too: a set that was scaled down or deleted meanwhile must not get a group again.
        !decision.set.ops.is_empty()
    }

    fn status(observed: &Observed, decision: &Decision, _: &[Answer], now: Time) -> LeaderWorkerSetStatus {
        status::status(observed, decision, now)
    }

    fn events(
        observed: &Observed,
        _: &Decision,
        before: &LeaderWorkerSetStatus,
        after: &LeaderWorkerSetStatus,
    ) -> Vec<Event> {
        events::of_conditions(observed, before, after).into_iter().collect()
    }

    async fn act(
        executor: &Executor<'_, LeaderWorkerSet>,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<(), Error> {
        act::act(executor, observed, decision).await
    }

    fn history(observed: &Observed, decision: &Decision) -> Option<History> {
        let used = decision.groups.values().map(|group| group.unit.revision);
        let used = used.chain([decision.spec.target, decision.spec.old]);
        let used = used.map(|revision| observed.revisions.key(revision)).collect();
        Some(History { label: labels::REVISION, used, limit: revision::HISTORY })
    }

    fn requeue(observed: &Observed, decision: &Decision, now: Time) -> Requeue {
        let reasons = decision.units.values().map(|(_, reason)| reason).chain([&decision.set.reason]);
        let stuck = decision.groups.values().filter_map(|group| group.stuck_at);
        let members = observed.groups.values().flat_map(|group| &group.pods);
        let given_up = members.filter_map(|member| member.given_up_at);
        let at = reasons.filter_map(|reason| reason.until).chain(given_up).chain(stuck);
        let outside = decision.groups.values().any(|group| matches!(group.state, State::Leaving { .. }));
        Requeue { at: at.filter(|at| *at > now).min(), outside }
    }
}
