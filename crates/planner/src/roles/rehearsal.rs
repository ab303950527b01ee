//! A whole role-ordered upgrade, before it happens.

use std::time::Duration;

use super::{Group, Op, Recorded, Replica, RoleHash, SetSpec, State, plan_set};
use crate::{
    Uid,
    reason::{Reason, Time, patience},
};

/// How things are from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, from the start.
    pub at: Duration,
    /// Role replicas of the old revision: all, and those that serve.
    pub old: (u32, u32),
    /// Role replicas of the new revision: all, and those that serve.
    pub new: (u32, u32),
    /// The group in which something was decided.
    pub group: u32,
    /// The decision, with its reason.
    pub reason: Reason,
}

/// The upgrade of groups that serve now, with `old` as the hashes of the roles before, if a role replica is ready
/// `start` after it is made and has finished `stop` after it was taken out of service. The flag says whether it ends.
pub fn rehearse(
    spec: &SetSpec,
    old: &[(String, RoleHash)],
    start: Duration,
    stop: Duration,
) -> (Vec<Moment>, bool) {
    let mut simulation = Simulation::new(spec, old);
    let mut moments = Vec::new();
    let replicas: u32 = spec.group.roles.iter().map(|role| role.replicas).sum();
    for _ in 0..patience(spec.replicas.saturating_mul(replicas)) {
        let decided = plan_set(spec, &simulation.groups, simulation.now);
        let mut acted = false;
        for group in &decided.groups {
            for op in &group.plan.ops {
                simulation.act(group.ordinal, op, start, stop);
            }
            if !group.plan.ops.is_empty() {
                acted = true;
                moments.push(simulation.moment(spec, group.ordinal, group.plan.reason.clone()));
            }
        }
        if decided.done {
            moments.push(simulation.moment(spec, 0, decided.reason));
            return (moments, true);
        }
        if !acted && !simulation.pass_time() {
            moments.push(simulation.moment(spec, 0, decided.reason));
            return (moments, false);
        }
    }
    (moments, false)
}

struct Simulation {
    now: Time,
    groups: Vec<Group>,
    /// What happens by itself, and when.
    coming: Vec<(Time, Uid)>,
    made: u64,
}

impl Simulation {
    fn new(spec: &SetSpec, old: &[(String, RoleHash)]) -> Self {
        let mut simulation = Self { now: Duration::ZERO, groups: Vec::new(), coming: Vec::new(), made: 0 };
        let roles = spec.group.roles.iter().filter_map(|role| {
            let (_, hash) = old.iter().find(|(name, _)| *name == role.name)?;
            Some(Recorded { role: role.name.clone(), hash: hash.clone(), replicas: role.replicas })
        });
        let recorded: Vec<Recorded> = roles.collect();
        for ordinal in 0..spec.replicas {
            let mut group = Group { ordinal, recorded: recorded.clone(), replicas: Vec::new() };
            for role in &recorded {
                for place in 0..role.replicas {
                    let replica = simulation.replica(&role.role, place, &role.hash, State::Ready);
                    group.replicas.push(replica);
                }
            }
            simulation.groups.push(group);
        }
        simulation
    }

    fn replica(&mut self, role: &str, ordinal: u32, hash: &RoleHash, state: State) -> Replica {
        self.made += 1;
        Replica {
            role: role.to_owned(),
            ordinal,
            uid: Uid(self.made.to_string()),
            hash: hash.clone(),
            state,
            since: self.now,
            failed: false,
            deletion_cost: 0,
            blocking: None,
        }
    }

    fn act(&mut self, ordinal: u32, op: &Op, start: Duration, stop: Duration) {
        let Some(index) = self.groups.iter().position(|group| group.ordinal == ordinal) else { return };
        match op {
            Op::Create { role, ordinal, hash } => {
                let replica = self.replica(role, *ordinal, hash, State::Starting);
                self.coming.push((self.now + start, replica.uid.clone()));
                self.groups[index].replicas.push(replica);
            }
            Op::TakeOut { uid, .. } => {
                self.coming.push((self.now + stop, uid.clone()));
                for replica in self.groups[index].replicas.iter_mut().filter(|replica| replica.uid == *uid) {
                    replica.state = State::Leaving { done: false };
                }
            }
            Op::Delete { uid, .. } => self.groups[index].replicas.retain(|replica| replica.uid != *uid),
        }
    }

    /// On to the next thing that happens by itself; false when nothing does.
    fn pass_time(&mut self) -> bool {
        let Some(time) = self.coming.iter().map(|(time, _)| *time).min() else { return false };
        self.now = time;
        let (due, later): (Vec<_>, Vec<_>) = self.coming.drain(..).partition(|(at, _)| *at <= time);
        self.coming = later;
        for replica in self.groups.iter_mut().flat_map(|group| &mut group.replicas) {
            if due.iter().any(|(_, uid)| *uid == replica.uid) {
                replica.state = match replica.state {
                    State::Starting => State::Ready,
                    State::Leaving { .. } => State::Leaving { done: true },
                    other => other,
                };
            }
        }
        true
    }

    fn moment(&self, spec: &SetSpec, group: u32, reason: Reason) -> Moment {
        let is_new = |replica: &Replica| {
            spec.group.roles.iter().any(|role| role.name == replica.role && role.target == replica.hash)
        };
        let count = |new: bool| {
            let replicas = self.groups.iter().flat_map(|group| &group.replicas);
            let of_side = replicas.filter(|replica| is_new(replica) == new);
            let serving = of_side.clone().filter(|replica| replica.state == State::Ready).count();
            let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            (number(of_side.count()), number(serving))
        };
        Moment { at: self.now, old: count(false), new: count(true), group, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::Amount,
        roles::{GroupSpec, Recovery, RoleSpec, Step},
    };

    #[test]
    fn the_seeds_order_is_rehearsed_and_ends() {
        let role = |name: &str| RoleSpec {
            name: name.to_owned(),
            replicas: 4,
            target: RoleHash("new".to_owned()),
            max_unavailable: 1,
            min_replicas: None,
        };
        let step = |role: &str, update_to: Amount| Step { role: role.to_owned(), update_to };
        let steps = vec![
            step("decode", Amount::Count(1)),
            step("prefill", Amount::Count(1)),
            step("prefill", Amount::Percent(100)),
            step("decode", Amount::Percent(100)),
        ];
        let roles = vec![role("prefill"), role("decode")];
        let group = GroupSpec { roles, steps, recovery: Recovery::Role, deadline: None };
        let spec = SetSpec { group, replicas: 1, partition: 0, max_unavailable: 1, current: Vec::new() };
        let old = ["prefill", "decode"].map(|name| (name.to_owned(), RoleHash("old".to_owned())));
        let (moments, ends) = rehearse(&spec, &old, Duration::from_secs(30), Duration::from_secs(10));
        assert!(ends);
        assert!(moments.iter().all(|m| m.old.1 + m.new.1 >= 6), "at most one of each role is missing");
        let last = moments.last().unwrap();
        assert_eq!((last.old, last.new), ((0, 0), (8, 8)));
    }
}
