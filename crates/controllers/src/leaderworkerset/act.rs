//! The planner's answer for a set, carried out.

use api::leaderworkerset::LeaderWorkerSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use planner::{Reason, sets, units};

use super::{
    decide::{Decision, Group},
    events,
    observe::{Members, Observed},
    render::{self, Claim, Place},
    revision::GroupTemplate,
    services,
};
use crate::{
    labels,
    pipeline::Executor,
    runtime::{Error, Event, Key, together},
    units::{
        act::{Acted, LEAVES, Parent, carry_out, remove},
        labelled,
    },
};

type Exec<'a> = Executor<'a, LeaderWorkerSet>;

/// Carries a decision out. The status, with everything that must be remembered first, is written before.
pub(super) async fn act(executor: &Exec<'_>, observed: &Observed, decision: &Decision) -> Result<(), Error> {
    services::keep(executor, observed, decision).await?;
    let mut done = Vec::new();
    let acted = act_on_set(executor, observed, decision, &mut done).await;
    for event in events::of_ops(decision, &done) {
        executor.record(event).await;
    }
    let made = acted?;
    let mut acting = Vec::new();
    for (place, planned) in decision.units.iter().filter(|(_, (ops, _))| !ops.is_empty()) {
        if let (Some(members), Some(group)) = (observed.groups.get(place), decision.groups.get(place)) {
            acting.push(act_on_group(executor, observed, (*place, members, group), planned));
        }
    }
    // A group that could not be made holds none of the others back.
    together(acting).await.and(made)?;
    super::claims::keep(executor, observed, decision).await
}

/// Returns whether every group that is to be there was made: with a quota that is full, the others go on. What is taken
/// away goes in the order that was decided, and no further than the API lets it.
async fn act_on_set<'op>(
    executor: &Exec<'_>,
    observed: &Observed,
    decision: &'op Decision,
    done: &mut Vec<&'op sets::Op>,
) -> Result<Result<(), Error>, Error> {
    let mut made = Ok(());
    for op in &decision.set.ops {
        match act_on_op(executor, observed, decision, op).await {
            Ok(true) => done.push(op),
            Ok(false) => {}
            Err(error @ Error::Refused { .. }) if matches!(op, sets::Op::Create { .. }) => {
                made = made.and(Err(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// Returns whether anything was done.
async fn act_on_op(
    executor: &Exec<'_>,
    observed: &Observed,
    decision: &Decision,
    op: &sets::Op,
) -> Result<bool, Error> {
    if let sets::Op::Create { ordinal, revision } = op {
        let Some(template) = observed.revisions.get(*revision) else { return Ok(false) };
        // The leader alone: its workers follow when the startup policy allows.
        return create(executor, template, Place { group: *ordinal, index: 0, incarnation: 0 }).await;
    }
    let place = op.ordinal();
    let (Some(members), Some(group)) = (observed.groups.get(&place), decision.groups.get(&place)) else {
        return Ok(false);
    };
    match op {
        sets::Op::TakeOut { .. } => {
            let Some(leader) = members.leader() else { return Ok(false) };
            executor.take_out(&leader.pod, labels::LEAVING, LEAVES).await?;
        }
        _ => remove(executor, acted(members, group), true).await?,
    }
    Ok(true)
}

fn acted<'a>(members: &'a Members, group: &'a Group) -> Acted<'a> {
    let leader = members.leader().map(|leader| &leader.pod);
    Acted { unit: &group.unit, members: &members.pods, leader, noun: "group" }
}

async fn act_on_group(
    executor: &Exec<'_>,
    observed: &Observed,
    (place, members, group): (u32, &Members, &Group),
    planned: &(Vec<units::Op>, Reason),
) -> Result<(), Error> {
    let parent = Parented { executor, observed, place, group };
    carry_out(executor, acted(members, group), planned, &parent).await
}

/// What the pods of a group are made by.
struct Parented<'a> {
    executor: &'a Exec<'a>,
    observed: &'a Observed,
    place: u32,
    group: &'a Group,
}

impl Parent for Parented<'_> {
    async fn create(&self, index: u32) -> Result<(), Error> {
        let unit = &self.group.unit;
        let Some(template) = self.observed.revisions.get(unit.revision) else { return Ok(()) };
        let place = Place { group: self.place, index, incarnation: unit.history.incarnation };
        create(self.executor, template, place).await.map(drop)
    }

    fn event(&self, op: &units::Op, reason: &Reason) -> Option<Event> {
        matches!(op, units::Op::RecordRecreation { .. }).then(|| {
            let note = format!("group {} is recreated: {}", self.place, reason.what);
            Event::normal("Delete", "RecreateGroup", note)
        })
    }
}

/// Makes a pod, and before it what it keeps its data in. Returns whether it is there.
async fn create(executor: &Exec<'_>, template: &GroupTemplate, place: Place) -> Result<bool, Error> {
    let set = executor.object();
    for claim in render::claims(set, template, place) {
        if !has_claim(executor, &claim).await? {
            return Ok(false);
        }
    }
    let key = Key::of(set).beside(place.name(set));
    executor.create::<Pod>(&key, &labelled::note(render::pod(set, template, place))).await
}

/// Whether a pod may use its claim. A claim that exists is used, of whatever origin, as `StatefulSets` do; a claim that
/// is being deleted would take the pod's data with it.
async fn has_claim(executor: &Exec<'_>, claim: &Claim) -> Result<bool, Error> {
    let known = executor.context().cache().get::<PersistentVolumeClaim>(&claim.key).cloned();
    let Some(known) = known else {
        let owner = executor.object().metadata.uid.clone().unwrap_or_default();
        let made = executor.context().create::<PersistentVolumeClaim>(&claim.key, &owner, &claim.body).await;
        return match made {
            Ok(()) | Err(Error::NotOwned { .. }) => Ok(true),
            Err(error) => Err(error),
        };
    };
    let stays = known.metadata.deletion_timestamp.is_none();
    if !stays {
        let key = &claim.key;
        executor.name_is_taken(format!(
            "PersistentVolumeClaim {key} is being deleted; its pod is created afterwards"
        ));
    }
    Ok(stays)
}
