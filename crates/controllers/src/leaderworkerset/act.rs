//! The planner's answer, written to the API.

use std::sync::Arc;

use api::leaderworkerset::SubdomainPolicy;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use planner::{Reason, Time, sets, units};
use serde_json::{Value, json};

use super::{
    Decision,
    observe::{Group, Observed, index},
    render::{self, Place},
    revision::Template,
};
use crate::{
    labels,
    runtime::{Context, Error, Key, timestamp, together},
};

/// Does what was decided. The status, with everything that must be remembered first, is written before.
pub(super) async fn act(
    context: &Context,
    observed: &Observed,
    decision: &Decision,
    status_was_written: bool,
    now: Time,
) -> Result<(), Error> {
    name_pods(context, observed).await?;
    let takes_away = |op: &sets::Op| !matches!(op, sets::Op::Create { .. });
    if decision.set.ops.iter().any(takes_away) && !status_was_written {
        context.is_current(observed.set.as_ref()).await?;
    }
    for op in &decision.set.ops {
        act_on_set(context, observed, op, now).await?;
    }
    let mut acting = Vec::new();
    for (place, (ops, reason)) in &decision.groups {
        if let Some(group) = observed.groups.get(place).filter(|_| !ops.is_empty()) {
            acting.push(act_on_group(context, observed, (*place, group), (ops, reason), now));
        }
    }
    together(acting).await
}

/// The headless Services, before the pods that they name.
async fn name_pods(context: &Context, observed: &Observed) -> Result<(), Error> {
    let Some(template) = observed.revisions.target() else { return Ok(()) };
    let groups: Vec<Option<u32>> = match template.subdomains {
        SubdomainPolicy::Shared => vec![None],
        SubdomainPolicy::UniquePerReplica => (0..observed.spec.replicas).map(Some).collect(),
    };
    let owner = observed.set.uid().unwrap_or_default();
    for group in groups {
        let (key, body) = render::headless(&observed.set, group);
        let live = observed.services.iter().find(|service| service.name_any() == key.name);
        context.apply::<Service>(&key, &owner, body, live.map(AsRef::as_ref)).await?;
    }
    Ok(())
}

async fn act_on_set(context: &Context, observed: &Observed, op: &sets::Op, now: Time) -> Result<(), Error> {
    match op {
        sets::Op::Create { ordinal, revision } => {
            let Some(template) = observed.revisions.get(*revision) else { return Ok(()) };
            // The leader alone: its workers follow when the startup policy allows.
            create(context, observed, template, Place { group: *ordinal, index: 0, incarnation: 0 }).await
        }
        sets::Op::TakeOut { ordinal, .. } => {
            let Some(leader) = observed.groups.get(ordinal).and_then(Group::leader) else { return Ok(()) };
            take_out(context, leader, labels::LEAVING, "chosen to go; it finishes its requests", now).await
        }
        sets::Op::Delete { ordinal, .. } => {
            let pods = observed.groups.get(ordinal).into_iter().flat_map(|group| &group.pods);
            let pods = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
            delete(context, pods, true).await
        }
    }
}

async fn act_on_group(
    context: &Context,
    observed: &Observed,
    (place, group): (u32, &Group),
    (ops, reason): (&[units::Op], &Reason),
    now: Time,
) -> Result<(), Error> {
    for op in ops {
        match op {
            units::Op::CreatePod { index } => {
                let Some(template) = observed.revisions.get(group.unit.revision) else { continue };
                let incarnation = group.unit.history.incarnation;
                create(context, observed, template, Place { group: place, index: *index, incarnation })
                    .await?;
            }
            units::Op::PutInService => {
                let Some(leader) = group.leader() else { continue };
                let why = (true, "InService", "every pod of its group is ready");
                context.set_pod_condition(leader, labels::IN_SERVICE, why, timestamp(now)).await?;
            }
            units::Op::TakeOutOfService => {
                let Some(leader) = group.leader() else { continue };
                let (reason, why) = if group.unit.leaving {
                    (labels::LEAVING, "chosen to go; it finishes its requests")
                } else {
                    ("NotReady", "not every pod of its group is ready")
                };
                take_out(context, leader, reason, why, now).await?;
            }
            units::Op::RecordStart { baselines } => record_start(context, group, baselines).await?,
            // Written with the status, before this.
            units::Op::RecordRecreation { .. } => {
                let note = format!("group {place} is made again: {}", reason.what);
                context.tell(observed.set.as_ref(), true, "RecreateGroup", note).await;
            }
            units::Op::RecordSteady => {}
            units::Op::DeletePods { uids } => {
                delete(context, uids.iter().filter_map(|uid| group.pod(uid)), false).await?;
            }
            units::Op::ForceRelease { uids } => {
                let pods = uids.iter().filter_map(|uid| group.pod(uid));
                together(pods.map(|pod| context.release(pod.as_ref())).collect()).await?;
            }
        }
    }
    Ok(())
}

/// Deletes pods of a group: the leader last, because what is known of the group, that it leaves, is written on it.
async fn delete(
    context: &Context,
    pods: impl Iterator<Item = &Arc<Pod>>,
    exactly: bool,
) -> Result<(), Error> {
    let (leader, workers): (Vec<_>, Vec<_>) = pods.partition(|pod| index(pod) == Some(0));
    for pods in [workers, leader] {
        together(pods.into_iter().map(|pod| context.delete(pod.as_ref(), exactly)).collect()).await?;
    }
    Ok(())
}

async fn create(
    context: &Context,
    observed: &Observed,
    template: &Template,
    place: Place,
) -> Result<(), Error> {
    let set = observed.set.as_ref();
    let key = Key::of(set).beside(place.name(set));
    let body: Value = render::pod(set, template, place);
    context.create::<Pod>(&key, &set.uid().unwrap_or_default(), &body).await
}

/// The first of the two writes that retire a group. Times in conditions are whole seconds: the next one, so that nobody
/// drains for less than was promised.
async fn take_out(context: &Context, leader: &Pod, reason: &str, why: &str, now: Time) -> Result<(), Error> {
    let since = planner::Time::from_secs(now.as_secs() + u64::from(now.subsec_nanos() > 0));
    context.set_pod_condition(leader, labels::IN_SERVICE, (false, reason, why), timestamp(since)).await
}

/// The leader last: it says for the whole group that all have started.
async fn record_start(
    context: &Context,
    group: &Group,
    baselines: &[(planner::Uid, u32)],
) -> Result<(), Error> {
    let leader = group.leader().and_then(|leader| leader.uid());
    let (first, last): (Vec<_>, Vec<_>) =
        baselines.iter().partition(|(uid, _)| leader.as_deref() != Some(uid.0.as_str()));
    for (uid, restarts) in first.into_iter().chain(last) {
        let Some(pod) = group.pod(uid) else { continue };
        let patch = json!({"metadata": {"annotations": {labels::RESTARTS_AT_START: restarts.to_string()}}});
        context.change(pod.as_ref(), patch).await?;
    }
    Ok(())
}
