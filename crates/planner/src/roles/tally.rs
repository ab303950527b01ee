//! One role of one group, counted.

use crate::roles::{
    observed::{Group, Replica, State},
    spec::{GroupSpec, Recorded, Recovery, RoleHash, RoleSpec},
};

/// A role and its replicas, sorted into what happens to them whatever the step.
pub(super) struct Tally<'a> {
    pub name: &'a str,
    /// How many replicas it shall have.
    pub wanted: u32,
    /// The hash that they shall have. None: the spec no longer has the role.
    pub target: Option<&'a RoleHash>,
    /// The hash that they had. None: the group never had the role.
    pub old: Option<&'a RoleHash>,
    max_unavailable: u32,
    min_replicas: Option<u32>,
    /// Those that stay unless a step replaces them, by ordinal.
    pub stay: Vec<&'a Replica>,
    /// Those that a smaller number of replicas does away with.
    pub surplus: Vec<&'a Replica>,
    /// Those that failed and are made anew.
    pub failed: Vec<&'a Replica>,
    /// Those that are on their way out, by ordinal.
    pub leaving: Vec<&'a Replica>,
}

impl<'a> Tally<'a> {
    /// The roles of the spec in its order, then those that only the group still has.
    pub fn all(spec: &'a GroupSpec, group: &'a Group) -> Vec<Self> {
        let known = |name: &str| spec.roles.iter().any(|role| role.name == name);
        let mut tallies: Vec<_> =
            spec.roles.iter().map(|role| Self::of(&role.name, Some(role), group, spec.recovery)).collect();
        let mut gone: Vec<&str> = group.recorded.iter().map(|recorded| recorded.role.as_str()).collect();
        gone.extend(group.replicas.iter().map(|replica| replica.role.as_str()));
        gone.retain(|name| !known(name));
        gone.sort_unstable();
        gone.dedup();
        tallies.extend(gone.into_iter().map(|name| Self::of(name, None, group, spec.recovery)));
        tallies
    }

    fn of(name: &'a str, role: Option<&'a RoleSpec>, group: &'a Group, recovery: Recovery) -> Self {
        let mut replicas: Vec<_> = group.replicas.iter().filter(|replica| replica.role == name).collect();
        replicas.sort_by_key(|replica| (replica.ordinal, &replica.uid));
        let (stay, leaving): (Vec<_>, Vec<_>) = replicas.into_iter().partition(|replica| replica.stays());
        let anew = |replica: &&Replica| recovery == Recovery::Role && replica.failed && !replica.ready();
        let (failed, stay): (Vec<_>, Vec<_>) = stay.into_iter().partition(anew);
        let recorded = group.recorded.iter().find(|recorded| recorded.role == name);
        let target = role.map(|role| &role.target);
        let mut tally = Self {
            name,
            wanted: role.map_or_else(|| kept(recorded, &stay), |role| role.replicas),
            target,
            old: recorded.map(|recorded| &recorded.hash).or_else(|| oldest(&stay, target)),
            max_unavailable: role.map_or(1, |role| role.max_unavailable.max(1)),
            min_replicas: role.and_then(|role| role.min_replicas),
            stay,
            surplus: Vec::new(),
            failed,
            leaving,
        };
        tally.part_with_surplus();
        tally
    }

    /// Scaling down parts with what serves least: not Ready, then outdated, then the cheapest, then the highest ordinal.
    /// By ordinal alone it would part with the canary.
    fn part_with_surplus(&mut self) {
        let surplus = self.stay.len().saturating_sub(self.wanted as usize);
        let target = self.target;
        let rank = |replica: &Replica| {
            let updated = Some(&replica.hash) == target;
            (replica.ready(), updated, replica.deletion_cost, std::cmp::Reverse(replica.ordinal))
        };
        self.stay.sort_by_key(|replica| rank(replica));
        self.surplus = self.stay.drain(..surplus).collect();
        self.stay.sort_by_key(|replica| replica.ordinal);
    }

    pub fn is_updated(&self, replica: &Replica) -> bool {
        Some(&replica.hash) == self.target
    }

    pub fn updated(&self) -> u32 {
        count(self.stay.iter().filter(|replica| self.is_updated(replica)))
    }

    pub fn updated_and_ready(&self) -> u32 {
        count(self.stay.iter().filter(|replica| self.is_updated(replica) && replica.ready()))
    }

    pub fn ready(&self) -> u32 {
        count(self.stay.iter().filter(|replica| replica.ready()))
    }

    /// Whether the upgrade changes this role: another hash than the group recorded, or none recorded.
    pub fn changes(&self) -> bool {
        self.target.is_some() && self.old != self.target
    }

    /// Whether it still has replicas in service that the upgrade must replace.
    pub fn outdated(&self) -> bool {
        self.target.is_some() && self.stay.iter().any(|replica| !self.is_updated(replica))
    }

    /// Slots without a replica that stays: missing, or still occupied by one on its way out.
    pub fn vacant(&self) -> u32 {
        self.wanted.saturating_sub(count(self.stay.iter()))
    }

    /// The ordinals to create now. One on its way out occupies its slot until it is gone.
    pub fn missing(&self) -> Vec<u32> {
        let there = || self.stay.iter().chain(&self.surplus).chain(&self.failed).chain(&self.leaving);
        let missing = (self.wanted as usize).saturating_sub(there().count());
        let free = |ordinal: &u32| !there().any(|replica| replica.ordinal == *ordinal);
        (0..u32::MAX).filter(free).take(missing).collect()
    }

    /// How many vacant slots become updated replicas where `allowed` may be.
    pub fn assigned(&self, allowed: u32) -> u32 {
        allowed.saturating_sub(self.updated()).min(self.vacant())
    }

    /// The fewest Ready replicas that a replacement may leave. The gang minimum cannot be kept where the role has no
    /// more than that: the upgrade would never move.
    pub fn floor(&self) -> u32 {
        let gang = self.min_replicas.filter(|min| self.wanted > *min).unwrap_or(0);
        self.wanted.saturating_sub(self.max_unavailable).max(gang)
    }

    /// Whether the gang minimum, rather than the budget, is what keeps a replica in service.
    pub fn held_by_gang(&self) -> bool {
        self.floor() > self.wanted.saturating_sub(self.max_unavailable)
    }

    /// What is to be replaced, in order: what is not Ready costs nothing, then the highest ordinal.
    pub fn outdated_in_order(&self) -> Vec<&'a Replica> {
        let mut outdated: Vec<_> =
            self.stay.iter().copied().filter(|replica| !self.is_updated(replica)).collect();
        outdated.sort_by_key(|replica| (replica.ready(), std::cmp::Reverse(replica.ordinal)));
        outdated
    }

    /// Whether every replica that it shall have is there and Ready, whatever its revision. A role that the group does
    /// not have yet is not missed.
    pub fn runs(&self) -> bool {
        self.ready() >= self.wanted || (self.old.is_none() && self.stay.is_empty() && self.leaving.is_empty())
    }

    /// Whether nothing is going on beside its steps.
    pub fn settled(&self) -> bool {
        let going = self.surplus.len() + self.failed.len() + self.leaving.len();
        going == 0 && (self.target.is_some() || self.stay.is_empty())
    }

    /// One on its way out that has drained.
    pub fn drained(&self) -> impl Iterator<Item = &'a Replica> {
        self.leaving.iter().copied().filter(|replica| replica.state == State::Leaving { done: true })
    }
}

/// A role that the spec dropped keeps what it had until the group's steps are over.
fn kept(recorded: Option<&Recorded>, stay: &[&Replica]) -> u32 {
    recorded.map_or_else(|| count(stay.iter()), |recorded| recorded.replicas)
}

/// Where nothing is recorded: upgrades begin at the highest ordinal, so the lowest outdated one is the oldest.
fn oldest<'a>(stay: &[&'a Replica], target: Option<&RoleHash>) -> Option<&'a RoleHash> {
    stay.iter().map(|replica| &replica.hash).find(|hash| Some(*hash) != target)
}

pub(super) fn count(items: impl Iterator) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}
