//! Which groups may be in the upgrade: the semantics 11, 12 and 19, and fewer groups.

mod roles_kit;

use planner::Code;
use planner::roles::{Group, Recovery, SetPlan, SetSpec, Turn, plan_set};
use roles_kit::{NOW, group, hash, set, short};

/// Groups from ordinal 0, each as its decode and prefill letters.
fn groups(letters: &[(&str, &str)]) -> Vec<Group> {
    let one = |(ordinal, (decode, prefill)): (usize, &(&str, &str))| {
        let ordinal = u32::try_from(ordinal).expect("should be few");
        Group { ordinal, ..group(&[("decode", decode), ("prefill", prefill)]) }
    };
    letters.iter().enumerate().map(one).collect()
}

fn plan(spec: &SetSpec, letters: &[(&str, &str)]) -> SetPlan {
    plan_set(spec, &groups(letters), NOW)
}

/// The groups that the upgrade works in, of those that have something left to do.
fn at_work(plan: &SetPlan) -> Vec<u32> {
    let works = plan.groups.iter().filter(|group| group.turn == Turn::Admitted && !group.plan.done);
    works.map(|group| group.ordinal).collect()
}

fn writes(plan: &SetPlan) -> Vec<String> {
    let of = |group: &planner::roles::GroupPlan| {
        short(&group.plan.ops).into_iter().map(|op| format!("{}: {op}", group.ordinal)).collect::<Vec<_>>()
    };
    plan.groups.iter().flat_map(of).collect()
}

const OLD: (&str, &str) = ("a", "a");
const NEW: (&str, &str) = ("b", "b");

// 11
#[test]
fn the_highest_group_goes_first_and_is_finished_before_the_next() {
    let spec = set(3, 0, 1);
    assert_eq!(writes(&plan(&spec, &[OLD, OLD, OLD])), ["2: out decode-0"]);
    assert_eq!(writes(&plan(&spec, &[OLD, OLD, ("b", "a")])), ["2: out prefill-0"]);
    assert_eq!(writes(&plan(&spec, &[OLD, ("b", "a"), OLD])), ["1: out prefill-0"], "begun comes first");
    assert_eq!(at_work(&plan(&spec, &[OLD, OLD, ("B", "a")])), [2]);
    assert_eq!(writes(&plan(&spec, &[OLD, OLD, NEW])), ["1: out decode-0"]);
    let done = plan(&spec, &[NEW, NEW, NEW]);
    assert!(done.done && writes(&done).is_empty());
}

// 11
#[test]
fn as_many_groups_as_the_budget_has() {
    assert_eq!(at_work(&plan(&set(4, 0, 2), &[OLD, OLD, OLD, OLD])), [2, 3]);
    assert_eq!(at_work(&plan(&set(4, 0, 0), &[OLD, OLD, OLD, OLD])), [3], "0 could never move");
}

// 11, 22
#[test]
fn a_group_of_which_nothing_is_left_waits_its_turn_and_comes_back_as_it_was() {
    for recovery in [Recovery::Role, Recovery::Group] {
        let mut spec = set(2, 0, 1);
        spec.group.recovery = recovery;
        // Group 1 is in the upgrade and does not get ready.
        assert_eq!(at_work(&plan(&spec, &[("-", "-"), ("B", "a")])), [1]);
        assert_eq!(writes(&plan(&spec, &[("-", "-"), ("B", "a")])), ["0: +decode-0@a", "0: +prefill-0@a"]);
        // With nothing else in it, it is as good a first one as any.
        assert_eq!(at_work(&plan(&spec, &[("-", "-"), OLD])), [0]);
    }
}

// 11
#[test]
fn an_outdated_group_that_does_not_run_goes_first() {
    let broken = plan(&set(3, 0, 1), &[("A", "a"), OLD, OLD]);
    assert_eq!((at_work(&broken), writes(&broken)), (vec![0], vec!["0: -decode-0".to_owned()]));
}

// 11
#[test]
fn a_begun_group_is_not_left_for_one_that_breaks_meanwhile() {
    let plan = plan(&set(3, 0, 1), &[OLD, ("B", "a"), ("a", "-")]);
    assert_eq!((at_work(&plan), writes(&plan)), (vec![1], vec!["2: +prefill-0@a".to_owned()]));
}

// 11
#[test]
fn a_begun_group_between_steps_lets_a_broken_one_be_cured_and_takes_nothing_meanwhile() {
    let plan = plan(&set(3, 0, 1), &[OLD, ("A", "a"), ("b", "a")]);
    assert_eq!(writes(&plan), ["1: -decode-0"]);
    let waiting = plan.groups.iter().find(|group| group.ordinal == 2).expect("should be planned");
    assert_eq!((waiting.turn, waiting.plan.reason.code), (Turn::Waiting, Code::WaitingForOtherGroups));
}

// 11
#[test]
fn a_protected_group_that_does_not_run_counts_against_the_budget() {
    let held = plan(&set(3, 1, 1), &[("A", "a"), OLD, OLD]);
    assert_eq!(writes(&held), Vec::<String>::new());
    assert_eq!(held.reason.code, Code::WaitingForGroupBudget);
    assert_eq!(at_work(&plan(&set(3, 1, 2), &[("A", "a"), OLD, OLD])), [2]);
}

// 11
#[test]
fn a_group_whose_new_replicas_fail_holds_the_others() {
    assert_eq!(writes(&plan(&set(3, 0, 1), &[OLD, OLD, ("b", "B")])), Vec::<String>::new());
    assert_eq!(writes(&plan(&set(3, 0, 1), &[OLD, ("A", "a"), ("b", "B")])), Vec::<String>::new());
}

// 12
#[test]
fn groups_below_the_partition_keep_their_revision_also_when_they_are_made_again() {
    let spec = set(3, 2, 1);
    let kept = plan(&spec, &[OLD, OLD, NEW]);
    assert!(kept.done && writes(&kept).is_empty());
    assert_eq!(writes(&plan(&spec, &[("-", "a"), OLD, NEW])), ["0: +decode-0@a"]);
    // By ordinal, not by place in the list; and a group that is gone as a whole returns as it was.
    let sparse: Vec<_> = groups(&[OLD, OLD, OLD]).split_off(1);
    assert_eq!(writes(&plan_set(&set(3, 2, 1), &sparse, NOW)), ["0: +decode-0@a", "0: +prefill-0@a"]);
    assert_eq!(plan(&spec, &[OLD, OLD, OLD]).groups[0].plan.reason.code, Code::BelowPartition);
}

// 12
#[test]
fn a_partition_that_rises_over_a_begun_group_stops_it() {
    assert_eq!(writes(&plan(&set(1, 1, 1), &[("b", "a")])), Vec::<String>::new());
    assert_eq!(writes(&plan(&set(1, 1, 1), &[("-", "a")])), ["0: +decode-0@a"]);
}

// 16
#[test]
fn a_group_whose_turn_has_not_come_returns_lost_replicas_at_their_own_revision() {
    assert_eq!(writes(&plan(&set(2, 0, 1), &[("-", "a"), ("B", "a")])), ["0: +decode-0@a"]);
}

// 19
#[test]
fn a_fresh_group_is_new_at_once_has_no_steps_and_counts_until_it_runs() {
    let fresh = plan(&set(3, 0, 1), &[OLD, OLD]);
    assert_eq!(writes(&fresh), ["2: +decode-0@b", "2: +prefill-0@b"]);
    assert_eq!(fresh.groups[2].plan.step, None);
    assert!(!fresh.groups[2].running);
    let mut starting = groups(&[OLD, OLD, ("b", "-")]);
    starting[2].recorded.clear();
    assert_eq!(writes(&plan_set(&set(3, 0, 1), &starting, NOW)), ["2: +prefill-0@b"]);
    let below = plan(&set(3, 3, 1), &[OLD, OLD]);
    assert_eq!(writes(&below), ["2: +decode-0@a", "2: +prefill-0@a"]);
}

#[test]
fn fewer_groups_part_with_the_broken_the_outdated_the_cheap_then_the_highest() {
    let two = |letters: &[(&str, &str)]| writes(&plan(&set(2, 0, 1), letters)).into_iter().next();
    assert_eq!(two(&[("A", "a"), OLD, NEW]).as_deref(), Some("0: -decode-0"));
    let parts = plan(&set(2, 0, 3), &[NEW, OLD, NEW]);
    assert_eq!(writes(&parts), ["1: out decode-0", "1: out prefill-0"], "not the upgraded one");
    assert_eq!(writes(&plan(&set(1, 0, 1), &[NEW, NEW])), ["1: out decode-0", "1: out prefill-0"]);
    let mut costly = groups(&[NEW, NEW]);
    costly[1].replicas[0].deletion_cost = 9;
    assert_eq!(writes(&plan_set(&set(1, 0, 1), &costly, NOW)), ["0: out decode-0", "0: out prefill-0"]);
    // Above the partition first, and one that is going is the one that goes.
    assert_eq!(writes(&plan(&set(1, 1, 1), &[("A", "a"), NEW])), ["1: out decode-0", "1: out prefill-0"]);
    assert_eq!(writes(&plan(&set(1, 0, 1), &[(".", "~"), NEW])), Vec::<String>::new());
}

#[test]
fn no_groups_is_a_goal_as_well() {
    let none = plan(&set(0, 0, 1), &[]);
    assert!(none.done);
    assert_eq!(writes(&plan(&set(0, 0, 1), &[OLD])), ["0: out decode-0", "0: out prefill-0"]);
}

#[test]
fn the_group_that_something_is_written_to_speaks_for_the_set() {
    // The first drains and the second is taken out.
    let going = plan(&set(0, 0, 1), &[("~", "~"), OLD]);
    assert_eq!(writes(&going), ["1: out decode-0", "1: out prefill-0"]);
    assert!(going.reason.what.starts_with("group 1: "), "{}", going.reason.what);
}

#[test]
fn a_change_of_nothing_does_nothing() {
    let mut spec = set(2, 0, 1);
    for role in &mut spec.group.roles {
        role.target = hash("a");
    }
    let same = plan(&spec, &[OLD, OLD]);
    assert!(same.done && writes(&same).is_empty());
    assert_eq!(same.reason.code, Code::UpToDate);
}
