//! What people are told of a set. The reasons are contract.

use api::leaderworkerset::LeaderWorkerSetStatus;
use planner::{
    agreed,
    sets::{Op, State},
};

use super::{decide::Decision, observe::Observed};
use crate::{
    conditions::{leaderworkerset as types, reasons},
    runtime::Event,
};

/// Groups that are named in one event. Those beyond are counted.
const MOST_NAMED: usize = 8;

/// Groups that were made, replaced and removed.
pub(super) fn of_ops(decision: &Decision, ops: &[&Op]) -> Vec<Event> {
    let (mut made, mut replaced, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        let group = decision.groups.get(&op.ordinal());
        // The second write of a group that leaves was told with the first.
        let is_recorded = group.is_some_and(|group| matches!(group.state, State::Leaving { .. }));
        let is_outdated = group.is_some_and(|group| group.unit.revision != decision.spec.target);
        match op {
            Op::Create { ordinal, .. } => made.push(*ordinal),
            Op::TakeOut { ordinal, .. } | Op::Delete { ordinal, .. } if !is_recorded => {
                let list = if is_outdated && *ordinal < decision.spec.replicas {
                    &mut replaced
                } else {
                    &mut removed
                };
                list.push(*ordinal);
            }
            Op::TakeOut { .. } | Op::Delete { .. } => {}
        }
    }
    let told = [
        ("Create", reasons::GROUPS_PROGRESSING, "created", made),
        ("Update", reasons::GROUPS_UPDATING, "replacing", replaced),
        ("Delete", reasons::GROUPS_PROGRESSING, "removing", removed),
    ];
    let told = told.into_iter().filter(|(.., groups)| !groups.is_empty());
    told.map(|(action, reason, verb, groups)| {
        Event::normal(action, reason, format!("{verb} {}", named(groups)))
    })
    .collect()
}

/// `group 4`, `groups 0, 1, 2 and 5 more`.
fn named(mut groups: Vec<u32>) -> String {
    groups.sort_unstable();
    let names: Vec<String> = groups.iter().take(MOST_NAMED).map(u32::to_string).collect();
    let more = groups.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = agreed(groups.len(), "group", "groups");
    format!("{noun} {}{more}", names.join(", "))
}

/// The first condition that has become true.
pub(super) fn of_conditions(
    observed: &Observed,
    before: &LeaderWorkerSetStatus,
    after: &LeaderWorkerSetStatus,
) -> Option<Event> {
    let is_true = |status: &LeaderWorkerSetStatus, ty: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.type_ == ty && condition.status == "True").cloned()
    };
    let order = [types::UPDATE_IN_PROGRESS, types::PROGRESSING, types::AVAILABLE];
    let mut new = order.iter().filter(|ty| is_true(before, ty.name).is_none());
    let condition = new.find_map(|ty| is_true(after, ty.name))?;
    // In the words of the public operator, which says "1 groups".
    let (ready, all) = (after.ready_replicas, observed.set.spec.replicas);
    let note = format!("{}, with {ready} groups ready of total {all} groups", condition.message);
    Some(Event::normal("Update", condition.reason, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_are_counted_and_few_are_named() {
        assert_eq!(named(vec![4]), "group 4");
        assert_eq!(named(vec![2, 1]), "groups 1, 2");
        assert_eq!(named((0..11).collect()), "groups 0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
    }
}
