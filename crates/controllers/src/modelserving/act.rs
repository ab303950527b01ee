//! The planner's answer, written to the API.

use std::sync::Arc;

use api::volcano::PodGroup;
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use planner::{Reason, Time, Uid, roles::Op, units};
use serde_json::{Value, json};

use super::{
    decide::{Decision, GroupDecision, Whole, id_of},
    floors, gang,
    observe::{Group, Id, Observed, Replica, index},
    render::{self, Place},
    tell,
};
use crate::{
    labels, nodes,
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
    let takes_away = |group: &GroupDecision| {
        group.whole != Whole::Stays || group.ops.iter().any(|op| !matches!(op, Op::Create { .. }))
    };
    if decision.groups.values().any(takes_away) && !status_was_written {
        context.is_current(observed.serving.as_ref()).await?;
    }
    let acting = Acting { context, observed, now };
    let budgets = floors::wanted(observed, decision);
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
    context: &'a Context,
    observed: &'a Observed,
    now: Time,
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
                return together(replicas.map(|replica| self.delete(replica)).collect()).await;
            }
        }
        if let Some((id, reason)) = &decided.failure {
            let note = format!("group {ordinal} is made again because of {id}: {}", reason.what);
            self.tell(true, "RecreateGroup", note).await;
        }
        if self.observed.is_gang && !decided.removed {
            // First: pods without their PodGroup would be placed one by one.
            self.place_together(ordinal, group).await?;
        }
        // What is taken away goes one by one, in the order that was decided; what is made is made together.
        let (made, taken): (Vec<&Op>, Vec<&Op>) =
            decided.ops.iter().partition(|op| matches!(op, Op::Create { .. }));
        for op in taken {
            self.take(ordinal, group, op).await?;
        }
        // The first is the one that the group is counted by, if there is none.
        let first =
            made.first().filter(|_| !group.replicas.values().any(Replica::counts)).map(|op| id_of(op));
        let making = |op| self.make((ordinal, group), op, first.as_ref() == Some(&id_of(op)));
        let made = together(made.into_iter().map(making).collect()).await;
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

    /// Whoever scales counts one pod of each group: that is another one where the one that counted does not come back, and
    /// one alone where two leaders chose two.
    async fn count_by_one(self, group: &Group) -> Result<(), Error> {
        let mut counting = group.replicas.values().filter(|replica| replica.counts());
        let marked = |value: Value| json!({"metadata": {"labels": {labels::COUNTS_GROUP: value}}});
        if counting.next().is_none() {
            let mut live = group.replicas.values().filter(|replica| replica.state.is_live());
            let Some(entry) = live.find_map(Replica::entry) else { return Ok(()) };
            return self.context.change(entry.as_ref(), marked("true".into())).await;
        }
        for entry in counting.filter_map(Replica::entry) {
            self.context.change(entry.as_ref(), marked(Value::Null)).await?;
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
                self.take_out(entry, labels::LEAVING, CHOSEN).await?;
                self.transition(ordinal, &id, "RoleDeleting", "Deleting").await;
            }
            Op::Delete { .. } => {
                self.delete(replica).await?;
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
        together(entries.map(|entry| self.take_out(entry, labels::GROUP_LEAVING, CHOSEN)).collect()).await?;
        for (id, (ops, _)) in &decided.units {
            for op in ops {
                if let (units::Op::ForceRelease { uids }, Some(replica)) = (op, group.replicas.get(id)) {
                    self.release(replica, uids).await?;
                }
            }
        }
        Ok(())
    }

    async fn on_replica(
        self,
        (ordinal, group): (u32, &Group),
        (id, replica): (&Id, &Replica),
        (ops, reason): &(Vec<units::Op>, Reason),
    ) -> Result<(), Error> {
        for op in ops {
            match op {
                units::Op::CreatePod { index } => {
                    // Pods of one replica are of one incarnation; the first one is of its group's.
                    let own = replica.unit.history.incarnation;
                    let incarnation = if replica.pods.is_empty() { own.max(group.restarts) } else { own };
                    let is_gang = self.observed.is_gang;
                    let counts = false;
                    let place =
                        Place { group: ordinal, replica: id, index: *index, incarnation, is_gang, counts };
                    self.create(place, &replica.hash).await?;
                }
                units::Op::PutInService => {
                    let Some(entry) = replica.entry() else { continue };
                    let why = (true, "InService", "every pod of its role replica is ready");
                    let since = timestamp(self.now);
                    self.context.set_pod_condition(entry, labels::IN_SERVICE, why, since).await?;
                    self.transition(ordinal, id, "RoleRunning", "Running").await;
                }
                units::Op::TakeOutOfService => {
                    let Some(entry) = replica.entry() else { continue };
                    let (reason, why) = if replica.unit.leaving {
                        (labels::LEAVING, CHOSEN)
                    } else {
                        ("NotReady", "not every pod of its role replica is ready")
                    };
                    self.take_out(entry, reason, why).await?;
                }
                units::Op::RecordStart { baselines } => self.record_start(replica, baselines).await?,
                // Written with the status, before this.
                units::Op::RecordRecreation { .. } => {
                    let note = format!("{id} of group {ordinal} is made again: {}", reason.what);
                    self.tell(true, "RecreateRole", note).await;
                }
                units::Op::RecordSteady => {}
                units::Op::DeletePods { uids } => {
                    let pods = uids.iter().filter_map(|uid| replica.pod(uid));
                    self.delete_pods(pods, false).await?;
                }
                units::Op::ForceRelease { uids } => self.release(replica, uids).await?,
            }
        }
        Ok(())
    }

    /// Deletes a role replica as it was seen. Where it has several pods the entry is marked first, on the condition that
    /// it has not changed: whoever begins anew in the middle sees that it goes, and takes no pod that is missing for a
    /// failure.
    async fn delete(self, replica: &Replica) -> Result<(), Error> {
        let (lost, alive): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            replica.pods.iter().partition(|pod| self.is_lost(pod));
        together(lost.into_iter().map(|pod| self.context.release(pod.as_ref())).collect()).await?;
        let alive: Vec<&Arc<Pod>> =
            alive.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        let entry = alive.iter().find(|pod| index(pod) == 0).filter(|_| alive.len() > 1);
        let mut exactly = true;
        if let Some(entry) = entry {
            if !replica.unit.leaving {
                self.take_out(entry, labels::LEAVING, CHOSEN).await?;
            }
            exactly = replica.unit.leaving;
        }
        self.delete_pods(alive.into_iter(), exactly).await
    }

    /// Deletes pods: the entry last, because what is known of its replica, that it leaves, is written on it.
    async fn delete_pods(self, pods: impl Iterator<Item = &Arc<Pod>>, exactly: bool) -> Result<(), Error> {
        let (entry, workers): (Vec<_>, Vec<_>) = pods.partition(|pod| index(pod) == 0);
        for pods in [workers, entry] {
            together(pods.into_iter().map(|pod| self.context.delete(pod.as_ref(), exactly)).collect())
                .await?;
        }
        Ok(())
    }

    fn is_lost(self, pod: &Pod) -> bool {
        let at = nodes::given_up_at(pod, &self.context.index.read());
        at.is_some_and(|at| at <= self.now)
    }

    async fn release(self, replica: &Replica, uids: &[Uid]) -> Result<(), Error> {
        let pods = uids.iter().filter_map(|uid| replica.pod(uid));
        together(pods.map(|pod| self.context.release(pod.as_ref())).collect()).await
    }

    async fn create(self, place: Place<'_>, hash: &planner::roles::RoleHash) -> Result<(), Error> {
        let serving = self.observed.serving.as_ref();
        let made = self.observed.revisions.making(&place.replica.role, hash);
        let Some((template, role)) = made else { return Ok(()) };
        let key = Key::of(serving).beside(place.name(serving));
        let body = render::pod(serving, (template, role, hash), place);
        self.context.create::<Pod>(&key, &serving.uid().unwrap_or_default(), &body).await
    }

    async fn place_together(self, ordinal: u32, group: &Group) -> Result<(), Error> {
        let name = render::group_name(&self.observed.serving, ordinal);
        let live = self.observed.pod_groups.iter().find(|it| it.name_any() == name).map(AsRef::as_ref);
        let (key, body) = gang::pod_group(self.observed, (ordinal, group), live);
        let owner = self.observed.serving.uid().unwrap_or_default();
        self.context.put::<PodGroup>(&key, &owner, body, (live, &gang::MAY_GO)).await
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
        together(unused.map(|it| self.context.delete(it.as_ref(), true)).collect()).await
    }

    /// Before anything is made: a pod that no budget has counted weakens it.
    async fn protect(self, budgets: &[(Key, Value)]) -> Result<(), Error> {
        let owner = self.observed.serving.uid().unwrap_or_default();
        for (key, body) in budgets {
            let live = self.observed.budgets.iter().find(|it| it.name_any() == key.name);
            let live = live.map(AsRef::as_ref);
            self.context.apply::<PodDisruptionBudget>(key, &owner, body.clone(), live).await?;
        }
        Ok(())
    }

    /// Deletes the budgets of what is not there any more, or not to be protected.
    async fn unprotect(self, budgets: &[(Key, Value)]) -> Result<(), Error> {
        let is_wanted = |it: &PodDisruptionBudget| budgets.iter().any(|(key, _)| key.name == it.name_any());
        let unused = self.observed.budgets.iter().filter(|it| !is_wanted(it));
        let unused = unused.filter(|it| it.metadata.deletion_timestamp.is_none());
        together(unused.map(|it| self.context.delete(it.as_ref(), true)).collect()).await
    }

    /// The Service of an entry.
    async fn name(self, group: u32, id: &Id) -> Result<(), Error> {
        let (key, body) = render::headless(&self.observed.serving, group, id);
        let live = self.observed.services.iter().find(|service| service.name_any() == key.name);
        let owner = self.observed.serving.uid().unwrap_or_default();
        self.context.apply::<Service>(&key, &owner, body, live.map(AsRef::as_ref)).await
    }

    /// Keeps the Services of the replicas that are there, and deletes those of what is not any more.
    async fn forget_names(self, decision: &Decision) -> Result<(), Error> {
        let mut kept = Vec::new();
        for (ordinal, group) in &self.observed.groups {
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
        together(unused.map(|service| self.context.delete(service.as_ref(), true)).collect()).await
    }

    /// The first of the two writes that retire something. Times in conditions are whole seconds: the next one, so that
    /// nobody drains for less than was promised.
    async fn take_out(self, entry: &Pod, reason: &str, why: &str) -> Result<(), Error> {
        let since = Time::from_secs(self.now.as_secs() + u64::from(self.now.subsec_nanos() > 0));
        let gate = (false, reason, why);
        self.context.set_pod_condition(entry, labels::IN_SERVICE, gate, timestamp(since)).await
    }

    /// The entry last: it says for the whole replica that all have started.
    async fn record_start(self, replica: &Replica, baselines: &[(Uid, u32)]) -> Result<(), Error> {
        let entry = replica.entry().and_then(|entry| entry.uid());
        let (first, last): (Vec<_>, Vec<_>) =
            baselines.iter().partition(|(uid, _)| entry.as_deref() != Some(uid.0.as_str()));
        for (uid, restarts) in first.into_iter().chain(last) {
            let Some(pod) = replica.pod(uid) else { continue };
            let patch =
                json!({"metadata": {"annotations": {labels::RESTARTS_AT_START: restarts.to_string()}}});
            self.context.change(pod.as_ref(), patch).await?;
        }
        Ok(())
    }

    async fn transition(self, group: u32, id: &Id, reason: &str, state: &str) {
        let group = render::group_name(&self.observed.serving, group);
        let note = format!("Role {}/{id} in ServingGroup {group} is now {state}", id.role);
        self.tell(false, reason, note).await;
    }

    async fn tell(self, warning: bool, reason: &str, note: String) {
        tell::tell(self.context, self.observed, (warning, reason, note)).await;
    }
}

/// Why something is taken out of service that goes.
const CHOSEN: &str = "chosen to go; it finishes its requests";
