//! What people are told of, once for each thing that happens. The reasons are contract.

use api::leaderworkerset::LeaderWorkerSetStatus;
use planner::sets::{Op, State};

use super::observe::Observed;
use crate::runtime::{Context, Error};

/// Groups that are named in one event. Those beyond are counted.
const MOST_NAMED: usize = 8;

/// An event with a longer note is refused.
const LONGEST_NOTE: usize = 1024;

/// Tells of groups that are made, replaced and removed.
pub(super) async fn tell_of_ops(context: &Context, observed: &Observed, ops: &[&Op]) {
    for (what, note) in notes(observed, ops) {
        context.tell_of(observed.set.as_ref(), false, what, note).await;
    }
}

fn notes(observed: &Observed, ops: &[&Op]) -> Vec<((&'static str, &'static str), String)> {
    let (mut made, mut replaced, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        let group = observed.groups.get(&op.ordinal());
        // The second write of a group that leaves was told with the first.
        let is_told = group.is_some_and(|group| matches!(group.state, State::Leaving { .. }));
        let is_outdated = group.is_some_and(|group| group.unit.revision != observed.spec.target);
        match op {
            Op::Create { ordinal, .. } => made.push(*ordinal),
            Op::TakeOut { ordinal, .. } | Op::Delete { ordinal, .. } if !is_told => {
                let list = if is_outdated && *ordinal < observed.spec.replicas {
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
        (("Create", "GroupsProgressing"), "made", made),
        (("Update", "GroupsUpdating"), "replaced", replaced),
        (("Delete", "GroupsProgressing"), "removed", removed),
    ];
    let told = told.into_iter().filter(|(.., groups)| !groups.is_empty());
    told.map(|(what, verb, groups)| (what, format!("{verb}: {}", named(groups)))).collect()
}

/// `group 4`, `groups 0, 1, 2 and 5 more`.
fn named(mut groups: Vec<u32>) -> String {
    groups.sort_unstable();
    let names: Vec<String> = groups.iter().take(MOST_NAMED).map(u32::to_string).collect();
    let more = groups.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if groups.len() == 1 { "group" } else { "groups" };
    format!("{noun} {}{more}", names.join(", "))
}

/// Tells of the first condition that has become true.
pub(super) async fn tell_of_conditions(
    context: &Context,
    observed: &Observed,
    status: &LeaderWorkerSetStatus,
) {
    let before = observed.set.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let was = |ty: &str| before.iter().any(|condition| condition.type_ == ty && condition.status == "True");
    let is_new = |ty: &&str| !was(ty);
    let order = ["UpdateInProgress", "Progressing", "Available"];
    let conditions = order.iter().filter(|ty| is_new(ty)).filter_map(|ty| {
        status.conditions.iter().find(|condition| condition.type_ == *ty && condition.status == "True")
    });
    if let Some(condition) = conditions.into_iter().next() {
        let (ready, all) = (status.ready_replicas, observed.set.spec.replicas);
        let note = format!("{}, with {ready} groups ready of total {all} groups", condition.message);
        context.tell_of(observed.set.as_ref(), false, ("Update", &condition.reason), note).await;
    }
}

/// Tells of a write that was refused; it is tried again.
pub(super) async fn tell_of_refusal(context: &Context, observed: &Observed, error: &Error) {
    if let Error::Refused { verb, .. } = error {
        let what = if *verb == "create" { ("Create", "FailedCreate") } else { ("Update", "FailedUpdate") };
        let mut note = error.to_string();
        note.truncate(note.floor_char_boundary(LONGEST_NOTE));
        context.tell_of(observed.set.as_ref(), true, what, note).await;
    }
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
