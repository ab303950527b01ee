//! What is done next for a set, by the planner.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use planner::{
    Reason, Time, Uid,
    sets::{self, Op, SetSpec, State},
    units::{self, Revision, StartupPolicy, Unit, UnitSpec},
};

use super::{
    observe::{Members, Observed, index},
    wanted,
};
use crate::{
    labels,
    revisions::UNKNOWN,
    units::{self as unit, condition, deletion_cost},
};

/// How long a leader may take to be ready before the workers that wait for it are worth a word. Large models load for
/// minutes.
pub(super) const LEADER_PATIENCE: Duration = Duration::from_mins(10);

/// What is done next, for the set and for each group that the set leaves alone.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(super) spec: SetSpec,
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) set: sets::Plan,
    pub(super) units: BTreeMap<u32, (Vec<units::Op>, Reason)>,
    /// Groups of which nothing but a record is left, and that are not wanted any more.
    pub(super) forgotten: BTreeSet<u32>,
}

/// A group in the planner's words.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) spec: UnitSpec,
    pub(super) unit: Unit,
    /// What the set sees of it.
    pub(super) state: State,
    /// When its workers have waited long for their leader to be ready.
    pub(super) stuck_at: Option<Time>,
}

pub(super) fn decide(observed: &Observed, now: Time) -> Decision {
    let groups: BTreeMap<u32, Group> =
        observed.groups.iter().map(|(place, members)| (*place, group(observed, members, now))).collect();
    let spec = spec(observed);
    let set = sets::plan(&spec, &set_units(observed, &groups), now);
    let chosen: BTreeSet<u32> = set.ops.iter().map(Op::ordinal).collect();
    let left_alone = groups.iter().filter(|(place, _)| !chosen.contains(place));
    let units =
        left_alone.map(|(place, group)| (*place, units::plan(&group.spec, &group.unit, now))).collect();
    let deleted = set.ops.iter().filter(|op| matches!(op, Op::Delete { .. })).map(Op::ordinal);
    let empty = |place: &u32| observed.groups.get(place).is_some_and(|group| group.pods.is_empty());
    let forgotten = deleted.filter(empty).collect();
    Decision { spec, groups, set, units, forgotten }
}

/// What the set is asked for, and what it comes from.
fn spec(Observed { set, revisions, .. }: &Observed) -> SetSpec {
    let target = revisions.target();
    let current = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
    let current = current.map(|key| revisions.find(key)).filter(|revision| *revision != UNKNOWN);
    wanted::set_spec(set, target, current.unwrap_or(target))
}

/// The groups as the planner of sets sees them.
fn set_units(observed: &Observed, groups: &BTreeMap<u32, Group>) -> Vec<sets::Unit> {
    let seen = |(ordinal, group): (&u32, &Group)| {
        let members = observed.groups.get(ordinal)?;
        let leader = members.leader().or_else(|| members.pods.first());
        let uid = leader.and_then(|leader| leader.pod.uid());
        Some(sets::Unit {
            ordinal: *ordinal,
            // What tells this group from a later one at the same place.
            uid: Uid(uid.unwrap_or_else(|| format!("incarnation-{}", group.unit.history.incarnation))),
            revision: group.unit.revision,
            state: group.state,
            deletion_cost: members.leader().map_or(0, |leader| deletion_cost(&leader.pod)),
        })
    };
    groups.iter().filter_map(seen).collect()
}

fn group(observed: &Observed, members: &Members, now: Time) -> Group {
    let Observed { set, revisions, protections, .. } = observed;
    let key_of = |pod: &k8s_openapi::api::core::v1::Pod| pod.labels().get(labels::REVISION).cloned();
    let key = match members.pods.first() {
        Some(first) => key_of(&first.pod),
        None => members.record.as_ref().map(|record| record.revision.clone()),
    };
    let revision = revisions.find(&key.unwrap_or_default());
    let pods = members.pods.iter().map(|member| {
        let revision = revisions.find(&key_of(&member.pod).unwrap_or_default());
        member.read(index(&member.pod).unwrap_or_default(), revision, now)
    });
    let leader = members.leader();
    let unit = unit::unit(revision, pods.collect(), (leader, &members.pods), false, members.remembered);
    let template = revisions.get(revision).unwrap_or_else(|| revisions.newest());
    let spec = wanted::unit_spec(set, &template.pods, *protections);
    let state = unit::state(&spec, &unit, leader, now);
    let stuck_at = stuck_at(&spec, members);
    Group { spec, unit, state, stuck_at }
}

/// When workers have waited long for a leader that runs and is not ready. A leader that is held back, by a queue or for
/// want of a node, does not run.
fn stuck_at(spec: &UnitSpec, members: &Members) -> Option<Time> {
    let waits = spec.startup == StartupPolicy::LeaderReady && spec.size > 1 && members.pods.len() == 1;
    let leader = members.leader().filter(|_| waits)?;
    let runs = leader.pod.status.as_ref()?.phase.as_deref() == Some("Running");
    let is_false = condition(&leader.pod, "ContainersReady").is_some_and(|it| it.status == "False");
    leader.unready_since.filter(|_| runs && is_false).map(|since| since + LEADER_PATIENCE)
}

impl Decision {
    pub(super) fn is_forgotten(&self, place: u32) -> bool {
        self.forgotten.contains(&place)
    }

    pub(super) fn revision(&self, place: u32) -> Revision {
        self.groups.get(&place).map_or(UNKNOWN, |group| group.unit.revision)
    }
}
