//! The planner's answer for a ModelServing, carried out.

use api::{modelserving::ModelServing, volcano::PodGroup};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use planner::{
    Reason,
    roles::{Op, RoleHash},
    units,
};
use serde_json::{Value, json};

use super::{
    decide::{Decision, GroupDecision, Whole, id_of},
    disruption, gang,
    observe::{Id, Observed},
    read::{Group, Replica, View},
    render::{self, Place},
};
use crate::{
    labels,
    pipeline::Executor,
    runtime::{Apply, Error, Event, Key, together},
    units::{
        act::{Acted, LEAVES, Parent, carry_out, remove},
        labelled,
    },
};

/// Carries a decision out. The status, with everything that must be remembered first, is written before.
pub(super) async fn act(
    executor: &Executor<'_, ModelServing>,
    observed: &Observed,
    decision: &Decision,
) -> Result<(), Error> {
    let acting = Acting { executor, observed: decision.view(observed) };
    let budgets = disruption::wanted(acting.observed, decision);
    acting.protect(&budgets).await?;
    let mut groups = Vec::new();
    for (ordinal, group) in &decision.groups {
        groups.push(acting.on_group(*ordinal, group));
    }
    let acted = together(groups).await;
    let forgotten = acting.forget_groups(decision).await.and(acting.forget_names(decision).await);
    forgotten.and(acting.unprotect(&budgets).await).and(acted)
}

/// What every write needs.
#[derive(Clone, Copy)]
struct Acting<'a> {
    executor: &'a Executor<'a, ModelServing>,
    observed: View<'a>,
}

impl Acting<'_> {
    async fn on_group(self, ordinal: u32, decided: &GroupDecision) -> Result<(), Error> {
        let nothing = Group::default();
        let group = self.observed.groups.get(&ordinal).unwrap_or(&nothing);
        match decided.whole {
            Whole::Stays => {}
            Whole::Leaves => return self.take_out_group(group, decided).await,
            Whole::Goes => {
                let replicas = group.replicas.values();
                return together(replicas.map(|it| remove(self.executor, acted(it), false)).collect()).await;
            }
        }
        if let Some((id, reason)) = &decided.failure {
            let note = format!("group {ordinal} is recreated because of {id}: {}", reason.what);
            self.executor.record(Event::warning("Delete", "RecreateGroup", note)).await;
        }
        let is_placed_together = self.observed.is_gang && !decided.removed;
        let placed = if is_placed_together { self.place_together(ordinal, group).await } else { Ok(()) };
        // What is taken away goes one by one, in the order that was decided; what is made is made together.
        let (made, taken): (Vec<&Op>, Vec<&Op>) =
            decided.ops.iter().partition(|op| matches!(op, Op::Create { .. }));
        for op in taken {
            self.take(ordinal, group, op).await?;
        }
        // Without a pod that the group is counted by, it is the first.
        let first =
            made.first().filter(|_| !group.replicas.values().any(Replica::counts)).map(|op| id_of(op));
        let making = |op| self.make((ordinal, group), op, first.as_ref() == Some(&id_of(op)));
        // Pods without their PodGroup would be placed one by one.
        let made = match placed {
            Ok(()) => together(made.into_iter().map(making).collect()).await,
            refused => refused,
        };
        let mut acting = Vec::new();
        for (id, answer) in decided.units.iter().filter(|(_, (ops, _))| !ops.is_empty()) {
            if let Some(replica) = group.replicas.get(id) {
                acting.push(self.on_replica((ordinal, group), (id, replica), answer));
            }
        }
        let is_busy = !acting.is_empty() || !decided.ops.is_empty();
        // One replica that cannot be made holds no other one back.
        together(acting).await.and(made)?;
        if is_busy || decided.removed { Ok(()) } else { self.count_by_one(group).await }
    }

    /// A role replica is made: its name, then its entry. Its workers follow when the entry is there.
    async fn make(self, (ordinal, group): (u32, &Group), op: &Op, counts: bool) -> Result<(), Error> {
        let Op::Create { hash, .. } = op else { return Ok(()) };
        let id = id_of(op);
        let Some((_, role)) = self.observed.revisions.making(&id.role, hash) else { return Ok(()) };
        if role.worker_template.is_some() {
            self.name(ordinal, &id).await?;
        }
        let (index, incarnation, is_gang) = (0, group.restarts, self.observed.is_gang);
        self.create(Place { group: ordinal, replica: &id, index, incarnation, is_gang, counts }, hash)
            .await?;
        self.transition(ordinal, &id, "RoleCreating", "Creating").await;
        Ok(())
    }

    /// An autoscaler counts one pod of each group. Another pod takes its place if it does not come back, and one
    /// remains where two leaders chose two.
    async fn count_by_one(self, group: &Group) -> Result<(), Error> {
        let mut counting = group.replicas.values().filter(|replica| replica.counts());
        let marked = |value: Value| json!({"metadata": {"labels": {labels::COUNTS_GROUP: value}}});
        if counting.next().is_none() {
            let mut live = group.replicas.values().filter(|replica| replica.state.is_live());
            let Some(entry) = live.find_map(Replica::entry) else { return Ok(()) };
            return self.executor.change(entry.as_ref(), marked("true".into())).await;
        }
        for entry in counting.filter_map(Replica::entry) {
            self.executor.change(entry.as_ref(), marked(Value::Null)).await?;
        }
        Ok(())
    }

    async fn take(self, ordinal: u32, group: &Group, op: &Op) -> Result<(), Error> {
        let id = id_of(op);
        let Some(replica) = group.replicas.get(&id) else { return Ok(()) };
        match op {
            Op::Create { .. } => {}
            Op::TakeOut { .. } => {
                let Some(entry) = replica.entry() else { return Ok(()) };
                self.executor.take_out(entry, labels::LEAVING, LEAVES).await?;
                self.transition(ordinal, &id, "RoleDeleting", "Deleting").await;
            }
            Op::Delete { .. } => {
                remove(self.executor, acted(replica), false).await?;
                if !replica.unit.leaving && !replica.pods.is_empty() {
                    self.transition(ordinal, &id, "RoleDeleting", "Deleting").await;
                }
            }
        }
        Ok(())
    }

    async fn take_out_group(self, group: &Group, decided: &GroupDecision) -> Result<(), Error> {
        let serving = group.replicas.values().filter(|replica| replica.unit.in_service);
        let entries = serving.filter_map(Replica::entry);
        let taken = entries.map(|entry| self.executor.take_out(entry, labels::GROUP_LEAVING, LEAVES));
        together(taken.collect()).await?;
        for (id, (ops, reason)) in &decided.units {
            let Some(replica) = group.replicas.get(id) else { continue };
            let released = ops.iter().filter(|op| matches!(op, units::Op::ForceRelease { .. })).cloned();
            let parent = Parented { acting: self, ordinal: 0, group, id, replica };
            carry_out(self.executor, acted(replica), &(released.collect(), reason.clone()), &parent).await?;
        }
        Ok(())
    }

    async fn on_replica(
        self,
        (ordinal, group): (u32, &Group),
        (id, replica): (&Id, &Replica),
        planned: &(Vec<units::Op>, Reason),
    ) -> Result<(), Error> {
        let parent = Parented { acting: self, ordinal, group, id, replica };
        carry_out(self.executor, acted(replica), planned, &parent).await
    }

    async fn create(self, place: Place<'_>, hash: &RoleHash) -> Result<(), Error> {
        let serving = self.observed.serving.as_ref();
        let made = self.observed.revisions.making(&place.replica.role, hash);
        let Some((template, role)) = made else { return Ok(()) };
        let key = Key::of(serving).beside(place.name(serving));
        let body = labelled::note(render::pod(serving, (template, role, hash), place));
        self.executor.create::<Pod>(&key, &body).await.map(drop)
    }

    async fn place_together(self, ordinal: u32, group: &Group) -> Result<(), Error> {
        let name = render::group_name(&self.observed.serving, ordinal);
        let live = self.observed.pod_groups.iter().find(|it| it.name_any() == name).map(AsRef::as_ref);
        let wanted = gang::pod_group(&self.observed, (ordinal, group), live);
        let wanted = Apply { may_go: &gang::MAY_GO, exact: gang::exact(live), ..Apply::new(wanted, live) };
        self.executor.apply::<PodGroup>(wanted).await.map(drop)
    }

    /// Deletes the `PodGroup` of every group that is gone.
    async fn forget_groups(self, decision: &Decision) -> Result<(), Error> {
        let there = self.observed.groups.iter().filter(|(_, group)| !group.replicas.is_empty());
        let wanted = decision.groups.iter().filter(|(_, group)| !group.removed);
        let kept = there.map(|(ordinal, _)| ordinal).chain(wanted.map(|(ordinal, _)| ordinal));
        let kept: Vec<String> =
            kept.map(|ordinal| render::group_name(&self.observed.serving, *ordinal)).collect();
        let unused = self.observed.pod_groups.iter().filter(|it| !kept.contains(&it.name_any()));
        let unused = unused.filter(|it| it.metadata.deletion_timestamp.is_none());
        together(unused.map(|it| self.executor.delete(it.as_ref(), true)).collect()).await
    }

    /// Before anything is made: a pod that no budget has counted weakens it.
    async fn protect(self, budgets: &[(Key, Value)]) -> Result<(), Error> {
        for (key, body) in budgets {
            let live = self.observed.budgets.iter().find(|it| it.name_any() == key.name);
            let wanted = Apply::new((key.clone(), body.clone()), live.map(AsRef::as_ref));
            let applied = self.executor.apply::<PodDisruptionBudget>(wanted.exactly(&["selector"])).await;
            self.executor.defer(applied.map(drop))?;
        }
        Ok(())
    }

    /// Deletes the budgets of what is not there any more, or not to be protected.
    async fn unprotect(self, budgets: &[(Key, Value)]) -> Result<(), Error> {
        let is_wanted = |it: &PodDisruptionBudget| budgets.iter().any(|(key, _)| key.name == it.name_any());
        let unused = self.observed.budgets.iter().filter(|it| !is_wanted(it));
        let unused = unused.filter(|it| it.metadata.deletion_timestamp.is_none());
        together(unused.map(|it| self.executor.delete(it.as_ref(), true)).collect()).await
    }

    /// The Service of an entry.
    async fn name(self, group: u32, id: &Id) -> Result<(), Error> {
        let (key, body) = render::headless(&self.observed.serving, group, id);
        let live = self.observed.services.iter().find(|service| service.name_any() == key.name);
        let wanted = Apply::new((key, body), live.map(AsRef::as_ref)).exactly(&["selector"]);
        let applied = self.executor.apply::<Service>(wanted).await;
        self.executor.defer(applied.map(drop))
    }

    /// Keeps the Services of the replicas that are there, and deletes those of what is not any more.
    async fn forget_names(self, decision: &Decision) -> Result<(), Error> {
        let mut kept = Vec::new();
        for (ordinal, group) in self.observed.groups {
            for (id, replica) in &group.replicas {
                let made = self.observed.revisions.making(&id.role, &replica.hash);
                if made.is_some_and(|(_, role)| role.worker_template.is_some()) {
                    kept.push(render::headless(&self.observed.serving, *ordinal, id).0.name);
                    self.name(*ordinal, id).await?;
                }
            }
        }
        for (ordinal, group) in &decision.groups {
            let made = group.ops.iter().filter(|op| matches!(op, Op::Create { .. }));
            kept.extend(made.map(|op| render::headless(&self.observed.serving, *ordinal, &id_of(op)).0.name));
        }
        let unused = self.observed.services.iter().filter(|service| !kept.contains(&service.name_any()));
        let unused = unused.filter(|service| service.metadata.deletion_timestamp.is_none());
        together(unused.map(|service| self.executor.delete(service.as_ref(), true)).collect()).await
    }

    async fn transition(self, group: u32, id: &Id, reason: &str, state: &str) {
        self.executor.record(transition(&self.observed.serving, group, id, reason, state)).await;
    }
}

fn transition(serving: &ModelServing, group: u32, id: &Id, reason: &str, state: &str) -> Event {
    let group = render::group_name(serving, group);
    let note = format!("Role {}/{id} in ServingGroup {group} is now {state}", id.role);
    Event::normal("Reconcile", reason, note)
}

fn acted(replica: &Replica) -> Acted<'_> {
    let Replica { unit, pods, .. } = replica;
    Acted { unit, members: pods, leader: replica.entry(), noun: "role replica" }
}

/// What the pods of a role replica are made by.
struct Parented<'a> {
    acting: Acting<'a>,
    ordinal: u32,
    group: &'a Group,
    id: &'a Id,
    replica: &'a Replica,
}

impl Parent for Parented<'_> {
    async fn create(&self, index: u32) -> Result<(), Error> {
        let Self { acting, ordinal, group, id, replica } = *self;
        // Pods of one replica are of one incarnation; the first one is of its group's.
        let own = replica.unit.history.incarnation;
        let incarnation = if replica.pods.is_empty() { own.max(group.restarts) } else { own };
        let (is_gang, counts) = (acting.observed.is_gang, false);
        let place = Place { group: ordinal, replica: id, index, incarnation, is_gang, counts };
        acting.create(place, &replica.hash).await
    }

    fn event(&self, op: &units::Op, reason: &Reason) -> Option<Event> {
        let Self { acting, ordinal, id, .. } = *self;
        match op {
            units::Op::PutInService => {
                Some(transition(&acting.observed.serving, ordinal, id, "RoleRunning", "Running"))
            }
            units::Op::RecordRecreation { .. } => {
                let note = format!("{id} of group {ordinal} is recreated: {}", reason.what);
                Some(Event::warning("Delete", "RecreateRole", note))
            }
            _ => None,
        }
    }
}
